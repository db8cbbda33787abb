"""One commit, encoded: its checkpoint and its durable events as chunks, and events read back with their seqs.

An event is `[type, executor_id, {the rest}]`, cut off after its last part. Events of every superstep have a short form:
`["begin", iteration]`, `["in", executor_id]`, `["out", executor_id]`, `["end", iteration, executor_ids, pending]`
and `["is", state]`. They do not repeat the run, the time and the checkpoint, which the commit has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from perdure.checkpoints.checkpoint import WorkflowCheckpoint, due_at, utc_now
from perdure.checkpoints.delta.chunks import Chunker
from perdure.checkpoints.encoding.decode import decode_request
from perdure.checkpoints.encoding.encode import encode_body, encode_request
from perdure.codec import Codec, Tree
from perdure.codecs.subclasses import encodable_exception
from perdure.errors import UnreadableValue, UnsavableValue
from perdure.events import WorkflowErrorDetails, WorkflowEvent, WorkflowEventSource, WorkflowRunState
from perdure.log import get_logger
from perdure.records import CheckpointInfo, Commit, Lease, LoggedEvents, PendingRequest

if TYPE_CHECKING:
    from perdure.checkpoints.delta.recent import Recent

logger = get_logger("checkpoints")

NOT_LOGGED = frozenset({"data", "checkpoint_saved", "superstep_discarded"})
"""Progress, and what only live consumers need."""

_WITHOUT_DATA = {"executor_invoked": "in", "executor_completed": "out"}
"""Their data are messages and outputs, which the checkpoints hold: the store keeps no payload twice."""
_LONG = {short: long for long, short in _WITHOUT_DATA.items()}


def encode_commit(
    lease: Lease,
    number: int,
    checkpoint: WorkflowCheckpoint | None,
    events: Sequence[WorkflowEvent],
    run_id: str,
    *,
    base: Recent | None,
    graph: bytes,
    last_seq: int,
    codec: Codec,
    status: str,
    unsettled: Sequence[int] = (),
    consumed: Sequence[str] = (),
    prunes: Sequence[int] = (),
    prunes_events_before: int = 0,
) -> tuple[Commit, list[Tree]]:
    """The commit, fully encoded before user code can change a value, and its logged events as trees. Raises
    UnsavableValue.

    `base`: the checkpoint before, whose chunks it shares. `graph`: that of the checkpoint (`encode_graph`). `last_seq`:
    of the events before.
    """
    info, tree, due, requests = None, None, None, None
    if checkpoint is None or base is None:
        timestamp = utc_now()
    else:
        info, timestamp = checkpoint.info, checkpoint.timestamp
        if checkpoint.suspended or checkpoint.children or checkpoint.pending_request_info_events:
            due = due_at(checkpoint)
        tree = encode_body(checkpoint, codec)
        if checkpoint.state:
            tree["state"] = base.state.encode(checkpoint.state, "state", codec)
        pending, stored = checkpoint.pending_request_info_events, base.requests
        if pending is not stored and (pending or stored or stored is None):
            asked_at = datetime.fromisoformat(timestamp)
            requests = [pending_request(info.thread_id, event, asked_at) for event in pending.values()]
    trees = encode_events(events, codec)
    chunker = Chunker() if base is None else base.chunker
    packed = chunker.pack(number, tree, graph)
    logged, refers = None, False
    if trees:
        body = chunker.pack_events(trees)
        refers = body.refers
        logged = LoggedEvents(last_seq + 1, len(trees), body.body, refers, body.own, number, run_id, timestamp, info)
    commit = Commit(
        lease,
        number,
        info,
        packed.root,
        logged,
        unsettled,
        consumed,
        status,
        run_id,
        timestamp,
        base.number or None if base is not None and (checkpoint is not None or refers) else None,
        packed.chunks,
        packed.dropped,
        requests,
        due,
        prunes,
        prunes_events_before,
    )
    return commit, trees


def pending_request(thread_id: str, event: WorkflowEvent, asked_at: datetime) -> PendingRequest:
    terms = event.terms
    return PendingRequest(
        thread_id,
        str(event.request_id),
        str(event.source_executor_id),
        asked_at,
        None if terms is None else terms.deadline,
        None if terms is None else terms.assignee,
    )


def encode_events(events: Sequence[WorkflowEvent], codec: Codec) -> list[Tree]:
    return [tree for event in events if (tree := _encode(event, codec)) is not None]


def decode_events(trees: Tree, logged: LoggedEvents, thread_id: str, codec: Codec) -> Iterator[WorkflowEvent]:
    """Raises UnreadableValue."""
    timestamp = datetime.fromisoformat(logged.timestamp)
    for seq, tree in enumerate(trees, logged.first_seq):
        stamp = {"seq": seq, "timestamp": timestamp, "thread_id": thread_id, "run_id": logged.run_id}
        try:
            event = _decode(tree, codec, logged.info, stamp)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise UnreadableValue(f"event {seq} of thread {thread_id!r}", f"it is not an event ({error!r})") from error
        yield event


def _encode(event: WorkflowEvent, codec: Codec) -> Tree | None:
    kind: str = event.type
    rest: dict[str, Tree]
    if kind in _WITHOUT_DATA:  # the most frequent ones come first
        kind, rest = _WITHOUT_DATA[kind], {}
        if event.child_id is None and event.executor_id is not None:
            return [kind, event.executor_id]
    elif kind == "superstep_started":
        return ["begin", event.iteration]
    elif kind == "superstep_completed":
        pending = bool(event.has_pending_messages) + 2 * bool(event.has_pending_requests)
        return ["end", event.iteration, event.executors, pending]
    elif kind in NOT_LOGGED:
        return None
    elif kind == "request_info":
        return [kind, event.executor_id, {"request": encode_request(event, codec)}]
    elif kind == "status" and event.state is not None:
        return ["is", event.state.value]
    else:
        encoded = _encode_rest(event, codec)
        if encoded is None:
            return None
        rest = encoded
    if event.child_id is not None:
        rest["child_id"] = event.child_id
    if rest:
        return [kind, event.executor_id, rest]
    return [kind] if event.executor_id is None else [kind, event.executor_id]


_OF_EXECUTORS = frozenset({"group_chat", "handoff_sent", "magentic_orchestrator"})
"""Types that only executors emit."""


def _encode_rest(event: WorkflowEvent, codec: Codec) -> dict[str, Tree] | None:
    """None for an executor's event that cannot be stored."""
    kind = event.type
    rest: dict[str, Tree] = {}
    if event.iteration is not None:
        rest["iteration"] = event.iteration
    if event.data is not None:
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
    if event.origin is WorkflowEventSource.EXECUTOR and kind not in _OF_EXECUTORS:
        rest["origin"] = event.origin.value
    details = event.details
    if details is not None:
        rest["details"] = [details.error_type, details.message, details.traceback, details.executor_id]
    return rest


