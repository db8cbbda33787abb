"""Following a thread that any process may be running: its event log as it grows, and live events between commits.

The log is the source of truth. Live events travel over the store's notifications and may be lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from perdure.checkpoints.access import storage_errors
from perdure.checkpoints.delta.assembly import read_whole_tree
from perdure.checkpoints.encoding.events import NOT_LOGGED, decode_events
from perdure.checkpoints.open_thread import codec_for
from perdure.codec import Codec, DeclaredTypes
from perdure.codecs.json_codec import JsonCodec
from perdure.errors import DamagedCheckpoint, PerdureError, UnreadableValue, UnsavableValue
from perdure.events import WorkflowEvent, WorkflowRunState
from perdure.records import LoggedEvents
from perdure.store import Store, Subscription

if TYPE_CHECKING:
    from perdure.checkpoints.storage import StoreCheckpointStorage


MIN_POLL_SECONDS = 0.1
MAX_POLL_SECONDS = 10.0
"""How long a follower waits for a notification before it reads the log again: after an event, and at most. A store may
poll more often."""

MAX_LIVE_EVENT_BYTES = 256 * 1024
"""Larger events are not published. Those that belong to the log are still logged."""

_WITHOUT_DATA = frozenset({"executor_invoked", "executor_completed"})
"""Their data are messages, which may be large, and which the log omits too."""

_AT_REST = frozenset(
    state.value
    for state in (
        WorkflowRunState.IDLE,
        WorkflowRunState.IDLE_WITH_PENDING_REQUESTS,
        WorkflowRunState.FAILED,
        WorkflowRunState.CANCELLED,
    )
)


async def follow(
    storage: StoreCheckpointStorage,
    thread_id: str,
    declared: DeclaredTypes | None,
    after: int | None,
    *,
    live: bool,
    provisional: bool,
    until_idle: bool,
) -> AsyncIterator[WorkflowEvent]:
    """`StoreCheckpointStorage.follow`, with the declared types of a workflow."""
    open_log = partial(open_event_log, storage, thread_id, declared=declared)
    async with storage.store.subscribe(thread_id) as subscription:  # before it reads the log: no event falls in between
        follower = _Follower(storage, thread_id, declared, subscription, open_log, after, _Filter(live, provisional))
        # One generator only: an event loop that ends closes nested generators all at the same time.
        while (events := await follower.next(until_idle=until_idle)) is not None:
            for event in events:
                yield event


class _Filter(NamedTuple):
    """Which live events the caller wants."""

    live: bool
    provisional: bool

    def accepts(self, kind: str) -> bool:
        return self.live if kind in NOT_LOGGED else self.provisional


class _Follower:
    def __init__(
        self,
        storage: StoreCheckpointStorage,
        thread_id: str,
        declared: DeclaredTypes | None,
        subscription: Subscription,
        open_log: Callable[[int | None], EventLog],
        after: int | None,
        wanted: _Filter,
    ) -> None:
        self._store = storage.store
        self._thread_id = thread_id
        types = storage.declared if declared is None else declared.union(storage.declared)
        self._codec = JsonCodec(types, lenient=True)
        self._subscription = subscription
        self._open_log = open_log
        self._after = after
        """The caller's cursor until the first event; None starts with the oldest event of the log."""
        self._seq = max(after or 0, 0)
        self._wanted = wanted
        self._log: EventLog | None = None
        """While the follower reads it."""
        self._has_read = False
        self._is_at_rest = False
        self._live: deque[LiveEvent] = deque()
        self._poll_seconds = MIN_POLL_SECONDS

    async def next(self, *, until_idle: bool) -> Sequence[WorkflowEvent] | None:
        """The next events, possibly none; None at the end."""
        if self._log is None and self._has_read:
            if self._is_at_rest:
                return None
            return await self._wait()
        if self._log is None:
            self._is_at_rest = until_idle and await self._rests()  # before it reads the log, so that it reads all of it
            self._log = self._open_log(self._after)
        events = await self._log.next()
        await self._receive_all()
        if events:
            self._poll_seconds = MIN_POLL_SECONDS
            return [each for event in events for each in (*self._live_before(event), self._pass_logged(event))]
        self._log, self._has_read = None, True
        self._poll_seconds = min(2 * self._poll_seconds, MAX_POLL_SECONDS)
        return self._take_live()

    async def _rests(self) -> bool:
        threads = await self._store.threads(thread_id=self._thread_id, limit=1)
        return all(thread.run_id is None and thread.status in _AT_REST for thread in threads)

    def _pass_logged(self, event: WorkflowEvent) -> WorkflowEvent:
        self._seq = self._after = event.seq or self._seq
        return event

    def _live_before(self, event: WorkflowEvent) -> Iterator[WorkflowEvent]:
        while self._live and self._live[0].after < (event.seq or 0):
            yield self._live.popleft().event

    def _take_live(self) -> list[WorkflowEvent]:
        live, self._live = self._live, deque()
        return [each.event for each in live]

    async def _wait(self) -> Sequence[WorkflowEvent]:
        """Live events; none if the log may have grown, which the next call reads."""
        body = await self._subscription.next(self._poll_seconds)
        if body is not None:
            self._receive(body)
        self._has_read = body is not None and not any(each.after > self._seq for each in self._live)
        return self._take_live() if self._has_read else ()

    async def _receive_all(self) -> None:
        while (body := await self._subscription.next(0)) is not None:
            self._receive(body)

    def _receive(self, body: bytes) -> None:
        live = decode_live_event(body, self._codec)
        if live is None or live.event.thread_id != self._thread_id or not self._wanted.accepts(live.event.type):
            return
        if live.after >= self._seq:  # else the events of its superstep came before it
            self._live.append(live)


