"""Looking at a thread's past: lists and trees without payload, and any two checkpoints compared."""

from __future__ import annotations

from typing import Any

import pytest
from tests.promises.stages import Stage, fan, ledger
from tests.six_methods import SixMethods

from perdure import (
    CheckpointNotFound,
    InMemoryCheckpointStorage,
    InvalidRun,
    NoStorage,
    Opaque,
    ThreadNotFound,
    Workflow,
    WorkflowCheckpoint,
)
from perdure.checkpoints.storage import StoreCheckpointStorage


async def written(storage: Any, *messages: str, thread_id: str = "t") -> Workflow:
    workflow = ledger(Stage(), storage)
    for message in messages or "abc":
        await workflow.run(message, thread_id=thread_id)
    return workflow


# ---------------------------------------------------------------- lists


async def test_a_history_is_listed_newest_first(any_storage: Any) -> None:
    workflow = await written(any_storage)
    history = await workflow.history("t")
    assert [info.number for info in history] == sorted((info.number for info in history), reverse=True)
    assert [info.status for info in history] == ["IDLE", "IN_PROGRESS"] * 3
    assert {info.thread_id for info in history} == {"t"}


async def test_a_history_is_read_page_by_page(any_storage: Any) -> None:
    workflow = await written(any_storage)
    whole = await workflow.history("t")
    pages, before = [], None
    while page := await workflow.history("t", limit=4, before=before):
        pages.append(len(page))
        assert page == whole[sum(pages) - len(page) :][: len(page)]
        before = page[-1]
    assert pages == [4, 2]
    assert await workflow.history("t", limit=0) == []
    assert await workflow.history("t", before=whole[2].checkpoint_id) == whole[3:]


async def test_history_defaults_to_the_thread_of_the_object(any_storage: Any) -> None:
    workflow = ledger(Stage(), any_storage)
    result = await workflow.run("a")
    assert (await workflow.history())[0].checkpoint_id == result.checkpoint_id
    assert (await workflow.branches()).thread_id == result.thread_id
    assert (await workflow.checkpoint()).thread_id == result.thread_id


