"""Function workflows: events, outputs and states of their runs, with steps that fail or run together."""

from __future__ import annotations

import asyncio
from typing import Any

from flows import FunctionalWorkflow, StepWrapper, WorkflowEvent, get_run_context, step, workflow


@step
async def weigh(fish: str, *, crates: int = 1) -> int:
    """Weigh it."""
    return len(fish) * crates


@step(name="nothing")
async def do_nothing() -> None:
    return None


@step
async def drop(fish: str) -> int:
    raise LookupError(f"{fish} overboard")


@workflow
async def landing(fish: str) -> str:
    """Weigh it twice."""
    await do_nothing()
    return f"{fish} {await weigh(fish) + await weigh(fish, crates=3)}"


@workflow(name="both", description="two at once")
async def gathered(fish: str) -> list:
    return list(await asyncio.gather(weigh(fish), weigh(fish * 2)))


@workflow
async def grouped(fish: str) -> list:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(weigh(fish * number)) for number in (1, 2)]
    return [task.result() for task in tasks]


@workflow
async def branching(fishes: list) -> dict:
    return {fish: await weigh(fish) for fish in fishes if fish != "seal"}


@workflow
async def silent(fish: str) -> None:
    await weigh(fish)


@workflow
async def failing(fish: str) -> int:
    return await drop(fish)


@workflow
async def careful(fish: str) -> str:
    try:
        return str(await drop(fish))
    except LookupError as error:
        return f"caught {error}"


@workflow
async def reporting(fish: str) -> str:
    context = get_run_context()
    await context.add_event(WorkflowEvent("data", data={"at": fish}, executor_id="me"))
    await context.add_event(WorkflowEvent("output", data="half", executor_id="reporting"))
    return f"whole {context.is_streaming()}"


def built(flow: Any) -> Any:
    return flow.build() if hasattr(flow, "build") else flow


def shown(events: Any) -> list[Any]:
    return [
        (event.type, event.executor_id, event.state and event.state.name)
        + ((event.details.error_type,) if event.details else (type(event.data).__name__, repr(event.data)))
        for event in events
    ]


async def streamed(flow: Any, message: Any) -> list[Any]:
    events, error = [], None
    try:
        async for event in flow.run(message, stream=True):
            events.append(event)
    except LookupError as raised:
        error = str(raised)
    return [shown(events), error]


async def main() -> Any:
    results: list[Any] = []
    for flow, message in ((landing, "cod"), (gathered, "eel"), (grouped, "ray"), (branching, ["ray", "seal"])):
        own = built(flow)
        result = await own.run(message)
        is_concurrent = flow in (gathered, grouped)
        events = shown(result)
        states = [result.get_final_state().name, [event.state.name for event in result.status_timeline()]]
        results.append([sorted(events, key=str) if is_concurrent else events, result.get_outputs(), states])
        assert isinstance(own, FunctionalWorkflow)
    results.append(shown(await built(landing).run("cod", include_status_events=True)))
    results.append([(await built(silent).run("cod")).get_outputs(), shown(await built(silent).run("cod"))])
    for flow in (landing, reporting, failing, careful):
        results.append(await streamed(built(flow), "cod"))
    stream = built(landing).run("cod", stream=True)
    results.append((await stream.get_final_response()).get_outputs())
    again = built(landing)
    results.append([(await again.run(fish)).get_outputs() for fish in ("cod", "eel")])
    results.append([landing.name, landing.__doc__, gathered.name, gathered.description, built(gathered).name])
    results.append([weigh.name, weigh.__name__, weigh.__doc__, do_nothing.name, isinstance(weigh, StepWrapper)])
    results.append([await weigh("cod", crates=2), await do_nothing(), get_run_context() is None])
    return results
