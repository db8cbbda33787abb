"""Hypothesis strategies for conversations: every message that an agent can write."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import Message
from perdure.agents.conversation.response import AgentResponse

texts = st.text(st.characters(), max_size=20)
"""Lone surrogates too."""
names = st.none() | texts
anything: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats()
    | texts
    | st.binary(max_size=8)
    | st.datetimes(timezones=st.timezones()),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(texts | st.integers(), inner, max_size=3)
        | st.frozensets(st.integers(), max_size=1)
    ),
    max_leaves=6,
)
properties = st.none() | st.dictionaries(texts, anything, min_size=1, max_size=2)
counts = st.dictionaries(texts, st.integers(0, 2**60), max_size=3)

calls = st.builds(
    Content,
    st.just("function_call"),
    call_id=texts,
    name=texts,
    arguments=st.none() | texts | st.dictionaries(texts, anything, max_size=2),
    user_input_request=st.sampled_from([None, True]),
)
contents = st.one_of(
    st.builds(Content, st.sampled_from(["text", "text_reasoning"]), text=texts, additional_properties=properties),
    st.builds(Content.from_data, st.binary(max_size=8), st.just("image/png")),
    st.builds(Content.from_uri, texts, media_type=names),
    st.builds(Content.from_error, names, error_code=names, error_details=names),
    st.builds(Content.from_usage, counts),
    calls,
    st.builds(Content, st.just("function_result"), call_id=texts, result=anything, exception=names),
    st.builds(Content.from_function_approval_request, texts, calls),
    st.builds(Content.from_function_approval_response, st.booleans(), texts, calls, reason=names),
)
messages = st.builds(
    Message,
    st.sampled_from(["user", "assistant", "system", "tool"]),
    st.lists(contents, max_size=4),
    names,
    names | st.just("message-1"),
    properties,
)
responses = st.builds(
    AgentResponse,
    messages=st.lists(messages, max_size=4),
    response_id=names,
    agent_id=names,
    created_at=names,
    finish_reason=names,
    usage_details=st.none() | counts,
    value=anything,
    additional_properties=properties,
)
