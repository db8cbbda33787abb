"""Promise 3: a recorded step is not executed again; at most the steps that were in flight repeat."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Never

import pytest
from tests.promises.stages import Again, Boom, Build, Sink, Stage

from perdure import (
    Executor,
    RunContext,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    WorkflowRunResult,
    handler,
    step,
    workflow as as_workflow,
)
from perdure.checkpoints.storage import StoreCheckpointStorage

THREAD = "t"


def played(stage: Stage, name: str) -> Callable[..., Any]:
    """A step of the play: seen on the stage, and held or failed there if the test asks for it."""

    async def play(message: str) -> str:
        await stage.play(name, message)
        return f"{message}-{name}"

    return play


# ---------------------------------------------------------------- three places where steps are called


def function(stage: Stage, storage: Any) -> Workflow:
    """one; then two and three at once; then four: in a function workflow."""
    step_one, step_two, step_three, step_four = (
        step(name=name)(played(stage, name)) for name in ("one", "two", "three", "four")
    )

    @as_workflow(name="function")
    async def flow(message: str) -> str:
        first = await step_one(message)
        both = await asyncio.gather(step_two(first), step_three(first))
        return str(await step_four("+".join(both)))

    return flow.build(storage)


class Stepping(Executor):
    """The same in a handler of a graph."""

    def __init__(self, id: str, stage: Stage) -> None:
        super().__init__(id)
        self.stage = stage

    @handler
    async def handle(self, message: str, ctx: WorkflowContext[Never, str]) -> None:
        def called(name: str, argument: str) -> Any:
            return ctx.step(played(self.stage, name), argument, name=name)

        first = await called("one", message)
        both = await asyncio.gather(called("two", first), called("three", first))
        await ctx.yield_output(await called("four", "+".join(both)))


def graph(stage: Stage, storage: Any) -> Workflow:
    return WorkflowBuilder(name="graph", start_executor=Stepping("it", stage), checkpoint_storage=storage).build()


def nested(stage: Stage, storage: Any) -> Workflow:
    """The function two levels down, in a graph in a graph."""
    inner = WorkflowExecutor(function(stage, None), "function")
    middle = WorkflowBuilder(name="middle", start_executor=inner).add_edge(inner, Sink("sink")).build()
    outer = WorkflowExecutor(middle, "middle")
    builder = WorkflowBuilder(name="outer", start_executor=outer, checkpoint_storage=storage)
    return builder.add_edge(outer, Sink("end")).build()


PLACES = pytest.mark.parametrize("make", [function, graph, nested])
RESULT = ["x-one-two+x-one-three-four"]


def building(make: Callable[[Stage, Any], Workflow], stage: Stage, storage: Any) -> Build:
    return lambda: make(stage, storage)


def counts(stage: Stage) -> dict[str, int]:
    return {name: stage.called(name) for name in ("one", "two", "three", "four")}


def recorded(storage: StoreCheckpointStorage, number: int) -> asyncio.Event:
    """Set once the journal has so many entries."""
    append, entries, are_there = storage.store.append_journal, 0, asyncio.Event()

    async def counted(lease: Any, entry: Any) -> None:
        nonlocal entries
        await append(lease, entry)
        entries += 1
        if entries >= number:
            are_there.set()

    storage.store.append_journal = counted  # type: ignore[method-assign]  # a tap on the real method
    return are_there


async def failed(workflow: Workflow, stage: Stage, name: str) -> None:
    stage.failing = {name}
    with pytest.raises(Exception, match=name) as raised:
        await workflow.run("x", thread_id=THREAD)
    assert isinstance(raised.value, Boom) or isinstance(raised.value.__cause__, Boom)
    stage.failing = set()


@PLACES
async def test_an_undisturbed_run_calls_each_step_once(make: Any, storage: StoreCheckpointStorage) -> None:
    stage = Stage()
    assert (await make(stage, storage).run("x")).get_outputs() == RESULT
    assert counts(stage) == {"one": 1, "two": 1, "three": 1, "four": 1}


@PLACES
async def test_only_the_failed_step_is_called_again(make: Any, storage: StoreCheckpointStorage, again: Again) -> None:
    stage = Stage()
    build = building(make, stage, storage)
    await failed(workflow := build(), stage, "four")
    assert (await again(workflow, build).run(thread_id=THREAD)).get_outputs() == RESULT
    assert counts(stage) == {"one": 1, "two": 1, "three": 1, "four": 2}


@PLACES
async def test_a_step_that_ended_beside_the_failed_one_is_not_called_again(
    make: Any, storage: StoreCheckpointStorage, again: Again
) -> None:
    stage = Stage()
    stage.watch_journal(storage)
    stage.fails_after = 2  # one and two are in the journal
    build = building(make, stage, storage)
    await failed(workflow := build(), stage, "three")
    assert (await again(workflow, build).run(thread_id=THREAD)).get_outputs() == RESULT
    assert counts(stage) == {"one": 1, "two": 1, "three": 2, "four": 1}


@PLACES
async def test_without_a_storage_the_same_object_repeats_only_the_failed_step(make: Any) -> None:
    stage = Stage()
    workflow = make(stage, None)
    await failed(workflow, stage, "four")
    assert (await workflow.run(thread_id=THREAD)).get_outputs() == RESULT
    assert counts(stage) == {"one": 1, "two": 1, "three": 1, "four": 2}


@PLACES
async def test_after_a_cancellation_only_what_was_in_flight_is_called_again(
    make: Any, storage: StoreCheckpointStorage, again: Again
) -> None:
    stage = Stage()
    stage.close("three")
    are_recorded = recorded(storage, 2)
    build = building(make, stage, storage)
    workflow = build()
    run = asyncio.create_task(workflow.run("x", thread_id=THREAD))
    await stage.entered["three"].wait()
    await are_recorded.wait()
    run.cancel()
    await asyncio.wait([run])
    assert stage.cancelled == ["three"]
    stage.gates.clear()
    assert (await again(workflow, build).run(thread_id=THREAD)).get_outputs() == RESULT
    assert counts(stage) == {"one": 1, "two": 1, "three": 2, "four": 1}


@PLACES
async def test_nothing_is_called_again_in_a_finished_thread(
    make: Any, storage: StoreCheckpointStorage, again: Again
) -> None:
    stage = Stage()
    build = building(make, stage, storage)
    workflow = build()
    await workflow.run("x", thread_id=THREAD)
    assert (await again(workflow, build).run(thread_id=THREAD)).get_outputs() == RESULT
    assert counts(stage) == {"one": 1, "two": 1, "three": 1, "four": 1}


@PLACES
async def test_step_that_failed_three_times_is_the_only_repeated_step(
    make: Any, storage: StoreCheckpointStorage, again: Again
) -> None:
    stage = Stage()
    build = building(make, stage, storage)
    workflow = build()
    await failed(workflow, stage, "four")
    for _ in range(2):
        stage.failing = {"four"}
        workflow = again(workflow, build)
        with pytest.raises(Exception, match="four"):
            await workflow.run(thread_id=THREAD)
    stage.failing = set()
    assert (await again(workflow, build).run(thread_id=THREAD)).get_outputs() == RESULT
    assert counts(stage) == {"one": 1, "two": 1, "three": 1, "four": 4}


@PLACES
async def test_a_new_input_is_a_new_call_of_every_step(make: Any, storage: StoreCheckpointStorage) -> None:
    stage = Stage()
    workflow = make(stage, storage)
    await workflow.run("x", thread_id=THREAD)
    await workflow.run("x", thread_id=THREAD)
    assert counts(stage) == {"one": 2, "two": 2, "three": 2, "four": 2}


# ---------------------------------------------------------------- killed: nothing after the last write was kept


class Gone(OSError):
    """The process is gone: whatever it tries to write from now on is lost."""


def killed_after(storage: StoreCheckpointStorage, writes: int) -> Callable[[], None]:
    """The store takes so many entries into the journal, and then nothing. Returns a function that removes the limit."""
    store = storage.store
    append, make_commit = store.append_journal, store.commit
    left = writes

    async def counted(lease: Any, entry: Any) -> None:
        nonlocal left
        if left == 0:
            raise Gone("killed")
        left -= 1
        await append(lease, entry)

    async def not_after(commit: Any) -> None:
        if left == 0:
            raise Gone("killed")
        await make_commit(commit)

    def revive() -> None:
        store.append_journal, store.commit = append, make_commit  # type: ignore[method-assign]  # the tap is taken off

    store.append_journal, store.commit = counted, not_after  # type: ignore[method-assign]  # a tap on the real methods
    return revive


@PLACES
@pytest.mark.parametrize("writes", [1, 2, 3])
async def test_a_new_process_calls_only_what_the_killed_one_had_not_recorded(
    make: Any, storage: StoreCheckpointStorage, writes: int
) -> None:
    stage = Stage()
    revive = killed_after(storage, writes)
    with pytest.raises(Exception, match=r"killed|function|middle"):
        await make(stage, storage).run("x", thread_id=THREAD)
    revive()
    before = counts(stage)
    result: WorkflowRunResult = await make(stage, storage).run(thread_id=THREAD, takeover=True)
    assert result.get_outputs() == RESULT
    called = sum(counts(stage).values()) - sum(before.values())
    assert called == 4 - writes


async def test_answers_do_not_repeat_steps_of_a_waiting_function(storage: StoreCheckpointStorage, again: Again) -> None:
    stage = Stage()

    def build() -> Workflow:
        @as_workflow(name="asking")
        async def flow(message: str, ctx: RunContext) -> str:
            for name in ("one", "two", "three"):
                message = await ctx.step(played(stage, name), message, name=name)
                message += await ctx.request_info(name, str)
            return message

        return flow.build(storage)

    workflow = build()
    result = await workflow.run("x", thread_id=THREAD)
    while asked := result.get_request_info_events():
        workflow = again(workflow, build)
        result = await workflow.run(responses={request.request_id: "!" for request in asked}, thread_id=THREAD)
    assert result.get_outputs() == ["x-one!-two!-three!"]
    assert counts(stage) == {"one": 1, "two": 1, "three": 1, "four": 0}
