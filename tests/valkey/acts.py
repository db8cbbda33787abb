"""What other processes do, and the workflow that they run: it talks while it works."""

from __future__ import annotations

from collections.abc import Collection
from hashlib import sha256
from typing import Any

from tests.valkey.others import Pipe
from tests.valkey.places import Place

from perdure import Executor, Workflow, WorkflowBuilder, WorkflowContext, WorkflowEvent, handler

TOKENS = 3
"""Emitted in each superstep."""


class Talker(Executor):
    """Counts down: emits tokens, reports its place through the pipe, waits at the stops, and sends on."""

    def __init__(self, id: str, pipe: Pipe | None, stops: Collection[int]) -> None:
        super().__init__(id)
        self._pipe = pipe
        self._stops = stops

    @handler
    async def talk(self, left: int, ctx: WorkflowContext[int, str]) -> None:
        for number in range(TOKENS):
            await ctx.add_event(WorkflowEvent.emit(self.id, f"{left}.{number}"))
        if self._pipe is not None and left in self._stops:
            self._pipe.send("at", left)
            await self._pipe.wait_for("go on")
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
        pipe.send("ready")
        await pipe.wait_for("go on")
        result = await talking(storage, pipe, stops).run(count, thread_id=thread_id)
        pipe.send("ended", result.get_outputs())
    pipe.send("closed")


async def hold(pipe: Pipe, place: Place, thread_id: str) -> None:
    """Own a thread until the test ends the ownership."""
    store = place.store()
    opened = await store.open(thread_id, "the holder")
    pipe.send("holds")
    await pipe.wait_for("give up")
    await store.release(opened.lease)
    pipe.send("gave up")
    await pipe.wait_for("end")
    await store.close()
