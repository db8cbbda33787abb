"""A checkpoint as a tree, and back: the one place that knows the stored form.

Payloads of messages stand once in `payloads` however many deliveries share them. Parts that are empty are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from datetime import datetime
from typing import Any

import msgspec

from holdfast.checkpoints.checkpoint import FORMAT_VERSION, Counters, WorkflowCheckpoint
from holdfast.codec import Codec, Encoded, Tree
from holdfast.codecs.json_codec import JsonCodec
from holdfast.errors import UnreadableValue, UnsavableValue, WorkflowCheckpointException
from holdfast.events import RequestTerms, WorkflowEvent
from holdfast.records import Answer, ExecutorMemory, MessageType, WorkflowMessage

_PLAIN = (
    "workflow_name",
    "graph_signature_hash",
    "checkpoint_id",
    "previous_checkpoint_id",
    "timestamp",
    "iteration_count",
    "thread_id",
    "run_id",
    "number",
    "status",
)
"""Fields that JSON holds as they are."""

_VALUE_PARTS = ("state", "metadata", "run_kwargs", "buffers")
"""Dicts of users' values."""


def tool_codec() -> Codec:
    """For work without a workflow: types that nobody declared come back as Opaque and save back unchanged."""
    return JsonCodec(lenient=True)


def encode_checkpoint(checkpoint: WorkflowCheckpoint, codec: Codec) -> Tree:
    """Raises UnsavableValue with the path of the value that cannot be stored."""
    counters = checkpoint.counters
    tree: dict[str, Tree] = {
        "version": checkpoint.version,
        "workflow_name": checkpoint.workflow_name,
        "graph_signature_hash": checkpoint.graph_signature_hash,
        "checkpoint_id": checkpoint.checkpoint_id,
        "previous_checkpoint_id": checkpoint.previous_checkpoint_id,
        "timestamp": checkpoint.timestamp,
        "iteration_count": checkpoint.iteration_count,
        "thread_id": checkpoint.thread_id,
        "run_id": checkpoint.run_id,
        "number": checkpoint.number,
        "status": checkpoint.status,
        "counters": [counters.since_input, counters.next_delivery_id],
    }
    if checkpoint.messages:
        _encode_messages(checkpoint.messages, tree, codec)
    for part in _VALUE_PARTS:
        value = getattr(checkpoint, part)
        if value:
            tree[part] = codec.encode(value, part) if part != "run_kwargs" else _encode_arguments(value, codec)
    if checkpoint.graph_signature:
        tree["graph_signature"] = checkpoint.graph_signature
    if checkpoint.outputs:
        tree["outputs"] = [
            [event.type, event.executor_id, codec.encode(event.data, f"outputs[{index}]")]
            for index, event in enumerate(checkpoint.outputs)
        ]
    if checkpoint.pending_request_info_events:
        requests = checkpoint.pending_request_info_events.values()
        tree["requests"] = [encode_request(event, codec) for event in requests]
    if checkpoint.executors:
        tree["executors"] = {key: _encode_memory(key, one, codec) for key, one in checkpoint.executors.items()}
    if checkpoint.answered:
        tree["answered"] = {
            key: [answer.answered_at.isoformat(), answer.answered_by, answer.expired_for]
            for key, answer in checkpoint.answered.items()
        }
    return tree


def _encode_messages(messages: dict[str, list[WorkflowMessage]], tree: dict[str, Tree], codec: Codec) -> None:
    places: dict[int, int] = {}
    payloads: list[Any] = []
    for sent in messages.values():
        for message in sent:
            if id(message.data) not in places:
                places[id(message.data)] = len(payloads)
                payloads.append(message.data)
    try:
        tree["payloads"] = codec.encode(payloads, "messages")
    except UnsavableValue:
        _name_the_message(messages, codec)
        raise
    tree["messages"] = {
        source_id: [_encode_message(message, places[id(message.data)], codec) for message in sent]
        for source_id, sent in messages.items()
    }


def _encode_arguments(arguments: dict[str, Any], codec: Codec) -> Tree:
    try:
        return codec.encode(arguments, "run_kwargs")
    except UnsavableValue as error:
        remedy = "Clients and keys need not be stored: pass Secret(value), and again when the thread is resumed."
        raise UnsavableValue(error.path, error.reason, remedy) from error


def _name_the_message(messages: dict[str, list[WorkflowMessage]], codec: Codec) -> None:
    """Raise the error again with the path of the message: it is only worked out when it is needed."""
    for source_id, sent in messages.items():
        for index, message in enumerate(sent):
            codec.encode(message.data, f"messages[{source_id!r}][{index}].data")


def _encode_message(message: WorkflowMessage, place: int, codec: Codec) -> list[Tree]:
    if message.original_request_info_event is not None:
        request = encode_request(message.original_request_info_event, codec)
        return [message.delivery_id, message.target_id, place, None, request]
    if message.source_ids is not None:
        return [message.delivery_id, message.target_id, place, list(message.source_ids)]
    return [message.delivery_id, message.target_id, place]


def encode_request(event: WorkflowEvent, codec: Codec) -> dict[str, Tree]:
    path = f"pending_request_info_events[{event.request_id!r}]"
    tree: dict[str, Tree] = {
        "request_id": event.request_id,
        "source_executor_id": event.source_executor_id,
        "data": codec.encode(event.data, f"{path}.data"),
        "response_type": codec.encode(event.response_type, f"{path}.response_type"),
    }
    terms = event.terms
    if terms is not None:
        tree["deadline"] = terms.deadline.isoformat() if terms.deadline else None
        tree["assignee"] = terms.assignee
        if terms.default is not ...:
            tree["default"] = codec.encode(terms.default, f"{path}.default")
    return tree


