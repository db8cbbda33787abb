"""What other processes do, and the workflow that they run: it talks while it works."""

from __future__ import annotations

import time
from collections.abc import Collection
from hashlib import sha256
from typing import Any

from tests.valkey.others import Pipe
from tests.valkey.places import Place

from perdure import Executor, Workflow, WorkflowBuilder, WorkflowContext, WorkflowEvent, handler

TOKENS = 3
"""Told in each superstep."""


class Talker(Executor):
    """Counts down: tells tokens, says through the pipe where it is, waits where it was told to, and sends on."""

    def __init__(self, id: str, pipe: Pipe | None, stops: Collection[int]) -> None:
        super().__init__(id)
        self._pipe = pipe
        self._stops = stops

    @handler
    async def talk(self, left: int, ctx: WorkflowContext[int, str]) -> None:
        for number in range(TOKENS):
            await ctx.add_event(WorkflowEvent.emit(self.id, f"{left}.{number}"))
        if self._pipe is not None and left in self._stops:
            self._pipe.say("at", left)
            await self._pipe.hear_of("go on")
        ctx.set_state("said", [*ctx.get_state("said", []), left])
        ctx.set_state("large", [*ctx.get_state("large", []), sha256(b"%d" % left).hexdigest() * 5])
        if left > 1:
            await ctx.send_message(left - 1)
        else:
            await ctx.yield_output("said all")


def talking(storage: Any, pipe: Pipe | None = None, stops: Collection[int] = ()) -> Workflow:
    """Two executors take turns, a superstep each."""
    ping, pong = Talker("ping", pipe, stops), Talker("pong", pipe, stops)
    builder = WorkflowBuilder(name="talking", start_executor=ping, checkpoint_storage=storage)
    return builder.add_edge(ping, pong).add_edge(pong, ping).build()


async def talk(pipe: Pipe, place: Place, thread_id: str, count: int, stops: Collection[int] = ()) -> None:
    """Run a thread of so many supersteps."""
    async with place.storage() as storage:
        pipe.say("ready")
        await pipe.hear_of("go on")
        result = await talking(storage, pipe, stops).run(count, thread_id=thread_id)
        pipe.say("ended", result.get_outputs())
    pipe.say("closed")


async def hold(pipe: Pipe, place: Place, thread_id: str) -> None:
    """Own a thread until told otherwise."""
    store = place.store()
    opened = await store.open(thread_id, "the holder")
    pipe.say("holds")
    await pipe.hear_of("give up")
    await store.release(opened.lease)
    pipe.say("gave up", time.monotonic())  # of the whole machine
    await pipe.hear_of("end")
    await store.close()
