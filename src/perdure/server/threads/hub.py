"""Event streams: one reader per followed thread; each follower has its own cursor.

A stream has heartbeats, and a closing frame that holds the cursor. Its events are as they are, or AgentFlow's chunks.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import msgspec

from perdure.agents.conversation.message import Message
from perdure.agents.conversation.update import AgentResponseUpdate
from perdure.checkpoints.any_storage import read_events
from perdure.checkpoints.follow import Declared, ThreadFollower
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.errors import CursorExpired, PerdureError
from perdure.events import WorkflowEvent
from perdure.log import get_logger
from perdure.server.auth.principal import Space
from perdure.server.problems import problem_of
from perdure.server.threads.as_json import (
    event_to_json,
    message_to_client,
    messages_to_client,
    output_messages,
    request_to_json,
    with_ids,
)

logger = get_logger("server")
T = TypeVar("T")

PAGE_SIZE = 500
"""Events that are read and sent in one batch."""
MAX_UNREAD = 1000
"""Events buffered for one slow client. Beyond that the buffer is dropped, and the client reads the log."""


HEARTBEAT_SECONDS = 15.0
HEARTBEAT = b": \n\n"


def frame(kind: str, data: Any, seq: int | None = None) -> bytes:
    """A server-sent event. Only committed events have an id: clients reconnect with it."""
    head = b"" if seq is None else b"id: %d\n" % seq
    return b"%sevent: %s\ndata: %s\n\n" % (head, kind.encode(), msgspec.json.encode(data))


class StreamedEvent(msgspec.Struct):
    """One event, encoded once for all followers."""

    event: WorkflowEvent
    space: Space
    after: int
    """The last committed event when this one was published."""
    hides: bool
    encoded: bytes | None = None

    def to_json(self) -> dict[str, Any]:
        return event_to_json(self.event, self.space, hides_errors=self.hides)

    @property
    def frame(self) -> bytes:
        if self.encoded is None:
            self.encoded = frame(self.event.type, self.to_json(), self.event.seq)
        return self.encoded


class Follower:
    """One client of a thread's stream. It gets each event after its cursor once, in order."""

    def __init__(self, channel: _Channel, after: int | None, *, from_end: bool) -> None:
        self._channel = channel
        self._after = after
        self._cursor = None if from_end else max(after or 0, 0)
        self._unread: deque[StreamedEvent] = deque()
        self._must_read_log = not from_end
        self._read: list[StreamedEvent] = []
        self.news = asyncio.Event()
        """Set to end a wait."""

    @property
    def cursor(self) -> int:
        """The last committed event that the client received; from the end of the log: the last before the stream."""
        if self._cursor is None:
            self._cursor = self._channel.reader.seq
        return self._cursor or 0

    def push(self, event: StreamedEvent) -> None:
        if self._cursor is None:
            self._cursor = event.after
        if len(self._unread) >= MAX_UNREAD:
            self._unread.clear()
            self._must_read_log = True
        else:
            self._unread.append(event)
        self.news.set()

    async def read_log(self) -> None:
        """Read the first page of the log; `next` returns it. Raises CursorExpired and storage errors."""
        self._read = await self._from_log()

    async def next(self, seconds: float) -> list[StreamedEvent]:
        """New events; an empty list after this time. Raises CursorExpired and storage errors."""
        if self._read:
            read, self._read = self._read, []
            return read
        if self._must_read_log:
            return await self._from_log()
        if not self._unread:
            self._channel.raise_failure()
            self.news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.news.wait()
            if not self._unread:
                self._channel.raise_failure()
                last = await self._channel.storage.last_seq(self._channel.thread_id)
                if last < self.cursor:  # the thread was deleted and begun again: its events have other numbers now
                    raise CursorExpired(self._channel.thread_id, self.cursor, 1)
        events = []
        unread, self._unread = self._unread, deque()
        for streamed in unread:
            seq = streamed.event.seq
            if seq is None and streamed.after >= self.cursor:  # the log gave no later event
                events.append(streamed)
            elif seq is not None and seq > self.cursor:
                self._cursor = seq
                events.append(streamed)
        return events

    async def batches(self, seconds: float, *, live: bool) -> AsyncGenerator[list[StreamedEvent]]:
        """New events without end; an empty list after this time. `live`: also events that are not in the log."""
        while True:
            yield [event for event in await self.next(seconds) if live or event.event.seq is not None]

    async def _from_log(self) -> list[StreamedEvent]:
        """One page of the log. Events pushed meanwhile stay in the buffer; `next` skips those that the page holds."""
        events: list[StreamedEvent] = []
        self._must_read_log = False
        async for event in self._channel.read_log(self._after if self.cursor == 0 else self.cursor):
            events.append(event)
            if len(events) >= PAGE_SIZE:
                self._must_read_log = True  # the next call reads the rest
                break
        self._cursor = events[-1].event.seq or self.cursor if events else self.cursor
        return events


