"""Function workflows and steps get their RunContext wherever they take it; its state; replay keys; errors."""

from __future__ import annotations

import inspect
from typing import Any

from flows import RunContext, get_run_context, step, workflow


@step
async def first(ctx: RunContext, number: int) -> str:
    return f"{type(ctx).__name__} {number}"


@step
async def last(number: int, more: int = 2, *, context: RunContext) -> str:
    return f"{type(context).__name__} {number} {more}"


@step
async def between(number: int, ctx: RunContext, more: int = 5) -> str:
    return f"{type(ctx).__name__} {number} {more}"


@step
async def by_name(number: int, ctx) -> str:
    return f"{type(ctx).__name__} {number}"


@step
async def rest(ctx: RunContext, *numbers: int) -> str:
    return f"{type(ctx).__name__} {numbers}"


@step
async def keep(key: str, ctx: RunContext) -> None:
    ctx.set_state(key, ctx is get_run_context())


@workflow
async def everywhere(number: int) -> list:
    calls = [await first(1), await last(1, 3), await last(4), await between(1, 7), await between(2)]
    return [*calls, await by_name(4), await first(number=9), await rest(1, 2)]


@workflow
async def context_first(ctx: RunContext, message: str) -> str:
    return f"{type(ctx).__name__} {message}"


@workflow
async def context_named(message: str, ctx) -> str:
    return f"{type(ctx).__name__} {message}"


@workflow
async def context_elsewhere(message: str, run: RunContext) -> str:
    return f"{type(run).__name__} {message}"


@workflow
async def counting(message: str, ctx: RunContext) -> list:
    await keep("kept")
    ctx.set_state("count", ctx.get_state("count", 0) + 1)
    return [ctx.get_state("count"), ctx.get_state("kept"), ctx.get_state("none"), ctx.get_state("none", 7)]


@workflow
async def reserved(message: str, ctx: RunContext) -> None:
    ctx.set_state("_key", message)


@workflow
async def without_message(ctx: RunContext) -> str:
    return "ran"


def built(flow: Any) -> Any:
    return flow.build() if hasattr(flow, "build") else flow


def with_two_messages() -> None:
    @workflow
    async def flow(first: str, second: str) -> None: ...


async def failure(work: Any) -> list[str]:
    try:
        result = work()
        await result
    except (ValueError, RuntimeError) as error:
        return [kind.__name__ for kind in (ValueError,) if isinstance(error, kind)]
    return ["none"]


async def replay_keys() -> Any:
    if "replay_key" not in inspect.signature(step).parameters or "build" not in dir(counting):
        return None
    seen: list[str] = []

    @step(replay_key=lambda connection, name: name)
    async def load(connection: object, name: str) -> str:
        seen.append(name)
        return name.upper()

    @workflow
    async def loading(_: str) -> list:
        return [await load(object(), name) for name in ("a", "b")]

    outside = await load(object(), "c")
    return (await built(loading).run("go")).get_outputs(), seen, outside


async def main() -> Any:
    results: list[Any] = []
    for flow in (everywhere, context_first, context_named, context_elsewhere):
        results.append((await built(flow).run(3)).get_outputs() if flow is everywhere else None)
        results.append((await built(flow).run("hi")).get_outputs() if flow is not everywhere else None)
    flow = built(counting)
    results.append([(await flow.run("go")).get_outputs() for _ in range(2)])
    results.append(await failure(lambda: built(reserved).run("go")))
    results.append(await failure(lambda: built(without_message).run("a message")))
    results.append(await failure(lambda: built(context_first).run()))
    results.append(await failure(lambda: built(counting).run("a", responses={"b": "c"})))
    results.append(await failure(lambda: built(counting).run("a", checkpoint_id="b")))
    results.append(await failure(lambda: built(counting).run(checkpoint_id="b")))
    try:
        with_two_messages()
    except ValueError:
        results.append("two messages")
    alone = RunContext("alone", streaming=True)
    alone.set_state("key", 1)
    results.append([alone.get_state("key"), alone.get_state("none", 2), alone.is_streaming()])
    results.append(await between(1, alone))
    return results
