"""Function workflows as users of the reference write them: its names, parameters, events and flows."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from tests.compat.programs import collect, last_status
from tests.unit.engine.flows import take_all

import perdure
from perdure import (
    FunctionalWorkflow,
    InMemoryCheckpointStorage,
    RunContext,
    RunOptions,
    StepWrapper,
    WorkflowEvent,
    WorkflowRunState,
    get_run_context,
    step,
    workflow,
)

# ---------------------------------------------------------------- a harbour's log book

catches: list[str] = []


@step
async def weigh(fish: str) -> int:
    catches.append(fish)
    return len(fish)


@step(name="salting")
async def salt(weight: int) -> float:
    return weight / 2


@workflow
async def landing(fish: str, ctx: RunContext) -> str:
    """Weigh it, and ask where it goes."""
    weight = await weigh(fish)
    ctx.set_state("weight", weight)
    place = await ctx.request_info({"fish": fish, "weight": weight}, str)
    if place == "cellar":
        return f"{fish}: {await salt(weight)} salt"
    return f"{fish} to {place}"


@pytest.fixture(autouse=True)
def _an_empty_book() -> None:
    catches.clear()


# ---------------------------------------------------------------- names and parameters


@pytest.mark.parametrize(
    "name", ["workflow", "step", "RunContext", "get_run_context", "StepWrapper", "FunctionalWorkflow"]
)
def test_names_of_the_functional_api_are_public(name: str) -> None:
    assert name in perdure.__all__


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_decorators_take_the_parameters_of_the_reference() -> None:
    assert {"name", "description", "checkpoint_storage"} <= set(parameters(workflow))
    assert "name" in parameters(step)
    assert (type(landing), type(weigh)) == (FunctionalWorkflow, StepWrapper)


def test_run_takes_the_parameters_of_the_reference() -> None:
    assert parameters(landing.run)[:2] == ["message", "stream"]
    assert {"responses", "checkpoint_id", "checkpoint_storage", "include_status_events"} <= set(
        RunOptions.__annotations__
    )


def test_context_has_the_members_of_the_reference() -> None:
    assert parameters(RunContext.request_info)[1:4] == ["request_data", "response_type", "request_id"]
    members = ["request_info", "add_event", "get_state", "set_state", "is_streaming"]
    assert [name for name in members if not hasattr(RunContext, name)] == []


def test_definition_takes_its_name_and_description_from_its_function() -> None:
    @workflow(name="other", description="words")
    async def flow(message: str) -> None: ...

    assert (landing.name, landing.description) == ("landing", "Weigh it, and ask where it goes.")
    assert (flow.name, flow.description) == ("other", "words")
    assert (weigh.name, salt.name) == ("weigh", "salting")
    assert landing.__doc__ == "Weigh it, and ask where it goes."


# ---------------------------------------------------------------- flows


async def test_answered_run_yields_its_return_value() -> None:
    flow = workflow(landing.function)
    asked = await flow.run("cod")
    (request,) = asked.get_request_info_events()
    assert asked.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    assert (request.data, request.response_type) == ({"fish": "cod", "weight": 3}, str)
    result = await flow.run(responses={request.request_id: "cellar"})
    assert result.get_outputs() == ["cod: 1.5 salt"]
    assert result.get_final_state() is WorkflowRunState.IDLE
    assert catches == ["cod"]


async def test_answered_checkpoint_continues_with_a_new_definition() -> None:
    storage = InMemoryCheckpointStorage()
    asked = await workflow(landing.function).run("eel", checkpoint_storage=storage)
    (request,) = asked.get_request_info_events()
    latest = await storage.get_latest(workflow_name="landing")
    assert latest is not None
    result = await workflow(landing.function).run(
        responses={request.request_id: "market"}, checkpoint_id=latest.checkpoint_id, checkpoint_storage=storage
    )
    assert result.get_outputs() == ["eel to market"]
    assert catches == ["eel"]


async def test_the_storage_may_be_named_with_the_definition() -> None:
    storage = InMemoryCheckpointStorage()
    flow = workflow(checkpoint_storage=storage)(landing.function)
    asked = await flow.run("bass")
    assert asked.checkpoint_id in await storage.list_checkpoint_ids(workflow_name="landing")


async def test_a_stream_has_events_of_steps_and_then_the_final_result() -> None:
    flow = workflow(landing.function)
    stream = flow.run("pike", stream=True)
    events = await collect(stream)
    names = [(event.type, event.executor_id) for event in events]
    assert names.index(("executor_invoked", "weigh")) < names.index(("executor_completed", "weigh"))
    assert last_status(events) is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    assert (await stream.get_final_response()).get_request_info_events() != []


async def test_recorded_step_emits_executor_bypassed() -> None:
    flow = workflow(landing.function)
    (request,) = (await flow.run("cod")).get_request_info_events()
    result = await flow.run(responses={request.request_id: "market"})
    assert [event.executor_id for event in result if event.type == "executor_bypassed"] == ["weigh"]


async def test_status_events_are_in_the_result_if_asked_for() -> None:
    plain = await workflow(landing.function).run("cod")
    full = await workflow(landing.function).run("cod", include_status_events=True)
    assert not any(event.type == "status" for event in plain)
    assert [event.state for event in full if event.type == "status"] == [
        WorkflowRunState.IN_PROGRESS,
        WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS,
        WorkflowRunState.IDLE_WITH_PENDING_REQUESTS,
    ]


async def test_workflow_may_add_its_own_event_and_choose_a_request_id() -> None:
    @workflow
    async def flow(message: str, ctx: RunContext) -> str:
        await ctx.add_event(WorkflowEvent("data", "half way"))
        return str(await ctx.request_info(message, str, request_id="mine"))

    asked = await flow.run("well?")
    assert [event.data for event in asked if event.type == "data"] == ["half way"]
    assert (await flow.run(responses={"mine": "fine"})).get_outputs() == ["fine"]


async def test_plain_async_functions_may_be_mixed_with_steps() -> None:
    async def plain(fish: str) -> int:
        return 2 * await weigh(fish)

    @workflow
    async def flow(fish: str) -> int:
        return await plain(fish)

    assert (await flow.run("cod")).get_outputs() == [6]


async def test_run_refuses_the_combinations_that_the_reference_refuses() -> None:
    flow = workflow(landing.function)
    with pytest.raises(ValueError, match="Use one or the other"):
        await flow.run("cod", responses={"a": "b"})
    with pytest.raises(ValueError, match="Use one or the other"):
        await flow.run("cod", checkpoint_id="c")
    with pytest.raises(ValueError, match="Must provide at least one of"):
        await flow.run()
    await flow.run("cod")
    with pytest.raises(ValueError, match="no request 'x'"):
        await flow.run(responses={"x": "y"})


async def test_failed_step_fails_the_run_with_its_own_error_and_emits_it() -> None:
    @step
    async def drop() -> None:
        raise LookupError("overboard")

    @workflow
    async def flow(fish: str) -> None:
        await drop()

    events: list[WorkflowEvent] = []
    with pytest.raises(LookupError, match="overboard"):
        await take_all(flow.run("cod", stream=True), events)
    assert [event.executor_id for event in events if event.type == "executor_failed"] == ["drop"]
    assert last_status(events) is WorkflowRunState.FAILED


async def test_the_context_is_found_in_steps_and_none_outside() -> None:
    @step
    async def keep(key: str) -> None:
        context = get_run_context()
        assert context is not None
        context.set_state(key, "kept")

    @workflow
    async def flow(key: str, ctx: RunContext) -> Any:
        await keep(key)
        return ctx.get_state(key)

    assert (await flow.run("log")).get_outputs() == ["kept"]
    assert get_run_context() is None