def open_event_log(
    storage: StoreCheckpointStorage, thread_id: str, after: int | None, declared: DeclaredTypes | None
) -> EventLog:
    codec = storage._tool_codec if declared is None else codec_for(storage, declared.union(storage.declared))
    return EventLog(storage.store, thread_id, after, codec, storage._tool_codec)


class EventLog:
    """Reads a thread's log after a cursor, commit by commit, without a gap or a repeat; from its beginning for None.

    `codec` decodes the data of events. `lenient` decodes those that `codec` cannot, such as a type that the workflow no
    longer has: migrations do not change events.
    """

    def __init__(self, store: Store, thread_id: str, after: int | None, codec: Codec, lenient: Codec) -> None:
        self._store = store
        self._thread_id = thread_id
        self._after = after
        self._codecs = codec, lenient
        self._unread: deque[LoggedEvents] | None = None
        self._last_seq = after or 0
        self._failed_seq: int | None = None

    async def next(self) -> list[WorkflowEvent]:
        """The events of the next commit that has any; none at the end of the log. Raises CursorExpired."""
        if self._unread is None:
            self._unread = await self._read(self._after)
        while self._unread:
            logged = self._unread.popleft()
            try:
                what = f"events of thread {self._thread_id!r}"
                trees, _ = await read_whole_tree(self._store, self._thread_id, logged.body, what)
            except (UnreadableValue, DamagedCheckpoint):
                if logged.first_seq == self._failed_seq:
                    raise
                self._failed_seq = logged.first_seq  # pruning may have deleted them: then later events come first now
                self._unread = await self._read(None if self._after is None else self._last_seq)
                continue
            try:
                events = [*decode_events(trees, logged, self._thread_id, self._codecs[0])]
            except UnreadableValue:
                events = [*decode_events(trees, logged, self._thread_id, self._codecs[1])]
            if new := [event for event in events if event.seq is not None and event.seq > self._last_seq]:
                self._last_seq = new[-1].seq or self._last_seq
                return new
        return []

    async def _read(self, after: int | None) -> deque[LoggedEvents]:
        with storage_errors(self._store, "read events"):
            return deque(await self._store.events_after(self._thread_id, after))


class LiveEvent(NamedTuple):
    """An event that a run published before its commit."""

    after: int
    """The last event of the log at that time."""
    event: WorkflowEvent


def encode_live_event(
    event: WorkflowEvent, thread_id: str, run_id: str, last_seq: int, timestamp: datetime
) -> bytes | None:
    """None for an event that cannot leave this process, or is too large."""
    stamp: dict[str, Any] = {"thread_id": thread_id, "run_id": run_id, "timestamp": timestamp}
    if event.type in _WITHOUT_DATA:
        stamp["data"] = None
    try:
        body = msgspec.json.encode([last_seq, _to_dict(msgspec.structs.replace(event, **stamp))])
    except (UnsavableValue, msgspec.EncodeError, RecursionError):
        return None
    return body if len(body) <= MAX_LIVE_EVENT_BYTES else None


def decode_live_event(body: bytes, codec: JsonCodec) -> LiveEvent | None:
    """None for a body that is not an event: any client of the channel can publish anything."""
    try:
        after, fields = msgspec.json.decode(body, type=tuple[int, dict[str, Any]])
        data = fields.pop("data", None)
        event = msgspec.structs.replace(
            WorkflowEvent.from_dict(fields), data=codec.decode(data, "event.data"), seq=None
        )
    except (PerdureError, msgspec.DecodeError, ValueError, TypeError, RecursionError):
        return None
    return LiveEvent(after, event)


def _to_dict(event: WorkflowEvent) -> dict[str, Any]:
    """The result of `WorkflowEvent.to_dict`, with a codec that is made once: runs may publish each token."""
    codec = _live_codec()
    defaults = zip(event.__struct_fields__, (..., *event.__struct_defaults__), strict=True)
    fields = ((name, getattr(event, name), default) for name, default in defaults)
    return {name: codec.encode(value, f"event.{name}") for name, value, default in fields if value is not default}


@cache
def _live_codec() -> JsonCodec:
    # Never the storage's own: any client may publish, and decoding with another codec may run code.
    return JsonCodec(lenient=True)
