"""Position: the state of a workflow between two supersteps, those of its sub-workflows included; and the effects of
deliveries, which lead to the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.engine.thread.state import MISSING, FlatDicts
from perdure.events import WorkflowEvent
from perdure.graph.graph import SubWorkflowResponseMessage
from perdure.isolation import is_immutable, isolate, same_structure
from perdure.records import Answer, ChildCheckpoint, ExecutorMemory, SuspendedDelivery, WorkflowMessage


class Position(msgspec.Struct, eq=False):
    """Everything a superstep starts from. A superstep creates the next position and does not change this one, so a
    failure has nothing to undo. User code gets copies of its values, never the values."""

    mailbox: list[WorkflowMessage] = []
    state: dict[str, Any] = {}
    flat: dict[str, FlatDicts] = {}
    """Lists of the state that supersteps have examined, by key."""
    buffers: dict[str, dict[str, list[Any]]] = {}
    """Fan-in group -> sender -> messages so far. Replaced, never changed in place."""
    requests: dict[str, WorkflowEvent] = {}
    answered: dict[str, Answer] = {}
    outputs: list[WorkflowEvent] = []
    private: dict[str, dict[str, Any]] = {}
    saved: dict[str, Any] = {}
    """Hook dicts by executor, frozen."""
    run_kwargs: dict[str, Any] = {}
    usage: dict[str, int] = {}
    """Usage of its agents since the thread began."""
    about: dict[str, Any] = {}
    """Metadata of the thread, such as its name. Replaced, never changed in place."""
    suspended: dict[int, SuspendedDelivery] = {}
    """Deliveries that wait for a time or an answer, by id."""
    children: dict[int, Child] = {}
    """Sub-workflows that have not ended, by the delivery that started them, the oldest first."""
    asked: frozenset[str] = frozenset()
    """Of a child: its requests that are pending outside of it."""
    iteration: int = 0
    since_input: int = 0
    next_delivery_id: int = 1
    epoch: int = 0
    renamed_types: tuple[tuple[str, str, str], ...] = ()
    """Types that migrations of the thread renamed. Step keys use the original names."""

    successor: ClassVar[Callable[[Position], Position]] = msgspec.Struct.__copy__  # type: ignore[attr-defined]  # in C
    """A position that shares all parts. To change a part, replace it."""

    @property
    def is_busy(self) -> bool:
        """Whether it continues, now or later, without an answer or a message from outside."""
        if self.mailbox:
            return True
        if not self.suspended and not self.children:
            return False
        return any(delivery.is_ready or delivery.due_at is not None for delivery in self.suspended.values()) or any(
            child.due_at is not None or child.position.is_busy or child.position.has_ended
            for child in self.children.values()
        )

    @property
    def is_interrupted(self) -> bool:
        """Whether a run ended before its work was done. A thread with a pending request to the outside is idle, even if
        deliveries sleep in it."""
        if not self.suspended and not self.children:
            return bool(self.mailbox)
        for level in every_level(self):
            if level.mailbox or any(delivery.is_ready for delivery in level.suspended.values()):
                return True
        return not self.requests and self.is_busy

    def is_due(self, now: datetime) -> bool:
        """Whether a superstep would do anything now."""
        return (
            bool(self.mailbox)
            or any(is_awake(delivery, now) for delivery in self.suspended.values())
            or any(child.is_due(now) for child in self.children.values())
        )

    @property
    def has_ended(self) -> bool:
        """Whether a child at this position has neither work nor anything to wait for."""
        return not (self.mailbox or self.suspended or self.children or self.requests or self.asked)


class Child(msgspec.Struct, eq=False, frozen=True):
    """A sub-workflow that has not ended. Replaced, never changed."""

    executor_id: str
    """The WorkflowExecutor that started it."""
    message: WorkflowMessage
    """The delivery that started it."""
    position: Position
    attempts: int = 0
    """How often it was started and failed."""
    due_at: datetime | None = None
    """When its next attempt starts. It does not run before that."""

    def at(self, position: Position) -> Child:
        return replace(self, position=position)

    def is_due(self, now: datetime) -> bool:
        if self.due_at is not None:
            return self.due_at <= now
        # A child without anything to wait for, because its last request expired, must be ended.
        return self.position.is_due(now) or self.position.has_ended


def is_awake(delivery: SuspendedDelivery, now: datetime) -> bool:
    return delivery.is_ready or (delivery.due_at is not None and delivery.due_at <= now)


def every_level(position: Position) -> Iterator[Position]:
    """The position and those of all its children, at any depth."""
    yield position
    for child in position.children.values():
        yield from every_level(child.position)


def next_wake_up(position: Position) -> datetime | None:
    """When the first of its sleepers is due."""
    levels = list(every_level(position))
    times = [delivery.due_at for level in levels for delivery in level.suspended.values()]
    times += [child.due_at for level in levels for child in level.children.values()]
    return min((time for time in times if time is not None), default=None)


def next_deadline(position: Position) -> datetime | None:
    """When an idle thread continues without input: a request expires, or a sleeper is due."""
    if not position.requests and not position.suspended and not position.children:
        return None
    requests = (request for level in every_level(position) for request in level.requests.values())
    deadlines = [request.terms.deadline for request in requests if request.terms and request.terms.deadline]
    wake_up = next_wake_up(position)
    return min([*deadlines, wake_up] if wake_up is not None else deadlines, default=None)


def position_of(checkpoint: WorkflowCheckpoint) -> Position:
    """The position that a loaded checkpoint describes. `saved` of the root is left to the caller, who restores it."""
    position = _level_of(checkpoint)
    position.outputs = list(checkpoint.outputs)
    position.run_kwargs = dict(checkpoint.run_kwargs)
    position.usage = dict(checkpoint.metadata.get("usage", {}))
    position.about = dict(checkpoint.metadata.get("about", {}))
    position.iteration = checkpoint.iteration_count
    position.since_input = checkpoint.counters.since_input
    position.next_delivery_id = checkpoint.counters.next_delivery_id
    position.epoch = checkpoint.counters.epoch
    position.renamed_types = checkpoint.renamed_types
    return position


def _level_of(checkpoint: WorkflowCheckpoint | ChildCheckpoint) -> Position:
    return Position(
        mailbox=checkpoint.deliveries,
        state=checkpoint.state,
        buffers=checkpoint.buffers,
        requests=dict(checkpoint.pending_request_info_events),
        answered=dict(checkpoint.answered),
        private={key: dict(memory.private) for key, memory in checkpoint.executors.items() if memory.private},
        suspended=dict(checkpoint.suspended),
        children={child_id: _child_of(child) for child_id, child in checkpoint.children.items()},
    )


def _child_of(checkpoint: ChildCheckpoint) -> Child:
    position = _level_of(checkpoint)
    position.saved = {key: memory.saved for key, memory in checkpoint.executors.items() if memory.saved is not None}
    position.asked = frozenset(checkpoint.asked)
    position.since_input = checkpoint.since_input
    return Child(checkpoint.executor_id, checkpoint.message, position, checkpoint.attempts, checkpoint.due_at)


def child_checkpoint(child: Child) -> ChildCheckpoint:
    position = child.position
    return ChildCheckpoint(
        child.executor_id,
        child.message,
        messages=messages_by_source(position.mailbox),
        state=position.state,
        pending_request_info_events=position.requests,
        executors=executor_memories(position),
        buffers=position.buffers,
        answered=position.answered,
        suspended=position.suspended,
        children={key: child_checkpoint(inner) for key, inner in position.children.items()},
        asked=tuple(sorted(position.asked)),
        since_input=position.since_input,
        attempts=child.attempts,
        due_at=child.due_at,
    )


def executor_memories(position: Position) -> dict[str, ExecutorMemory]:
    ids = dict.fromkeys((*position.saved, *position.private))
    return {key: ExecutorMemory(position.saved.get(key), position.private.get(key)) for key in ids}


def metadata_of(position: Position) -> dict[str, Any]:
    """Usage and metadata, without empty parts."""
    parts = {"usage": position.usage, "about": position.about}
    return {part: values for part, values in parts.items() if values}


def messages_by_source(mailbox: list[WorkflowMessage]) -> dict[str, list[WorkflowMessage]]:
    grouped: dict[str, list[WorkflowMessage]] = {}
    for message in mailbox:
        grouped.setdefault(message.source_id, []).append(message)
    return grouped


# ---------------------------------------------------------------- effects


class Effects(msgspec.Struct, eq=False):
    """Messages, outputs, requests and writes of a delivery. No other delivery sees them before the merge."""

    sends: list[tuple[Any, str | None]] = []
    outputs: list[WorkflowEvent] = []
    events: list[WorkflowEvent] = []
    """All of its events, for the thread's log."""

    saved: Any = None
    """The executor's hook dict after this delivery, frozen; None where it has no hooks."""
    private: dict[str, Any] | None = None
    """The executor's private state after this delivery; None if it was not touched."""
    is_settled: bool = False
    """Whether in-place changes have been added to the writes."""
    is_undone: bool = False
    """Whether the handler's work is discarded: it failed or was suspended."""

    is_plain: bool = True
    """Whether none of the fields below is set, as in most deliveries. Only `also` changes it."""
    message: WorkflowMessage | None = None
    """The delivery itself, where the merge needs it."""
    suspended: SuspendedDelivery | None = None
    """Set if the delivery waits: it has only made requests so far, and runs again later."""
    withdrawn: tuple[str, ...] = ()
    """Requests whose answers it no longer awaits."""
    is_start: bool = False
    """Whether the message starts a sub-workflow."""
    answers: tuple[SubWorkflowResponseMessage, ...] = ()
    """For sub-workflows that were started earlier."""
    is_isolated: bool = False
    """It failed, and fan-ins join without it."""
    sent_as: str | None = None
    """The executor that it stands in for, whose edges its messages follow."""
    forwarded_to: str | None = None
    """It failed, and this executor gets its message."""

    usage: Mapping[str, int] | None = None
    """Counts that it adds to the usage of the thread."""
    requests: Sequence[WorkflowEvent] = ()
    writes: Sequence[tuple[str, Any]] = ()
    """(key, value, DELETED or Replaced), in order; for a key with a reducer a value is a contribution."""

    def ask(self, requests: Iterable[WorkflowEvent]) -> None:
        self.requests = [*self.requests, *requests]

    def use(self, usage: Mapping[str, int] | None) -> None:
        if usage:
            self.usage = add_counts(self.usage, usage)

    def add(self, some: Effects) -> None:
        """Add the messages, outputs, requests and usage of a step, without its writes."""
        self.sends += some.sends
        self.outputs += some.outputs
        self.ask(some.requests)
        self.use(some.usage)

    def write(self, writes: Iterable[tuple[str, Any]]) -> None:
        if isinstance(self.writes, list):
            self.writes.extend(writes)
        else:
            self.writes = list(writes)

    def also(self, **special: Any) -> None:
        """Set rare fields. The merge does not read them in plain effects."""
        for name, value in special.items():
            setattr(self, name, value)
        self.is_plain = self.is_plain and not any(special.values())


