"""Message: made of texts and contents, exact in JSON."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from tests.unit.agents.conversations import messages

from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import Message, as_messages


@given(messages)
def test_message_survives_a_json_round_trip(message: Message) -> None:
    assert repr(Message.from_json(message.to_json())) == repr(message)


def test_a_message_is_made_of_a_text_a_content_or_several() -> None:
    text = Content.from_text("hi")
    assert Message("user", "hi") == Message("user", text) == Message("user", ["hi"]) == Message("user", (text,))
    assert Message("user", ["a", Content.from_uri("https://x"), "b"]).text == "a b"
    assert Message("tool", None).contents == []


@pytest.mark.parametrize("text", ['{"role": "user", "contents": "hi"}', '{"role": "user", "contents": ["hi"]}'])
def test_texts_in_json_become_contents(text: str) -> None:
    assert Message.from_json(text) == Message("user", "hi")


@pytest.mark.parametrize("text", ["[]", "3", '"hi"', '{"role": 5}', "{}", '{"role": "user", "contents": [3]}', "{"])
def test_invalid_message_json_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="Not a "):
        Message.from_json(text)


@pytest.mark.parametrize("role", [None, 5, ""])
def test_a_message_needs_a_role(role: Any) -> None:
    with pytest.raises(TypeError, match="A message has a role"):
        Message(role, "hi")


@pytest.mark.parametrize("wrong", [[3], [None], [b"x"], {"a": 1}, 3])
def test_message_of_another_type_is_rejected(wrong: Any) -> None:
    with pytest.raises(TypeError, match="consists of texts and Contents"):
        Message("user", wrong)


def test_input_of_an_agent_becomes_user_messages() -> None:
    message = Message("assistant", "hello", "writer")
    assert as_messages(None) == []
    assert as_messages("hi") == [Message("user", "hi")]
    assert as_messages([message, "hi", Content.from_text("there")]) == [
        message,
        Message("user", "hi"),
        Message("user", "there"),
    ]


@pytest.mark.parametrize("wrong", [3, [3], object()])
def test_invalid_input_of_an_agent_is_rejected(wrong: Any) -> None:
    with pytest.raises(TypeError, match="Expected a text"):
        as_messages(wrong)
