"""Ways to run a workflow: options, results, streams, events and their order."""

from __future__ import annotations

from typing import Any, Never

from flows import (
    Executor,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowEventSource,
    WorkflowException,
    WorkflowMessage,
    WorkflowRunResult,
    WorkflowRunState,
    executor,
    handler,
)

SUPERSTEPS = ("superstep_started", "superstep_completed")


class Count(Executor):
    """Sends a number on until it reaches the limit."""

    def __init__(self, id: str, limit: int = 3) -> None:
        super().__init__(id=id)
        self.limit = limit

    @handler
    async def count(self, number: int, ctx: WorkflowContext[int, int]) -> None:
        if number < self.limit:
            await ctx.send_message(number + 1)
        else:
            await ctx.yield_output(number)


class Broken(Executor):
    @handler
    async def take(self, number: int, ctx: WorkflowContext[int, int]) -> None:
        await ctx.yield_output(number)
        raise RuntimeError(f"cannot take {number}")


def loop(limit: int = 3, **options: Any) -> Any:
    a, b = Count("a", limit), Count("b", limit)
    return WorkflowBuilder(start_executor=a, **options).add_edge(a, b).add_edge(b, a).build()


def show(event: Any) -> list[Any]:
    parts = [event.type, event.executor_id, None if event.state is None else event.state.value, event.iteration]
    return [*parts, event.data if isinstance(event.data, int | str | list) else str(type(event.data).__name__)]


async def collect(stream: Any) -> list[Any]:
    return [event async for event in stream]


async def outcome(call: Any) -> Any:
    try:
        return await call()
    except Exception as error:  # noqa: BLE001
        return next(kind.__name__ for kind in (RuntimeError, ValueError, TypeError) if isinstance(error, kind))


async def plain_results() -> dict[str, Any]:
    result = await loop().run(0)
    with_status = await loop().run(0, include_status_events=True)
    return {
        "is a result": isinstance(result, WorkflowRunResult) and isinstance(result, list),
        "events": list(map(show, result)),
        "with status": [event.type for event in with_status],
        "outputs": result.get_outputs(),
        "intermediate": result.get_intermediate_outputs(),
        "requests": result.get_request_info_events(),
        "final": result.get_final_state().value,
        "timeline": [event.state.value for event in result.status_timeline()],
    }


async def streams() -> dict[str, Any]:
    stream = loop().run(0, stream=True)
    events = await collect(stream)
    final = await stream.get_final_response()
    awaited = await loop().run(0, stream=True)
    only_final = await loop().run(0, stream=True).get_final_response()
    first = [event async for event in await loop().run(0, stream=True)]
    updates = loop().run(0, stream=True)
    await updates.get_final_response()
    return {
        "events": list(map(show, events)),
        "final": [final.get_outputs(), final.get_final_state().value, len(final)],
        "awaited": [type(awaited).__name__, len(await collect(awaited))],
        "only final": only_final.get_outputs(),
        "first": len(first),
        "updates": [event.type for event in updates.updates],
    }


async def transformed() -> dict[str, Any]:
    seen: list[Any] = []
    texts = loop().run(0, stream=True).map(lambda event: event.type, lambda types: f"{len(types)} types")
    mapped = [text async for text in texts]
    hooked = loop().run(0, stream=True)
    hooked.with_cleanup_hook(lambda: seen.append("cleanup"))
    hooked.with_result_hook(lambda result: seen.append(len(result)))
    hooked.with_transform_hook(lambda event: seen.append(event.type) if event.type == "output" else None)
    events = await collect(hooked)
    outputs = (await hooked.get_final_response()).get_outputs()
    return {"mapped": mapped, "end": await texts.get_final_response(), "seen": seen, "hooked": [len(events), outputs]}


async def misuse() -> dict[str, Any]:
    workflow = loop()
    results: dict[str, Any] = {}
    for name, options in {
        "nothing": {},
        "message and responses": {"message": 1, "responses": {"a": 1}},
        "message and checkpoint": {"message": 1, "checkpoint_id": "x"},
        "no storage": {"checkpoint_id": "x"},
        "no requests": {"responses": {"x": 1}},
        "wrong type": {"message": "text"},
    }.items():
        results[name] = await outcome(lambda options=options: workflow.run(**options))
    stream = workflow.run(0, stream=True)
    iterator = aiter(stream)
    await anext(iterator)
    try:
        await workflow.run(0)
    except WorkflowException:
        results["concurrent"] = "rejected"
    async for _ in iterator:
        pass
    results["after it"] = (await workflow.run(0)).get_outputs()
    return results


