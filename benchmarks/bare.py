"""The same shapes without an engine: the limit of asyncio alone on this machine."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from workloads import WIDTH

Send = Callable[[int], None]


async def loop_once(supersteps: int) -> None:
    """Await an async handler in place, swapping the list of messages after each superstep."""
    outputs: list[int] = []

    async def count(message: int, send: Send) -> None:
        if message:
            send(message - 1)
        else:
            outputs.append(message)

    messages = [supersteps - 1]
    while messages:
        batch, messages = messages, []
        for message in batch:
            await count(message, messages.append)
    assert outputs == [0]


async def fan_once(rounds: int) -> None:
    """1 to 100 to 1 with a task per worker (they must run concurrently), the ends awaited in place."""
    left = rounds - 1
    while left >= 0:
        sent: list[int] = []
        await _relay(left, sent.append)
        joined: list[int] = []
        await _concurrently([_relay(sent[0], joined.append) for _ in range(WIDTH)])
        assert len(joined) == WIDTH
        left = joined[0] - 1


async def _relay(message: int, send: Send) -> None:
    send(message)


async def _concurrently(coroutines: list[Coroutine[Any, Any, None]]) -> None:
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(coroutine, name="worker") for coroutine in coroutines]
    await asyncio.sleep(0)
    pending = [task for task in tasks if not task.done()]
    if pending:
        await asyncio.wait(pending)
