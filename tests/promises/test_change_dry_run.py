"""`check_threads` reports for every stored thread what a run would do with it, and touches none of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.promises.changing import (
    CRASH,
    SITUATIONS,
    Case,
    Situation,
    Ticket,
    Version,
    first,
    pending,
    rename_everything,
    second,
    will_crash,
)
from tests.promises.stages import Does, edited, rewrite_head
from tests.promises.test_change_once_and_in_order import A, B, look, looking, seen

from perdure import IncompatibleWorkflow, NoStorage, WorkflowBuilder
from perdure.checkpoints.any_storage import post_message
from perdure.checkpoints.migration.stored_form import StoredForm
from perdure.checkpoints.storage import StoreCheckpointStorage


async def all_that_is_stored(storage: Any) -> Any:
    """Every commit, and all that stands beside them."""
    if not isinstance(storage, StoreCheckpointStorage):
        return [checkpoint.to_dict() for checkpoint in storage.kept.values()]
    infos = await storage.list_threads()
    return [
        (await storage.store.thread_header(info.thread_id), await storage.store.commits(info.thread_id))
        for info in infos
    ]


@pytest.mark.parametrize("situation", SITUATIONS.values(), ids=list(SITUATIONS))
async def test_a_thread_that_migrates_is_reported_and_left_alone(any_storage: Any, situation: Situation) -> None:
    old = first()
    await situation.begin(old, situation.build(old, any_storage))
    before = await all_that_is_stored(any_storage)
    [same] = await situation.build(old, any_storage).check_threads()
    [fit] = await situation.build(second(old), any_storage).check_threads()
    [refused] = await situation.build(Version(Case, "new-", old.stage, old.clock), any_storage).check_threads()

    assert (same.outcome, same.migrations, same.differences, same.error, same.fits) == ("same", (), (), None, True)
    assert (fit.thread_id, fit.outcome, fit.migrations, fit.error) == ("t", "migrates", ("rename_everything",), None)
    assert fit.checkpoint_id == (await any_storage.get_latest(workflow_name="work")).checkpoint_id
    assert refused.outcome == "refused" and not refused.fits and refused.error
    assert await all_that_is_stored(any_storage) == before


async def test_check_threads_reports_every_outcome_in_one_list(any_storage: Any) -> None:
    await seen(any_storage, thread_id="old")
    await seen(any_storage, A, thread_id="half")
    await seen(any_storage, A, B, thread_id="new")
    await seen(any_storage, B, thread_id="odd")
    start = Does("look", look)
    grown = WorkflowBuilder(name="look", start_executor=start, checkpoint_storage=any_storage, migrations=[A, B])
    progress_calls: list[tuple[int, int, str]] = []
    fits = (
        await grown.add_edge(start, Does("more", look))
        .build()
        .check_threads(progress=lambda done, total, thread_id: progress_calls.append((done, total, thread_id)))
    )

    fits_by_id = {fit.thread_id: fit for fit in fits}
    assert {key: (fit.outcome, fit.migrations) for key, fit in fits_by_id.items()} == {
        "old": ("migrates", ("a", "b")),
        "half": ("migrates", ("b",)),
        "new": ("additions", ()),
        "odd": ("refused", ()),
    }
    additions = ("executor 'more' is new", "edge 'Single: look->more' is new")
    assert fits_by_id["new"].differences == fits_by_id["old"].differences == additions
    assert fits_by_id["odd"].differences == (
        "migration 'a' stands before 'b', which was applied already: add it at the end",
    )
    assert [fit.thread_id for fit in fits.refused] == ["odd"]
    assert sorted(progress_calls) == [
        (done, 4, thread_id) for done, thread_id in enumerate(["old", "half", "new", "odd"], 1)
    ]
    shown = str(fits).splitlines()
    assert shown[0] == "migrates   old  applies a; applies b; executor 'more' is new; edge 'Single: look->more' is new"
    assert shown[-1] == "4 threads: 2 migrates, 1 additions, 1 refused"
    with pytest.raises(IncompatibleWorkflow):
        await seen(any_storage, A, B, thread_id="odd")


async def test_missing_types_are_refused_and_unreadable_heads_are_damaged(
    storage: StoreCheckpointStorage,
) -> None:
    old = first()
    await pending(old, storage).run(Ticket("x"), thread_id="gone")
    await pending(old, storage).run(Ticket("x"), thread_id="damaged")
    await rewrite_head(storage, "damaged", edited(lambda tree: tree.update(counters="none")))
    fits = await pending(Version(Case, "", old.stage, old.clock), storage).check_threads()

    fits_by_id = {fit.thread_id: fit for fit in fits}
    assert fits_by_id["gone"].outcome == "refused"
    assert "'shop:Ticket' was not declared" in str(fits_by_id["gone"].error)
    assert fits_by_id["damaged"].outcome == "damaged"
    assert "damaged" in str(fits_by_id["damaged"].error)


async def test_check_threads_reads_journal_and_inbox(storage: StoreCheckpointStorage) -> None:
    old = first()
    will_crash(old, storage)
    await CRASH.begin(old, CRASH.build(old, storage))
    new = second(old)

    def spoil(stored: StoredForm) -> None:
        rename_everything(stored)
        for case in stored.values(Case):
            if case["text"] == "x-source-sure":  # stands only in the journal
                case["$type"] = "shop:Nothing"

    [fit] = await CRASH.build(second(old, spoil), storage).check_threads()
    assert fit.outcome == "refused"
    assert "journal" in str(fit.error)
    await post_message(storage, "t", "item", "y", CRASH.build(new, storage)._compiled.declared, "later")
    [fit] = await CRASH.build(new, storage).check_threads()
    assert fit.differences == ("its inbox was written after migration 'later', which is not among the workflow's",)


async def test_check_threads_includes_running_threads(storage: StoreCheckpointStorage) -> None:
    old = first()
    old.stage.close("asks")
    run = asyncio.ensure_future(pending(old, storage).run(Ticket("x"), thread_id="t"))
    await old.stage.entered["asks"].wait()
    [fit] = await pending(second(old), storage).check_threads()
    assert fit.outcome == "migrates"
    old.stage.gates["asks"].set()
    assert (await run).get_request_info_events()


async def test_check_threads_skips_threads_of_other_workflows(any_storage: Any) -> None:
    await seen(any_storage)
    await pending(first(), any_storage).run(Ticket("x"), thread_id="other")
    assert [fit.thread_id for fit in await looking(any_storage).check_threads()] == ["t"]


async def test_an_empty_storage_gives_an_empty_list(any_storage: Any) -> None:
    assert str(await looking(any_storage).check_threads()) == "0 threads"


async def test_check_threads_without_a_storage_raises_no_storage() -> None:
    with pytest.raises(NoStorage, match="Checking stored threads"):
        await looking(None).check_threads()
