"""The parts of one run, in one object, and the journal: records of deliveries before the commit of their superstep."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from perdure.checkpoints.any_storage import OpenThread
from perdure.checkpoints.decode import decode_record, decode_request
from perdure.checkpoints.encode import encode_record, encode_request
from perdure.checkpoints.thread import TAKEN_BACK
from perdure.clock import Clock
from perdure.codec import Codec, Encoded, Tree
from perdure.engine.thread.compiled import Compiled
from perdure.engine.thread.live_threads import LiveThread
from perdure.engine.thread.position import Effects, Position, every_level
from perdure.engine.thread.state import DELETED, Replaced
from perdure.engine.watch import RunSpans, Watch
from perdure.errors import DamagedCheckpoint, UnreadableValue, UnsavableValue
from perdure.events import WorkflowEvent
from perdure.graph.graph import SubWorkflowResponseMessage
from perdure.isolation import isolate
from perdure.records import Record, SuspendedDelivery, WorkflowMessage


async def _nothing() -> None:
    return


def _ignore(_: object = None) -> None:
    return


@dataclass(slots=True, eq=False)
class RunScope:
    compiled: Compiled
    thread: LiveThread
    stored_thread: OpenThread | None
    """The thread in its storage; None without one."""
    run_id: str
    emit: Callable[[WorkflowEvent], None]
    """Emits an event to the run's consumer."""
    on_request: Callable[[], None]
    """Called when an executor made a request to the outside."""
    retract: Callable[[Sequence[WorkflowEvent]], None]
    """Removes events of a failed attempt from the run's result."""
    clock: Clock
    journal: Journal
    is_streaming: bool = False
    storage: Any = None
    max_iterations: int | None = None
    """The caller's own limit."""
    watch: Watch | None = None
    """Metrics and spans of the run; None without observers and tracing."""
    tools: Any = None
    spans: RunSpans | None = field(init=False, default=None)
    codec: Codec | None = field(init=False, default=None)
    is_logged: bool = field(init=False, default=False)
    """Whether events are logged, beside being emitted."""
    after_record: Callable[[], Awaitable[None]] = _nothing
    """Called after each recorded step; the loop may then save a checkpoint."""
    bypassed: set[tuple[int, str]] = field(default_factory=set)
    """Recorded steps whose replay this run has emitted: delivery and key."""
    emitted_results: dict[int, list[WorkflowEvent]] = field(default_factory=dict)
    """By delivery: results that it has emitted in this run. They are retracted if it fails."""
    task: asyncio.Task[Any] | None = None
    """The task that drives the supersteps."""
    cancels_before: int = 0
    """The cancellation count of that task when the run began to drive."""

    def __post_init__(self) -> None:
        self.spans = None if self.watch is None else self.watch.spans
        if self.stored_thread is not None:
            self.codec, self.is_logged = self.stored_thread.codec, True

    def close(self) -> None:
        """The run has ended. Its parts forget each other: otherwise its events, which it keeps for the result, would
        wait for the garbage collector (9,500 objects in 30 rounds of benchmarks/engine.py's fan)."""
        self.emit = self.on_request = self.retract = _ignore
        self.after_record = _nothing

    def is_cancelled(self) -> bool:
        """Whether the run was cancelled since it began to drive."""
        return self.task is not None and self.task.cancelling() > self.cancels_before


GONE = Record("gone")
"""Replaces a revoked record, so that the others keep their places."""