async def failing() -> dict[str, Any]:
    broken = Broken("broken")
    events: list[Any] = []
    stream = WorkflowBuilder(start_executor=broken).build().run(7, stream=True)
    try:
        async for event in stream:
            events.append(event)
    except RuntimeError as error:
        raised = str(error)
    failed = [event for event in events if event.type in ("failed", "executor_failed")]
    return {
        "events": [
            [event.type, event.executor_id, event.state and event.state.value]
            for event in events
            if event.type != "superstep_discarded"
        ],
        "raised": raised,
        "details": [event.details.error_type for event in failed],
    }


async def limits() -> dict[str, Any]:
    results: dict[str, Any] = {}
    workflow = loop(10, max_iterations=3)
    try:
        await workflow.run(0)
    except Exception as error:  # noqa: BLE001
        results["error"] = [type(error).__name__, isinstance(error, RuntimeError)]
    results["status"] = workflow.status.value
    results["fits"] = (await loop(2, max_iterations=3).run(0)).get_outputs()
    return results


async def wrapped() -> dict[str, Any]:
    workflow = loop()
    first = await workflow.run(WorkflowMessage(data=2, source_id="outside"))
    second = await workflow.run(WorkflowMessage(3, "outside", "somewhere"))

    @executor(id="any")
    async def any_message(message: Any, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(type(message).__name__)

    flow = WorkflowBuilder(start_executor=any_message).build()
    third = await flow.run(WorkflowMessage(data="text", source_id="outside"))
    return {"results": [each.get_outputs() for each in (first, second, third)]}


async def own_events() -> dict[str, Any]:
    @executor(id="talker")
    async def talker(message: int, ctx: WorkflowContext[int, int]) -> None:
        await ctx.add_event(WorkflowEvent("progress", data=message))
        await ctx.add_event(WorkflowEvent.status(WorkflowRunState.IDLE))
        await ctx.add_event(WorkflowEvent("output", data="by hand", executor_id="talker"))
        await ctx.add_event(WorkflowEvent.started())
        await ctx.add_event(WorkflowEvent.emit("talker", {"k": 1}))
        await ctx.yield_output(message)
        await ctx.send_message(message)

    events = await collect(WorkflowBuilder(start_executor=talker).build().run(5, stream=True))
    shown = [[event.type, event.origin.value] for event in events if event.type not in ("warning", *SUPERSTEPS)]
    warnings = [event.data for event in events if event.type == "warning" and "attempted to emit" in event.data]
    assert WorkflowEventSource.EXECUTOR.value == "EXECUTOR"
    return {
        "events": shown,
        "warnings": len(warnings),
        "data": [event.data for event in events if event.type in ("progress", "data")],
    }


async def designated() -> dict[str, Any]:
    def make(**options: Any) -> Any:
        a, b = Count("a", 0), Count("b", 9)

        class Both(Executor):
            @handler
            async def take(self, number: int, ctx: WorkflowContext[int, int]) -> None:
                await ctx.send_message(9)
                await ctx.yield_output(number)

        both = Both("both")
        assert a.id
        chosen = {
            key: [both if x == "both" else b for x in v] if isinstance(v, list) else v for key, v in options.items()
        }
        return WorkflowBuilder(start_executor=both, **chosen).add_edge(both, b).build()

    results: dict[str, Any] = {}
    for name, options in {
        "none": {},
        "b": {"output_from": ["b"]},
        "all": {"output_from": "all"},
        "other": {"output_from": ["b"], "intermediate_output_from": "all_other"},
        "only intermediate": {"intermediate_output_from": ["both"]},
        "old": {"output_executors": ["both"]},
    }.items():
        workflow = make(**options)
        result = await workflow.run(1)
        results[name] = [
            result.get_outputs(),
            result.get_intermediate_outputs(),
            sorted(each.id for each in workflow.get_output_executors()),
            sorted(each.id for each in workflow.get_intermediate_executors()),
            [workflow.is_terminal_executor("b"), workflow.is_intermediate_executor("both")],
            [event.type for event in result if event.type in ("output", "intermediate")],
        ]
    return results


async def main() -> Any:
    parts = (plain_results, streams, transformed, misuse, failing, limits, wrapped, own_events, designated)
    return {part.__name__: await part() for part in parts}
