"""What of a conversation an agent has not heard yet: it comes round again, or is told by several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.agents.message import Message


def unheard(conversation: Sequence[Message], known: Sequence[Message], heard: Any) -> list[Message]:
    """What is new in the conversation that an executor passes on.

    `known` is all that the agent was told and said; if the conversation begins with the end of that, it went on from
    there. `heard` is how far the same executor told it before.
    """
    overlap = 0
    if known:
        ends = range(min(len(known), len(conversation)), 0, -1)
        overlap = next((n for n in ends if conversation[n - 1] == known[-1] and _ends_with(known, conversation[:n])), 0)
    told = 0
    if heard is not None:
        count, last = heard
        told = count if 0 < count <= len(conversation) and conversation[count - 1] == last else 0
    return list(conversation[max(overlap, told) :])


def up_to(conversation: Sequence[Message]) -> Any:
    """To be given as `heard` next time."""
    return [len(conversation), conversation[-1]] if conversation else None


def joined(conversations: Sequence[Sequence[Message]]) -> list[Message]:
    """The beginning that they have in common once, then what each has beside."""
    common = 0
    while conversations and all(common < len(one) for one in conversations):
        if any(one[common] != conversations[0][common] for one in conversations):
            break
        common += 1
    shared = conversations[0][:common] if conversations else ()
    return [*shared, *(message for one in conversations for message in one[common:])]


def _ends_with(known: Sequence[Message], part: Sequence[Message]) -> bool:
    return list(known[len(known) - len(part) :]) == list(part)