def _encode_memory(executor_id: str, memory: ExecutorMemory, codec: Codec) -> dict[str, Tree]:
    tree = {}
    if isinstance(memory.saved, Encoded):
        tree["saved"] = memory.saved.tree
    elif memory.saved is not None:
        tree["saved"] = codec.encode(memory.saved, f"executors[{executor_id!r}].saved")
    if memory.private is not None:
        tree["private"] = codec.encode(memory.private, f"executors[{executor_id!r}].private")
    return tree


# ---------------------------------------------------------------- back


def decode_checkpoint(tree: Tree, codec: Codec) -> WorkflowCheckpoint:
    """Raises WorkflowCheckpointException (UnreadableValue names the part) for anything that is not a checkpoint."""
    if not isinstance(tree, Mapping) or "workflow_name" not in tree or "version" not in tree:
        raise UnreadableValue("checkpoint", "it is not a stored checkpoint (no workflow_name, no version)")
    tree = dict(tree)
    version = tree["version"]
    if version != FORMAT_VERSION:
        raise WorkflowCheckpointException(
            f"Checkpoint {tree.get('checkpoint_id')!r} has format version {version!r}; this holdfast reads "
            f"{FORMAT_VERSION!r}. It was written by a newer one: upgrade holdfast to read it."
        )
    try:
        return _decode(tree, codec)
    except WorkflowCheckpointException:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableValue(
            f"checkpoint {tree.get('checkpoint_id')!r}", f"its parts do not fit together ({error!r})"
        ) from error


class _StoredForm(msgspec.Struct):
    """The shape of a stored checkpoint: checked before any of its values is built."""

    workflow_name: str
    graph_signature_hash: str
    checkpoint_id: str
    previous_checkpoint_id: str | None
    timestamp: str
    iteration_count: int
    thread_id: str
    run_id: str | None
    number: int
    status: str
    counters: tuple[int, int]
    payloads: list[Any] = []
    messages: dict[str, list[list[Any]]] = {}
    requests: list[dict[str, Any]] = []
    outputs: list[tuple[str, str | None, Any]] = []
    executors: dict[str, dict[str, Any]] = {}
    answered: dict[str, tuple[datetime, str | None, str | None]] = {}
    graph_signature: dict[str, Any] = {}


def _decode(tree: dict[str, Tree], codec: Codec) -> WorkflowCheckpoint:
    stored = msgspec.convert(tree, _StoredForm)
    requests = [decode_request(one, codec) for one in stored.requests]
    outputs = [
        WorkflowEvent(kind, codec.decode(data, f"outputs[{index}]"), executor_id=executor_id, replayed=True)
        for index, (kind, executor_id, data) in enumerate(stored.outputs)
    ]
    parts: dict[str, Any] = {part: _decode_dict(tree[part], part, codec) for part in _VALUE_PARTS if part in tree}
    msgspec.convert(parts.get("buffers", {}), dict[str, dict[str, list[Any]]])
    return WorkflowCheckpoint(
        **{field: getattr(stored, field) for field in _PLAIN},
        messages=_decode_messages(stored, codec),
        pending_request_info_events={str(event.request_id): event for event in requests},
        outputs=outputs,
        executors={key: _decode_memory(key, one, codec) for key, one in stored.executors.items()},
        answered={key: Answer(*settled) for key, settled in stored.answered.items()},
        counters=Counters(*stored.counters),
        graph_signature=deepcopy(stored.graph_signature),
        **parts,
    )


def _decode_dict(tree: Tree, path: str, codec: Codec) -> dict[str, Any]:
    value = codec.decode(tree, path)
    if not isinstance(value, dict):
        raise UnreadableValue(path, f"expected a dict, got {type(value).__name__}")
    return value


def _decode_messages(stored: _StoredForm, codec: Codec) -> dict[str, list[WorkflowMessage]]:
    stored_payloads = stored.payloads

    def decode(source_id: str, delivery_id: int, target_id: str, place: int, *rest: Any) -> WorkflowMessage:
        # Each delivery gets a value of its own: one that changes it must not change its sibling's.
        data = codec.decode(stored_payloads[place], f"messages[{source_id!r}].data")
        sources = tuple(rest[0]) if rest and rest[0] is not None else None
        if len(rest) < 2:
            return WorkflowMessage(data, source_id, target_id, source_ids=sources, delivery_id=delivery_id)
        request = decode_request(rest[1], codec)
        return WorkflowMessage(data, source_id, target_id, MessageType.RESPONSE, request, None, delivery_id)

    return {source_id: [decode(source_id, *one) for one in sent] for source_id, sent in stored.messages.items()}


def decode_request(tree: dict[str, Tree], codec: Codec) -> WorkflowEvent:
    path = f"pending_request_info_events[{tree['request_id']!r}]"
    data = codec.decode(tree["data"], f"{path}.data")
    terms = None
    if "deadline" in tree:
        deadline = tree["deadline"] and datetime.fromisoformat(tree["deadline"])
        default = codec.decode(tree["default"], f"{path}.default") if "default" in tree else ...
        terms = RequestTerms(deadline, default, tree["assignee"])
    return WorkflowEvent(
        "request_info",
        data,
        request_id=tree["request_id"],
        source_executor_id=tree["source_executor_id"],
        executor_id=tree["source_executor_id"],
        request_type=type(data),
        response_type=codec.decode(tree["response_type"], f"{path}.response_type"),
        terms=terms,
    )


def _decode_memory(executor_id: str, tree: dict[str, Tree], codec: Codec) -> ExecutorMemory:
    path = f"executors[{executor_id!r}]"
    saved = _decode_dict(tree["saved"], f"{path}.saved", codec) if "saved" in tree else None
    private = _decode_dict(tree["private"], f"{path}.private", codec) if "private" in tree else None
    return ExecutorMemory(saved, private)
