"""The workflows and the authentication of these tests, in a module that a configuration can name."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterable
from typing import Any

from perdure import RunContext, WorkflowContext, executor, workflow
from perdure.agents import AgentResponse, AgentSession, Message
from perdure.agents.base import RecordingAgent
from perdure.server.auth.principal import Credentials, NotAuthenticated, Principal
from perdure.workflows.builder import WorkflowBuilder

SECRET = "hunter2-of-the-workflow"  # what must not be shown


class Echo(RecordingAgent):
    """Replies with the number of the user's messages in this thread, and the last of them."""

    async def turn(self, messages: list[Message], session: AgentSession | None, **kwargs: Any) -> AgentResponse:
        before = [] if session is None else session.messages
        texts = [message.text for message in (*before, *messages) if message.role == "user"]
        return AgentResponse(messages=(Message("assistant", f"{len(texts)}: {texts[-1] if texts else ''}", self.name),))


agent = Echo("echo")


@workflow(name="ask")
async def ask(text: str, ctx: RunContext) -> str:
    """Asks for permission and returns the answer."""
    may = await ctx.request_info(f"May I say {text}?", bool)
    return f"{text}: {may}"


@executor(id="raise_it")
async def raise_it(text: str, ctx: WorkflowContext[Any, str]) -> None:
    raise RuntimeError(f"cannot reach the database with the password {SECRET}, {text}")


failing = WorkflowBuilder(start_executor=raise_it, name="failing").build()


@executor(id="wait_for_ever")
async def wait_for_ever(text: str, ctx: WorkflowContext[Any, str]) -> None:
    await asyncio.Event().wait()


waiting = WorkflowBuilder(start_executor=wait_for_ever, name="waiting").build()


# ---------------------------------------------------------------- who is let in


def token(user_id: str, scopes: Iterable[str] | None = None) -> str:
    """Returns the token of this user, with no more than these scopes."""
    claims = json.dumps({"user_id": user_id, "scopes": None if scopes is None else sorted(scopes)})
    return base64.urlsafe_b64encode(claims.encode()).decode().rstrip("=")


async def let_in(credentials: Credentials) -> Principal:
    """Trusts every token, because these tests cover what follows authentication."""
    if not credentials.token:
        raise NotAuthenticated("Bring a token.")
    claims = json.loads(base64.urlsafe_b64decode(credentials.token + "=="))
    scopes = claims["scopes"]
    return Principal(claims["user_id"], scopes=None if scopes is None else frozenset(scopes))
