"""Server-sent events: frames, heartbeats, and a closing frame with the cursor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import msgspec
from litestar.response import Stream

from perdure.errors import CursorExpired, PerdureError
from perdure.log import get_logger
from perdure.server.agentflow.turns import Chunk
from perdure.server.app.service import Service
from perdure.server.problems import problem_of
from perdure.server.runs.hub import Follower

logger = get_logger("server")

HEARTBEAT_SECONDS = 15.0
HEARTBEAT = b": \n\n"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Proxies neither cache nor buffer the stream."""

_encode = msgspec.json.Encoder().encode


def frame(event: str, data: object, seq: int | None = None) -> bytes:
    head = b"" if seq is None else b"id: %d\n" % seq
    return b"%sevent: %s\ndata: %s\n\n" % (head, event.encode(), _encode(data))


async def frames_of_events(follower: Follower, *, live: bool) -> AsyncIterator[bytes]:
    """Frames of a thread's events until the client disconnects; an empty frame after each heartbeat interval."""
    while True:
        events = await follower.next(HEARTBEAT_SECONDS)
        yield b"".join([event.frame for event in events if live or event.seq is not None])


async def frames_of_chunks(chunks: AsyncIterator[Chunk | None]) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        if chunk is None:
            yield b""
        else:
            seq, body = chunk
            yield frame(body["event"], body, seq)


def event_stream(service: Service, frames: AsyncIterator[bytes], follower: Follower, stack: AsyncExitStack) -> Stream:
    """A response that closes the stack when the stream ends."""
    return Stream(
        _stream_frames(service, frames, follower, stack),
        media_type="text/event-stream",
        headers=HEADERS,
    )


async def _stream_frames(
    service: Service, frames: AsyncIterator[bytes], follower: Follower, stack: AsyncExitStack
) -> AsyncIterator[bytes]:
    async with stack:
        yield b"retry: 1000\n\n"
        try:
            async for piece in until_stopped(service, frames, follower):
                yield piece or HEARTBEAT
        except CursorExpired as error:
            message = "The events after the cursor were pruned, or the thread was recreated. Connect without a cursor."
            yield frame("error", {"code": error.code, "message": message})
        except PerdureError as error:
            problem = problem_of(error)
            logger.warning("a stream failed: %s", error)
            code = "unavailable" if problem is None else problem.code
            yield frame(
                "error",
                {"code": code, "message": "The stream failed. Reconnect after the cursor.", "after": follower.cursor},
            )


async def until_stopped(service: Service, frames: AsyncIterator[bytes], follower: Follower) -> AsyncIterator[bytes]:
    """Frames until the server stops; the last frame holds the cursor for reconnecting."""
    service.stop_hooks.add(follower.wake)
    try:
        async for piece in frames:
            yield piece
            if service.stopping.is_set():
                yield frame("closing", {"after": follower.cursor, "reason": "The server stops. Connect again."})
                return
    finally:
        service.stop_hooks.discard(follower.wake)
