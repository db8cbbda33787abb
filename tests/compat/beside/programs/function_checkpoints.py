"""Function workflows with a storage: a checkpoint continues a paused, a failed and a finished run."""

from __future__ import annotations

from typing import Any

from flows import (
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    RunContext,
    WorkflowCheckpointException,
    step,
    workflow,
)

FOLDER: Any = None
called: list[str] = []
broken = {"salt"}


@step
async def weigh(fish: str) -> int:
    called.append("weigh")
    return len(fish)


@step
async def salt(weight: int) -> float:
    called.append("salt")
    if "salt" in broken:
        raise ConnectionError("no salt")
    return weight / 2


@workflow
async def landing(fish: str, ctx: RunContext) -> str:
    weight = await weigh(fish)
    ctx.set_state("weight", weight)
    place = await ctx.request_info({"weight": weight}, response_type=str, request_id="place")
    return f"{place} {ctx.get_state('weight')} {await salt(weight)}"


@workflow
async def salting(fish: str) -> float:
    return await salt(await weigh(fish))


@workflow
async def counting(number: int, ctx: RunContext) -> int:
    ctx.set_state("number", number)
    return number


def built(flow: Any) -> Any:
    return flow.build() if hasattr(flow, "build") else flow


def steps_of(result: Any) -> list[Any]:
    return [(event.type, event.executor_id) for event in result if event.type.startswith("executor_")]


async def latest(storage: Any, flow: Any) -> Any:
    return await storage.get_latest(workflow_name=flow.name)


async def main() -> Any:
    results: list[Any] = []
    called.clear()
    broken.clear()
    for storage in (InMemoryCheckpointStorage(), FileCheckpointStorage(str(FOLDER))):
        asked = await built(landing).run("cod", checkpoint_storage=storage)
        paused = await latest(storage, landing)
        results.append([asked.get_final_state().name, paused.workflow_name, list(paused.pending_request_info_events)])
        resumed = await built(landing).run(checkpoint_id=paused.checkpoint_id, checkpoint_storage=storage)
        results.append([request.data for request in resumed.get_request_info_events()])
        options: dict[str, Any] = {"checkpoint_id": paused.checkpoint_id, "checkpoint_storage": storage}
        answered = await built(landing).run(responses={"place": "cellar"}, **options)
        results.append([answered.get_outputs(), steps_of(answered), list(called)])
        stream = built(landing).run(responses={"place": "market"}, stream=True, **options)
        results.append([event.data async for event in stream if event.type == "output"])

    storage = InMemoryCheckpointStorage()
    called.clear()
    flow = built(salting)
    for runner in (flow, built(salting)):
        broken.add("salt")
        try:
            await built(salting).run("cod", checkpoint_storage=storage)
        except ConnectionError as error:
            results.append(str(error))
        broken.clear()
        failed = await latest(storage, salting)
        result = await runner.run(checkpoint_id=failed.checkpoint_id, checkpoint_storage=storage)
        results.append([result.get_outputs(), steps_of(result), list(called)])

    counted = built(counting)
    await counted.run(4, checkpoint_storage=storage)
    results.append({key: value for key, value in (await latest(storage, counting)).state.items() if key[0] != "_"})
    done = await latest(storage, salting)
    called.clear()
    finished = await built(salting).run(checkpoint_id=done.checkpoint_id, checkpoint_storage=storage)
    results.append([finished.get_outputs(), list(called)])
    try:
        await built(landing).run(checkpoint_id=done.checkpoint_id, checkpoint_storage=storage)
    except ValueError:
        results.append("another function")
    try:
        await built(landing).run(checkpoint_id="unknown", checkpoint_storage=storage)
    except WorkflowCheckpointException:
        results.append("unknown")
    return results
