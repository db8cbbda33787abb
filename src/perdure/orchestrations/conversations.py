"""Conversations as they go from one agent to another."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from perdure.agents.content import Content
from perdure.agents.message import Message

SAID_BY_USERS = frozenset({"text", "data", "uri"})
SAID_BY_OTHERS = frozenset({"text"})


def clean_conversation_for_handoff(conversation: Iterable[Message]) -> list[Message]:
    """What one agent may be told of another's turn: what was said, without calls of tools and their results.

    A model's service refuses calls that it has not made itself. A message with nothing else is left out; one that has
    nothing of it stays as it is.
    """
    cleaned = []
    for message in conversation:
        kept = tuple(one for one in message.contents if _is_said(one, message.role))
        if kept:
            is_same = len(kept) == len(message.contents)
            cleaned.append(message if is_same else msgspec.structs.replace(message, contents=kept))
    return cleaned


def _is_said(content: Content, role: str) -> bool:
    if content.type not in (SAID_BY_USERS if role == "user" else SAID_BY_OTHERS):
        return False
    return content.type != "text" or bool(content.text)


def create_completion_message(*, text: str | None = None, author_name: str, reason: str = "completed") -> Message:
    """The message that an orchestration ends with."""
    return Message("assistant", text or f"Conversation {reason}.", author_name)
