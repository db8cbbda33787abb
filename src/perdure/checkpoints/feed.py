"""The events of a run on their way to the thread's log and to followers, which `follow.py` describes.

An event of the log is `[type, executor_id, {the rest}]`, cut off after its last part. Events of every superstep have a
short form: `["begin", iteration]`, `["in", executor_id]`, `["out", executor_id]`,
`["end", iteration, executor_ids, pending]` and `["is", state]`. They do not repeat the run, the time and the
checkpoint, which the commit has.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet, WeakValueDictionary

import msgspec

from perdure.checkpoints.decode import decode_request
from perdure.checkpoints.encode import encode_request
from perdure.codec import Codec, DeclaredTypes, Tree
from perdure.codecs.json_codec import JsonCodec
from perdure.codecs.subclasses import encodable_exception
from perdure.errors import PerdureError, UnreadableValue, UnsavableValue
from perdure.events import WorkflowErrorDetails, WorkflowEvent, WorkflowEventSource, WorkflowRunState
from perdure.isolation import is_immutable
from perdure.log import get_logger
from perdure.names import stable_name
from perdure.platform import reset_in_children
from perdure.records import CheckpointInfo, LoggedEvents

if TYPE_CHECKING:
    from perdure.checkpoints.follow import ThreadFollower
    from perdure.checkpoints.storage import StoreCheckpointStorage

logger = get_logger("checkpoints")

NOT_LOGGED = frozenset({"data", "checkpoint_saved", "superstep_discarded"})
"""Progress, and what only live consumers need."""

WITHOUT_DATA = {"executor_invoked": "in", "executor_completed": "out"}
"""Their data are messages and outputs, which the checkpoints hold: the store keeps no payload twice."""

MAX_LIVE_EVENT_BYTES = 256 * 1024
"""Larger events are not published. Those that belong to the log are still logged."""


class LiveEvent(NamedTuple):
    """An event that a run published before its commit."""

    after: int
    """The last event of the log at that time."""
    event: WorkflowEvent


class CommittedEvents(NamedTuple):
    """The logged events of a commit that the store has."""

    trees: Tree
    logged: LoggedEvents


class Feeds:
    """The followers in this process of the threads of one storage, and the runs that feed them."""

    def __init__(self) -> None:
        _ALL_FEEDS.add(self)
        self._followers: dict[str, tuple[ThreadFollower, ...]] = {}
        """By thread. A thread without followers has no entry."""
        self.has_followers: Callable[[str], bool] = self._followers.__contains__
        """Asked before each event of a run: a call into the dict itself."""
        self.reset()

    def reset(self) -> None:
        """Also in a forked child: the followers are the parent's, and the lock may be held."""
        self._lock = threading.Lock()
        self._followers.clear()
        self._open: WeakValueDictionary[str, Feed] = WeakValueDictionary()
        """By thread. Weak: a run that its closed event loop abandoned ends no feed."""

    def add(self, thread_id: str, follower: ThreadFollower) -> None:
        with self._lock:
            self._followers[thread_id] = (*self.followers(thread_id), follower)
        feed = self._open.get(thread_id)
        if feed is not None:
            follower.begin(feed.last_seq)

    def remove(self, thread_id: str, follower: ThreadFollower) -> None:
        with self._lock:
            others = tuple(other for other in self._followers.pop(thread_id, ()) if other is not follower)
            if others:
                self._followers[thread_id] = others

    def followers(self, thread_id: str) -> tuple[ThreadFollower, ...]:
        return self._followers.get(thread_id, ())

    def is_fed(self, thread_id: str) -> bool:
        """Whether a run of this storage owns the thread."""
        return thread_id in self._open

    def open(self, feed: Feed) -> None:
        self._open[feed.thread_id] = feed
        for follower in self.followers(feed.thread_id):
            follower.begin(feed.last_seq)

    def close(self, feed: Feed) -> None:
        if self._open.get(feed.thread_id) is feed:
            del self._open[feed.thread_id]
            for follower in self.followers(feed.thread_id):
                follower.end()


_ALL_FEEDS: WeakSet[Feeds] = WeakSet()
reset_in_children(_ALL_FEEDS)


