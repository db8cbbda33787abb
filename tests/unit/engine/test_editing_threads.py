"""Edits: the next commit changes the head of a thread, and the next run starts from it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Never

import msgspec
import pytest
from tests.promises.stages import edited, rewrite_head
from tests.six_methods import SixMethods
from tests.turns import awaiting_storage
from tests.unit.engine.flows import Gate, Tally, Verdict, alone, asking, function, gated, relay, tallying
from tests.unit.engine.test_ownership import start

from perdure import (
    DamagedCheckpoint,
    InMemoryCheckpointStorage,
    InvalidRun,
    NoPendingRequests,
    NoStorage,
    ThreadBusy,
    ThreadNotFound,
    UnsavableValue,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowContext,
    WrongStateType,
)
from perdure.checkpoints.any_storage import post_message
from perdure.checkpoints.storage import StoreCheckpointStorage

STORAGES = pytest.mark.parametrize(
    "make_storage", [InMemoryCheckpointStorage, awaiting_storage, SixMethods], ids=["memory", "awaiting", "six methods"]
)


def noting(storage: Any) -> Workflow:
    """Keeps what it is sent in the state, and yields all of it."""

    async def note(text: str, ctx: WorkflowContext[Never, Any]) -> None:
        ctx.set_state("notes", [*ctx.get_state("notes", []), text])
        ctx.set_state("last", text)
        await ctx.yield_output((ctx.get_state("notes"), ctx.get_state("last")))

    return alone(note, checkpoint_storage=storage)


async def head_of(workflow: Workflow, thread_id: str = "t") -> WorkflowCheckpoint:
    head = await workflow.head(thread_id)
    assert head is not None
    return head


async def standing(workflow: Workflow) -> Any:
    return await workflow.history("t"), await head_of(workflow)


# ---------------------------------------------------------------- update_state


@STORAGES
@pytest.mark.parametrize("is_same_object", [True, False])
async def test_the_next_run_sees_the_edited_state(make_storage: Callable[[], Any], is_same_object: bool) -> None:
    storage = make_storage()
    workflow = noting(storage)
    await workflow.run("tea", thread_id="t")
    before = (await workflow.history("t"))[0]
    made = await workflow.update_state("t", {"notes": ["milk"]}, remove_state=["last"])
    assert (made.number, made.previous_checkpoint_id) == (before.number + 1, before.checkpoint_id)
    assert made.status == "IDLE" and (await workflow.history("t"))[0] == made
    assert (await head_of(workflow)).state == {"notes": ["milk"]}
    again = workflow if is_same_object else noting(storage)
    assert (await again.run("honey", thread_id="t")).get_outputs() == [(["milk", "honey"], "honey")]


async def test_later_changes_to_the_callers_values_do_not_change_the_thread() -> None:
    workflow = noting(InMemoryCheckpointStorage())
    await workflow.run("tea", thread_id="t")
    mine = ["milk"]
    await workflow.update_state("t", {"notes": mine})
    mine.append("poison")
    assert (await workflow.run("honey", thread_id="t")).get_outputs() == [(["milk", "honey"], "honey")]


@STORAGES
async def test_a_request_that_waits_is_answered_after_an_edit(make_storage: Callable[[], Any]) -> None:
    storage = make_storage()
    workflow = asking(checkpoint_storage=storage)
    await workflow.run("ready", thread_id="t")
    made = await workflow.update_state("t", {"hint": 1})
    assert made.status == "IDLE_WITH_PENDING_REQUESTS"
    assert list((await head_of(workflow)).pending_request_info_events) == ["ready"]
    if isinstance(storage, StoreCheckpointStorage):
        assert [request.request_id for request in await storage.pending_requests()] == ["ready"]
    result = await workflow.run(responses={"ready": Verdict(is_good=True)}, thread_id="t")
    assert result.get_outputs() == ["ready: True []"]


def sided(seen: list[str], weather: list[bool], storage: Any) -> Workflow:
    """`start` sends to `done`, which notes a step, and to `fails`, which fails while the weather is bad."""

    async def done(message: Any, ctx: WorkflowContext[Never, Any]) -> None:
        seen.append("done")
        await ctx.yield_output(f"done {ctx.get_state('word', '?')}")

    async def fails(message: Any, ctx: WorkflowContext[Never, Any]) -> None:
        await ctx.step(lambda: seen.append("step"), name="once")
        if weather[-1]:
            raise ConnectionError("the bridge is closed")
        await ctx.yield_output(f"through {ctx.get_state('word', '?')}")

    begin = relay("start")
    first, second = function("done", done, accepts=object), function("fails", fails, accepts=object)
    builder = WorkflowBuilder(name="sided", start_executor=begin, checkpoint_storage=storage)
    return builder.add_edge(begin, first).add_edge(begin, second).build()


@pytest.mark.parametrize("is_same_object", [True, False])
async def test_edit_keeps_the_records_made_since_the_head(is_same_object: bool) -> None:
    seen: list[str] = []
    weather, storage = [True], awaiting_storage()
    workflow = sided(seen, weather, storage)
    with pytest.raises(ConnectionError):
        await workflow.run("x", thread_id="t")
    assert sorted(seen) == ["done", "step"]
    made = await workflow.update_state("t", {"word": "edited"})
    assert made.status == "FAILED", "its last run failed, and nothing ran since"
    weather.append(False)
    again = workflow if is_same_object else sided(seen, weather, storage)
    result = await again.run(thread_id="t")
    assert sorted(result.get_outputs()) == ["done ?", "through edited"]
    assert sorted(seen) == ["done", "step"], "neither is run again"


@STORAGES
@pytest.mark.parametrize(
    ("edit", "error"),
    [
        (lambda workflow: workflow.update_state("t", {"notes": "no list"}), WrongStateType),
        (lambda workflow: workflow.update_state("t", remove_state=["nots"]), InvalidRun),
        (lambda workflow: workflow.update_state("t", {"notes": [object()]}), UnsavableValue),
        (lambda workflow: workflow.update_state("t", {"lock": lambda: None}), UnsavableValue),
        (lambda workflow: workflow.edit("t", _breaks), ZeroDivisionError),
        (lambda workflow: workflow.describe("t", {"name": {1}}), InvalidRun),
        (lambda workflow: workflow.describe("t", {"deep": [{"x": {None: 1}}]}), InvalidRun),
        (lambda workflow: workflow.describe("t", {"size": float("nan")}), InvalidRun),
        (lambda workflow: workflow.describe("t", "name"), InvalidRun),
        (lambda workflow: workflow.clear("t", on_busy="wait"), InvalidRun),
    ],
)
async def test_rejected_edit_writes_nothing_and_leaves_the_thread_free(
    make_storage: Callable[[], Any], edit: Callable[[Workflow], Any], error: type[Exception]
) -> None:
    workflow = noting(make_storage())
    await workflow.run("tea", thread_id="t")
    before = await standing(workflow)
    with pytest.raises(error):
        await edit(workflow)
    assert await standing(workflow) == before
    assert (await workflow.run("milk", thread_id="t")).get_outputs() == [(["tea", "milk"], "milk")]


def _breaks(head: WorkflowCheckpoint) -> WorkflowCheckpoint:
    head.state["notes"].append("in place")
    raise ZeroDivisionError


@pytest.mark.parametrize("is_same_object", [True, False])
async def test_edit_of_a_running_thread_is_rejected_or_waits_when_enqueued(
    is_same_object: bool,
) -> None:
    gate, storage = Gate(), InMemoryCheckpointStorage()
    workflow = gated(gate, checkpoint_storage=storage)
    running = start(workflow, "x")
    await gate.arrived.wait()
    editor = workflow if is_same_object else gated(gate, checkpoint_storage=storage)
    before = await standing(workflow)
    for refused in (editor.update_state("t", {"a": 1}), editor.clear("t"), editor.describe("t", {"name": "n"})):
        with pytest.raises(ThreadBusy):
            await refused
    assert await standing(workflow) == before
    waiting = asyncio.ensure_future(editor.update_state("t", {"a": 1}, on_busy="enqueue"))
    gate.opened.set()
    assert (await running).get_outputs() == ["x"]
    await waiting
    assert (await head_of(workflow)).state == {"a": 1}


@STORAGES
async def test_edit_of_an_unknown_thread_is_rejected_and_makes_no_thread(make_storage: Callable[[], Any]) -> None:
    workflow = noting(make_storage())
    for refused in (workflow.update_state("t", {"a": 1}), workflow.clear("t"), workflow.describe("t", {"name": "n"})):
        with pytest.raises(ThreadNotFound):
            await refused
    assert await workflow.head("t") is None
    with pytest.raises(NoStorage):
        await noting(None).update_state("t", {"a": 1})


async def test_a_thread_that_was_moved_without_the_storage_is_saved_and_edited() -> None:
    workflow = noting(None)
    await workflow.run("tea", thread_id="t")
    storage = InMemoryCheckpointStorage()
    await workflow.update_state("t", {"last": "edited"}, checkpoint_storage=storage)
    head = await workflow.head("t", checkpoint_storage=storage)
    assert head is not None and head.state == {"notes": ["tea"], "last": "edited"}


# ---------------------------------------------------------------- edit


@STORAGES
@pytest.mark.parametrize("is_same_object", [True, False])
async def test_edit_receives_the_head_with_the_types_of_the_workflow(
    make_storage: Callable[[], Any], is_same_object: bool
) -> None:
    storage = make_storage()
    workflow = tallying(checkpoint_storage=storage)
    await workflow.run("a", thread_id="t")
    received: list[Any] = []

    def change(head: WorkflowCheckpoint) -> WorkflowCheckpoint:
        memory = head.executors["tally"]
        received.append(memory.saved)
        edited = msgspec.structs.replace(memory, saved={"count": 41})
        return msgspec.structs.replace(head, executors={"tally": edited})

    await workflow.edit("t", change)
    assert received == [{"count": 1}]
    again = workflow if is_same_object else tallying(Tally(), checkpoint_storage=storage)
    assert (await again.run("b", thread_id="t")).get_outputs() == [42]


# ---------------------------------------------------------------- clear


@STORAGES
@pytest.mark.parametrize("is_same_object", [True, False])
async def test_next_message_to_a_cleared_thread_starts_from_an_empty_state(
    make_storage: Callable[[], Any], is_same_object: bool
) -> None:
    storage = make_storage()
    workflow = tallying(checkpoint_storage=storage)
    for word in "abc":
        await workflow.run(word, thread_id="t")
    before = await workflow.history("t")
    head = await head_of(workflow)
    made = await workflow.clear("t")
    after = await head_of(workflow)
    assert (await workflow.history("t"))[1:] == before and made.status == "IDLE"
    empty = ("messages", "state", "pending_request_info_events", "outputs", "executors", "buffers", "answered")
    assert not any(getattr(after, part) for part in (*empty, "suspended", "children", "run_kwargs", "metadata"))
    assert after.counters.next_delivery_id == head.counters.next_delivery_id
    again = workflow if is_same_object else tallying(Tally(), checkpoint_storage=storage)
    resumed = await again.run(thread_id="t")
    assert resumed.get_outputs() == []
    assert (await again.run("d", thread_id="t")).get_outputs() == [1]


@STORAGES
async def test_nothing_that_was_pending_can_be_answered_after_a_clear(make_storage: Callable[[], Any]) -> None:
    storage = make_storage()
    workflow = asking(checkpoint_storage=storage)
    await workflow.run("one two", thread_id="t")
    await workflow.run(responses={"one": Verdict(is_good=True)}, thread_id="t")
    await workflow.clear("t")
    if isinstance(storage, StoreCheckpointStorage):
        assert await storage.pending_requests() == []
    for request_id in ("one", "two"):
        with pytest.raises(NoPendingRequests):
            await workflow.run(responses={request_id: Verdict(is_good=True)}, thread_id="t")
    await workflow.run("two", thread_id="t")
    result = await workflow.run(responses={"two": Verdict(is_good=False)}, thread_id="t")
    assert result.get_outputs() == ["two: False []"]


@pytest.mark.parametrize("is_same_object", [True, False])
async def test_nothing_that_was_recorded_or_due_counts_after_a_clear(is_same_object: bool) -> None:
    seen: list[str] = []
    weather, storage = [True], awaiting_storage()
    workflow = sided(seen, weather, storage)
    with pytest.raises(ConnectionError):
        await workflow.run("x", thread_id="t")
    assert (await workflow.clear("t")).status == "IDLE"
    assert not (await storage.store.open("t", "a reader", takeover=True)).journal
    seen.clear()
    weather.append(False)
    again = workflow if is_same_object else sided(seen, weather, storage)
    assert (await again.run(thread_id="t", takeover=True)).get_outputs() == [] and seen == []
    assert sorted((await again.run("y", thread_id="t")).get_outputs()) == ["done ?", "through ?"]
    assert sorted(seen) == ["done", "step"]


async def test_a_message_that_waits_in_the_inbox_is_gone_with_a_clear() -> None:
    storage = awaiting_storage()
    workflow = noting(storage)
    await workflow.run("tea", thread_id="t")
    await post_message(storage, "t", "item-1", "posted", workflow._compiled.declared)
    await workflow.clear("t")
    assert (await workflow.run("milk", thread_id="t")).get_outputs() == [(["milk"], "milk")]


async def test_event_log_of_a_cleared_thread_stays_and_continues() -> None:
    workflow = noting(InMemoryCheckpointStorage())
    await workflow.run("tea", thread_id="t")
    before = [event.seq or 0 async for event in workflow.follow("t", after=0, until_idle=True)]
    await workflow.clear("t")
    await workflow.run("milk", thread_id="t")
    after = [event.seq or 0 async for event in workflow.follow("t", after=0, until_idle=True)]
    assert after[: len(before)] == before and len(after) == 2 * len(before)
    assert after == sorted(set(after))


# ---------------------------------------------------------------- the description of a thread


@STORAGES
@pytest.mark.parametrize("is_same_object", [True, False])
async def test_description_of_a_thread_is_kept_from_commit_to_commit(
    make_storage: Callable[[], Any], is_same_object: bool
) -> None:
    storage = make_storage()
    workflow = noting(storage)
    await workflow.run("tea", thread_id="t")
    first = (await workflow.history("t"))[0]
    await workflow.describe("t", {"name": "Shopping", "tags": ["a", {"b": 1.5}]})
    await workflow.describe("t", {"tags": None, "owner": "ann"})
    description = {"name": "Shopping", "owner": "ann"}

    async def current_metadata(thread_id: str = "t") -> Any:
        return (await head_of(workflow, thread_id)).metadata

    assert await current_metadata() == {"about": description}
    again = workflow if is_same_object else noting(storage)
    await again.run("milk", thread_id="t")
    assert await current_metadata() == {"about": description}
    named = (await workflow.history("t"))[0]
    await again.rewind("t", first)
    assert await current_metadata() == {"about": description}, (
        "a rewind goes back in what the thread holds, not in its name"
    )
    await again.run(checkpoint_id=first)
    assert await current_metadata() == {"about": description}
    assert (await again.run("honey", thread_id="t")).get_outputs() == [(["tea", "honey"], "honey")]
    await again.fork(named, thread_id="fork")
    assert await current_metadata("fork") == {"about": description}
    await again.run(checkpoint_id=named, fork=True, thread_id="fork by run")
    assert await current_metadata("fork by run") == {"about": description}
    await again.update_state("t", {"last": "x"})
    await again.clear("t")
    assert await current_metadata() == {"about": description}
    await again.describe("t", dict.fromkeys(description))
    assert await current_metadata() == {}


async def test_a_damaged_head_does_not_keep_a_thread_from_going_back() -> None:
    storage = awaiting_storage()
    workflow = noting(storage)
    await workflow.run("tea", thread_id="t")
    await workflow.describe("t", {"name": "early"})
    named = (await workflow.history("t"))[0]
    await workflow.describe("t", {"name": "late"})
    await rewrite_head(storage, "t", edited(lambda tree: tree.pop("counters")))
    with pytest.raises(DamagedCheckpoint):
        await workflow.head("t")
    await noting(storage).rewind("t", named)
    assert (await head_of(workflow)).metadata == {"about": {"name": "early"}}


async def test_thread_without_a_description_is_stored_without_metadata() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = noting(storage)
    await workflow.run("tea", thread_id="t")
    await workflow.update_state("t", {"last": "x"})
    stored = await storage.store.head("t")
    assert stored is not None and b"metadata" not in stored.root and b"about" not in stored.root
