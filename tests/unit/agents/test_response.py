"""Responses and the updates that they are streamed in: one joins up to the other."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from tests.unit.agents.conversations import responses

from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import Message
from perdure.agents.conversation.response import AgentResponse, AgentResponseUpdate


@given(responses)
def test_a_response_is_the_same_after_a_way_through_json(response: AgentResponse) -> None:
    assert repr(AgentResponse.from_json(response.to_json())) == repr(response)


@given(responses)
def test_updates_of_a_response_join_up_to_it(response: AgentResponse) -> None:
    assert repr(AgentResponse.from_updates(response.to_updates())) == repr(response)


@given(responses)
def test_updates_join_up_after_a_way_through_json(response: AgentResponse) -> None:
    updates = [AgentResponseUpdate.from_json(one.to_json()) for one in response.to_updates()]
    assert repr(AgentResponse.from_updates(updates)) == repr(response)


async def test_a_generator_of_updates_joins_up_too() -> None:
    async def stream() -> AsyncIterator[AgentResponseUpdate]:
        for word in ("a", " b"):
            yield AgentResponseUpdate(contents=word, role="assistant")

    assert (await AgentResponse.from_update_generator(stream())).text == "a b"


def test_pieces_of_text_and_of_a_call_become_one() -> None:
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
    assert [one.type for one in message.contents] == ["text", "function_call", "function_call"]
    assert message.text == "Let me see."
    assert message.contents[1].parse_arguments() == {"query": "tides"}


def test_contents_that_came_in_one_update_stay_apart() -> None:
    joined = AgentResponse.from_updates([AgentResponseUpdate(contents=["a", "b"], role="assistant")])
    assert [one.text for one in joined.messages[0].contents] == ["a", "b"]


def test_a_message_ends_where_the_id_the_role_or_the_speaker_changes() -> None:
    joined = AgentResponse.from_updates(
        [
            AgentResponseUpdate(contents="a", role="assistant", message_id="1"),
            AgentResponseUpdate(contents="b", role="assistant", message_id="2"),
            AgentResponseUpdate(contents="c", role="tool"),
            AgentResponseUpdate(contents="d", role="tool", author_name="other"),
        ]
    )
    assert [one.text for one in joined.messages] == ["a", "b", "c", "d"]


def test_messages_that_are_streamed_at_the_same_time_are_told_apart_by_their_ids() -> None:
    pieces = [("x", "a1"), ("y", "b1"), ("x", "a2"), ("y", "b2")]
    updates = [AgentResponseUpdate(contents=text, role="assistant", message_id=key) for key, text in pieces]
    assert [one.text for one in AgentResponse.from_updates(updates).messages] == ["a1a2", "b1b2"]


def test_properties_that_come_with_a_later_update_belong_to_the_message_too() -> None:
    [message] = AgentResponse.from_updates(
        [
            AgentResponseUpdate(contents="a", role="assistant", additional_properties={"x": 1, "y": 1}),
            AgentResponseUpdate(role="assistant", additional_properties={"y": 2}),
        ]
    ).messages
    assert message.additional_properties == {"x": 1, "y": 2}


def test_usage_that_comes_in_parts_adds_up_and_is_in_no_message() -> None:
    usage = Content.from_usage({"input_token_count": 2})
    updates = [AgentResponseUpdate(contents=["a", usage], role="assistant"), AgentResponseUpdate(contents=[usage])]
    joined = AgentResponse.from_updates(updates)
    assert joined.usage_details == {"input_token_count": 4}
    assert [one.text for one in joined.messages] == ["a"]


def test_a_response_is_made_of_messages_alone() -> None:
    said = Message("assistant", "hi")
    assert AgentResponse(messages=said) == AgentResponse(messages=[said])
    with pytest.raises(TypeError, match="consists of Messages, got 'hi'"):
        AgentResponse(messages="hi")  # type: ignore[arg-type]
