"""Running a function workflow: threads, checkpoints, forks, handles, and all else that `run` may be asked for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.counting import counted_lines
from tests.unit.engine.flows import sink
from tests.unit.engine.function_flows import THREAD, Calls, answer, begin, questions, resume

from perdure import (
    FunctionalWorkflow,
    InMemoryCheckpointStorage,
    RunContext,
    ThreadBusy,
    ThreadNotFound,
    ThreadNotIdle,
    WorkflowBuilder,
    WorkflowRunState,
    WrongInputType,
    get_run_context,
    step,
    workflow,
)


def greeting(storage: Any = None) -> FunctionalWorkflow[Any, Any]:
    @workflow(name="greeting", checkpoint_storage=storage)
    async def flow(name: str, ctx: RunContext) -> str:
        times = ctx.get_state("times", 0) + 1
        ctx.set_state("times", times)
        return f"{await ctx.request_info('how?', str)} {name} {times}"

    return flow


async def test_runs_without_a_thread_id_are_calls_in_one_thread() -> None:
    flow = greeting()
    first = await flow.run("ann")
    result = await flow.run(responses={questions(first)["how?"]: "hi"})
    assert result.get_outputs() == ["hi ann 1"]
    second = await flow.run("bob")
    assert second.thread_id == first.thread_id
    assert (await flow.run(responses={questions(second)["how?"]: "yo"})).get_outputs() == ["yo bob 1"]


async def test_each_built_workflow_has_threads_of_its_own() -> None:
    flow = greeting()
    first, other = flow.build(), flow.build()
    asked = await first.run("ann", thread_id=THREAD)
    with pytest.raises(ThreadNotFound):
        await other.run(responses={questions(asked)["how?"]: "hi"}, thread_id=THREAD)
    assert (type(first), first.name) == (FunctionalWorkflow, "greeting")


async def test_run_and_build_use_the_storage_of_the_definition_by_default() -> None:
    own, other = InMemoryCheckpointStorage(), InMemoryCheckpointStorage()
    flow = greeting(own)
    asked = await flow.run("ann", thread_id=THREAD)
    result = await flow.build().run(responses={questions(asked)["how?"]: "hi"}, thread_id=THREAD)
    assert result.get_outputs() == ["hi ann 1"]
    await flow.build(other).run("bob", thread_id="b")
    await flow.run("cid", thread_id="c", checkpoint_storage=other)
    assert {checkpoint.thread_id for checkpoint in await own.list_checkpoints()} == {THREAD}
    assert {checkpoint.thread_id for checkpoint in await other.list_checkpoints()} == {"b", "c"}


async def test_the_storage_may_be_given_by_name() -> None:
    storage = InMemoryCheckpointStorage()
    await greeting().build(checkpoint_storage=storage).run("ann")
    assert await storage.get_latest(workflow_name="greeting") is not None


async def test_each_run_of_a_thread_begins_from_the_top_with_steps_of_its_own() -> None:
    calls, storage = Calls(), InMemoryCheckpointStorage()
    note = calls.step(lambda value: f"{value} {len(calls)}")

    @workflow
    async def flow(_: str) -> Any:
        return await note("same")

    assert [(await begin(flow, storage)).get_outputs()[0] for _ in range(3)] == ["same 1", "same 2", "same 3"]


async def test_new_message_during_an_open_question_starts_the_function_again() -> None:
    flow, storage = greeting(), InMemoryCheckpointStorage()
    first = await begin(flow, storage, "ann")
    second = await begin(flow, storage, "bob")
    ids = [str(event.request_id) for event in second.get_request_info_events()]
    assert len(ids) == 2 and ids[0] == questions(first)["how?"]
    result = await resume(flow, storage, responses={ids[1]: "yo"})
    assert result.get_outputs() == ["yo bob 1"]
    assert (await resume(flow, storage, responses={ids[0]: "hi"})).get_outputs() == ["hi ann 2"]


async def test_two_threads_run_at_the_same_time_and_see_nothing_of_each_other() -> None:
    meeting = asyncio.Barrier(2)

    @step
    async def meet(name: str) -> str:
        context = get_run_context()
        assert context is not None
        context.set_state("name", name)
        await meeting.wait()
        return f"{name} {context.thread_id}"

    @workflow
    async def flow(name: str, ctx: RunContext) -> list[Any]:
        return [await meet(name), ctx.get_state("name")]

    built = flow.build(InMemoryCheckpointStorage())
    results = await asyncio.gather(*(built.run(name, thread_id=f"of {name}") for name in ("ann", "bob")))
    assert [result.get_outputs()[0] for result in results] == [["ann of ann", "ann"], ["bob of bob", "bob"]]


# ---------------------------------------------------------------- busy threads, handles, streams


async def test_a_busy_thread_rejects_or_enqueues_as_asked() -> None:
    entered, may_end = asyncio.Event(), asyncio.Event()

    @step
    async def wait(message: str) -> str:
        entered.set()
        await may_end.wait()
        return message

    @workflow
    async def flow(message: str) -> str:
        return await wait(message)

    built = flow.build(InMemoryCheckpointStorage())
    first = asyncio.create_task(built.run("one", thread_id=THREAD))
    await entered.wait()
    with pytest.raises(ThreadBusy):
        await built.run("two", thread_id=THREAD)
    second = asyncio.create_task(built.run("two", thread_id=THREAD, on_busy="enqueue"))
    may_end.set()
    assert [result.get_outputs() for result in await asyncio.gather(first, second)] == [["one"], ["two"]]


async def test_interrupted_function_continues_from_its_recorded_steps() -> None:
    calls, entered, is_open = Calls(), asyncio.Event(), False
    note, wait = calls.step(name="note"), calls.step(name="wait")

    async def hang(message: str) -> str:
        entered.set()
        if not is_open:
            await asyncio.Event().wait()
        return message

    wait.function = hang

    @workflow
    async def flow(message: str) -> Any:
        return await wait(await note(message))

    built = flow.build(InMemoryCheckpointStorage())
    first = asyncio.create_task(built.run("one", thread_id=THREAD))
    await entered.wait()
    is_open = True
    second = await built.run("two", thread_id=THREAD, on_busy="interrupt")
    assert (await first).get_final_state() is WorkflowRunState.CANCELLED
    assert second.get_outputs() == ["one", "two"]
    assert calls == ["one", "two"]


async def test_function_with_durability_exit_asks_and_resumes() -> None:
    flow, storage = greeting(), InMemoryCheckpointStorage()
    asked = await begin(flow, storage, "ann", durability="exit")
    result = await answer(flow, storage, asked, {"how?": "hi"}, durability="exit")
    assert result.get_outputs() == ["hi ann 1"]


async def test_message_to_a_failed_function_is_rejected_until_it_is_resumed() -> None:
    storage, is_up = InMemoryCheckpointStorage(), False

    @workflow
    async def flow(message: str) -> str:
        if not is_up:
            raise OSError("down")
        return message

    with pytest.raises(OSError, match="down"):
        await begin(flow, storage, "one")
    with pytest.raises(ThreadNotIdle):
        await begin(flow, storage, "two")
    is_up = True
    assert (await resume(flow, storage)).get_outputs() == ["one"]


async def test_a_handle_sends_answers_and_watches() -> None:
    async with greeting().build(InMemoryCheckpointStorage()).open(thread_id=THREAD) as run:
        await run.send("ann")
        asked = [event async for event in run.events() if event.type == "request_info"]
        await run.respond({asked[0].request_id: "hi"})
        outputs = [event.data async for event in run.events() if event.type == "output"]
        assert run.result is not None and run.result.get_final_state() is WorkflowRunState.IDLE
    assert outputs == ["hi ann 1"]


async def test_the_definition_opens_a_handle_too() -> None:
    async with greeting().open(thread_id=THREAD) as run:
        await run.send("ann")
        result = await run.wait()
    assert result is not None and list(questions(result)) == ["how?"]


async def test_a_stream_left_early_leaves_a_thread_that_can_be_resumed() -> None:
    calls, storage = Calls(), InMemoryCheckpointStorage()
    note = calls.step()

    @workflow
    async def flow(_: str) -> list[int]:
        return [await note(n) for n in range(3)]

    stream = flow.build(storage).run("go", thread_id=THREAD, stream=True)
    async for event in stream:
        if event.type == "executor_completed":
            break
    await stream.aclose()
    assert (await resume(flow, storage)).get_outputs() == [[0, 1, 2]]
    assert calls == [0, 1, 2]


# ---------------------------------------------------------------- what it accepts, where it stands


async def test_a_message_of_another_type_is_refused() -> None:
    @workflow
    async def flow(count: int) -> int:
        return count

    with pytest.raises(WrongInputType, match="accepts int"):
        await flow.run("three")


async def test_a_function_without_a_message_is_run_with_nothing() -> None:
    @workflow
    async def flow(ctx: RunContext) -> str:
        return f"ran in {ctx.thread_id}"

    @workflow
    async def bare() -> str:
        return "ran"

    assert (await flow.run(thread_id="x")).get_outputs() == ["ran in x"]
    assert (await bare.run()).get_outputs() == ["ran"]


async def test_the_context_may_come_first_and_may_be_known_by_name_or_type() -> None:
    @workflow
    async def first(ctx: RunContext, message: str) -> str:
        return f"{message} {ctx.thread_id}"

    @workflow
    async def by_name(message, ctx):  # type: ignore[no-untyped-def]  # as users write a first sketch
        return f"{message} {ctx.thread_id}"

    @workflow
    async def by_type(message: str, run: RunContext) -> str:
        return f"{message} {run.thread_id}"

    for flow in (first, by_name, by_type):
        assert (await begin(flow, None, "hi")).get_outputs() == ["hi t"]


async def test_run_context_exists_in_the_function_and_its_steps_only() -> None:
    contexts: list[Any] = []

    @step
    async def look() -> None:
        contexts.append(get_run_context())

    @workflow
    async def flow(_: str, ctx: RunContext) -> None:
        contexts.append(get_run_context() is ctx)
        await asyncio.gather(look(), look())

    assert get_run_context() is None
    await begin(flow, None)
    assert get_run_context() is None
    assert contexts[0] is True and None not in contexts


async def test_function_runs_in_a_graph_as_an_executor() -> None:
    calls, storage = Calls(), InMemoryCheckpointStorage()
    note = calls.step()

    @workflow
    async def first(message: str) -> str:
        return str(await note(message)) + "!"

    @workflow
    async def second(message: str) -> str:
        return str(await note(message)) + "?"

    builder = WorkflowBuilder(name="both", start_executor=first, checkpoint_storage=storage)
    graph = builder.add_edge(first, second).add_edge(second, sink("end")).build()
    assert (await graph.run("hi")).get_outputs() == [("end", "hi!?")]
    assert calls == ["hi", "hi!"]


async def test_resuming_a_function_costs_in_proportion_to_its_steps() -> None:
    lines = []
    for steps in (100, 400):
        calls, storage = Calls(), InMemoryCheckpointStorage()
        note = calls.step()

        @workflow
        async def flow(count: str, ctx: RunContext) -> int:
            total: int = sum([await note(n) for n in range(int(count))])  # noqa: B023  # called in this turn
            await ctx.request_info("go on?", str)
            return total

        asked = await begin(flow, storage, str(steps))
        with counted_lines() as counted:
            result = await answer(flow, storage, asked, {"go on?": "y"})
        assert result.get_outputs() == [sum(range(steps))]
        assert len(calls) == steps
        lines.append(counted.count)
    assert lines[1] < 6 * lines[0]  # four times as many steps; in proportion to the square it would be sixteen


async def test_a_function_of_many_steps_makes_checkpoints_on_its_way() -> None:
    storage, note = InMemoryCheckpointStorage(), Calls().step()

    @workflow
    async def flow(_: str) -> None:
        for n in range(500):
            await note(n)

    await begin(flow, storage)
    assert len(await storage.list_checkpoint_ids()) > 2
