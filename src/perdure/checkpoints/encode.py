"""A checkpoint as a tree: with `decode.py`, the one place that knows the stored form.

The tree holds each payload of messages once, in `payloads`, even if several deliveries share it. It has no empty parts.
The root of a thread and every sub-workflow in it have the same parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from perdure.codec import Codec, DeclaredTypes, Encoded, Tree
from perdure.codecs.json_codec import JsonCodec
from perdure.codecs.types import declared_types, remember
from perdure.codecs.walk import from_bytes, to_bytes
from perdure.errors import UnsavableValue
from perdure.events import WorkflowEvent
from perdure.records import (
    Answer,
    CheckpointInfo,
    ChildCheckpoint,
    ExecutorMemory,
    Record,
    SuspendedDelivery,
    WorkflowMessage,
)

if TYPE_CHECKING:
    from perdure.checkpoints.checkpoint import WorkflowCheckpoint

FORMAT_VERSION = "1.0"

INFO_FIELDS = tuple(name for name in CheckpointInfo.__struct_fields__ if name != "is_pinned")
"""Fields of a checkpoint that stores keep beside the payload."""

GRAPH_PARTS = ("version", "graph_signature_hash", "graph_signature", "migrations", "renamed_types")
"""Parts of a whole tree that a chunked tree has in its `graph`."""


def declare_types(
    annotations: Iterable[object], executor_code: Iterable[type], allowed: Iterable[type | str]
) -> DeclaredTypes:
    """The types of a workflow. The process registers them, so that a storage without the workflow can decode them."""
    declared = declared_types(annotations, executor_code, allowed)
    remember(declared)
    return declared


def codec_for(declared: DeclaredTypes) -> Codec:
    return JsonCodec(declared)


def tool_codec() -> Codec:
    """For work without a workflow: undeclared types are decoded as Opaque and encoded back unchanged."""
    return JsonCodec(lenient=True)


def encode_checkpoint(checkpoint: WorkflowCheckpoint, codec: Codec) -> Tree:
    """Raises UnsavableValue with the path of the value that cannot be stored."""
    tree = {field: getattr(checkpoint, field) for field in INFO_FIELDS}
    tree.update(encode_body(checkpoint, codec))
    if checkpoint.state:
        tree["state"] = codec.encode(checkpoint.state, "state")
    tree.update(from_bytes(encode_graph(checkpoint), "graph"))
    return tree


def encode_body(checkpoint: WorkflowCheckpoint, codec: Codec) -> dict[str, Tree]:
    """The parts that are not in a `CheckpointInfo`, without the graph's signature and the `state`."""
    counters = checkpoint.counters
    tree: dict[str, Tree] = {"counters": [counters.since_input, counters.next_delivery_id]}
    if counters.epoch:
        tree["counters"].append(counters.epoch)
    encode_level(checkpoint, tree, codec)
    if checkpoint.metadata:
        tree["metadata"] = codec.encode(checkpoint.metadata, "metadata")
    if checkpoint.run_kwargs:
        try:
            tree["run_kwargs"] = codec.encode(checkpoint.run_kwargs, "run_kwargs")
        except UnsavableValue as error:
            remedy = "Clients and keys need not be stored: pass Secret(value), and again when the thread is resumed."
            raise UnsavableValue(error.path, error.reason, remedy) from error
    if checkpoint.outputs:
        tree["outputs"] = [
            [event.type, event.executor_id, codec.encode(event.data, f"outputs[{index}]")]
            for index, event in enumerate(checkpoint.outputs)
        ]
    return tree


def encode_graph(checkpoint: WorkflowCheckpoint) -> bytes:
    """The part that most checkpoints of a thread have in common, without its empty lists and dicts."""
    parts = {part: getattr(checkpoint, part) for part in GRAPH_PARTS}
    return to_bytes({part: value for part, value in parts.items() if value or isinstance(value, str)})


def _encode_messages(messages: Mapping[str, list[WorkflowMessage]], tree: dict[str, Tree], codec: Codec) -> None:
    indexes: dict[int, int] = {}
    payloads: list[Any] = []
    rows: dict[str, list[Tree]] = {}
    for source_id, sent in messages.items():
        rows[source_id] = of_source = []
        for message in sent:
            is_delivery = is_due(message, source_id)
            data = message.data if is_delivery else message
            index = indexes.setdefault(id(data), len(payloads))
            if index == len(payloads):
                payloads.append(data)
            of_source.append(encode_message(message, index, codec) if is_delivery else index)
    try:
        encoded = codec.encode(payloads, "messages")
        if not isinstance(encoded, list):  # a codec may encode any value as one piece
            encoded = [codec.encode(payload, "messages") for payload in payloads]
    except UnsavableValue:
        for source_id, sent in messages.items():  # raises it again, with the path of the message
            for index, message in enumerate(sent):
                data = message.data if is_due(message, source_id) else message
                codec.encode(data, f"messages[{source_id!r}][{index}].data")
        raise
    tree["payloads"], tree["messages"] = encoded, rows


def is_due(message: Any, source_id: str) -> bool:
    """Whether it is a delivery, as the engine makes them. A checkpoint made by hand may list other values, which are
    stored as they are."""
    return type(message) is WorkflowMessage and message.target_id is not None and message.source_id == source_id