def _decode(tree: list[Any], codec: Codec, info: CheckpointInfo | None, stamp: dict[str, Any]) -> WorkflowEvent:
    kind = tree[0]
    if kind in _SHORT:
        return _SHORT[kind](tree, info, stamp)
    kind, executor_id, rest = [*tree, None, None][:3]
    kind = _LONG.get(kind, kind)
    rest = rest or {}
    if "request" in rest:
        request = decode_request(rest["request"], codec)
        fields = {name: getattr(request, name) for name in WorkflowEvent.__struct_fields__ if name not in stamp}
        return WorkflowEvent(**fields, **stamp)
    fields = {name: rest[name] for name in ("iteration", "child_id") if name in rest}
    if "data" in rest:
        fields["data"] = codec.decode(rest["data"], f"{kind} event")
    if "state" in rest:
        fields["state"] = WorkflowRunState(rest["state"])
    if "origin" in rest or kind in _OF_EXECUTORS:
        fields["origin"] = WorkflowEventSource.EXECUTOR
    if "details" in rest:
        fields["details"] = WorkflowErrorDetails(*rest["details"])
    return WorkflowEvent(kind, executor_id=executor_id, **fields, **stamp)


def _decode_begin(tree: list[Any], info: CheckpointInfo | None, stamp: dict[str, Any]) -> WorkflowEvent:
    return WorkflowEvent("superstep_started", iteration=tree[1], **stamp)


def _decode_end(tree: list[Any], info: CheckpointInfo | None, stamp: dict[str, Any]) -> WorkflowEvent:
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


def _decode_status(tree: list[Any], info: CheckpointInfo | None, stamp: dict[str, Any]) -> WorkflowEvent:
    return WorkflowEvent("status", state=WorkflowRunState(tree[1]), **stamp)


_SHORT = {"begin": _decode_begin, "end": _decode_end, "is": _decode_status}
