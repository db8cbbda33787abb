"""Server-sent events: frames, heartbeats while nothing happens, and a cursor at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import msgspec
from litestar.response import Stream

from perdure.errors import CursorExpired, PerdureError
from perdure.log import get_logger
from perdure.server.agentflow.streaming import Chunk
from perdure.server.app.service import Service
from perdure.server.problems import problem_of
from perdure.server.runs.hub import Follower

logger = get_logger("server")

HEARTBEAT_SECONDS = 15.0
HEARTBEAT = b": \n\n"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""No proxy may keep it, or wait for more of it."""

_encode = msgspec.json.Encoder().encode


def frame(event: str, data: object, seq: int | None = None) -> bytes:
    head = b"" if seq is None else b"id: %d\n" % seq
    return b"%sevent: %s\ndata: %s\n\n" % (head, event.encode(), _encode(data))


async def frames_of_events(follower: Follower, *, live: bool) -> AsyncIterator[bytes]:
    """All that is told, until the client leaves. An empty one when nothing happened for a while."""
    while True:
        told = await follower.next(HEARTBEAT_SECONDS)
        yield b"".join([one.frame for one in told if live or one.seq is not None])


async def frames_of_chunks(chunks: AsyncIterator[Chunk | None], follower: Follower) -> AsyncIterator[bytes]:
    async for one in chunks:
        if one is None:
            yield b""
        else:
            seq, told = one
            yield frame(told["event"], told, seq)


def event_stream(service: Service, frames: AsyncIterator[bytes], follower: Follower, stack: AsyncExitStack) -> Stream:
    """The stack is left when the stream ends, whoever ends it."""
    return Stream(
        _told(service, frames, follower, stack),
        media_type="text/event-stream",
        headers=HEADERS,
    )


async def _told(
    service: Service, frames: AsyncIterator[bytes], follower: Follower, stack: AsyncExitStack
) -> AsyncIterator[bytes]:
    async with stack:
        yield b"retry: 1000\n\n"
        try:
            async for one in until_stopped(service, frames, follower):
                yield one or HEARTBEAT
        except CursorExpired as error:
            said = "What followed the cursor is gone, or the thread was begun again. Connect without a cursor."
            yield frame("error", {"code": error.code, "message": said})
        except PerdureError as error:
            problem = problem_of(error)
            logger.warning("a stream ended: %s", error)
            code = "unavailable" if problem is None else problem.code
            yield frame("error", {"code": code, "message": "The stream cannot go on.", "after": follower.cursor})


async def until_stopped(service: Service, frames: AsyncIterator[bytes], follower: Follower) -> AsyncIterator[bytes]:
    """When the server stops, the last frame says from where another one goes on."""
    service.stop_hooks.add(follower.wake)
    try:
        async for one in frames:
            yield one
            if service.stopping.is_set():
                yield frame("closing", {"after": follower.cursor, "reason": "The server stops. Connect again."})
                return
    finally:
        service.stop_hooks.discard(follower.wake)
