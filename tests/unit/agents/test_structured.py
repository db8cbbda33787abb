"""Structured output is parsed wherever a model puts it, and rejected with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest

from perdure.agents.conversation.message import Message
from perdure.agents.conversation.response import AgentResponse, value_in


class Choice(msgspec.Struct):
    name: str
    score: int = 0


@dataclass
class Picked:
    name: str
    score: int


class Model(pydantic.BaseModel):
    name: str
    score: int


def response_with(text: str) -> AgentResponse:
    return AgentResponse(messages=[Message("user", "?"), Message("assistant", text, "a"), Message("tool", "")])


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "ann", "score": 3}',
        '```json\n{"name": "ann", "score": 3}\n```',
        'I choose {"name": "ann", "score": "3"}, as said.',
        'First: ```\n{"name": "ann", "score": 3}\n```. Done {that is}.',
    ],
)
@pytest.mark.parametrize("kind", [Choice, Picked, Model])
def test_value_is_parsed_from_the_text_of_the_model(text: str, kind: Any) -> None:
    assert value_in(response_with(text), kind) == kind(name="ann", score=3)


@pytest.mark.parametrize("kind", [Choice, Picked, Model])
def test_value_is_taken_unchanged_or_converted_from_plain_data(kind: Any) -> None:
    made = kind(name="ann", score=3)
    for value in (made, {"name": "ann", "score": 3}, Model(name="ann", score=3), Choice("ann", 3)):
        assert value_in(AgentResponse(value=value), kind) == made


def test_lists_are_parsed_as_values() -> None:
    assert value_in(response_with('Here: [{"name": "ann"}]'), list[Choice]) == [Choice("ann")]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it is empty"),
        ("I cannot say.", "contains no JSON"),
        ('{"score": 3}', "name"),
        ('{"name": "ann", "score": "x"}', "score"),
    ],
)
@pytest.mark.parametrize("kind", [Choice, Model])
def test_response_without_a_valid_value_is_rejected_with_the_reason(text: str, problem: str, kind: Any) -> None:
    with pytest.raises(ValueError, match=rf"(?s)Not a {kind.__name__}: .*{problem}"):
        value_in(response_with(text), kind)
    with pytest.raises(ValueError, match=f"Not a {kind.__name__}"):
        value_in(AgentResponse(value={"score": 3}), kind)
