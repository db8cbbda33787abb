"""Agents that know nothing of perdure: what they are given, and what they give, in their own types and in ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import Message
from perdure.agents.conversation.response import AgentResponse, AgentResponseUpdate


def as_response(given: Any, agent_name: str) -> AgentResponse:
    """Of whatever an agent's `run` gave. Raises TypeError for what says nothing."""
    if isinstance(given, AgentResponse):
        return given
    if isinstance(given, (str, Message, Content)) or (isinstance(given, (list, tuple)) and given):
        return AgentResponse(messages=tuple(as_spoken(one, agent_name) for one in _several(given)))
    messages = getattr(given, "messages", None)
    if isinstance(messages, Sequence) and not isinstance(messages, str):
        return AgentResponse(
            messages=tuple(as_spoken(one, agent_name) for one in messages),
            response_id=_text(given, "response_id"),
            created_at=_text(given, "created_at"),
            finish_reason=_text(given, "finish_reason"),
            usage_details=_counts(getattr(given, "usage_details", None)),
            value=getattr(given, "value", None),
            additional_properties=_properties(given),
        )
    raise TypeError(
        f"Agent {agent_name!r} gave {given!r}. Expected an AgentResponse, a text, a Message, or something with "
        "`.messages`."
    )


def as_update(given: Any, agent_name: str) -> AgentResponseUpdate:
    """Of whatever an agent's stream gave."""
    if isinstance(given, AgentResponseUpdate):
        return given
    if isinstance(given, str):
        return AgentResponseUpdate(contents=(Content.from_text(given),), role="assistant", author_name=agent_name)
    contents = getattr(given, "contents", None)
    if contents is None:
        raise TypeError(f"Agent {agent_name!r} streamed {given!r}. Expected an AgentResponseUpdate or a text.")
    return AgentResponseUpdate(
        contents=tuple(as_content(one) for one in contents),
        role=_text(given, "role"),
        author_name=_text(given, "author_name") or agent_name,
        response_id=_text(given, "response_id"),
        message_id=_text(given, "message_id"),
        created_at=_text(given, "created_at"),
        finish_reason=_text(given, "finish_reason"),
        additional_properties=_properties(given),
    )


def as_spoken(given: Any, agent_name: str) -> Message:
    """A message that an agent said: it has an author."""
    if isinstance(given, (str, Content)):
        return Message("assistant", (as_content(given),), agent_name)
    if isinstance(given, Message):
        return given
    role = getattr(given, "role", None)
    contents = getattr(given, "contents", None)
    if role is None or contents is None:
        raise TypeError(f"Agent {agent_name!r} gave {given!r} as a message.")
    spoken = tuple(as_content(one) for one in contents)
    speaks_as = str(getattr(role, "value", role))
    author = _text(given, "author_name") or (agent_name if speaks_as == "assistant" else None)
    return Message(speaks_as, spoken, author, _text(given, "message_id"), _properties(given))


def as_content(given: Any) -> Content:
    """A content of another framework, by the names of its fields."""
    if isinstance(given, Content):
        return given
    if isinstance(given, str):
        return Content.from_text(given)
    to_dict = getattr(given, "to_dict", None)
    told = to_dict() if callable(to_dict) else given
    if not isinstance(told, Mapping) or not isinstance(told.get("type"), str):
        raise TypeError(f"Expected a Content, got {given!r}.")
    return Content.from_dict(told)


def _several(given: Any) -> Sequence[Any]:
    return given if isinstance(given, (list, tuple)) else [given]


def _properties(given: Any) -> dict[str, Any] | None:
    found = getattr(given, "additional_properties", None)
    return dict(found) if isinstance(found, Mapping) and found else None


def _text(given: Any, name: str) -> str | None:
    found = getattr(given, name, None)
    return None if found is None else str(getattr(found, "value", found))


def _counts(given: Any) -> dict[str, int] | None:
    if not isinstance(given, Mapping):
        return None
    return {str(name): count for name, count in given.items() if isinstance(count, int)} or None
