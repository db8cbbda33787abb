"""Fields that have their defaults: what was stored stays as it was when the author of a type changes one."""

from __future__ import annotations

import msgspec

from perdure.agents.conversation.response import AgentResponse
from perdure.codec import DeclaredTypes
from perdure.codecs.json_codec import JsonCodec


class Order(msgspec.Struct, frozen=True, omit_defaults=True):
    item: str
    note: str | None = None
    parts: tuple[str, ...] = ()


def test_a_type_of_the_users_is_stored_with_all_its_fields_although_its_own_json_leaves_defaults_out() -> None:
    codec = JsonCodec(DeclaredTypes(frozenset([Order])))
    tree = codec.encode(Order("tea"), "value")
    assert set(tree) == {"$type", "item", "note", "parts"}
    assert codec.decode(tree, "value") == Order("tea")


def test_a_type_of_perdures_own_leaves_them_out_and_is_the_same_again() -> None:
    codec = JsonCodec(DeclaredTypes(frozenset([AgentResponse])))
    tree = codec.encode(AgentResponse(agent_id="ann"), "value")
    assert tree == {"$type": "perdure:AgentResponse", "agent_id": "ann"}
    assert codec.decode(tree, "value") == AgentResponse(agent_id="ann")