async def test_lists_and_trees_read_no_payload(
    storage: StoreCheckpointStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow = await written(storage)
    await workflow.rewind("t", (await workflow.history("t"))[2])

    async def read(*_: object, **__: object) -> None:
        raise AssertionError("a payload was read")

    for method in ("read_chunks", "find_checkpoint", "head", "commits", "events_after"):
        monkeypatch.setattr(storage.store, method, read)
    for place in (workflow, storage):
        assert len(await place.history("t")) == 7
        assert len(await place.branches("t")) == 2


# ---------------------------------------------------------------- trees


async def test_branches_show_every_rewind_and_where_a_fork_came_from(any_storage: Any) -> None:
    workflow = await written(any_storage, "a", "b")
    first = await workflow.history("t")
    await workflow.rewind("t", first[2])
    await workflow.run("c", thread_id="t")
    await workflow.rewind("t", first[0])
    fork = await workflow.fork(first[2], thread_id="f")
    branches = await workflow.branches("t")
    assert [[info.number for info in branch.checkpoints] for branch in branches] == [[1, 2, 3, 4, 8], [5, 6, 7]]
    assert branches.common(branches.branches[1].newest, branches.head) == first[2]
    assert str(branches).count("*") == 8 and "(head)" in str(branches).splitlines()[0]
    assert (await workflow.branches("f")).main.forked_from == first[2].checkpoint_id
    assert (await workflow.branches("f")).head == fork


async def test_tree_of_a_pruned_thread_links_the_remaining_checkpoints(storage: StoreCheckpointStorage) -> None:
    workflow = await written(storage)
    history = (await workflow.history("t"))[::-1]
    for gone in (history[0], history[3], history[4]):
        assert await storage.delete(gone)
    branches = await storage.branches("t")
    assert [info.checkpoint_id for info in branches.main.checkpoints] == [history[at].checkpoint_id for at in (1, 2, 5)]
    assert len(branches) == 1 and branches.main.forked_from is None


# ---------------------------------------------------------------- compared


async def test_checkpoints_of_branches_and_threads_are_compared(any_storage: Any) -> None:
    workflow = await written(any_storage, "a", "b")
    kept = (await workflow.history("t"))[0]
    await workflow.rewind("t", (await workflow.history("t"))[2])
    await workflow.run("c", thread_id="t")
    await workflow.run("a", thread_id="other")
    heads = {thread_id: (await workflow.history(thread_id))[0] for thread_id in ("t", "other")}
    between_branches = await workflow.diff(kept, heads["t"])
    assert str(between_branches).splitlines() == [
        "~ state['entries'][1]: 'b' -> 'c'",
        "~ outputs[0].data[1]: 'b' -> 'c'",
    ]
    between_threads = await workflow.diff(heads["other"].checkpoint_id, heads["t"].checkpoint_id)
    assert [change.path for change in between_threads.added] == ["state['entries'][1]", "outputs[0].data[1]"]
    assert (between_threads.before, between_threads.after) == (heads["other"].checkpoint_id, heads["t"].checkpoint_id)
    assert (await workflow.diff(kept, kept)).is_empty


async def test_diff_of_a_superstep_shows_what_it_did(storage: StoreCheckpointStorage) -> None:
    workflow = fan(Stage(), storage)
    await workflow.run("x", thread_id="t")
    history = (await workflow.history("t"))[::-1]
    shown = str(await storage.diff(history[0], history[1]))
    assert "- messages['internal:source']" in shown and "+ messages['source']" in shown
    last = str(await storage.diff(history[-2], history[-1]))
    assert "+ outputs[0] = " in last and "~ status: 'IN_PROGRESS' -> 'IDLE'" in last


async def test_undeclared_types_are_compared(storage: StoreCheckpointStorage) -> None:
    for number, author in enumerate(("ann", "bob")):
        notes = [Opaque("gone:Note", {"author": author})]
        await storage.save(WorkflowCheckpoint("w", "h", checkpoint_id=f"c{number}", thread_id="t", state={"n": notes}))
    assert str(await storage.diff("c0", "c1")) == "~ state['n'][0].author: 'ann' -> 'bob'"


# ---------------------------------------------------------------- refused


async def test_an_unknown_thread_has_no_history(any_storage: Any) -> None:
    workflow = await written(any_storage)
    calls: list[Any] = [workflow.history, workflow.branches, workflow.checkpoint]
    if isinstance(any_storage, StoreCheckpointStorage):
        calls += [any_storage.history, any_storage.branches, any_storage.checkpoint]
    for call in calls:
        with pytest.raises(ThreadNotFound, match="No thread 'nobody'"):
            await call("nobody")
        with pytest.raises(InvalidRun, match="thread_id must be a non-empty string"):
            await call("")
    if isinstance(any_storage, StoreCheckpointStorage):
        assert [thread.thread_id for thread in await any_storage.list_threads()] == ["t"]


async def test_an_unknown_checkpoint_is_refused(any_storage: Any) -> None:
    workflow = await written(any_storage)
    known = (await workflow.history("t"))[0]
    with pytest.raises(CheckpointNotFound, match="ID nowhere "):
        await workflow.history("t", before="nowhere")
    for pair in ((known, "nowhere"), ("nowhere", known)):
        with pytest.raises(CheckpointNotFound, match="ID nowhere "):
            await workflow.diff(*pair)
    with pytest.raises(ValueError, match="limit expects a number of items"):
        await workflow.history("t", limit=-1)


async def test_workflow_without_a_storage_names_what_is_missing() -> None:
    workflow = ledger(Stage())
    await workflow.run("a", thread_id="t")
    for call in (
        workflow.history("t"),
        workflow.branches("t"),
        workflow.diff("a", "b"),
        workflow.fork("a"),
        workflow.rewind("t", "a"),
        workflow.checkpoint("t"),
        workflow.pin("a"),
        workflow.unpin("a"),
    ):
        with pytest.raises(NoStorage, match="needs a checkpoint storage, and this workflow has none"):
            await call
    with pytest.raises(InvalidRun, match="is not a checkpoint storage"):
        await workflow.history("t", checkpoint_storage=object())


async def test_a_workflow_that_never_ran_has_no_thread_of_its_own(any_storage: Any) -> None:
    workflow = ledger(Stage(), any_storage)
    for call in (workflow.history(), workflow.branches(), workflow.checkpoint()):
        with pytest.raises(InvalidRun, match=r"has not run yet: name a thread, \w+\(thread_id\)"):
            await call


async def test_another_storage_can_be_named(any_storage: Any) -> None:
    workflow = ledger(Stage(), InMemoryCheckpointStorage())
    await (await written(any_storage)).run("d", thread_id="t")
    with pytest.raises(ThreadNotFound):
        await workflow.history("t")
    history = await workflow.history("t", checkpoint_storage=any_storage)
    assert len(history) == 8
    made = await workflow.rewind("t", history[-2], checkpoint_storage=any_storage)
    assert (await workflow.diff(made, history[-2], checkpoint_storage=any_storage)).is_empty
    fork = await workflow.fork(made, checkpoint_storage=any_storage)
    again = await workflow.checkpoint(fork.thread_id, checkpoint_storage=any_storage)
    assert len(await workflow.branches("t", checkpoint_storage=any_storage)) == 2
    assert again.number == 2


async def test_storage_that_returns_a_wrong_type_is_named() -> None:
    class Wrong(SixMethods):
        async def list_checkpoints(self, *, workflow_name: str) -> Any:
            return ["no checkpoint"]

    with pytest.raises(
        Exception, match="Wrong failed to list_checkpoints: it returned str, expected a WorkflowCheckpoint"
    ):
        await ledger(Stage(), Wrong()).history("t")