class Journal:
    """Appends records of deliveries: in memory, and in a store that has a journal."""

    def __init__(self, thread: LiveThread, stored_thread: OpenThread | None, *, is_kept: bool) -> None:
        self._thread = thread
        self.is_kept = is_kept
        """Whether the store has the records, too."""
        self._stored_thread = stored_thread if is_kept else None
        self._codec: Codec | None = None if stored_thread is None else stored_thread.codec
        # An entry names the head that it extends: none may be in flight while a commit creates a new head.
        self.lock = asyncio.Lock()
        self._in_flight = 0
        self._has_arrived = asyncio.Event()
        self.since_commit = 0

    @asynccontextmanager
    async def beside_others(self) -> AsyncIterator[None]:
        """For an outcome, which needs no order: many may be in flight, and a store can write them together."""
        async with self.lock:
            self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1
            self._has_arrived.set()

    async def wait_for_others(self) -> None:
        """With the lock held: wait until no entry is in flight."""
        while self._in_flight:
            self._has_arrived.clear()
            await self._has_arrived.wait()

    def records_of(self, message: WorkflowMessage, position: Position) -> list[Record]:
        """All records of a delivery, those of its last suspension included."""
        delivery_id = message.delivery_id
        records = self._thread.records.get(delivery_id)
        if records is None:
            before = position.suspended.get(delivery_id)
            records = self._thread.records[delivery_id] = list(before.records) if before is not None else []
        return records

    def freeze(self, value: Any, what: str) -> Any:
        """The value for a record, which user code cannot change later. Raises UnsavableValue."""
        if value is None:
            return None
        return isolate(value) if self._codec is None else Encoded(self._codec.encode(value, what), self._codec)

    def kept_error(self, error: BaseException) -> Any:
        """The error for a record: itself, or its text if it cannot be encoded."""
        try:
            return self.freeze(error, "error")
        except UnsavableValue:
            return self.freeze(f"{type(error).__name__}: {error}", "error")

    async def append(self, delivery_id: int, record: Record) -> int:
        """Record durably. Returns the place of the record."""
        records = self._thread.records[delivery_id]
        if self._stored_thread is None:
            records.append(record)
            return len(records) - 1
        tree = encode_record(record, self._stored_thread.codec)
        async with self.lock:
            tree["n"] = place = len(records)
            await self._stored_thread.record(delivery_id, tree)
            records.append(record)  # after the store: places there and here must be equal
            self.since_commit += 1
        return place

    async def take_back(self, delivery_id: int, places: Iterable[int]) -> None:
        """Revoke these records: their calls run again."""
        records = self._thread.records[delivery_id]
        for place in places:
            records[place] = GONE
            if self._stored_thread is not None:
                async with self.lock:
                    await self._stored_thread.record(delivery_id, {"kind": GONE.kind, "n": place})


def value_of(kept: Any, what: str) -> Any:
    """A copy of the value that `kept` records."""
    return kept.codec.decode(kept.tree, what) if isinstance(kept, Encoded) else isolate(kept)


def take_journal(thread: LiveThread, stored_thread: OpenThread) -> None:
    """Take the store's records since the head. Raises DamagedCheckpoint.

    Also if the number is unchanged: another owner may have recorded deliveries and ended before its commit.
    """
    entries = stored_thread.tail.journal()
    messages = {}
    for level in every_level(thread.position) if entries else ():
        for message in (*level.mailbox, *(delivery.message for delivery in level.suspended.values())):
            messages[message.delivery_id] = message
    for delivery_id, trees in entries.items():
        if delivery_id in messages and delivery_id not in thread.journal:
            try:
                _take(thread, messages[delivery_id], trees, stored_thread.codec)
            except (KeyError, TypeError, ValueError, AttributeError, UnreadableValue) as error:
                reason = f"the journal entry of delivery {delivery_id} is invalid ({error!r})"
                raise DamagedCheckpoint(str(stored_thread.head_id), reason) from error


def _take(thread: LiveThread, message: WorkflowMessage, trees: list[Tree], codec: Codec) -> None:
    delivery_id = message.delivery_id
    outcome = None
    suspended = (level.suspended.get(delivery_id) for level in every_level(thread.position))
    records = next((list(delivery.records) for delivery in suspended if delivery is not None), [])
    for tree in trees:
        if "kind" in tree:
            place = tree["n"]
            record = decode_record(tree, codec)
            if place > len(records):
                raise ValueError(f"record {place} follows {len(records)} others")
            if place < len(records):  # in the checkpoint already, or taken back
                records[place] = GONE if record.kind == GONE.kind else records[place]
            else:
                records.append(record)
        else:
            outcome = None if tree == TAKEN_BACK else tree
    if records:
        thread.records[delivery_id] = records
    if outcome is not None:
        thread.journal[delivery_id] = decode_effects(outcome, str(message.target_id), codec, message)


