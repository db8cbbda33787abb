"""The words of errors of runs, events and messages, and the warnings of executors that forge events."""

import asyncio
import tempfile
from typing import Any, Never

from flows import (
    Executor,
    FanInEdgeGroup,
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    WorkflowAgent,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowErrorDetails,
    WorkflowEvent,
    WorkflowMessage,
    WorkflowRunState,
    executor,
    handler,
)


class Forge(Executor):
    @handler
    async def take(self, message: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.add_event(WorkflowEvent("custom", data=message))
        for event in (WorkflowEvent.status(WorkflowRunState.IDLE), WorkflowEvent.started()):
            await ctx.add_event(event)


class Join(Executor):
    @handler
    async def take(self, messages: list[str], ctx: WorkflowContext[Never, Any]) -> None:
        await ctx.yield_output(await words(ctx.get_source_executor_id, "Cannot get source executor ID when there are"))


async def words(call: Any, *phrases: str) -> Any:
    try:
        result = call()
        if hasattr(result, "__await__"):
            await result
    except Exception as error:  # noqa: BLE001  # any error is the result
        return [phrase in str(error) for phrase in phrases]
    return "nothing was raised"


async def of_runs() -> Any:
    workflow = WorkflowBuilder(start_executor=Forge("forge")).build()
    events = await workflow.run("x")
    return [
        [
            [event.type, str(event.data).partition(". Use")[0]]
            for event in events
            if event.type in ("custom", "warning")
        ],
        await words(workflow.run, "Must provide at least one of: 'message' (new run), 'responses'"),
        await words(
            lambda: workflow.run("x", responses={"a": 1}), "both 'message' and 'responses'. Use one or the other"
        ),
        await words(
            lambda: workflow.run("x", checkpoint_id="a"), "both 'message' and 'checkpoint_id'. Use one or the other"
        ),
        await words(lambda: workflow.run(responses={"a": 1}), "No pending requests found in workflow context"),
        await words(lambda: workflow.run(5), "Start executor 'forge' cannot handle input of type 'int'"),
    ]


async def of_a_second_run() -> Any:
    ends = asyncio.Event()

    @executor(id="slow")
    async def slow(message: str, ctx: WorkflowContext[Never, str]) -> None:
        await ends.wait()
        await ctx.yield_output(message)

    workflow = WorkflowBuilder(start_executor=slow).build()
    events = aiter(workflow.run("x", stream=True))
    await anext(events)
    refused = await words(
        lambda: workflow.run("y"), "Workflow is already running; concurrent runs are not allowed on the same instance"
    )
    ends.set()
    return [refused, [event.data async for event in events if event.type == "output"]]


async def of_storages() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        storages = [InMemoryCheckpointStorage(), FileCheckpointStorage(folder)]
        return [await words(lambda each=each: each.load("none"), "No checkpoint found with ID") for each in storages]


async def of_joins() -> Any:
    async def send(message: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(message)

    start, left, right = (executor(id=name)(send) for name in ("start", "left", "right"))
    builder = WorkflowBuilder(start_executor=start).add_fan_out_edges(start, [left, right])
    workflow = builder.add_fan_in_edges([left, right], Join("join")).build()
    return [(await workflow.run("x")).get_outputs(), type(workflow.edge_groups[-1]) is FanInEdgeGroup]


async def of_objects() -> Any:
    request = WorkflowEvent.request_info("id", "source", "data", int).to_dict()
    fields = ("data", "request_id", "source_executor_id", "request_type", "response_type")
    rest = {name: {key: value for key, value in request.items() if key != name} for name in fields}
    return [
        [
            await words(lambda data=data: WorkflowEvent.from_dict(data), f"'{name}' field in")
            for name, data in rest.items()
        ],
        await words(lambda: WorkflowMessage.from_dict({"data": 1}), "Missing 'source_id' field in WorkflowMessage"),
        await words(lambda: WorkflowMessage.from_dict({"source_id": "a"}), "Missing 'data' field in WorkflowMessage"),
        await words(
            lambda: WorkflowAgent.RequestInfoFunctionArgs.from_dict({}), "'request_id' and 'request_event' are required"
        ),
        WorkflowErrorDetails.from_exception(ValueError("x"), executor_id="e", extra={"k": 1}).extra,
        await words(lambda: executor(classmethod(of_joins)), "decorator cannot be used with @classmethod"),
    ]


async def main() -> Any:
    parts = (of_runs, of_a_second_run, of_storages, of_joins, of_objects)
    return {part.__name__: await part() for part in parts}