def encode_message(message: WorkflowMessage, payload_index: int, codec: Codec) -> list[Tree]:
    """Cut off after its last part."""
    request, senders = message.original_request_info_event, message.source_ids
    if request is None and senders is None and message.in_place_of is None:  # nearly all: 0.5 us of 27 per superstep
        return [message.delivery_id, message.target_id, payload_index]
    rest = [senders and list(senders), request and encode_request(request, codec), message.in_place_of]
    while rest and rest[-1] is None:
        rest.pop()
    return [message.delivery_id, message.target_id, payload_index, *rest]


def encode_request(event: WorkflowEvent, codec: Codec) -> dict[str, Tree]:
    path = f"pending_request_info_events[{event.request_id!r}]"
    tree: dict[str, Tree] = {
        "request_id": event.request_id,
        "source_executor_id": event.source_executor_id,
        "data": codec.encode(event.data, f"{path}.data"),
        "response_type": codec.encode(event.response_type, f"{path}.response_type"),
    }
    if event.child_id is not None:
        tree["child_id"] = event.child_id
    terms = event.terms
    if terms is not None:
        tree["deadline"] = terms.deadline.isoformat() if terms.deadline else None
        tree["assignee"] = terms.assignee
        if terms.default is not ...:
            tree["default"] = codec.encode(terms.default, f"{path}.default")
    return tree


def _encode_once(value: object, path: str, codec: Codec) -> Tree:
    return value.tree if isinstance(value, Encoded) else codec.encode(value, path)


def _encode_memory(executor_id: str, memory: ExecutorMemory, codec: Codec) -> dict[str, Tree]:
    path = f"executors[{executor_id!r}]"
    parts = {"saved": memory.saved, "private": memory.private}
    return {key: _encode_once(part, f"{path}.{key}", codec) for key, part in parts.items() if part is not None}


def _encode_answer(answer: Answer) -> list[Tree]:
    tree = [answer.answered_at.isoformat(), answer.answered_by, answer.expired_for]
    return [*tree, True] if answer.is_withdrawn else tree


def encode_level(level: WorkflowCheckpoint | ChildCheckpoint, tree: dict[str, Tree], codec: Codec) -> None:
    """Add the parts that are not empty. Raises UnsavableValue with the path of the value that cannot be stored."""
    if level.messages:
        _encode_messages(level.messages, tree, codec)
    if level.state and isinstance(level, ChildCheckpoint):  # `StoredThread` encodes that of the root
        tree["state"] = codec.encode(level.state, "state")
    if level.buffers:
        tree["buffers"] = codec.encode(level.buffers, "buffers")
    if level.pending_request_info_events:
        requests = level.pending_request_info_events.values()
        tree["requests"] = [encode_request(event, codec) for event in requests]
    if level.executors:
        tree["executors"] = {key: _encode_memory(key, memory, codec) for key, memory in level.executors.items()}
    if level.answered:
        tree["answered"] = {key: _encode_answer(answer) for key, answer in level.answered.items()}
    if level.suspended:
        tree["suspended"] = [_encode_suspended(delivery, codec) for delivery in level.suspended.values()]
    if level.children:
        tree["children"] = [_encode_child(child, codec) for child in level.children.values()]


def _encode_delivery(message: WorkflowMessage, codec: Codec) -> list[Tree]:
    data = codec.encode(message.data, f"messages[{message.source_id!r}].data")
    return [message.source_id, encode_message(message, 0, codec), data]


def _encode_suspended(suspended: SuspendedDelivery, codec: Codec) -> Tree:
    tree = {
        "delivery": _encode_delivery(suspended.message, codec),
        "due_at": suspended.due_at and suspended.due_at.isoformat(),
        "is_ready": suspended.is_ready,
        "waits": list(suspended.waits),
        "emitted": list(suspended.emitted),
        "run_id": suspended.run_id,
        "records": [encode_record(record, codec) for record in suspended.records],
    }
    return {part: value for part, value in tree.items() if value}


def encode_record(record: Record, codec: Codec) -> dict[str, Tree]:
    """Raises UnsavableValue that names the step whose result cannot be stored."""
    names = ("kind", "key", "name", "after", "within", "run_id")
    tree: dict[str, Tree] = {part: value for part in names if (value := getattr(record, part))}
    if record.until is not None:
        tree["until"] = record.until.isoformat()
    for part, value in (("value", record.value), ("effects", record.effects)):
        if value is not None:
            tree[part] = _encode_once(value, f"{part} of {record.name!r}", codec)
    return tree


def _encode_child(child: ChildCheckpoint, codec: Codec) -> Tree:
    tree: dict[str, Tree] = {
        "executor_id": child.executor_id,
        "delivery": _encode_delivery(child.message, codec),
        "since_input": child.since_input,
    }
    due_at = child.due_at and child.due_at.isoformat()
    rest = {"asked": list(child.asked), "attempts": child.attempts, "due_at": due_at}
    tree |= {part: value for part, value in rest.items() if value}
    try:
        encode_level(child, tree, codec)
    except UnsavableValue as error:  # the path must name the sub-workflow too
        raise error.within(f"children[{child.executor_id!r}]") from error
    return tree
