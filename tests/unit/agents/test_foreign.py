"""Agents that know nothing of perdure, and types of agent-framework-core: accepted and returned unchanged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import agent_framework as peer
import pytest
from hypothesis import given, strategies as st

from perdure.agents.conversation.content import Content, as_content
from perdure.agents.conversation.message import Message
from perdure.agents.conversation.response import AgentResponse, as_agent_message, as_response
from perdure.agents.conversation.update import AgentResponseUpdate, as_update

plain = st.text(st.characters(codec="utf-8"), max_size=10)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | plain,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(plain, inner, max_size=2),
    max_leaves=4,
)
calls = st.builds(
    Content.from_function_call, plain, plain, arguments=plain | st.dictionaries(plain, values, max_size=2)
)
contents = st.one_of(
    st.builds(Content.from_text, plain),
    st.builds(Content.from_text_reasoning, plain),
    st.builds(Content.from_data, st.binary(max_size=5), st.just("image/png")),
    st.builds(Content.from_uri, st.just("https://example.org/a"), media_type=st.just("image/png")),
    st.builds(Content.from_error, plain, error_code=plain),
    st.builds(Content.from_usage, st.just({"input_token_count": 3})),
    calls,
    st.builds(Content.from_function_result, plain, result=plain),
    st.builds(Content.from_function_approval_request, plain, calls),
    st.builds(Content.from_function_approval_response, st.booleans(), plain, calls),
)
roles = st.sampled_from(["user", "assistant", "system", "tool"])
messages = st.builds(Message, roles, st.lists(contents, max_size=3), st.none() | plain, st.none() | plain)


@given(messages)
def test_messages_have_the_form_of_the_reference_both_ways(message: Message) -> None:
    theirs = peer.Message.from_dict(message.to_dict())
    assert theirs.text == " ".join(content.text or "" for content in message.contents if content.type == "text")
    assert Message.from_dict(theirs.to_dict()) == message


@given(st.lists(messages, max_size=2))
def test_responses_have_the_form_of_the_reference_both_ways(conversation: list[Message]) -> None:
    response = AgentResponse(
        messages=conversation, response_id="r", finish_reason="stop", usage_details={"input_token_count": 1}
    )
    theirs = peer.AgentResponse.from_dict(response.to_dict())
    assert AgentResponse.from_dict(theirs.to_dict()) == response


def test_responses_of_a_reference_agent_are_converted() -> None:
    message = peer.Message(
        "assistant",
        ["Let me see.", peer.Content.from_function_call("c1", "search", arguments='{"q": 1}')],
        message_id="m1",
        additional_properties={"model": "x"},
    )
    theirs = peer.AgentResponse(
        messages=[message], response_id="r1", usage_details={"input_token_count": 3}, value={"a": 1}
    )
    ours = as_response(theirs, "helper")
    assert ours.messages == [
        Message(
            "assistant",
            [Content.from_text("Let me see."), Content.from_function_call("c1", "search", arguments='{"q": 1}')],
            "helper",
            "m1",
            {"model": "x"},
        ),
    ]
    assert (ours.response_id, ours.usage_details, ours.value) == ("r1", {"input_token_count": 3}, {"a": 1})
    update = peer.AgentResponseUpdate(contents=[peer.Content.from_text("hi")], role="assistant", message_id="m1")
    assert as_update(update, "helper") == AgentResponseUpdate(
        contents="hi", role="assistant", author_name="helper", message_id="m1"
    )


@pytest.mark.parametrize(
    "output",
    [
        "hello",
        Content.from_text("hello"),
        Message("assistant", "hello", "helper"),
        ["hello"],
        SimpleNamespace(messages=[SimpleNamespace(role="assistant", contents=["hello"])]),
        AgentResponse(messages=[Message("assistant", "hello", "helper")]),
    ],
)
def test_agent_can_return_a_text_a_message_or_an_object_with_messages(output: Any) -> None:
    assert as_response(output, "helper").messages == [Message("assistant", "hello", "helper")]


@pytest.mark.parametrize("output", [None, 3, [], object(), SimpleNamespace(messages="hello")])
def test_output_without_messages_is_rejected(output: Any) -> None:
    with pytest.raises(TypeError, match="Agent 'helper' returned"):
        as_response(output, "helper")


def test_invalid_messages_updates_and_contents_are_rejected() -> None:
    with pytest.raises(TypeError, match="returned 3 as a message"):
        as_agent_message(3, "helper")
    with pytest.raises(TypeError, match="streamed 3"):
        as_update(3, "helper")
    with pytest.raises(TypeError, match="Expected a Content"):
        as_content({"text": "no type"})
