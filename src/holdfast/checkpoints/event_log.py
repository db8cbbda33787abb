"""The durable events of one commit, packed into bytes and read back with their seqs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from holdfast.checkpoints.parts import decode_request, encode_request
from holdfast.codec import Codec, Tree
from holdfast.codecs.exceptions import encodable_exception
from holdfast.codecs.json_bytes import from_bytes, to_bytes
from holdfast.errors import UnsavableValue
from holdfast.events import WorkflowErrorDetails, WorkflowEvent, WorkflowEventSource, WorkflowRunState
from holdfast.log import get_logger
from holdfast.records import CheckpointInfo, LoggedEvents

logger = get_logger("checkpoints")

NOT_LOGGED = frozenset({"data", "checkpoint_saved", "superstep_discarded"})
"""Progress and what only a live consumer needs to know."""

_WITHOUT_DATA = frozenset({"executor_invoked", "executor_completed"})
"""Their data are messages and outputs, which the checkpoints hold already: no payload is stored twice."""

_INFO_FIELDS = tuple(field for field in CheckpointInfo.__struct_fields__ if field != "thread_id")


def pack(
    events: Sequence[WorkflowEvent],
    first_seq: int,
    run_id: str,
    timestamp: str,
    info: CheckpointInfo | None,
    codec: Codec,
) -> LoggedEvents | None:
    trees = [tree for event in events if (tree := _encode(event, codec)) is not None]
    if not trees:
        return None
    # The checkpoint stands once in the record, not in each event that speaks of it.
    made = None if info is None else [getattr(info, field) for field in _INFO_FIELDS]
    return LoggedEvents(first_seq, len(trees), to_bytes([run_id, timestamp, made, trees]))


def unpack(logged: LoggedEvents, thread_id: str, codec: Codec) -> Iterator[WorkflowEvent]:
    run_id, timestamp, made, trees = from_bytes(logged.body, f"events of thread {thread_id!r}")
    info = None if made is None else CheckpointInfo(**dict(zip(_INFO_FIELDS, made, strict=True)), thread_id=thread_id)
    at = datetime.fromisoformat(timestamp)
    for seq, tree in enumerate(trees, logged.first_seq):
        yield _decode(tree, codec, info, seq=seq, timestamp=at, thread_id=thread_id, run_id=run_id)


def _encode(event: WorkflowEvent, codec: Codec) -> Tree | None:
    kind = event.type
    if kind in NOT_LOGGED:
        return None
    if kind == "request_info":
        return {"type": kind, "request": encode_request(event, codec)}
    tree: dict[str, Tree] = {"type": kind}
    if event.executor_id is not None:
        tree["executor_id"] = event.executor_id
    if event.child_id is not None:
        tree["child_id"] = event.child_id
    if kind in _WITHOUT_DATA:
        return tree
    if event.iteration is not None:
        tree["iteration"] = event.iteration
    if event.data is not None:
        data = encodable_exception(event.data, codec) if isinstance(event.data, BaseException) else event.data
        try:
            tree["data"] = codec.encode(data, f"{kind} event of {event.executor_id!r}")
        except UnsavableValue as error:
            if event.origin is not WorkflowEventSource.EXECUTOR:
                raise
            # An executor's own event is progress unless it can be stored; it must not fail the run.
            logger.warning("executor %s: its %s event cannot be stored and is not in the log", event.executor_id, kind)
            logger.debug("why the %s event cannot be stored: %s", kind, error)
            return None
    _encode_rest(event, tree)
    return tree


def _encode_rest(event: WorkflowEvent, tree: dict[str, Tree]) -> None:
    if event.state is not None:
        tree["state"] = event.state.value
    if event.origin is WorkflowEventSource.EXECUTOR:
        tree["origin"] = event.origin.value
    details = event.details
    if details is not None:
        tree["details"] = [details.error_type, details.message, details.traceback, details.executor_id]
    if event.type == "superstep_completed":
        tree["executors"] = event.executors
        tree["pending"] = [event.has_pending_messages, event.has_pending_requests]


def _decode(tree: dict[str, Any], codec: Codec, info: CheckpointInfo | None, **stamp: Any) -> WorkflowEvent:
    if "request" in tree:
        request = decode_request(tree["request"], codec)
        fields = {name: getattr(request, name) for name in WorkflowEvent.__struct_fields__ if name not in stamp}
        return WorkflowEvent(**fields, **stamp)
    fields = {name: tree[name] for name in ("executor_id", "iteration", "child_id") if name in tree}
    if "data" in tree:
        fields["data"] = codec.decode(tree["data"], f"{tree['type']} event")
    if "state" in tree:
        fields["state"] = WorkflowRunState(tree["state"])
    if "origin" in tree:
        fields["origin"] = WorkflowEventSource(tree["origin"])
    if "details" in tree:
        fields["details"] = WorkflowErrorDetails(*tree["details"])
    if "executors" in tree:
        fields["executors"] = tuple(tree["executors"])
        fields["has_pending_messages"], fields["has_pending_requests"] = tree["pending"]
        fields["checkpoint"] = info
        fields["last_seq"] = stamp["seq"]
    return WorkflowEvent(tree["type"], **fields, **stamp)
