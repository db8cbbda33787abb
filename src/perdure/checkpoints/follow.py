"""Following a thread that any process may be running: its event log as it grows, and live events between commits.

The log is the source of truth. The path of an event: `Feed.publish` and `Feed.publish_commit` push it to the followers
of the same storage in this process, as it is; these read the store only to fill gaps. Other followers subscribe to the
store: its notifications hold live events as bytes, may be lost, and decide only when a follower reads the log.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING

import msgspec

from perdure.checkpoints.access import storage_errors
from perdure.checkpoints.delta.assembly import new_assembly
from perdure.checkpoints.feed import (
    NOT_LOGGED,
    CommittedEvents,
    LiveEvent,
    decode_events,
    decode_live_event,
    lenient_codec,
)
from perdure.clock import Waker
from perdure.codec import DeclaredTypes, Tree
from perdure.codecs.json_codec import JsonCodec
from perdure.errors import DamagedCheckpoint, UnreadableValue
from perdure.events import AT_REST, WorkflowEvent
from perdure.records import LoggedEvents
from perdure.store import Subscription

if TYPE_CHECKING:
    from perdure.checkpoints.storage import StoreCheckpointStorage


MIN_POLL_SECONDS = 0.1
MAX_POLL_SECONDS = 10.0
"""How long a follower waits for a notification before it reads the log again: after an event, and at most. A store may
poll more often."""

MAX_PUSHED = 1000
"""The most events that a follower holds for a slow reader. Beyond that it drops all of them and reads the log."""

Declared = Callable[[], DeclaredTypes | None]
"""The declared types of a workflow, when they are first needed."""


async def follow(
    storage: StoreCheckpointStorage, thread_id: str, declared: DeclaredTypes | None, after: int | None, **options: bool
) -> AsyncIterator[WorkflowEvent]:
    """`StoreCheckpointStorage.follow`, with the declared types of a workflow. The options are those of the follower."""
    follower = ThreadFollower(storage, thread_id, lambda: declared, after, **options)
    follower.open()
    try:
        # One generator only: an event loop that ends closes nested generators all at the same time.
        while (events := await follower.next()) is not None:
            for event in events:
                yield event
    finally:
        await follower.close()


class ThreadFollower:
    """Reads the log of a thread after a cursor, then waits: for a run that feeds it, else for the store.

    `from_end`: the cursor is the end of the log when a run of this storage claims the thread, or when the follower
    first reads; a follower that is opened just before such a run reads nothing from the store.
    """

    def __init__(
        self,
        storage: StoreCheckpointStorage,
        thread_id: str,
        declared: Declared,
        after: int | None,
        *,
        live: bool = True,
        provisional: bool = False,
        until_idle: bool = False,
        from_end: bool = False,
    ) -> None:
        self._storage = storage
        self._thread_id = thread_id
        self._declared = declared
        self._wants_live = live
        self._wants_provisional = provisional
        self._until_idle = until_idle
        self._feeds = storage._feeds
        self._after = after
        """The caller's cursor until the first event; None starts with the oldest event of the log."""
        self.seq: int | None = None if from_end else max(after or 0, 0)
        """The last event of the log that was returned; None while `from_end` is not resolved."""
        self._log: EventLog | None = None
        """While the follower reads it."""
        self._must_read = not from_end
        self._is_at_rest = False
        self._expects_feed = from_end
        """Whether the follower waits without a subscription, for a run that is about to feed it or to end."""
        self._pushed: deque[LiveEvent | CommittedEvents | bytes] = deque()
        self._live: deque[LiveEvent] = deque()
        self._committed: deque[CommittedEvents] = deque()
        self._subscription: Subscription | None = None
        self._stack = AsyncExitStack()
        self._waker = Waker()
        self._poll_seconds = MIN_POLL_SECONDS

    def open(self) -> None:
        """Receive what runs push from now on."""
        self._feeds.add(self._thread_id, self)

    async def close(self) -> None:
        self._feeds.remove(self._thread_id, self)
        await self._stack.aclose()

    async def next(self) -> Sequence[WorkflowEvent] | None:
        """The next events, possibly none; None at the end. Raises CursorExpired and StorageFailed."""
        if self._must_read:
            return await self._read_log()
        if self._is_at_rest:
            return None
        if not self._pushed and not self._committed:
            await self._wait()
        return self._take_pushed()

    async def read_on(self) -> None:
        """Resolve `from_end` now, and do not wait for a run. Raises StorageFailed."""
        if self.seq is None:
            last_seq = await self._storage.last_seq(self._thread_id)
            self.begin(last_seq)
        if not self._feeds.is_fed(self._thread_id):
            self._must_read, self._expects_feed = True, False
            self._waker.wake()

    # ------------------------------------------------------------ called by the run, from any OS thread

    def begin(self, last_seq: int) -> None:
        """A run feeds this follower from now on; `last_seq` is the end of the log."""
        if self.seq is None:
            self.seq = self._after = last_seq
        self._waker.wake()

    def end(self) -> None:
        """The run has ended. The caller usually leaves then, so the follower subscribes only after a while."""
        self._poll_seconds = MIN_POLL_SECONDS
        self._expects_feed = True
        self._must_read = self._must_read or self._until_idle
        self._waker.wake()

    def accepts(self, kind: str) -> bool:
        """Whether the caller wants live events of this type."""
        return self._wants_live if kind in NOT_LOGGED else self._wants_provisional

    def push(self, item: LiveEvent | CommittedEvents | bytes) -> None:
        if len(self._pushed) >= MAX_PUSHED:
            self._pushed.clear()
            self._must_read = True
        self._pushed.append(item)
        self._waker.wake()

    # ------------------------------------------------------------ the log

    async def _read_log(self) -> Sequence[WorkflowEvent]:
        if self._log is None:
            self._expects_feed = False
            if self._subscription is None and not self._feeds.is_fed(self._thread_id):
                # Before it reads the log: no event falls in between.
                subscribed = self._storage.store.subscribe(self._thread_id)
                self._subscription = await self._stack.enter_async_context(subscribed)
            if self.seq is None:
                self.begin(await self._storage.last_seq(self._thread_id))
            if self._until_idle:  # before it reads the log, so that it reads all of it
                threads = await self._storage.store.threads(thread_id=self._thread_id, limit=1)
                self._is_at_rest = all(thread.run_id is None and thread.status in AT_REST for thread in threads)
            self._log = EventLog(self._storage, self._thread_id, self._after, self._declared())
        events = await self._log.next()
        if self._subscription is not None:
            while (body := await self._subscription.next(0)) is not None:
                self._pushed.append(body)
        self._sort_pushed()
        if events:
            self._poll_seconds = MIN_POLL_SECONDS
            return [each for event in events for each in self._pass(event)]
        self._log, self._must_read = None, False
        self._poll_seconds = min(2 * self._poll_seconds, MAX_POLL_SECONDS)
        live, self._live = self._live, deque()
        return [each.event for each in live]

    def _pass(self, event: WorkflowEvent) -> Iterator[WorkflowEvent]:
        """The live events before an event of the log, and this event."""
        while self._live and self._live[0].after < (event.seq or 0):
            yield self._live.popleft().event
        self.seq = self._after = event.seq or self.seq
        yield event

    # ------------------------------------------------------------ pushed events

    def _sort_pushed(self) -> None:
        while self._pushed:
            item = self._pushed.popleft()
            if isinstance(item, CommittedEvents):
                self._committed.append(item)
                continue
            live = decode_live_event(item, self._live_codec()) if isinstance(item, bytes) else item
            if live is None or live.event.thread_id != self._thread_id or not self.accepts(live.event.type):
                continue
            if live.after >= (self.seq or 0):  # else the events of its superstep came before it
                self._live.append(live)

    def _take_pushed(self) -> list[WorkflowEvent]:
        self._sort_pushed()
        events: list[WorkflowEvent] = []
        while self._committed:
            trees, logged = self._committed.popleft()
            if logged.first_seq > (self.seq or 0) + 1:
                self._must_read = True  # events before these were dropped or written elsewhere
                return events
            if logged.first_seq + logged.count - 1 > (self.seq or 0):
                decoded = decode_logged(self._storage, trees, logged, self._thread_id, self._declared())
                events += [
                    each for event in decoded if (event.seq or 0) > (self.seq or 0) for each in self._pass(event)
                ]
                self._poll_seconds = MIN_POLL_SECONDS
        while self._live and self._live[0].after <= (self.seq or 0):
            events.append(self._live.popleft().event)
        if self._live and self._subscription is not None:  # the log has more; of a run here, they are being written
            self._must_read = True
        return events

    def _live_codec(self) -> JsonCodec:
        declared = self._declared()
        return lenient_codec(self._storage.declared if declared is None else declared.union(self._storage.declared))

    # ------------------------------------------------------------ waiting

    async def _wait(self) -> None:
        """Until an event was pushed, or the log may have grown, which the next call reads."""
        is_fed = self._feeds.is_fed(self._thread_id)
        if is_fed or self._expects_feed:
            await self._unsubscribe()
            if not await self._waker.wait(self._poll_seconds, lambda: self._pushed):
                self._must_read = True
        elif self._subscription is None:
            self._must_read = True
        else:
            body = await self._next_body(self._subscription)
            if self._feeds.is_fed(self._thread_id):
                await self._unsubscribe()  # the run pushes what it publishes
            elif body is None:
                self._must_read = True
            else:
                self._pushed.append(body)

    async def _next_body(self, subscription: Subscription) -> bytes | None:
        """The next body of the subscription; None also when a run begins to feed this follower."""
        waiter = self._waker.expect()
        listening = asyncio.ensure_future(subscription.next(self._poll_seconds))
        try:
            await asyncio.wait((listening, waiter), return_when=asyncio.FIRST_COMPLETED)
            return listening.result() if listening.done() else None
        finally:
            if not listening.done():
                listening.cancel()
                await asyncio.wait((listening,))

    async def _unsubscribe(self) -> None:
        if self._subscription is not None:
            self._subscription = None
            await self._stack.aclose()