class Feed:
    """Publishes the events of the run that owns a thread. An event without followers costs two lookups."""

    __slots__ = ("__weakref__", "_feeds", "_store", "has_followers", "has_subscribers", "last_seq", "thread_id")

    def __init__(self, storage: StoreCheckpointStorage, thread_id: str, last_seq: int) -> None:
        self.thread_id = thread_id
        self.last_seq = last_seq
        """The last event of the log."""
        self._store = storage.store
        self._feeds = storage._feeds
        self.has_followers: Callable[[], bool] = partial(self._feeds.has_followers, thread_id)
        """Whether a follower in this process gets what the run pushes."""
        self.has_subscribers: Callable[[], bool] = partial(self._store.has_subscribers, thread_id)
        """Whether the store may have subscribers to the thread."""
        self._feeds.open(self)

    def publish(self, event: WorkflowEvent, run_id: str, last_seq: int, timestamp: datetime) -> None:
        """Publish an event before its commit. `last_seq`: the end of the log after the commits that have begun."""
        is_subscribed = self.has_subscribers()
        followers = [each for each in self._feeds.followers(self.thread_id) if each.accepts(event.type)]
        if not is_subscribed and not followers:
            return
        stamped = msgspec.structs.replace(event, thread_id=self.thread_id, run_id=run_id, timestamp=timestamp)
        is_shared = is_shareable(event)
        body = encode_live_event(stamped, last_seq) if is_subscribed or not is_shared else None
        item = LiveEvent(last_seq, stamped) if is_shared else body
        if item is not None:
            for follower in followers:
                follower.push(item)
        if is_subscribed and body is not None:
            self._store.publish(self.thread_id, body)

    def publish_commit(self, trees: Tree, logged: LoggedEvents) -> None:
        """Publish the logged events of a commit that the store has."""
        self.last_seq = logged.first_seq + logged.count - 1
        for follower in self._feeds.followers(self.thread_id):
            follower.push(CommittedEvents(trees, logged))

    def close(self) -> None:
        """The run has released the thread."""
        self._feeds.close(self)


def is_shareable(event: WorkflowEvent) -> bool:
    """Whether followers may share the event itself: an unlogged one, with small data that any codec returns unchanged
    and no reader can change."""
    data = event.data
    if event.type not in NOT_LOGGED:
        return False
    if data is None or type(data) in (bool, int, float):
        return True
    if not (type(data) is str or (stable_name(type(data)).startswith("perdure:") and is_immutable(data))):
        return False
    try:
        return len(msgspec.json.encode(data)) <= MAX_LIVE_EVENT_BYTES
    except (TypeError, ValueError, msgspec.EncodeError, RecursionError):
        return False


def encode_live_event(event: WorkflowEvent, last_seq: int) -> bytes | None:
    """None for an event that cannot leave this process, or is too large."""
    if event.type in WITHOUT_DATA:
        event = msgspec.structs.replace(event, data=None)
    # Like `WorkflowEvent.to_dict`, with a codec that is made once: runs may publish each token. Never the storage's
    # own: any client may publish, and decoding with another codec may run code.
    codec = lenient_codec(None)
    defaults = zip(event.__struct_fields__, (..., *event.__struct_defaults__), strict=True)
    fields = ((name, getattr(event, name, None), default) for name, default in defaults)
    try:
        tree = {name: codec.encode(value, f"event.{name}") for name, value, default in fields if value is not default}
        body = msgspec.json.encode([last_seq, tree])
    except (UnsavableValue, msgspec.EncodeError, RecursionError):
        return None
    return body if len(body) <= MAX_LIVE_EVENT_BYTES else None


def decode_live_event(body: bytes, codec: JsonCodec) -> LiveEvent | None:
    """None for a body that is not an event: any client of the channel can publish anything."""
    try:
        after, fields = msgspec.json.decode(body, type=tuple[int, dict[str, Any]])
        data = codec.decode(fields.get("data"), "event.data")
        event = msgspec.structs.replace(WorkflowEvent.from_dict({**fields, "data": None}), data=data, seq=None)
    except (PerdureError, msgspec.DecodeError, KeyError, ValueError, TypeError, RecursionError):
        return None
    return LiveEvent(after, event)


@lru_cache(maxsize=16)
def lenient_codec(declared: DeclaredTypes | None) -> JsonCodec:
    return JsonCodec(declared, lenient=True)


