"""Recorded calls of a delivery: keys that identify them, their replay in the recorded order, and suspension.

Code that runs steps concurrently may depend on which ends first. With the same results in the same order it takes the
same path again, and makes the recorded calls and no others. A delivery that only waits is cancelled.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from perdure.checkpoints.migration.migrations import RenamedType, restore_type_names
from perdure.clock import Clock
from perdure.codec import Codec
from perdure.engine.thread.position import Effects
from perdure.errors import StepArgumentsUnsavable, StepNameTaken, UnsavableValue
from perdure.events import WorkflowEvent
from perdure.records import Record


@dataclass(frozen=True)
class StepCall:
    """One call of a step, a sleep or a request, as its records identify it."""

    name: str
    key: str
    after: str | None
    """The call before it in the same flow of control. A difference shows that the code changed."""
    within: str | None
    """The enclosing step."""
    is_shown: bool = True
    """Whether it has events."""


class Frame(msgspec.Struct, eq=False):
    """Effects of one running attempt of a step. They count, and are recorded, only if the attempt succeeds."""

    call: StepCall
    owner: object
    """Its delivery: a workflow that runs inside a step has deliveries of its own."""
    outer: Frame | None
    effects: Effects
    emitted: list[WorkflowEvent] = []
    """Events of its own that have left the engine."""
    waiting: int = 0
    """Calls in it that wait."""
    read: dict[str, Any] = {}
    """State keys that it read, with their values then, to detect in-place changes."""
    private: dict[str, Any] = {}
    """Keys of the executor's private state that it used, with their values before."""
    seen: Counter[str] = msgspec.field(default_factory=Counter)
    """How often each call was made in it."""
    written: dict[str, Any] = {}
    """State keys that it wrote, with the writes before."""


_current_frame: ContextVar[Frame | None] = ContextVar("perdure_frame", default=None)
"""The innermost step that runs in this task."""


def enter_frame(call: StepCall, owner: object) -> Frame:
    frame = Frame(call, owner, _current_frame.get(), Effects())
    _current_frame.set(frame)
    return frame


def leave_frame(frame: Frame) -> None:
    _current_frame.set(frame.outer)


def frame_of(owner: object) -> Frame | None:
    """The innermost step of this delivery that runs in this task."""
    frame = _current_frame.get()
    return frame if frame is not None and frame.owner is owner else None


def frames_of(owner: object) -> Iterator[Frame]:
    frame = frame_of(owner)
    while frame is not None and frame.owner is owner:
        yield frame
        frame = frame.outer


last_call: ContextVar[tuple[object, str] | None] = ContextVar("perdure_last_call", default=None)
"""A mark of the delivery, and the key of the last call of this flow of control. Tasks inherit it."""


def inside(key: str) -> str:
    """The suffix of the keys of calls inside this step."""
    return f" in {key}"


