"""What functions and steps get: a RunContext where they take one, an empty state for each call, keys, plain calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.engine.function_flows import THREAD, Calls, begin, outline, resume, state_of

from perdure import (
    FunctionalWorkflow,
    FunctionalWorkflowDefinition,
    InMemoryCheckpointStorage,
    InvalidFunction,
    InvalidRun,
    RunContext,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    executor,
    get_run_context,
    step,
    workflow,
)

if TYPE_CHECKING:
    from elsewhere import Unknown  # type: ignore[import-not-found]  # as a program that imports for checkers only


def described(ctx: RunContext | None, *values: object) -> str:
    return " ".join([str(ctx is not None and ctx is get_run_context()), *map(str, values)])


@step
async def first(ctx: RunContext | None = None, number: int = 0) -> str:
    return described(ctx, number)


@step
async def between(number: int, ctx: RunContext | None = None, more: int = 5) -> str:
    return described(ctx, number, more)


@step
async def last(number: int, *, context: RunContext | None = None) -> str:
    return described(context, number)


@step
def in_a_thread(number: int, ctx: RunContext | None = None) -> str:
    return described(ctx, number)


@step
async def unannotated(number, ctx=None):  # type: ignore[no-untyped-def]  # what is being shown
    return described(ctx, number)


@step
async def unresolved(thing: Unknown, ctx: RunContext | None = None) -> str:
    return described(ctx, thing)


async def test_a_step_gets_its_context_at_the_place_of_its_parameter() -> None:
    calls: list[Any] = [
        lambda: first(number=1),
        lambda: between(1),
        lambda: between(1, more=2),
        lambda: between(1, get_run_context(), 3),
        lambda: last(1),
        lambda: in_a_thread(1),
        lambda: unannotated(1),
        lambda: unresolved("any"),
    ]

    @workflow
    async def flow(_: str) -> list[str]:
        return [await call() for call in calls]

    results = ["True 1", "True 1 5", "True 1 2", "True 1 3", "True 1", "True 1", "True 1", "True any"]
    assert (await flow.run("go")).get_outputs() == [results]


async def test_positional_arguments_go_around_the_context() -> None:
    @step
    async def rest(ctx, *numbers):  # type: ignore[no-untyped-def]  # typed calls would pass the context
        return described(ctx, *numbers)

    @workflow
    async def flow(_: str) -> list[str]:
        return [await rest(1, 2), await between(1, 2)]  # type: ignore[arg-type]  # the context is added

    assert (await flow.run("go")).get_outputs() == [["True 1 2", "True 1 2"]]


async def test_a_step_in_a_handler_gets_a_context_of_the_handler() -> None:
    @step
    async def keep(value: str, ctx: RunContext | None = None) -> None:
        assert ctx is not None
        ctx.set_state("kept", value)

    @executor(id="store")
    async def store(value: str, ctx: WorkflowContext[str, str]) -> None:
        await keep(value)
        await ctx.yield_output(ctx.get_state("kept"))

    assert (await WorkflowBuilder(start_executor=store).build().run("tea")).get_outputs() == ["tea"]


async def test_a_replay_key_identifies_a_call_in_place_of_its_arguments() -> None:
    storage, calls, seen = InMemoryCheckpointStorage(), Calls(), list[object]()

    @step(replay_key=lambda connection, name: f"row {name}")
    async def load(connection: object, name: str) -> str:
        seen.append(connection)
        return name.upper()

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[str]:
        loaded = [await load(object(), name) for name in ("a", "b", "a")]
        await calls.step(name="checked")("x")
        return [*loaded, await ctx.request_info("go on?", str, request_id="q")]

    await begin(flow, storage)
    assert (len(seen), calls) == (2, ["x"])  # an equal key is the same step
    answered = await resume(flow, storage, responses={"q": "yes"})
    assert answered.get_outputs() == [["A", "B", "A", "yes"]]
    assert (len(seen), calls) == (2, ["x"])
    assert await load("outside", "c") == "C"


@pytest.mark.parametrize("key", ["", None, 5])
async def test_a_replay_key_that_is_no_text_is_rejected(key: Any) -> None:
    @step(replay_key=lambda _: key)
    async def load(name: str) -> str:
        return name

    @workflow
    async def flow(name: str) -> str:
        return await load(name)

    with pytest.raises(InvalidRun, match="A step's key must be a non-empty string"):
        await flow.run("x")


async def test_a_context_of_no_run_has_state_and_cannot_ask() -> None:
    alone = RunContext("alone", streaming=True)
    alone.set_state("key", 1)
    await alone.add_event(WorkflowEvent("data", 1))
    assert (alone.get_state("key"), alone.get_state("other", 2), alone.is_streaming()) == (1, 2, True)
    with pytest.raises(InvalidRun, match="'alone' belongs to no run"):
        await alone.request_info("well?", str)


# ---------------------------------------------------------------- calls in the default thread


@workflow
async def visits(name: str, ctx: RunContext) -> int:
    ctx.set_state("visits", ctx.get_state("visits", 0) + 1)
    return int(ctx.get_state("visits"))


async def test_a_named_thread_keeps_the_state_of_earlier_messages() -> None:
    flow = visits.build()
    assert [(await flow.run("Ada")).get_outputs() for _ in range(2)] == [[1], [1]]
    assert [(await flow.run("Ada", thread_id=THREAD)).get_outputs() for _ in range(2)] == [[1], [2]]


async def test_a_checkpoint_has_the_state_of_the_call() -> None:
    storage = InMemoryCheckpointStorage()
    result = await visits.build(storage).run("Ada")
    assert await state_of(storage, result.thread_id) == {"visits": 1}


# ---------------------------------------------------------------- definitions, and their events


async def test_a_definition_is_built_at_its_first_use() -> None:
    @workflow
    async def flow(parcel: Parcel) -> int:  # a class that the module defines later
        return parcel.weight

    assert type(flow) is type(flow.build()) is FunctionalWorkflow is FunctionalWorkflowDefinition
    assert not hasattr(flow, "unknown")
    assert flow.start_executor_id == flow.build().graph.name == "flow"
    assert (await flow.run(Parcel())).get_outputs() == [3]


class Parcel:
    weight = 3


async def test_a_workflow_built_of_a_built_one_keeps_what_it_had() -> None:
    storage = InMemoryCheckpointStorage()
    built = visits.build(storage, allowed_types=[Parcel]).build()
    assert (built.checkpoint_storage, built.allowed_types, built.name) == (storage, (Parcel,), "visits")


def test_a_function_with_two_messages_is_a_value_error() -> None:
    async def two(first: str, second: str) -> None: ...

    for kind in (InvalidFunction, ValueError, TypeError):
        with pytest.raises(kind, match="at most one parameter for the message"):
            workflow(two)


async def test_arguments_of_steps_are_live_and_not_in_the_log() -> None:
    @step
    async def weigh(fish: str, *, crates: int = 1) -> int:
        return len(fish) * crates

    @workflow
    async def landing(fish: str) -> int:
        return await weigh(fish, crates=2)

    flow = landing.build(InMemoryCheckpointStorage())
    result = await flow.run("cod", thread_id=THREAD)
    [invoked] = [event for event in result if event.type == "executor_invoked"]
    assert invoked.data == {"args": ("cod",), "kwargs": {"crates": 2}}
    logged = [event async for event in flow.follow(THREAD, until_idle=True)]
    assert [event.data for event in logged if (event.type, event.executor_id) == (invoked.type, "weigh")] == [None]


async def test_events_around_the_function_are_in_the_log_alone() -> None:
    flow = visits.build(InMemoryCheckpointStorage())
    kinds = ("executor_invoked", "executor_completed", "superstep_completed", "output")
    streamed = [event async for event in flow.run("Ada", thread_id=THREAD, stream=True)]
    assert outline(streamed, *kinds) == [("output", "visits")]
    logged = [event async for event in flow.follow(THREAD, until_idle=True)]
    assert set(outline(logged, *kinds)) > {("executor_invoked", "visits"), ("executor_completed", "visits")}