def encode_events(events: Sequence[WorkflowEvent], codec: Codec) -> list[Tree]:
    trees: list[Tree] = []
    for event in events:
        kind = event.type
        if kind in WITHOUT_DATA and event.child_id is None and event.executor_id is not None:  # half of all events
            trees.append([WITHOUT_DATA[kind], event.executor_id])
        elif kind == "superstep_started":
            trees.append(["begin", event.iteration])
        elif kind == "superstep_completed":
            pending = bool(event.has_pending_messages) + 2 * bool(event.has_pending_requests)
            trees.append(["end", event.iteration, event.executors, pending])
        elif kind == "request_info":
            trees.append([kind, event.executor_id, {"request": encode_request(event, codec)}])
        elif kind == "status" and event.state is not None:
            trees.append(["is", event.state.value])
        elif kind not in NOT_LOGGED:
            rest = {} if kind in WITHOUT_DATA else _encode_rest(event, codec)
            if rest is None:
                continue
            if event.child_id is not None:
                rest["child_id"] = event.child_id
            tree = [WITHOUT_DATA.get(kind, kind), event.executor_id, rest]
            while not tree[-1]:
                tree.pop()
            trees.append(tree)
    return trees


OF_EXECUTORS = frozenset({"group_chat", "handoff_sent", "magentic_orchestrator"})
"""Types that only executors emit."""


def _encode_rest(event: WorkflowEvent, codec: Codec) -> dict[str, Tree] | None:
    """None for an executor's event that cannot be stored."""
    kind = event.type
    rest: dict[str, Tree] = {}
    if event.iteration is not None:
        rest["iteration"] = event.iteration
    if event.data is not None and event.data is not event.details:
        data = encodable_exception(event.data, codec) if isinstance(event.data, BaseException) else event.data
        try:
            rest["data"] = codec.encode(data, f"{kind} event of {event.executor_id!r}")
        except UnsavableValue as error:
            if event.origin is not WorkflowEventSource.EXECUTOR:
                raise
            # An executor's own event that cannot be stored is progress: it must not fail the run.
            logger.warning("executor %s: its %s event cannot be stored, so the log omits it", event.executor_id, kind)
            logger.debug("why the %s event cannot be stored: %s", kind, error)
            return None
    if event.state is not None:
        rest["state"] = event.state.value
    if event.origin is WorkflowEventSource.EXECUTOR and kind not in OF_EXECUTORS:
        rest["origin"] = event.origin.value
    details = event.details
    if details is not None:
        rest["details"] = [details.error_type, details.message, details.traceback, details.executor_id]
    return rest


def decode_events(trees: Tree, logged: LoggedEvents, thread_id: str, codec: Codec) -> Iterator[WorkflowEvent]:
    """Raises UnreadableValue."""
    timestamp = datetime.fromisoformat(logged.timestamp)
    for seq, tree in enumerate(trees, logged.first_seq):
        stamp = {"seq": seq, "timestamp": timestamp, "thread_id": thread_id, "run_id": logged.run_id}
        try:
            event = _decode_event(tree, codec, logged.info, stamp)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise UnreadableValue(f"event {seq} of thread {thread_id!r}", f"it is not an event ({error!r})") from error
        yield event


_LONG = {short: long for long, short in WITHOUT_DATA.items()}


def _decode_event(tree: list[Any], codec: Codec, info: CheckpointInfo | None, stamp: dict[str, Any]) -> WorkflowEvent:
    kind = tree[0]
    if kind == "begin":
        return WorkflowEvent("superstep_started", iteration=tree[1], **stamp)
    if kind == "is":
        return WorkflowEvent("status", state=WorkflowRunState(tree[1]), **stamp)
    if kind == "end":
        _, iteration, executors, pending = tree
        return WorkflowEvent(
            "superstep_completed",
            iteration=iteration,
            executors=tuple(executors),
            has_pending_messages=bool(pending & 1),
            has_pending_requests=bool(pending & 2),
            checkpoint=info,
            last_seq=stamp["seq"],
            **stamp,
        )
    kind, executor_id, rest = [*tree, None, None][:3]
    kind = _LONG.get(kind, kind)
    rest = rest or {}
    if "request" in rest:
        return msgspec.structs.replace(decode_request(rest["request"], codec), **stamp)
    fields = {name: rest[name] for name in ("iteration", "child_id") if name in rest}
    if "data" in rest:
        fields["data"] = codec.decode(rest["data"], f"{kind} event")
    if "state" in rest:
        fields["state"] = WorkflowRunState(rest["state"])
    if "origin" in rest or kind in OF_EXECUTORS:
        fields["origin"] = WorkflowEventSource.EXECUTOR
    if "details" in rest:
        fields["details"] = WorkflowErrorDetails(*rest["details"])
    if kind == "executor_failed":
        fields.setdefault("data", fields.get("details"))
    return WorkflowEvent(kind, executor_id=executor_id, **fields, **stamp)