class _Channel:
    """A thread with at least one follower in this process, read from now on."""

    def __init__(
        self, storage: StoreCheckpointStorage, thread_id: str, declared: Declared, space: Space, hides: bool
    ) -> None:
        self.storage = storage
        self.thread_id = thread_id
        self._declared = declared
        self._space = space
        self._hides = hides
        self.reader = ThreadFollower(storage, thread_id, declared, None, from_end=True)
        """Its `seq` is the last committed event that was read; None while that is unknown."""
        self.reader.open()
        self.followers: set[Follower] = set()
        self._failure: BaseException | None = None
        self._task = asyncio.get_running_loop().create_task(self._read_events(), name=f"events of {thread_id}")

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        await self.reader.close()

    async def _read_events(self) -> None:
        reader = self.reader
        try:
            last = reader.seq
            while (events := await reader.next()) is not None:
                if last is None and events:
                    last = next((event.seq - 1 for event in events if event.seq is not None), reader.seq)
                for event in events:
                    streamed = StreamedEvent(event, self._space, last or 0, hides=self._hides)
                    last = event.seq or last
                    for follower in self.followers:
                        follower.push(streamed)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001  # each follower raises it
            logger.warning("reading events of thread %s failed: %s", self.thread_id, type(error).__name__)
            self._failure = error
            for follower in self.followers:
                follower.news.set()

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def read_log(self, after: int | None) -> AsyncIterator[StreamedEvent]:
        async for event in read_events(self.storage, self.thread_id, after, self._declared()):
            yield StreamedEvent(event, self._space, (event.seq or 1) - 1, hides=self._hides)


class Hub(msgspec.Struct, eq=False):
    """The followed threads of this process."""

    _storage: StoreCheckpointStorage
    _hides: bool
    _channels: dict[str, _Channel] = {}

    def wake_followers(self) -> None:
        for channel in self._channels.values():
            for follower in channel.followers:
                follower.news.set()

    @asynccontextmanager
    async def follow(
        self, thread_id: str, space: Space, declared: Declared, after: int | None = None, *, from_end: bool = False
    ) -> AsyncIterator[Follower]:
        """Follow a thread from a cursor.

        `after` is the last event that the client has; None: all stored events follow. `from_end`: for a run that the
        caller is about to start, whose events come from the run itself.
        """
        channel = self._channels.get(thread_id)
        if channel is None:
            channel = self._channels[thread_id] = _Channel(self._storage, thread_id, declared, space, self._hides)
        follower = Follower(channel, after, from_end=from_end)
        channel.followers.add(follower)
        try:
            if not from_end:  # the channel reads events after this; followers read the log up to here themselves
                await channel.reader.read_on()
            yield follower
        finally:
            channel.followers.discard(follower)
            if not channel.followers and self._channels.get(thread_id) is channel:
                del self._channels[thread_id]
                await channel.stop()


