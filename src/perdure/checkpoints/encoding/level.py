"""One level of a stored checkpoint: a workflow's messages, state and requests, its suspended deliveries, its children.

The root of a thread and every sub-workflow in it have the same parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from perdure.checkpoints.level import ChildCheckpoint
from perdure.codec import Codec, Encoded, Tree
from perdure.errors import UnreadableValue, UnsavableValue
from perdure.events import RequestTerms, WorkflowEvent
from perdure.records import Answer, ExecutorMemory, MessageType, Record, SuspendedDelivery, WorkflowMessage

if TYPE_CHECKING:
    from perdure.checkpoints.checkpoint import WorkflowCheckpoint


Messages = Mapping[str, list[WorkflowMessage]]
"""By sender."""


def encode_messages(messages: Messages, tree: dict[str, Tree], codec: Codec) -> None:
    indexes: dict[int, int] = {}
    payloads: list[Any] = []
    rows: dict[str, list[Tree]] = {}
    for source_id, sent in messages.items():
        rows[source_id] = of_source = []
        for message in sent:
            index = indexes.setdefault(id(message.data), len(payloads))
            if index == len(payloads):
                payloads.append(message.data)
            of_source.append(encode_message(message, index, codec))
    try:
        encoded = codec.encode(payloads, "messages")
        if not isinstance(encoded, list):  # a codec may encode any value as one piece
            encoded = [codec.encode(payload, "messages") for payload in payloads]
    except UnsavableValue:
        _raise_with_path(messages, codec)
        raise
    tree["payloads"], tree["messages"] = encoded, rows


def _raise_with_path(messages: Messages, codec: Codec) -> None:
    """Raise the error again with the path of the message, which only errors need."""
    for source_id, sent in messages.items():
        for index, message in enumerate(sent):
            codec.encode(message.data, f"messages[{source_id!r}][{index}].data")


def encode_message(message: WorkflowMessage, payload_index: int, codec: Codec) -> list[Tree]:
    tree: list[Tree] = [message.delivery_id, message.target_id, payload_index]
    request = message.original_request_info_event
    if request is None and message.source_ids is None and message.in_place_of is None:
        return tree
    tree.append(None if message.source_ids is None else list(message.source_ids))
    if request is not None or message.in_place_of is not None:
        tree.append(None if request is None else encode_request(request, codec))
    if message.in_place_of is not None:
        tree.append(message.in_place_of)
    return tree


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


def encode_memory(executor_id: str, memory: ExecutorMemory, codec: Codec) -> dict[str, Tree]:
    tree = {}
    if isinstance(memory.saved, Encoded):
        tree["saved"] = memory.saved.tree
    elif memory.saved is not None:
        tree["saved"] = codec.encode(memory.saved, f"executors[{executor_id!r}].saved")
    if memory.private is not None:
        tree["private"] = codec.encode(memory.private, f"executors[{executor_id!r}].private")
    return tree


def encode_answered(answered: Mapping[str, Answer]) -> dict[str, Tree]:
    return {
        key: [
            answer.answered_at.isoformat(),
            answer.answered_by,
            answer.expired_for,
            *([True] if answer.is_withdrawn else ()),
        ]
        for key, answer in answered.items()
    }


def decode_dict(tree: Tree, path: str, codec: Codec) -> dict[str, Any]:
    value = codec.decode(tree, path)
    if not isinstance(value, dict):
        raise UnreadableValue(path, f"expected a dict, got {type(value).__name__}")
    return value


def decode_messages(
    messages: Mapping[str, list[list[Any]]], payloads: Sequence[Tree], codec: Codec
) -> dict[str, list[WorkflowMessage]]:
    return {
        source_id: [decode_message(source_id, stored, payloads, codec) for stored in sent]
        for source_id, sent in messages.items()
    }


def decode_message(source_id: str, stored: list[Any], payloads: Sequence[Tree], codec: Codec) -> WorkflowMessage:
    padded = [*stored, None, None, None]
    delivery_id, target_id, payload_index, sources, asked, in_place_of = padded[:6]
    if type(delivery_id) is not int or not isinstance(target_id, str) or not isinstance(in_place_of, str | None):
        raise UnreadableValue(f"messages[{source_id!r}]", f"{stored[:2]!r} is not a delivery")
    # Each delivery gets its own value: a handler that changes it must not change its sibling's.
    data = codec.decode(payloads[payload_index], f"messages[{source_id!r}].data")
    senders = None if sources is None else tuple(sources)
    kind = MessageType.STANDARD if asked is None else MessageType.RESPONSE
    request = None if asked is None else decode_request(asked, codec)
    return WorkflowMessage(data, source_id, target_id, kind, request, senders, delivery_id, in_place_of)


def decode_request(tree: dict[str, Tree], codec: Codec) -> WorkflowEvent:
    path = f"pending_request_info_events[{tree['request_id']!r}]"
    if not isinstance(tree["request_id"], str) or not isinstance(tree["source_executor_id"], str):
        raise UnreadableValue(path, "a request needs an id and the executor that asks")
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
        child_id=tree.get("child_id"),
    )


def decode_memory(executor_id: str, tree: dict[str, Tree], codec: Codec) -> ExecutorMemory:
    path = f"executors[{executor_id!r}]"
    saved = decode_dict(tree["saved"], f"{path}.saved", codec) if "saved" in tree else None
    private = decode_dict(tree["private"], f"{path}.private", codec) if "private" in tree else None
    return ExecutorMemory(saved, private)


def encode_level(level: WorkflowCheckpoint | ChildCheckpoint, tree: dict[str, Tree], codec: Codec) -> None:
    """Add the parts that are not empty. Raises UnsavableValue with the path of the value that cannot be stored."""
    if level.messages:
        encode_messages(level.messages, tree, codec)
    if level.state and isinstance(level, ChildCheckpoint):  # `StoredThread` encodes that of the root
        tree["state"] = codec.encode(level.state, "state")
    if level.buffers:
        tree["buffers"] = codec.encode(level.buffers, "buffers")
    if level.pending_request_info_events:
        requests = level.pending_request_info_events.values()
        tree["requests"] = [encode_request(event, codec) for event in requests]
    if level.executors:
        tree["executors"] = {key: encode_memory(key, memory, codec) for key, memory in level.executors.items()}
    if level.answered:
        tree["answered"] = encode_answered(level.answered)
    if level.suspended:
        tree["suspended"] = [_encode_suspended(delivery, codec) for delivery in level.suspended.values()]
    if level.children:
        tree["children"] = [_encode_child(child, codec) for child in level.children.values()]


def _encode_delivery(message: WorkflowMessage, codec: Codec) -> list[Tree]:
    data = codec.encode(message.data, f"messages[{message.source_id!r}].data")
    return [message.source_id, encode_message(message, 0, codec), data]


def _encode_suspended(suspended: SuspendedDelivery, codec: Codec) -> Tree:
    tree: dict[str, Tree] = {"delivery": _encode_delivery(suspended.message, codec)}
    if suspended.due_at is not None:
        tree["due_at"] = suspended.due_at.isoformat()
    if suspended.is_ready:
        tree["is_ready"] = True
    for part in ("waits", "emitted"):
        if getattr(suspended, part):
            tree[part] = list(getattr(suspended, part))
    if suspended.run_id is not None:
        tree["run_id"] = suspended.run_id
    if suspended.records:
        tree["records"] = [encode_record(record, codec) for record in suspended.records]
    return tree


def encode_record(record: Record, codec: Codec) -> dict[str, Tree]:
    """Raises UnsavableValue that names the step whose result cannot be stored."""
    tree: dict[str, Tree] = {"kind": record.kind}
    for part in ("key", "name", "after", "within", "run_id"):
        if getattr(record, part):
            tree[part] = getattr(record, part)
    if record.until is not None:
        tree["until"] = record.until.isoformat()
    for part in ("value", "effects"):
        value = getattr(record, part)
        if value is not None:
            tree[part] = value.tree if isinstance(value, Encoded) else codec.encode(value, f"{part} of {record.name!r}")
    return tree


def _encode_child(child: ChildCheckpoint, codec: Codec) -> Tree:
    tree: dict[str, Tree] = {
        "executor_id": child.executor_id,
        "delivery": _encode_delivery(child.message, codec),
        "since_input": child.since_input,
    }
    if child.asked:
        tree["asked"] = list(child.asked)
    if child.attempts:
        tree["attempts"] = child.attempts
    if child.due_at is not None:
        tree["due_at"] = child.due_at.isoformat()
    try:
        encode_level(child, tree, codec)
    except UnsavableValue as error:  # the path must name the sub-workflow too
        raise error.within(f"children[{child.executor_id!r}]") from error
    return tree


_Time = Annotated[datetime, msgspec.Meta(tz=True)]


class _StoredRecord(msgspec.Struct):
    kind: Literal["step", "failed", "cancelled", "answered", "expired", "slept", "sleeping", "attempt", "gone"]
    key: str = ""
    name: str = ""
    after: str | None = None
    within: str | None = None
    value: Any = None
    effects: Any = None
    until: _Time | None = None
    run_id: str | None = None


class _StoredSuspended(msgspec.Struct):
    delivery: tuple[str, list[Any], Any]
    due_at: _Time | None = None
    waits: list[str] = []
    records: list[_StoredRecord] = []
    is_ready: bool = False
    emitted: list[str] = []
    run_id: str | None = None


class _StoredAnswer(msgspec.Struct, array_like=True):
    answered_at: _Time
    answered_by: str | None
    expired_for: str | None
    is_withdrawn: bool = False


class _StoredLevel(msgspec.Struct):
    payloads: list[Any] = []
    messages: dict[str, list[list[Any]]] = {}
    requests: list[dict[str, Any]] = []
    executors: dict[str, dict[str, Any]] = {}
    answered: dict[str, _StoredAnswer] = {}
    suspended: list[_StoredSuspended] = []
    children: list[dict[str, Any]] = []


class _StoredChild(msgspec.Struct):
    executor_id: str
    delivery: tuple[str, list[Any], Any]
    since_input: int
    asked: list[str] = []
    attempts: int = 0
    due_at: _Time | None = None


def decode_level(tree: dict[str, Tree], codec: Codec) -> dict[str, Any]:
    """The fields of one level that are not empty. Raises UnreadableValue, or what msgspec raises for another shape."""
    stored = msgspec.convert(tree, _StoredLevel)
    fields: dict[str, Any] = {}
    if stored.messages:
        fields["messages"] = decode_messages(stored.messages, stored.payloads, codec)
    if stored.requests:
        requests = [decode_request(request, codec) for request in stored.requests]
        fields["pending_request_info_events"] = {str(event.request_id): event for event in requests}
    if stored.executors:
        fields["executors"] = {key: decode_memory(key, memory, codec) for key, memory in stored.executors.items()}
    if stored.answered:
        fields["answered"] = {key: Answer(*msgspec.structs.astuple(answer)) for key, answer in stored.answered.items()}
    for part in ("state", "buffers"):
        if part in tree:
            fields[part] = decode_dict(tree[part], part, codec)
    msgspec.convert(fields.get("buffers", {}), dict[str, dict[str, list[Any]]])
    if stored.suspended:
        suspended = [_decode_suspended(delivery, codec) for delivery in stored.suspended]
        fields["suspended"] = {delivery.message.delivery_id: delivery for delivery in suspended}
    if stored.children:
        children = [_decode_child(child, codec) for child in stored.children]
        fields["children"] = {child.message.delivery_id: child for child in children}
    return fields


def _decode_delivery(stored: tuple[str, list[Any], Any], codec: Codec) -> WorkflowMessage:
    source_id, delivery, data = stored
    return decode_message(source_id, delivery, [data], codec)


def _decode_suspended(stored: _StoredSuspended, codec: Codec) -> SuspendedDelivery:
    return SuspendedDelivery(
        _decode_delivery(stored.delivery, codec),
        stored.due_at,
        tuple(stored.waits),
        tuple(_decode_record(record, codec) for record in stored.records),
        stored.is_ready,
        tuple(stored.emitted),
        stored.run_id,
    )


def decode_record(tree: Tree, codec: Codec) -> Record:
    """The record, its value still encoded: most steps are never replayed."""
    try:
        return _decode_record(msgspec.convert(tree, _StoredRecord), codec)
    except msgspec.ValidationError as error:
        raise UnreadableValue("record", str(error)) from error


def _decode_record(stored: _StoredRecord, codec: Codec) -> Record:
    value = None if stored.value is None else Encoded(stored.value, codec)
    effects = None if stored.effects is None else Encoded(stored.effects, codec)
    return Record(
        stored.kind,
        stored.key,
        stored.name,
        stored.after,
        stored.within,
        value,
        effects,
        stored.until,
        stored.run_id,
    )


def _decode_child(tree: dict[str, Any], codec: Codec) -> ChildCheckpoint:
    stored = msgspec.convert(tree, _StoredChild)
    return ChildCheckpoint(
        stored.executor_id,
        _decode_delivery(stored.delivery, codec),
        asked=tuple(stored.asked),
        since_input=stored.since_input,
        attempts=stored.attempts,
        due_at=stored.due_at,
        **decode_level(tree, codec),
    )
