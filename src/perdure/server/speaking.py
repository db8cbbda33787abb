"""The agent of a served conversation: what it says is known by ids, which its thread keeps."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from perdure.agents.executor import AgentExecutor
from perdure.agents.message import Message
from perdure.agents.response import AgentResponse
from perdure.graph.context import WorkflowContext


class SpeakingExecutor(AgentExecutor):
    """Gives messages that have no id one of their own. It follows from the thread and the place in the conversation, so
    that a turn which is done again after a crash gives the same."""

    async def respond(self, messages: Sequence[Message], ctx: WorkflowContext[Any, Any]) -> AgentResponse:
        response = await super().respond(messages, ctx)
        session = ctx.private["session"]
        ids, taken = {}, set[str]()
        for at, message in enumerate(session.messages):
            if message.message_id is None or message.message_id in taken:
                named = msgspec.structs.replace(message, message_id=_free_id(session.session_id, at, taken))
                ids[id(message)] = session.messages[at] = named
            taken.add(session.messages[at].message_id or "")
        if not ids:
            return response
        said = tuple(ids.get(id(message), message) for message in response.messages)
        if any(message.message_id is None for message in said):  # the session holds copies: the last are the same
            said = tuple(session.messages[len(session.messages) - len(said) :])
        return msgspec.structs.replace(response, messages=said)


def _free_id(session_id: str, at: int, taken: set[str]) -> str:
    """A message that was removed before it may have left its place, and its id, to another."""
    while (made := blake2b(f"{session_id}/{at}".encode(), digest_size=12).hexdigest()) in taken:
        at += 1
    return made