async def stream_frames(
    batches: AsyncGenerator[T],
    encode: Callable[[T], bytes],
    follower: Follower,
    stopping: asyncio.Event,
    stack: AsyncExitStack,
) -> AsyncIterator[bytes]:
    """The body of a response. A batch without content becomes a heartbeat. Closes the stack when the stream ends."""
    async with stack, aclosing(batches):
        yield b"retry: 1000\n\n"
        try:
            async for batch in batches:
                yield encode(batch) or HEARTBEAT
                if stopping.is_set():
                    reason = "The server stops. Connect again."
                    yield frame("closing", {"after": follower.cursor, "reason": reason})
                    return
        except CursorExpired as error:
            message = "The events after the cursor were pruned, or the thread was recreated. Connect without a cursor."
            yield frame("error", {"code": error.code, "message": message})
        except PerdureError as error:
            problem = problem_of(error)
            logger.warning("a stream failed: %s", error)
            code = "unavailable" if problem is None else problem.code
            message = "The stream failed. Reconnect after the cursor."
            yield frame("error", {"code": code, "message": message, "after": follower.cursor})


# ---------------------------------------------------------------- as AgentFlow's chunks


Chunk = tuple[int | None, dict[str, Any]]
"""The number of the committed event, if any, and the chunk."""


async def log_chunks(
    thread_id: str,
    batches: AsyncGenerator[list[StreamedEvent]],
    count_before: Callable[[WorkflowEvent], Awaitable[int]],
) -> AsyncGenerator[list[Chunk]]:
    """The chunks of a thread's events, for a client whose streamed turn broke off. `count_before` counts the output
    messages of an event's run before it."""
    counts: dict[str | None, int] = {}  # output messages so far, by run
    async with aclosing(batches):
        async for events in batches:
            parts: list[Chunk] = []
            for streamed in events:
                event = streamed.event
                messages = output_messages(event) if event.type == "output" else []
                if event.run_id not in counts and not all(message.message_id for message in messages):
                    counts[event.run_id] = await count_before(event)
                if event.run_id in counts:  # the ids that they have in the stream of their turn
                    messages = with_ids(messages, f"{event.run_id}-out", counts[event.run_id])
                    counts[event.run_id] += len(messages)
                parts += chunks_of_event(thread_id, streamed, messages)
            yield parts


def to_frames(chunks: Iterable[Chunk]) -> bytes:
    return b"".join([frame(body["event"], body, seq) for seq, body in chunks])


def chunks_of_event(thread_id: str, streamed: StreamedEvent, messages: Iterable[Message]) -> list[Chunk]:
    """The chunks of one event. `messages`: those of an output."""
    event, seq = streamed.event, streamed.event.seq
    make = partial(chunk, thread_id, event.run_id)
    if event.type == "data" and isinstance(event.data, AgentResponseUpdate):
        update = event.data
        message = Message(update.role or "assistant", update.contents, update.author_name, update.message_id)
        return [(None, make("message", message={**message_to_client(message), "delta": True}))]
    if event.type == "output":
        return [(seq, make("message", message=message)) for message in messages_to_client(messages)]
    if event.type == "failed":
        return [(seq, make("error", data=streamed.to_json().get("details")))]
    if event.type == "request_info":
        data = {"status": "interrupted", "request": request_to_json(event, streamed.space)}
        return [(seq, make("updates", data=data))]
    fields = {key: value for key, value in streamed.to_json().items() if key not in _OF_THE_CHUNK}
    return [(seq, make("updates", data=fields))]


_OF_THE_CHUNK = frozenset({"thread_id", "run_id", "timestamp", "seq"})
"""Fields of an event that its chunk has."""


def chunk(thread_id: str, run_id: str | None, event: str, **content: Any) -> dict[str, Any]:
    """`content`: the message, the state or the data."""
    body = {"event": event, "message": None, "state": None, "data": None, **content}
    return {**body, "thread_id": thread_id, "run_id": run_id, "metadata": {}, "timestamp": time.time()}
