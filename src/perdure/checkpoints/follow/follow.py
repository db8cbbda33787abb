"""Following a thread that any process may be running: its log as it grows, and what is only told while it happens."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from perdure.checkpoints.access import Access
from perdure.checkpoints.encoding.events import NOT_LOGGED
from perdure.checkpoints.follow.live_events import LiveEvent, decode_live_event
from perdure.checkpoints.follow.log_reader import LogReader
from perdure.codec import DeclaredTypes
from perdure.codecs.json_codec import JsonCodec
from perdure.events import WorkflowEvent, WorkflowRunState
from perdure.names import check_identifier
from perdure.store import Subscription

if TYPE_CHECKING:
    from perdure.checkpoints.storage import StoreCheckpointStorage


QUICK_SECONDS = 0.1
PATIENT_SECONDS = 10.0
"""How long a follower waits before it looks at the log again although it has heard nothing: after something happened,
and at last. A store may have it look more often."""

_AT_REST = frozenset(
    one.value
    for one in (
        WorkflowRunState.IDLE,
        WorkflowRunState.IDLE_WITH_PENDING_REQUESTS,
        WorkflowRunState.FAILED,
        WorkflowRunState.CANCELLED,
    )
)


class FollowingMethods(Access):
    """Of `StoreCheckpointStorage`."""

    declared: DeclaredTypes

    def follow(
        self,
        thread_id: str,
        *,
        after: int | None = None,
        live: bool = True,
        provisional: bool = False,
        until_idle: bool = False,
    ) -> AsyncIterator[WorkflowEvent]:
        """The events of a thread, whichever process runs it: those of its log after a cursor (None: all that are
        kept), each once and in order, and then those to come, as they are committed.

        `live`: between them what is only told while it happens, such as tokens and progress; it has no `seq`, and may
        be lost. `provisional`: also what will be in the log once its superstep is committed, as it happens and without
        a `seq`. Neither ever comes after the events of its superstep.

        It goes on until the caller leaves it, even while there is no such thread. `until_idle`: it ends once the
        thread is at rest (nobody owns it, and its last run has ended, waits for answers, failed or was cancelled) and
        its log is read; at once if there is no such thread. Types that nobody declared come back as Opaque. Raises
        CursorExpired if the event after the cursor was forgotten.
        """
        check_identifier("thread_id", thread_id)
        return follow(self, thread_id, None, after, live=live, provisional=provisional, until_idle=until_idle)

    async def last_seq(self, thread_id: str) -> int:
        """The cursor after all events that the thread's log has so far; 0 if there are none. Reads none of them."""
        check_identifier("thread_id", thread_id)
        async with self.access("read the last event's number"):
            return await self.store.last_seq(thread_id)


async def follow(
    storage: Any,
    thread_id: str,
    declared: DeclaredTypes | None,
    after: int | None,
    *,
    live: bool,
    provisional: bool,
    until_idle: bool,
) -> AsyncIterator[WorkflowEvent]:
    """`FollowingMethods.follow`, of any storage. `declared`: the types of a workflow. Raises NoEventLog."""
    from perdure.checkpoints.storage import log_reader

    read = partial(log_reader, storage, thread_id, declared=declared)
    read(after)  # refuses a storage without a log
    async with storage.store.subscribe(thread_id) as subscription:  # before the log is read: nothing falls in between
        following = _Following(storage, thread_id, declared, subscription, read, after, _Wanted(live, provisional))
        # One generator and no more: of several within each other, an event loop that ends closes all at once.
        while (events := await following.next(until_idle=until_idle)) is not None:
            for event in events:
                yield event


class _Wanted(NamedTuple):
    """Which of the events that are told are wanted."""

    live: bool
    provisional: bool

    def has(self, kind: str) -> bool:
        return self.live if kind in NOT_LOGGED else self.provisional


class _Following:
    def __init__(
        self,
        storage: StoreCheckpointStorage,
        thread_id: str,
        declared: DeclaredTypes | None,
        subscription: Subscription,
        read: Callable[[int | None], LogReader],
        after: int | None,
        wanted: _Wanted,
    ) -> None:
        self._store = storage.store
        self._thread_id = thread_id
        known = storage.declared if declared is None else declared.union(storage.declared)
        self._codec = JsonCodec(known, lenient=True)
        self._subscription = subscription
        self._read = read
        self._after = after
        """The cursor as the caller gave it, until something was read: None reads what is kept, however little."""
        self._seq = max(after or 0, 0)
        self._wanted = wanted
        self._log: LogReader | None = None
        """While it is being read."""
        self._has_looked = False
        self._is_at_rest = False
        self._told: deque[LiveEvent] = deque()
        self._patience = QUICK_SECONDS

    async def next(self, *, until_idle: bool) -> Sequence[WorkflowEvent] | None:
        """What happened next, maybe nothing; None at the end."""
        if self._log is None and self._has_looked:
            if self._is_at_rest:
                return None
            return await self._hear()
        if self._log is None:
            self._is_at_rest = until_idle and await self._rests()  # before the log is read, so that all of it is
            self._log = self._read(self._after)
        events = await self._log.next()
        await self._take_told()
        if events:
            self._patience = QUICK_SECONDS
            return [one for event in events for one in (*self._told_before(event), self._logged(event))]
        self._log, self._has_looked = None, True
        self._patience = min(2 * self._patience, PATIENT_SECONDS)
        told, self._told = self._told, deque()
        return [one.event for one in told]

    async def _rests(self) -> bool:
        found = await self._store.threads(thread_id=self._thread_id, limit=1)
        return all(one.run_id is None and one.status in _AT_REST for one in found)

    def _logged(self, event: WorkflowEvent) -> WorkflowEvent:
        self._seq = self._after = event.seq or self._seq
        return event

    def _told_before(self, event: WorkflowEvent) -> Iterator[WorkflowEvent]:
        while self._told and self._told[0].after < (event.seq or 0):
            yield self._told.popleft().event

    async def _hear(self) -> Sequence[WorkflowEvent]:
        """What is told; nothing, and the log is read next, if that may have grown."""
        body = await self._subscription.next(self._patience)
        if body is not None:
            self._take(body)
        self._has_looked = body is not None and not any(one.after > self._seq for one in self._told)
        if not self._has_looked:
            return ()
        told, self._told = self._told, deque()
        return [one.event for one in told]

    async def _take_told(self) -> None:
        while (body := await self._subscription.next(0)) is not None:
            self._take(body)

    def _take(self, body: bytes) -> None:
        told = decode_live_event(body, self._codec)
        if told is None or told.event.thread_id != self._thread_id or not self._wanted.has(told.event.type):
            return
        if told.after >= self._seq:  # else it comes too late
            self._told.append(told)
