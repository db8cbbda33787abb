"""Responses and the updates that they are streamed in: the updates join to the response."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from tests.unit.agents.conversations import responses

from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import Message
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.conversation.update import AgentResponseUpdate


@given(responses)
def test_response_survives_a_json_round_trip(response: AgentResponse) -> None:
    assert repr(AgentResponse.from_json(response.to_json())) == repr(response)


@given(responses)
def test_updates_of_a_response_join_to_it(response: AgentResponse) -> None:
    assert repr(AgentResponse.from_updates(response.to_updates())) == repr(response)


@given(responses)
def test_updates_join_after_a_json_round_trip(response: AgentResponse) -> None:
    updates = [AgentResponseUpdate.from_json(update.to_json()) for update in response.to_updates()]
    assert repr(AgentResponse.from_updates(updates)) == repr(response)


async def test_generator_of_updates_joins_to_a_response() -> None:
    async def stream() -> AsyncIterator[AgentResponseUpdate]:
        for word in ("a", " b"):
            yield AgentResponseUpdate(contents=word, role="assistant")

    assert (await AgentResponse.from_update_generator(stream())).text == "a b"


def test_pieces_of_a_text_and_of_a_call_are_merged() -> None:
    def piece(**call: str) -> AgentResponseUpdate:
        return AgentResponseUpdate(contents=[Content("function_call", **call)], role="assistant")  # type: ignore[arg-type]

    joined = AgentResponse.from_updates(
        [
            AgentResponseUpdate(contents="Let ", role="assistant"),
            AgentResponseUpdate(contents="me see."),
            piece(call_id="c1", name="search", arguments='{"query":'),
            piece(call_id="c1", arguments=' "tides"}'),
            piece(call_id="c2", name="search", arguments="{}"),
        ]
    )
    [message] = joined.messages
    assert [content.type for content in message.contents] == ["text", "function_call", "function_call"]
    assert message.text == "Let me see."
    assert message.contents[1].parse_arguments() == {"query": "tides"}


def test_contents_of_one_update_stay_separate() -> None:
    joined = AgentResponse.from_updates([AgentResponseUpdate(contents=["a", "b"], role="assistant")])
    assert [content.text for content in joined.messages[0].contents] == ["a", "b"]


def test_a_message_ends_where_the_id_the_role_or_the_speaker_changes() -> None:
    joined = AgentResponse.from_updates(
        [
            AgentResponseUpdate(contents="a", role="assistant", message_id="1"),
            AgentResponseUpdate(contents="b", role="assistant", message_id="2"),
            AgentResponseUpdate(contents="c", role="tool", author_name="me"),
            AgentResponseUpdate(contents="d", role="tool", author_name="other"),
        ]
    )
    assert [message.text for message in joined.messages] == ["a", "b", "c", "d"]


def test_interleaved_messages_are_separated_by_their_ids() -> None:
    pieces = [("x", "a1"), ("y", "b1"), ("x", "a2"), ("y", "b2")]
    updates = [AgentResponseUpdate(contents=text, role="assistant", message_id=key) for key, text in pieces]
    assert [message.text for message in AgentResponse.from_updates(updates).messages] == ["a1a2", "b1b2"]


def test_properties_of_later_updates_belong_to_the_message() -> None:
    [message] = AgentResponse.from_updates(
        [
            AgentResponseUpdate(contents="a", role="assistant", additional_properties={"x": 1, "y": 1}),
            AgentResponseUpdate(role="assistant", additional_properties={"y": 2}),
        ]
    ).messages
    assert message.additional_properties == {"x": 1, "y": 2}


def test_usage_of_several_updates_adds_up_and_is_not_in_a_message() -> None:
    usage = Content.from_usage({"input_token_count": 2})
    updates = [AgentResponseUpdate(contents=["a", usage], role="assistant"), AgentResponseUpdate(contents=[usage])]
    joined = AgentResponse.from_updates(updates)
    assert joined.usage_details == {"input_token_count": 4}
    assert [message.text for message in joined.messages] == ["a"]


def test_response_consists_only_of_messages() -> None:
    message = Message("assistant", "hi")
    assert AgentResponse(messages=message) == AgentResponse(messages=[message])
    with pytest.raises(TypeError, match="consists of Messages, got 'hi'"):
        AgentResponse(messages="hi")  # type: ignore[arg-type]
