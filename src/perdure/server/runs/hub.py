"""Event streams: one reader of the log for all who follow a thread here, each with a cursor of their own."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from perdure.checkpoints.any_storage import read_events
from perdure.checkpoints.follow import follow
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.codec import DeclaredTypes
from perdure.errors import CursorExpired
from perdure.events import WorkflowEvent
from perdure.log import get_logger
from perdure.server.threads.tenancy import Space
from perdure.server.threads.to_json import plain_event

logger = get_logger("server")

PAGE = 500
"""Events that are read and sent in one go."""
MOST_UNREAD = 1000
"""Events that wait for one slow client; after that it reads them from the log, when it comes to it."""

Declared = Callable[[], DeclaredTypes | None]


class StreamedEvent:
    """One event, encoded once for all who are told of it."""

    __slots__ = ("_body", "_frame", "after", "event", "hides", "seq", "space")

    def __init__(self, event: WorkflowEvent, space: Space, after: int, *, hides: bool) -> None:
        self.event = event
        self.seq = event.seq
        """None for what is not in the log."""
        self.after = after
        """The last event of the log when it was told."""
        self.space = space
        self.hides = hides
        self._body: bytes | None = None
        self._frame: bytes | None = None

    @property
    def body(self) -> bytes:
        if self._body is None:
            self._body = msgspec.json.encode(plain_event(self.event, self.space, hides_errors=self.hides))
        return self._body

    @property
    def frame(self) -> bytes:
        """As server-sent events are written. Only what is committed has an id: it is what a client comes back with."""
        if self._frame is None:
            head = b"" if self.seq is None else b"id: %d\n" % self.seq
            self._frame = b"%sevent: %s\ndata: %s\n\n" % (head, self.event.type.encode(), self.body)
        return self._frame


class Follower:
    """One client of a thread's stream: what is told, each once and in order, after its cursor."""

    def __init__(self, channel: _Channel, after: int | None, *, must_read_log: bool = True) -> None:
        self._channel = channel
        self._after = after
        self.cursor = max(after or 0, 0)
        """The last event of the log that it was given."""
        self._unread: deque[StreamedEvent] = deque()
        self._must_read_log = must_read_log
        self._read: list[StreamedEvent] = []
        self._waiter: asyncio.Future[None] | None = None

    def put(self, told: StreamedEvent) -> None:
        if len(self._unread) >= MOST_UNREAD:
            self._unread.clear()
            self._must_read_log = True
        else:
            self._unread.append(told)
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def read_log(self) -> None:
        """Read what there is already, to be given next. Raises CursorExpired, and what reading raises."""
        self._read = await self._from_log()

    async def next(self, seconds: float) -> list[StreamedEvent]:
        """What is new; nothing if there is nothing after this time. Raises CursorExpired, and what reading raises."""
        if self._read:
            read, self._read = self._read, []
            return read
        if self._must_read_log:
            return await self._from_log()
        if not self._unread:
            self._channel.raise_failure()
            await self._wait(seconds)
            if not self._unread:
                await self._check_thread()
        found = []
        for one in self._taken():
            if one.seq is None and one.after >= self.cursor:  # else the events of its superstep were read already
                found.append(one)
            elif one.seq is not None and one.seq > self.cursor:
                self.cursor = one.seq
                found.append(one)
        return found

    async def _check_thread(self) -> None:
        """A thread that was deleted and begun again has other events under the same numbers. Raises CursorExpired."""
        self._channel.raise_failure()
        last = await self._channel.last_seq()
        if last < self.cursor:
            raise CursorExpired(self._channel.thread_id, self.cursor, 1)

    def _taken(self) -> list[StreamedEvent]:
        taken = list(self._unread)
        self._unread.clear()
        return taken

    async def _wait(self, seconds: float) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds):
                await self._waiter
        except TimeoutError:
            pass
        finally:
            self._waiter = None

    async def _from_log(self) -> list[StreamedEvent]:
        """A page of what is there; what comes meanwhile is put, and skipped if it was read."""
        found: list[StreamedEvent] = []
        self._must_read_log = False
        async for told in self._channel.logged(self._after if self.cursor == 0 else self.cursor):
            found.append(told)
            if len(found) >= PAGE:
                self._must_read_log = True  # the rest comes next
                break
        self.cursor = found[-1].seq or self.cursor if found else self.cursor
        return found


class _Channel:
    """A thread that somebody follows here."""

    def __init__(self, storage: StoreCheckpointStorage, thread_id: str, declared: Declared, space: Space, hides: bool):
        self._storage = storage
        self.thread_id = thread_id
        self._declared = declared
        self._space = space
        self._hides = hides
        self.followers: set[Follower] = set()
        self._task: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None

    async def last_seq(self) -> int:
        return await self._storage.last_seq(self.thread_id)

    def start(self, after: int) -> None:
        self._task = asyncio.get_running_loop().create_task(self._listen(after), name=f"events of {self.thread_id}")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _listen(self, after: int) -> None:
        last = after
        try:
            events = follow(
                self._storage,
                self.thread_id,
                self._declared(),
                after,
                live=True,
                provisional=False,
                until_idle=False,
            )
            async for event in events:
                told = StreamedEvent(event, self._space, last, hides=self._hides)
                last = event.seq or last
                for follower in self.followers:
                    follower.put(told)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001  # each follower is told
            logger.warning("events of thread %s could not be read: %s", self.thread_id, type(error).__name__)
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        self._failure = error
        for follower in self.followers:
            follower.wake()

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def logged(self, after: int | None) -> AsyncIterator[StreamedEvent]:
        async for event in read_events(self._storage, self.thread_id, after, self._declared()):
            yield StreamedEvent(event, self._space, (event.seq or 1) - 1, hides=self._hides)


class Hub:
    """The threads that somebody follows here."""

    def __init__(self, storage: StoreCheckpointStorage, *, hides: bool) -> None:
        self._storage = storage
        self._hides = hides
        self._channels: dict[str, _Channel] = {}

    @asynccontextmanager
    async def follow(
        self, thread_id: str, space: Space, declared: Declared, after: int | None, *, is_last: bool = False
    ) -> AsyncIterator[Follower]:
        """`after`: the last event that the client has; None: it has none, and wants all that are kept. `is_last`: it is
        the last that there is, so nothing need be read before something comes."""
        channel = self._channels.get(thread_id)
        if channel is None:
            channel = self._channels[thread_id] = _Channel(self._storage, thread_id, declared, space, self._hides)
            follower = Follower(channel, after, must_read_log=not is_last)
            channel.followers.add(follower)
            # Only what comes from now on: the followers read the log up to here themselves.
            try:
                known = after if is_last and after is not None else await self._storage.last_seq(thread_id)
                channel.start(known)
            except BaseException as error:
                self._channels.pop(thread_id, None)
                channel.fail(error)  # whoever joined meanwhile comes again with its cursor
                raise
        else:
            follower = Follower(channel, after)
            channel.followers.add(follower)
        try:
            yield follower
        finally:
            channel.followers.discard(follower)
            if not channel.followers and self._channels.get(thread_id) is channel:
                del self._channels[thread_id]
                await channel.stop()