class EventLog(msgspec.Struct):
    """Reads a thread's log after a cursor, commit by commit, without a gap or a repeat; from its beginning for None."""

    _storage: StoreCheckpointStorage
    _thread_id: str
    _after: int | None
    _declared: DeclaredTypes | None
    _unread: deque[LoggedEvents] | None = None
    _last_seq: int = 0
    _failed_seq: int | None = None

    async def next(self) -> list[WorkflowEvent]:
        """The events of the next commit that has any; none at the end of the log. Raises CursorExpired."""
        if self._unread is None:
            self._unread, self._last_seq = await self._read(self._after), self._after or 0
        while self._unread:
            logged = self._unread.popleft()
            try:
                what = f"events of thread {self._thread_id!r}"
                trees, _ = await new_assembly(self._storage.store, self._thread_id).tree(logged.body, what)
            except (UnreadableValue, DamagedCheckpoint):
                if logged.first_seq == self._failed_seq:
                    raise
                self._failed_seq = logged.first_seq  # pruning may have deleted them: then later events come first now
                self._unread = await self._read(None if self._after is None else self._last_seq)
                continue
            events = decode_logged(self._storage, trees, logged, self._thread_id, self._declared)
            if new := [event for event in events if event.seq is not None and event.seq > self._last_seq]:
                self._last_seq = new[-1].seq or self._last_seq
                return new
        return []

    async def _read(self, after: int | None) -> deque[LoggedEvents]:
        store = self._storage.store
        with storage_errors(store, "read events"):
            return deque(await store.events_after(self._thread_id, after))


def decode_logged(
    storage: StoreCheckpointStorage, trees: Tree, logged: LoggedEvents, thread_id: str, declared: DeclaredTypes | None
) -> list[WorkflowEvent]:
    if declared is not None:
        with suppress(UnreadableValue):  # it may have a type that the workflow no longer has: migrations skip events
            return [*decode_events(trees, logged, thread_id, storage.codec_for(declared))]
    return [*decode_events(trees, logged, thread_id, storage._tool_codec)]
