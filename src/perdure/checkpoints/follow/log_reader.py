"""A thread's log, read a commit at a time."""

from __future__ import annotations

from collections import deque

from perdure.checkpoints.encoding.events import events_of
from perdure.checkpoints.open_thread import storage_errors
from perdure.checkpoints.thread import whole_tree
from perdure.codec import Codec
from perdure.errors import DamagedCheckpoint, UnreadableValue
from perdure.events import WorkflowEvent
from perdure.records import LoggedEvents
from perdure.store import Store


class LogReader:
    """What is in the log after a cursor, without a gap or a repeat; all that is kept of it where that is None.

    `codec` reads the data of events. What it cannot read (of a type that a workflow does not have any more: what was
    told is not migrated) is read with `lenient`.
    """

    def __init__(self, store: Store, thread_id: str, after: int | None, codec: Codec, lenient: Codec) -> None:
        self._store = store
        self._thread_id = thread_id
        self._after = after
        self._codecs = codec, lenient
        self._found: deque[LoggedEvents] | None = None
        self._last = after or 0
        """The event that was read last."""
        self._unread: int | None = None

    async def next(self) -> list[WorkflowEvent]:
        """The events of the next commit that has any; none where the log ends. Raises CursorExpired."""
        if self._found is None:
            self._found = await self._look(self._after)
        while self._found:
            logged = self._found.popleft()
            try:
                what = f"events of thread {self._thread_id!r}"
                trees, _ = await whole_tree(self._store, self._thread_id, logged.body, what)
            except (UnreadableValue, DamagedCheckpoint):
                if logged.first_seq == self._unread:
                    raise
                self._unread = logged.first_seq  # they may have been forgotten meanwhile: then others come first now
                self._found = await self._look(None if self._after is None else self._last)
                continue
            try:
                events = [*events_of(trees, logged, self._thread_id, self._codecs[0])]
            except UnreadableValue:
                events = [*events_of(trees, logged, self._thread_id, self._codecs[1])]
            if new := [event for event in events if event.seq is not None and event.seq > self._last]:
                self._last = new[-1].seq or self._last
                return new
        return []

    async def _look(self, after: int | None) -> deque[LoggedEvents]:
        with storage_errors(self._store, "read events"):
            return deque(await self._store.events_after(self._thread_id, after))