def own_event(event: WorkflowEvent, *, replayed: bool = False) -> WorkflowEvent:
    """The event with a copy of its data: a consumer must not change stored data through it. The event itself if nothing
    in it is mutable."""
    if event.terms is not None and not is_immutable(event.terms.default):
        event = replace(event, terms=replace(event.terms, default=isolate(event.terms.default)))
    if replayed and not event.replayed:
        return replace(event, data=isolate(event.data), replayed=True)
    return event if is_immutable(event.data) else replace(event, data=isolate(event.data))


def add_counts(counts: Mapping[str, int] | None, more: Mapping[str, int]) -> dict[str, int]:
    """The sum, name by name."""
    total = dict(counts or {})
    for name, count in more.items():
        total[name] = total.get(name, 0) + count
    return total


def private_changes(before: Mapping[str, Any], private: Mapping[str, Any]) -> dict[str, Any] | None:
    """The recorded form of changes to the used keys; None if nothing changed."""
    changed = {key for key, value in before.items() if not same_structure(private.get(key, MISSING), value)}
    if not changed:
        return None
    return {
        "changed": {key: isolate(private[key]) for key in changed if key in private},
        "gone": [key for key in changed if key not in private],
    }


class StateMapping(MutableMapping[str, Any]):
    """`ctx.state` or `ctx.private`, read and written key by key. `read` returns MISSING for a key without a value."""

    def __init__(
        self,
        keys: Callable[[], Iterable[str]],
        read: Callable[[str], Any],
        write: Callable[[str, Any], None],
        delete: Callable[[str], None],
    ) -> None:
        self._keys, self._read, self._write, self._delete = keys, read, write, delete

    def __getitem__(self, key: str) -> Any:
        value = self._read(key)
        if value is MISSING:
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, value: Any) -> None:
        self._write(key, value)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of the key. A change of it in place counts as a write, as for any value that was read."""
        if key not in self:
            self[key] = default
        return self[key]

    def __delitem__(self, key: str) -> None:
        _ = self[key]
        self._delete(key)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._keys()))

    def __len__(self) -> int:
        return len(list(self._keys()))

    def __repr__(self) -> str:
        return repr(dict(self))
