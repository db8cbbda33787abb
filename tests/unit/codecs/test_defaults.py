"""Fields with defaults: stored values stay the same when the author of a type changes a default."""

from __future__ import annotations

import msgspec

from perdure.agents.conversation.response import AgentResponse
from perdure.codec import DeclaredTypes
from perdure.codecs.json_codec import JsonCodec


class Order(msgspec.Struct, frozen=True, omit_defaults=True):
    item: str
    note: str | None = None
    parts: tuple[str, ...] = ()


def test_user_type_is_stored_with_all_fields_despite_omit_defaults() -> None:
    codec = JsonCodec(DeclaredTypes(frozenset([Order])))
    tree = codec.encode(Order("tea"), "value")
    assert set(tree) == {"$type", "item", "note", "parts"}
    assert codec.decode(tree, "value") == Order("tea")


def test_perdure_type_is_stored_without_defaults_and_loads_equal() -> None:
    codec = JsonCodec(DeclaredTypes(frozenset([AgentResponse])))
    tree = codec.encode(AgentResponse(agent_id="ann"), "value")
    assert tree == {"$type": "perdure:AgentResponse", "agent_id": "ann"}
    assert codec.decode(tree, "value") == AgentResponse(agent_id="ann")
