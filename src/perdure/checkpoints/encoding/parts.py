"""Parts that several levels and events of a stored checkpoint have: messages, requests, executors' memories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from perdure.codec import Codec, Encoded, Tree
from perdure.errors import UnreadableValue, UnsavableValue
from perdure.events import RequestTerms, WorkflowEvent
from perdure.records import Answer, ExecutorMemory, MessageType, WorkflowMessage

Messages = Mapping[str, list[WorkflowMessage]]
"""By sender."""


def encode_messages(messages: Messages, tree: dict[str, Tree], codec: Codec) -> None:
    indexes: dict[int, int] = {}
    payloads: list[Any] = []
    for sent in messages.values():
        for message in sent:
            if id(message.data) not in indexes:
                indexes[id(message.data)] = len(payloads)
                payloads.append(message.data)
    try:
        encoded = codec.encode(payloads, "messages")
        if not isinstance(encoded, list):  # a codec may encode any value as one piece
            encoded = [codec.encode(payload, "messages") for payload in payloads]
    except UnsavableValue:
        _raise_with_path(messages, codec)
        raise
    tree["payloads"] = encoded
    tree["messages"] = {
        source_id: [encode_message(message, indexes[id(message.data)], codec) for message in sent]
        for source_id, sent in messages.items()
    }


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