def add_records(position: Position, records: Mapping[int, list[Record]], *, only_waiting: bool = False) -> Position:
    """A position in which deliveries have their records so far, and those that recorded something are suspended. With
    `only_waiting` those that wait for their next attempt are, and no others. `position` is not changed."""
    suspended = {
        key: msgspec.structs.replace(delivery, records=tuple(records[key])) if key in records else delivery
        for key, delivery in position.suspended.items()
    }
    for message in position.mailbox:
        recorded = tuple(records.get(message.delivery_id, ()))
        attempts = [record for record in recorded if record.kind == "attempt" and not record.key]
        if attempts:
            suspended[message.delivery_id] = SuspendedDelivery(message, attempts[-1].until, records=recorded)
        elif message.delivery_id in records and not only_waiting:
            suspended[message.delivery_id] = SuspendedDelivery(message, records=recorded, is_ready=True)
    after = position.successor()
    after.mailbox = [message for message in position.mailbox if message.delivery_id not in suspended]
    after.suspended = suspended
    for key, child in position.children.items():
        inner = add_records(child.position, records, only_waiting=only_waiting)
        after.children = {**after.children, key: child.at(inner)}
    return after


def absorb_records(thread: LiveThread) -> None:
    """Add all records to suspended deliveries before an input arrives: an answer is recorded after them."""
    if thread.records:
        thread.position = add_records(thread.position, thread.records, only_waiting=True)
        waiting = {key for level in every_level(thread.position) for key in level.suspended}
        thread.records = {key: records for key, records in thread.records.items() if key not in waiting}


def encode_effects(effects: Effects, executor_id: str, codec: Codec) -> Tree:
    """The effects as a journal entry. Raises UnsavableValue with the path of a value that cannot be stored."""
    path = f"effects of {executor_id!r}"
    tree: dict[str, Tree] = {
        "sends": [[codec.encode(data, f"{path}.sends"), target] for data, target in effects.sends],
        "outputs": [[event.type, codec.encode(event.data, f"{path}.outputs")] for event in effects.outputs],
        "requests": [encode_request(event, codec) for event in effects.requests],
        "writes": [_encode_write(key, value, codec) for key, value in effects.writes],
        "saved": None if effects.saved is None else effects.saved.tree,
    }
    if effects.private is not None:
        tree["private"] = codec.encode(effects.private, f"private state of {executor_id!r}")
    if effects.usage:
        tree["usage"] = dict(effects.usage)
    if effects.answers:
        tree["answers"] = [
            [codec.encode(answer.data, f"{path}.answers"), encode_request(answer.source_event, codec)]
            for answer in effects.answers
        ]
    for part in ("is_start", "is_isolated", "forwarded_to", "withdrawn"):
        if getattr(effects, part):
            tree[part] = getattr(effects, part)
    return tree


def _encode_write(key: str, value: Any, codec: Codec) -> Tree:
    if value is DELETED:
        return [key, "deleted"]
    kind, value = ("replaced", value.value) if isinstance(value, Replaced) else ("written", value)
    return [key, kind, codec.encode(value, f"state[{key!r}]")]


def _decode_write(key: str, kind: str, tree: Tree = None, *, path: str, codec: Codec) -> tuple[str, Any]:
    if kind == "deleted":
        return key, DELETED
    value = codec.decode(tree, path)
    return key, Replaced(value) if kind == "replaced" else value


def decode_effects(tree: Tree, executor_id: str, codec: Codec, message: WorkflowMessage | None = None) -> Effects:
    """The effects of a journal entry. `message` is their delivery, which the entry does not contain."""
    path = f"journal of {executor_id!r}"
    effects = Effects()
    effects.sends = [(codec.decode(data, path), target) for data, target in tree["sends"]]
    effects.outputs = [
        WorkflowEvent(kind, codec.decode(data, path), executor_id=executor_id) for kind, data in tree["outputs"]
    ]
    effects.requests = [decode_request(request, codec) for request in tree["requests"]]
    effects.writes = [_decode_write(*write, path=path, codec=codec) for write in tree["writes"]]
    effects.saved = None if tree["saved"] is None else Encoded(tree["saved"], codec)
    if "private" in tree:
        effects.private = codec.decode(tree["private"], path)
    effects.use(tree.get("usage"))
    effects.is_settled = True
    answers = (
        SubWorkflowResponseMessage(codec.decode(data, path), decode_request(request, codec))
        for data, request in tree.get("answers", ())
    )
    effects.also(
        message=message,
        answers=tuple(answers),
        withdrawn=tuple(tree.get("withdrawn", ())),
        **{part: tree[part] for part in ("is_start", "is_isolated", "forwarded_to") if part in tree},
    )
    return effects