class Calls(msgspec.Struct, eq=False):
    """Names the calls of one delivery: by name, digest of the arguments, and occurrence among equals."""

    _owner: object
    _codec: Codec
    _renamed: Sequence[RenamedType] = ()
    """Types renamed since the thread began."""
    _mark: object = msgspec.field(default_factory=object)
    """Identifies the delivery. References keep it alive; the `id()` of an ended delivery could be reused."""
    _names: dict[str, Any] = {}
    """Step name -> its code."""
    _seen: Counter[str] = msgspec.field(default_factory=Counter)

    def identify(self, name: str, arguments: Sequence[Any], keywords: Mapping[str, Any], key: str | None) -> StepCall:
        """The call's identity. Raises StepArgumentsUnsavable for arguments without a digest, if `key` is None."""
        if key is not None:
            return self._call(name, f"{name} = {key}")
        digest = f"{name} {self._digest(name, arguments, keywords)}"
        frame = frame_of(self._owner)
        seen = self._seen if frame is None else frame.seen  # a retried step repeats its calls
        seen[digest] += 1
        return self._call(name, digest if seen[digest] == 1 else f"{digest} #{seen[digest]}")

    def _call(self, name: str, key: str) -> StepCall:
        last = last_call.get()
        frame = frame_of(self._owner)
        key = key if frame is None else key + inside(frame.call.key)
        after = last[1] if last is not None and last[0] is self._mark else None
        return StepCall(name, key, after, None if frame is None else frame.call.key)

    def mark_returned(self, call: StepCall) -> None:
        """Note that the call returned: the next call of this flow of control follows it."""
        last_call.set((self._mark, call.key))

    def _digest(self, name: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> str:
        path = f"arguments of {name!r}"
        try:
            named = [[key, self._codec.encode(keywords[key], f"{path}.{key}")] for key in sorted(keywords)]
            tree = [self._codec.encode(list(arguments), path), named]
        except UnsavableValue as error:
            raise StepArgumentsUnsavable(name, error) from error
        if self._renamed:
            tree = restore_type_names(tree, self._renamed)
        return hashlib.blake2b(msgspec.json.encode(tree), digest_size=8).hexdigest()

    def check_name(self, name: str, code: Any) -> None:
        """Raises StepNameTaken if the delivery called another function by the name."""
        first = self._names.setdefault(name, code)
        if first is not code and first != code:
            raise StepNameTaken(name)


QUIET_TURNS = 8
"""Turns of the event loop without activity after which a delivery is quiet: enough for a result to pass through a few
layers of gather, task groups and timeouts."""


class Quiet(msgspec.Struct, eq=False):
    """Calls back after QUIET_TURNS turns of the event loop without activity."""

    _news: int = 0
    _is_watching: bool = False

    def stir(self) -> None:
        self._news += 1

    def watch(self, then: Callable[[], None]) -> None:
        """Start, or restart, waiting for quiet."""
        self._news += 1
        if not self._is_watching:
            self._is_watching = True
            asyncio.get_running_loop().call_soon(self._look, then, QUIET_TURNS, self._news)

    def stop(self) -> None:
        self._is_watching = False

    def _look(self, then: Callable[[], None], turns: int, seen: int) -> None:
        if not self._is_watching:
            return
        if seen != self._news:
            turns, seen = QUIET_TURNS, self._news
        if turns > 0:
            asyncio.get_running_loop().call_soon(self._look, then, turns - 1, seen)
        else:
            self._is_watching = False
            then()


SETTLES = frozenset({"step", "failed", "cancelled", "answered", "expired", "slept"})
"""Kinds of records that give a call its result."""


class Replay:
    """The settled calls of one delivery, for the code that runs again."""

    def __init__(self, records: Sequence[Record]) -> None:
        settled = [record for record in records if record.kind in SETTLES]
        whole = {record.key for record in settled}
        self._records = {record.key: record for record in settled}
        # A step inside a settled step is not called again, at any depth.
        self._order = [record.key for record in settled if not _is_covered(record, whole)]
        self._place = {key: place for place, key in enumerate(self._order)}
        self._next = 0
        self._is_past = False
        self._called: set[str] = set()
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._quiet = Quiet()

    def find(self, key: str) -> Record | None:
        return self._records.get(key)

    async def turn_of(self, record: Record) -> None:
        """Return when the earlier records have been replayed, or will clearly not be."""
        key = record.key
        self._called.add(key)
        self._quiet.stir()
        place = self._place.get(key, -1)
        if place < self._next:
            return
        if place > self._next:
            waiting = self._waiting[key] = asyncio.get_running_loop().create_future()
            self._quiet.watch(self._release_next)
            await waiting
            return
        self._next += 1
        if self._waiting:
            self._quiet.watch(self._release_next)

    def _release_next(self) -> None:
        """The delivery is quiet: skip the records that no call asked for, and release the next that waits."""
        for place in range(self._next, len(self._order)):
            waiting = self._waiting.pop(self._order[place], None)
            if waiting is not None:
                self._next = place + 1
                if not waiting.done():
                    waiting.set_result(None)
                break
        if self._waiting:
            self._quiet.watch(self._release_next)

    async def over(self) -> None:
        """Return when all records have been replayed and the code had time to act on them, or will clearly not be."""
        if self._is_past or not self._order:
            return
        turns = QUIET_TURNS
        while self._next < len(self._order) and (turns > 0 or self._waiting):
            turns -= 1
            await asyncio.sleep(0)
        for _ in range(QUIET_TURNS):
            await asyncio.sleep(0)
        self._is_past = True

    def unreached_names(self) -> list[str]:
        """Names of recorded calls that the code did not make this time."""
        return [self._records[key].name for key in self._order if key not in self._called]

    def stop(self) -> None:
        self._quiet.stop()


def _is_covered(record: Record, whole: Collection[str]) -> bool:
    """Whether its enclosing step is settled, possibly with groups between, which are not recorded."""
    if record.within is None or record.within in whole:
        return record.within is not None
    return any(record.within.endswith(inside(key)) for key in whole)


class Waits(msgspec.Struct, eq=False):
    """The waits of the branches of one delivery. It keeps running while a step runs. When none does, it is suspended:
    its superstep commits without it, and it leaves memory."""

    _owner: object
    """The delivery."""
    _task: asyncio.Task[object]
    _clock: Clock
    _waiting: dict[asyncio.Future[None], datetime | str] = {}
    """Branches that wait, with the time or the request that they wait for."""
    _alarms: set[asyncio.Task[None]] = set()
    _active: int = 0
    _quiet: Quiet = msgspec.field(default_factory=Quiet)
    _is_over: bool = False
    is_suspended: bool = False

    @property
    def due_at(self) -> datetime | None:
        return min((awaited for awaited in self._waiting.values() if isinstance(awaited, datetime)), default=None)

    @property
    def requests(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(awaited for awaited in self._waiting.values() if isinstance(awaited, str)))

    def begin(self) -> None:
        """Note an active call: a step, a sleep or a request, until it waits."""
        self._active += 1
        self._quiet.stir()

    def end(self) -> None:
        self._active -= 1
        self._look()

    @contextmanager
    def _mark_waiting(self) -> Iterator[None]:
        """Mark this call and its enclosing steps as waiting, so that they do not prevent a suspension. After one, they
        are called again."""
        frames = list(frames_of(self._owner))
        self.end()
        for frame in frames:  # a step counts once, even if several branches of it wait
            frame.waiting += 1
            if frame.waiting == 1:
                self.end()
        try:
            yield
        finally:
            for frame in frames:
                frame.waiting -= 1
                if frame.waiting == 0:
                    self.begin()
            self.begin()

    async def wait_for(self, awaited: datetime | str) -> None:
        """Return at a time, if a step keeps the delivery running until then. Never returns for a request: its answer
        resumes the suspended delivery."""
        if isinstance(awaited, datetime) and awaited <= self._clock.now():
            return
        with self._mark_waiting():
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[future] = awaited
            self._look()
            try:
                await future
            finally:
                if not self.is_suspended:  # a cancelled branch no longer waits
                    del self._waiting[future]
                    self._look()

    def _look(self) -> None:
        if self._waiting and not self._is_over:
            self._quiet.watch(self._suspend_if_idle)

    def _suspend_if_idle(self) -> None:
        if self.is_suspended or not self._waiting:
            return  # cancel only once: a second cancellation would interrupt cleanup code
        if self._active:  # wake sleepers whose time comes while a step still runs
            self._drop_alarms()
            loop = asyncio.get_running_loop()
            times = [(future, time) for future, time in self._waiting.items() if isinstance(time, datetime)]
            self._alarms = {loop.create_task(self._wake(future, time)) for future, time in times}
        elif not self._task.done():
            self.is_suspended = True
            self._drop_alarms()
            self._task.cancel()

    async def _wake(self, future: asyncio.Future[None], time: datetime) -> None:
        await self._clock.sleep((time - self._clock.now()).total_seconds())
        if not future.done():
            future.set_result(None)

    def _drop_alarms(self) -> None:
        for alarm in self._alarms:
            if not alarm.get_loop().is_closed():
                alarm.cancel()
        self._alarms.clear()

    def stop(self) -> None:
        """The delivery has ended: its waits must no longer cancel its task."""
        self._is_over = True
        self._quiet.stop()
        self._drop_alarms()
