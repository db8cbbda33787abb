"""Promise 8: a checkpoint that cannot be saved fails the run with the path of the value; never a log line."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.promises.stages import Does, Relay, Stage, alone, chain, collect
from tests.six_methods import SixMethods

from perdure import (
    CheckpointHookFailed,
    Executor,
    StorageFailed,
    UnsavableValue,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowRunState,
    handler,
)

Context = WorkflowContext[Any, Any]
UNSAVABLE = threading.Lock()


@dataclass
class Report:
    title: str
    author: Any


BAD = {"pages": [Report("ok", None), Report("bad", UNSAVABLE)]}
INSIDE = "['pages'][1].author"


async def in_state(message: str, ctx: Context) -> None:
    ctx.set_state("report", BAD)


async def in_a_message(message: str, ctx: Context) -> None:
    await ctx.send_message(BAD)


async def in_an_output(message: str, ctx: Context) -> None:
    await ctx.yield_output(BAD)


async def in_a_request(message: str, ctx: Context) -> None:
    await ctx.request_info(BAD, str, request_id="r")


async def in_private_state(message: str, ctx: Context) -> None:
    ctx.private["report"] = BAD


async def changed_in_place(message: str, ctx: Context) -> None:
    ctx.get_state("list").append(BAD)


def two(act: Callable[[str, Context], Awaitable[None]], storage: Any) -> Workflow:
    async def begin(message: str, ctx: Context) -> None:
        ctx.set_state("list", [])
        await ctx.send_message(message)

    async def end(message: Any, ctx: Context) -> None: ...

    return chain(Does("begin", begin), Does("acts", act), Does("end", end), storage=storage)


def replace_act(workflow: Workflow, act: Callable[[str, Context], Awaitable[None]]) -> Workflow:
    acts = workflow.executors["acts"]
    assert isinstance(acts, Does)
    acts.act = act
    return workflow


PLACES = [
    (in_state, f"state['report']{INSIDE}"),
    (in_a_message, f"messages['acts'][0].data{INSIDE}"),
    (in_an_output, f"outputs[0]{INSIDE}"),
    (in_a_request, f"pending_request_info_events['r'].data{INSIDE}"),
    (in_private_state, f"executors['acts'].private['report']{INSIDE}"),
    (changed_in_place, f"state['list'][0]{INSIDE}"),
]


@pytest.mark.parametrize(("act", "path"), PLACES, ids=[act.__name__ for act, _ in PLACES])
async def test_unsavable_value_fails_the_run_with_its_path(any_storage: Any, act: Any, path: str) -> None:
    workflow = two(act, any_storage)
    events: list[WorkflowEvent] = []
    with pytest.raises(UnsavableValue) as raised:
        await collect(workflow.run("x", stream=True, thread_id="t"), events)
    assert raised.value.path == path
    assert path in str(raised.value) and "lock" in str(raised.value)
    assert [event.type for event in events[-3:]] == ["superstep_discarded", "failed", "status"]
    assert events[-1].state is WorkflowRunState.FAILED
    assert isinstance(raised.value, TypeError)


@pytest.mark.parametrize("act", [act for act, _ in PLACES])
async def test_unsavable_superstep_writes_nothing_and_the_thread_stays_usable(any_storage: Any, act: Any) -> None:
    workflow = two(act, any_storage)
    with pytest.raises(UnsavableValue):
        await workflow.run("x", thread_id="t")
    assert len(await any_storage.list_checkpoint_ids(workflow_name="chain")) == 2

    async def repaired(message: str, ctx: Context) -> None:
        await ctx.yield_output(dict(ctx.state))

    for resumed in (replace_act(workflow, repaired), two(repaired, any_storage)):
        assert (await resumed.run(thread_id="t")).get_outputs() == [{"list": []}]


async def test_the_failure_is_in_the_log_and_the_superstep_is_not(storage: Any) -> None:
    workflow = two(in_an_output, storage)
    with pytest.raises(UnsavableValue):
        await workflow.run("x", thread_id="t")
    async with workflow.open(thread_id="t") as handle:
        logged = [event async for event in handle.events(after=0)]
    assert [event.type for event in logged[-2:]] == ["failed", "status"]
    assert {event.executor_id for event in logged} == {None, "begin"}


async def test_an_unsavable_input_is_refused_before_anything_is_written(any_storage: Any) -> None:
    async def take(message: Any, ctx: Context) -> None: ...

    workflow = alone(Does("take", take), any_storage)
    with pytest.raises(UnsavableValue) as raised:
        await workflow.run(BAD, thread_id="t")
    assert raised.value.path == f"messages['internal:take'][0].data{INSIDE}"
    assert await any_storage.list_checkpoint_ids(workflow_name="alone") == []
    assert (await workflow.run("fine", thread_id="t")).get_final_state() is WorkflowRunState.IDLE


@pytest.mark.parametrize("parameter", ["function_invocation_kwargs", "client_kwargs"])
async def test_an_unsavable_run_argument_is_refused_with_its_path(any_storage: Any, parameter: str) -> None:
    workflow = alone(Relay("relay", Stage()), any_storage)
    arguments: dict[str, Any] = {parameter: {"report": BAD}}
    with pytest.raises(UnsavableValue) as raised:
        await workflow.run("x", thread_id="t", **arguments)
    assert raised.value.path == f"run_kwargs['{parameter}']['__global__']['report']{INSIDE}"
    assert await any_storage.list_checkpoint_ids(workflow_name="alone") == []


class Hooked(Executor):
    def __init__(self, id: str, kept: Any) -> None:
        super().__init__(id)
        self.kept: Any = {}
        self.then_kept = kept

    @handler
    async def handle(self, message: str, ctx: WorkflowContext[str]) -> None:
        self.kept = self.then_kept

    async def on_checkpoint_save(self) -> dict[str, Any]:
        if isinstance(self.kept, Exception):
            raise self.kept
        return self.kept  # type: ignore[no-any-return]  # a user's mistake is one of the cases

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.kept = state


async def test_an_unsavable_value_in_a_hooks_dict_fails_with_its_path(any_storage: Any) -> None:
    workflow = alone(Hooked("hooked", {"report": BAD}), any_storage)
    with pytest.raises(UnsavableValue) as raised:
        await workflow.run("x", thread_id="t")
    assert raised.value.path == f"executors['hooked'].saved['report']{INSIDE}"
    assert len(await any_storage.list_checkpoint_ids(workflow_name="alone")) == 1


@pytest.mark.parametrize(
    ("kept", "reason"),
    [
        (ValueError("no disk"), r"ValueError\('no disk'\)"),
        (["a", "list"], r"it returned \['a', 'list'\], expected a dict"),
    ],
)
async def test_a_hook_that_fails_fails_the_run_naming_the_executor(any_storage: Any, kept: Any, reason: str) -> None:
    hooked = Hooked("hooked", kept)
    workflow = alone(hooked, any_storage)
    with pytest.raises(CheckpointHookFailed, match=f"on_checkpoint_save of executor 'hooked' failed: {reason}"):
        await workflow.run("x", thread_id="t")
    assert hooked.kept == {}, "the executor was put back to what the head holds"


async def test_an_unsavable_value_of_a_finished_sibling_fails_the_run_too(storage: Any) -> None:
    """It is met when the delivery is put into the journal, not only at the commit."""
    stage = Stage()
    stage.close("waits")
    source = Relay("source", stage)
    builder = WorkflowBuilder(start_executor=source, checkpoint_storage=storage)
    workflow = builder.add_fan_out_edges(source, [Does("acts", in_state), Relay("waits", stage)]).build()
    with pytest.raises(UnsavableValue) as raised:
        await workflow.run("x", thread_id="t")
    assert raised.value.path == f"state['report']{INSIDE}"
    assert stage.cancelled == ["waits"]


class Refusing(SixMethods):
    """Its disk is full from the second save on."""

    saves = 0

    async def save(self, checkpoint: Any) -> str:
        self.saves += 1
        if self.saves == 2:
            raise OSError(28, "No space left on device")
        return await super().save(checkpoint)


async def test_a_storage_that_fails_to_save_fails_the_run() -> None:
    storage = Refusing()
    stage = Stage()
    workflow = chain(Relay("one", stage), Relay("two", stage), storage=storage)
    with pytest.raises(StorageFailed, match=r"Refusing failed to save: .*No space left on device"):
        await workflow.run("x", thread_id="t")
    await workflow.run(thread_id="t")
    assert stage.calls == ["one(x)", "one(x)", "two(x-one)"]


async def test_without_a_storage_any_value_may_travel() -> None:
    async def pass_on(message: Any, ctx: Context) -> None:
        ctx.set_state("any", message)
        await ctx.yield_output(message is UNSAVABLE)

    assert (await alone(Does("take", pass_on)).run(UNSAVABLE)).get_outputs() == [True]
