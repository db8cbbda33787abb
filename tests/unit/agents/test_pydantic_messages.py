"""Conversions of messages between pydantic-ai and perdure: each message survives the round trip."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import given, settings, strategies as st
from pydantic_ai.messages import (
    BinaryContent,
    CachePoint,
    DocumentUrl,
    FilePart,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    RetryFeedbackPart,
    RetryInfo,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage

from perdure.agents import AgentResponse, Content, Message
from perdure.agents.pydantic.messages import from_messages, request_to_messages, to_message

words = st.text(st.characters(codec="utf-8"), max_size=12)
names = st.from_regex(r"[a-z]{1,8}", fullmatch=True)
jsons = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e6, 1e6) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(names, jsons, max_size=3)
maybe = st.none() | names
details = st.none() | objects
binary = st.builds(
    BinaryContent, st.binary(max_size=8), media_type=st.sampled_from(["image/png", "application/pdf", "text/x-odd"])
)

prompts = words | st.lists(
    words
    | st.builds(TextContent, words, metadata=details)
    | st.builds(ImageUrl, st.just("https://example.org/a.png"), force_download=st.booleans())
    | st.builds(DocumentUrl, st.just("https://example.org/a"), media_type=st.just("application/pdf"))
    | binary
    | st.just(CachePoint()),
    max_size=4,
)
request_parts = (
    st.builds(SystemPromptPart, words, dynamic_ref=maybe)
    | st.builds(UserPromptPart, prompts)
    | st.builds(
        ToolReturnPart,
        names,
        jsons | binary | st.lists(binary, min_size=1, max_size=2),
        names,
        metadata=details,
        outcome=st.sampled_from(["success", "failed", "denied", "retried"]),
    )
    | words.map(lambda text: RetryFeedbackPart(text, retry=RetryInfo("model_retry")))
)
response_parts = (
    st.builds(TextPart, words, id=maybe, provider_name=maybe, provider_details=details)
    | st.builds(ThinkingPart, words, id=maybe, signature=maybe, provider_name=maybe, provider_details=details)
    | st.builds(ToolCallPart, names, st.none() | objects | objects.map(json.dumps), names, id=maybe)
    | st.builds(FilePart, binary, id=maybe)
    | st.builds(NativeToolCallPart, names, objects, names, provider_name=maybe)
    | st.builds(NativeToolReturnPart, names, jsons, names, provider_name=maybe)
)
usages = st.builds(RequestUsage, input_tokens=st.integers(0, 99), output_tokens=st.integers(0, 99))
conversations = st.lists(
    st.builds(ModelRequest, st.lists(request_parts, max_size=4), instructions=maybe, metadata=details, run_id=maybe)
    | st.builds(
        ModelResponse,
        st.lists(response_parts, max_size=4),
        usage=usages,
        model_name=maybe,
        provider_name=maybe,
        provider_details=details,
        provider_response_id=maybe,
        finish_reason=st.sampled_from([None, "stop", "tool_call"]),
        metadata=details,
    ),
    max_size=4,
)


def stored(messages: list[ModelMessage]) -> list[ModelMessage]:
    """Return the messages after a round trip through pydantic-ai's own JSON."""
    again: list[ModelMessage] = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(messages))
    return again


def to_messages(messages: list[ModelMessage]) -> list[Message]:
    ours = [[to_message(each)] if isinstance(each, ModelResponse) else request_to_messages(each) for each in messages]
    return [message for some in ours for message in some]


@settings(deadline=None, print_blob=True)
@given(conversations)
def test_pydantic_ai_messages_survive_a_round_trip_through_our_messages(theirs: list[ModelMessage]) -> None:
    before = stored(theirs)
    ours = to_messages(before)
    assert from_messages(ours) == before
    through_json = [Message.from_json(message.to_json()) for message in ours]
    assert through_json == ours
    assert from_messages(through_json) == before


@settings(deadline=None, print_blob=True)
@given(st.lists(response_parts, max_size=5))
def test_contents_of_a_response_equal_its_joined_stream(parts: list[Any]) -> None:
    """Adjacent texts are one content, so that joined updates give the same message."""
    message = to_message(stored([ModelResponse(parts)])[0])
    kinds = [content.type for content in message.contents]
    assert not any(first == second and first.startswith("text") for first, second in pairwise(kinds))
    assert AgentResponse.from_updates(AgentResponse(messages=(message,)).to_updates()).messages == [message]


own_contents = {
    "user": st.builds(Content.from_text, words)
    | st.builds(Content.from_data, st.binary(max_size=8), st.just("image/png"))
    | st.just(Content.from_uri("https://example.org/a.png", media_type="image/png")),
    "assistant": st.builds(Content.from_text, words.filter(bool))
    | st.builds(Content.from_function_call, names, names, arguments=objects),
    "system": st.builds(Content.from_text, words.filter(bool)),
}


@st.composite
def our_messages(draw: Any) -> Message:
    role = draw(st.sampled_from(sorted(own_contents)))
    contents = draw(st.lists(own_contents[role], min_size=1, max_size=3))
    kinds = [content.type for content in contents]
    if role == "assistant" and any(first == second == "text" for first, second in pairwise(kinds)):
        contents = contents[:1]
    author, message_id = draw(maybe), draw(maybe)
    return Message(role, contents, author, message_id, draw(st.none() | objects.filter(bool)))


@settings(deadline=None, print_blob=True)
@given(st.lists(our_messages(), max_size=4))
def test_our_messages_survive_a_round_trip_through_pydantic_ai_messages(ours: list[Message]) -> None:
    def without_theirs(message: Message) -> Message:
        kept = {name: value for name, value in (message.additional_properties or {}).items() if name != "pydantic_ai"}
        return msgspec.structs.replace(message, additional_properties=kept or None)

    again = [without_theirs(message) for message in to_messages(stored(from_messages(ours)))]
    assert again == ours


def test_edited_message_is_converted_with_its_new_contents() -> None:
    before = to_message(ModelResponse([ThinkingPart("Hm.", signature="s"), TextPart("Yes.", id="1")]))
    edited = msgspec.structs.replace(before, contents=(Content.from_text("No."),))
    (response,) = from_messages([edited])
    assert [part.content for part in response.parts] == ["No."]


def test_result_has_the_name_of_its_call_and_an_error_has_outcome_failed() -> None:
    messages = [
        Message("assistant", [Content.from_function_call("c1", "search", arguments="{}")]),
        Message("tool", [Content.from_function_result("c1", exception=LookupError("gone"))]),
    ]
    (part,) = from_messages(messages)[1].parts
    assert (part.tool_name, part.content, part.outcome) == ("search", "gone", "failed")
