"""The values of a stored checkpoint, from its tree. msgspec checks each shape before values are decoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec

from perdure.checkpoints.encode import FORMAT_VERSION
from perdure.codec import Codec, Encoded, Tree
from perdure.codecs.walk import from_bytes, to_bytes
from perdure.errors import UnreadableValue, WorkflowCheckpointException
from perdure.events import RequestTerms, WorkflowEvent
from perdure.records import (
    Answer,
    AwareTime,
    ChildCheckpoint,
    Counters,
    ExecutorMemory,
    MessageType,
    Record,
    SuspendedDelivery,
    WorkflowMessage,
)


def decode_fields(tree: Tree, codec: Codec) -> dict[str, Any]:
    """The fields of the checkpoint in a tree. Raises WorkflowCheckpointException (UnreadableValue names the part) for
    anything that is not a checkpoint."""
    if not isinstance(tree, Mapping) or "workflow_name" not in tree or "version" not in tree:
        raise UnreadableValue("checkpoint", "it is not a stored checkpoint (no workflow_name, no version)")
    tree = dict(tree)
    version = tree["version"]
    if version != FORMAT_VERSION:
        raise WorkflowCheckpointException(
            f"Checkpoint {tree.get('checkpoint_id')!r} has format version {version!r}; this perdure reads "
            f"{FORMAT_VERSION!r}. A newer perdure wrote it: upgrade perdure to read it."
        )
    try:
        stored = msgspec.convert(tree, _StoredForm)
        outputs = []
        for index, (kind, executor_id, data) in enumerate(stored.outputs):
            value = codec.decode(data, f"outputs[{index}]")
            outputs.append(WorkflowEvent(kind, value, executor_id=executor_id, replayed=True))
        fields = {**msgspec.structs.asdict(stored), **decode_level(tree, codec), "outputs": outputs}
        for part in ("metadata", "run_kwargs"):
            if part in tree:
                fields[part] = decode_dict(tree[part], part, codec)
        # Checkpoints that are read together share the chunk with the signature.
        signature = from_bytes(to_bytes(stored.graph_signature), "graph_signature")
        return {**fields, "counters": Counters(*stored.counters), "graph_signature": signature}
    except WorkflowCheckpointException:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableValue(
            f"checkpoint {tree.get('checkpoint_id')!r}", f"its parts do not fit together ({error!r})"
        ) from error


class StoredNames(msgspec.Struct):
    """The plain fields of a checkpoint that a caller may set, too."""

    workflow_name: str
    graph_signature_hash: str
    checkpoint_id: str
    previous_checkpoint_id: str | None
    timestamp: str
    iteration_count: int
    thread_id: str
    run_id: str | None
    status: str


class _StoredForm(StoredNames):
    """The shape of a stored checkpoint. msgspec checks it before the codec decodes a value."""

    number: int
    counters: Annotated[list[int], msgspec.Meta(min_length=2, max_length=3)]
    outputs: list[tuple[str, str | None, Any]] = []
    graph_signature: dict[str, Any] = {}
    migrations: tuple[str, ...] = ()
    renamed_types: tuple[tuple[str, str, str], ...] = ()


def decode_dict(tree: Tree, path: str, codec: Codec) -> dict[str, Any]:
    value = codec.decode(tree, path)
    if not isinstance(value, dict):
        raise UnreadableValue(path, f"expected a dict, got {type(value).__name__}")
    return value


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
    parts = [part for part in ("saved", "private") if part in tree]
    return ExecutorMemory(
        **{part: decode_dict(tree[part], f"executors[{executor_id!r}].{part}", codec) for part in parts}
    )


class _StoredSuspended(msgspec.Struct):
    delivery: tuple[str, list[Any], Any]
    due_at: AwareTime | None = None
    waits: tuple[str, ...] = ()
    records: list[Record] = []
    is_ready: bool = False
    emitted: tuple[str, ...] = ()
    run_id: str | None = None


class _StoredLevel(msgspec.Struct):
    payloads: list[Any] = []
    messages: dict[str, list[int | list[Any]]] = {}
    """By sender: deliveries, or the payload that is the message itself."""
    requests: list[dict[str, Any]] = []
    executors: dict[str, dict[str, Any]] = {}
    answered: dict[str, Answer] = {}
    suspended: list[_StoredSuspended] = []
    children: list[dict[str, Any]] = []


class _StoredChild(msgspec.Struct):
    executor_id: str
    delivery: tuple[str, list[Any], Any]
    since_input: int
    asked: tuple[str, ...] = ()
    attempts: int = 0
    due_at: AwareTime | None = None


def decode_level(tree: dict[str, Tree], codec: Codec) -> dict[str, Any]:
    """The fields of one level that are not empty. Raises UnreadableValue, or what msgspec raises for another shape."""
    stored = msgspec.convert(tree, _StoredLevel)
    fields: dict[str, Any] = {}
    if stored.messages:
        fields["messages"] = {
            source_id: [
                codec.decode(stored.payloads[delivery], f"messages[{source_id!r}]")
                if isinstance(delivery, int)
                else decode_message(source_id, delivery, stored.payloads, codec)
                for delivery in sent
            ]
            for source_id, sent in stored.messages.items()
        }
    if stored.requests:
        requests = [decode_request(request, codec) for request in stored.requests]
        fields["pending_request_info_events"] = {str(event.request_id): event for event in requests}
    if stored.executors:
        fields["executors"] = {key: decode_memory(key, memory, codec) for key, memory in stored.executors.items()}
    if stored.answered:
        fields["answered"] = stored.answered
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
    fields = msgspec.structs.asdict(stored)
    message = _decode_delivery(fields.pop("delivery"), codec)
    records = tuple(_keep_encoded(record, codec) for record in fields.pop("records"))
    return SuspendedDelivery(message, records=records, **fields)


def decode_record(tree: Tree, codec: Codec) -> Record:
    """The record, its value still encoded: most steps are never replayed."""
    try:
        return _keep_encoded(msgspec.convert(tree, Record), codec)
    except msgspec.ValidationError as error:
        raise UnreadableValue("record", str(error)) from error


def _keep_encoded(record: Record, codec: Codec) -> Record:
    value, effects = (None if tree is None else Encoded(tree, codec) for tree in (record.value, record.effects))
    return msgspec.structs.replace(record, value=value, effects=effects)


def _decode_child(tree: dict[str, Any], codec: Codec) -> ChildCheckpoint:
    fields = msgspec.structs.asdict(msgspec.convert(tree, _StoredChild))
    message = _decode_delivery(fields.pop("delivery"), codec)
    return ChildCheckpoint(message=message, **fields, **decode_level(tree, codec))
