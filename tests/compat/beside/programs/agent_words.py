"""Words of errors of function workflows and of checkpoints that programs match, and their classes."""

from collections.abc import Awaitable, Callable
from typing import Any

import flows
from flows import InMemoryCheckpointStorage, RunContext, WorkflowCheckpointException


def built(function: Any, storage: Any = None, **options: Any) -> Any:
    """A function workflow in both versions."""
    made = flows.workflow(**options)(function)
    return (
        made.build(checkpoint_storage=storage)
        if hasattr(made, "build")
        else flows.workflow(checkpoint_storage=storage, **options)(function)
    )


async def asks(number: int, ctx: RunContext) -> Any:
    return await ctx.request_info("which?", int, request_id="r1")


async def returns(number: int, ctx: RunContext) -> Any:
    return number


async def takes_none(ctx: RunContext) -> int:
    return 1


async def takes_two(first: int, second: int) -> int:
    return first


async def outcome(call: Callable[[], Awaitable[Any]], *kinds: type, words: str) -> list[Any]:
    try:
        await call()
    except Exception as error:  # noqa: BLE001  # the comparison shows it
        return [words in str(error), [isinstance(error, kind) for kind in kinds]]
    return ["no error"]


async def main() -> Any:
    storage = InMemoryCheckpointStorage()
    asking, idle = built(asks, name="w"), built(returns, name="w")
    await asking.run(1)
    await idle.run(1)
    await built(asks, storage, name="kept").run(1)
    latest = await storage.get_latest(workflow_name="kept")
    other = built(returns, storage, name="kept")

    async def declare() -> None:
        built(takes_two)

    pairs: list[Any] = [
        (lambda: asking.run(responses={"no": 1}), "do not answer any of the currently-pending requests"),
        (lambda: idle.run(responses={"no": 1}), "do not correspond to any pending request"),
        (lambda: built(takes_none).run(5), "has no non-RunContext parameter to receive a message"),
        (declare, "declares multiple non-RunContext parameters"),
        (lambda: idle.run(checkpoint_id="no"), "Cannot restore from checkpoint"),
        (
            lambda: other.run(checkpoint_id=latest.checkpoint_id),
            "was created by a different version of workflow 'kept'",
        ),
    ]
    results = [await outcome(call, ValueError, words=words) for call, words in pairs]
    for call in (lambda: other.run(checkpoint_id="missing-id"), lambda: storage.load("missing-id")):
        words = "No checkpoint found with ID missing-id"
        results.append(await outcome(call, WorkflowCheckpointException, words=words))
    return results
