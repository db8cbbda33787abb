"""Server-sent events: the response of a stream, with heartbeats and a closing frame that holds the cursor."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import msgspec
from litestar.response import Stream

from perdure.errors import CursorExpired, PerdureError
from perdure.log import get_logger
from perdure.server.app.service import Service
from perdure.server.problems import problem_of
from perdure.server.runs.hub import Follower, frame

logger = get_logger("server")

HEARTBEAT_SECONDS = 15.0
HEARTBEAT = b": \n\n"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Proxies neither cache nor buffer the stream."""

NextFrames = Callable[[], Awaitable[bytes | None]]
"""The next frames of a stream; empty where a heartbeat is due, None after the last."""


def event_stream(service: Service, next_frames: NextFrames, follower: Follower, stack: AsyncExitStack) -> Stream:
    """A response that closes the stack when the stream ends."""
    content = _stream(service, next_frames, follower, stack)
    return Stream(content, media_type="text/event-stream", headers=HEADERS)


async def _stream(
    service: Service, next_frames: NextFrames, follower: Follower, stack: AsyncExitStack
) -> AsyncIterator[bytes]:
    async with stack:
        service.stop_hooks.add(follower.wake)
        stack.callback(service.stop_hooks.discard, follower.wake)
        yield b"retry: 1000\n\n"
        try:
            while (frames := await next_frames()) is not None:
                yield frames or HEARTBEAT
                if service.stopping.is_set():
                    yield _frame("closing", after=follower.cursor, reason="The server stops. Connect again.")
                    return
        except CursorExpired as error:
            message = "The events after the cursor were pruned, or the thread was recreated. Connect without a cursor."
            yield _frame("error", code=error.code, message=message)
        except PerdureError as error:
            problem = problem_of(error)
            logger.warning("a stream failed: %s", error)
            code = "unavailable" if problem is None else problem.code
            message = "The stream failed. Reconnect after the cursor."
            yield _frame("error", code=code, message=message, after=follower.cursor)


def _frame(kind: str, **data: object) -> bytes:
    return frame(kind, msgspec.json.encode(data))
