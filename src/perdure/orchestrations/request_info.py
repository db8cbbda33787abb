"""`with_request_info`: a person looks at what an agent answered before anybody else does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from perdure.agents.conversation.message import Message, as_messages
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.executor import AgentExecutor, AgentExecutorResponse
from perdure.agents.recording import working_for
from perdure.graph.context import WorkflowContext
from perdure.graph.executor import Executor
from perdure.orchestrations.participants import Participant, find_participant


class AgentRequestInfoResponse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody says to an agent's answer: nothing, which approves it, or messages, to which the agent answers
    again."""

    messages: list[Message]

    @staticmethod
    def approve() -> AgentRequestInfoResponse:
        return AgentRequestInfoResponse([])

    @staticmethod
    def from_messages(messages: Iterable[Message]) -> AgentRequestInfoResponse:
        given = as_messages(messages)
        if not given:
            raise ValueError("There is nothing for the agent to answer to. To approve, use approve().")
        return AgentRequestInfoResponse(given)

    @staticmethod
    def from_strings(texts: Iterable[str]) -> AgentRequestInfoResponse:
        if isinstance(texts, str):
            raise TypeError(f"from_strings takes several texts, got one: {texts!r}.")
        return AgentRequestInfoResponse.from_messages([Message("user", text) for text in texts])


class AgentApprovalExecutor(AgentExecutor):
    """An AgentExecutor that asks about each answer, with the AgentExecutorResponse, before it sends it on.

    It is asked for an AgentRequestInfoResponse. The answers that were not approved stay in the conversation, with what
    was said to them.
    """

    async def converse(
        self, messages: Sequence[Message], ctx: WorkflowContext[Any, Any]
    ) -> tuple[list[Message], AgentResponse]:
        before = self.conversation(ctx)
        given = list(messages)
        said: list[Message] = []
        drafts = 0
        while True:
            response = await self.respond(given, ctx)
            drafts += 1
            said += [*given, *response.messages]
            given = await _said_to(AgentExecutorResponse(self.id, response, [*before, *said]), drafts)
            if not given:
                return said, response


async def _said_to(said: AgentExecutorResponse, draft: int) -> list[Message]:
    context = working_for()
    assert context is not None  # noqa: S101  # handlers work for a delivery
    request_id = f"{context.delivery_name}-draft-{draft}"
    answer: AgentRequestInfoResponse = await context.ask(said, AgentRequestInfoResponse, request_id=request_id)
    return as_messages(answer.messages)


class Reviewing:
    """Whose answers are looked at: nobody's, until `ask` is called."""

    def __init__(self) -> None:
        self._wanted: list[Any] | None = []

    def ask(self, agents: Sequence[Any] | None) -> None:
        """About those, or about all agents. Raises ValueError for an empty list."""
        if isinstance(agents, str):
            raise TypeError(f"agents= is a list, got {agents!r}.")
        if agents is not None and not agents:
            raise ValueError("with_request_info(agents=[]) would ask about nobody. Leave it out to ask about all.")
        self._wanted = None if agents is None else list(agents)

    def executors(self, team: Sequence[Participant], **options: Any) -> dict[str, Executor]:
        """What stands in the graph, by name; `options` are those of AgentExecutor. Raises ValueError if somebody is to
        be reviewed who is no agent of the team."""
        asked_about = {one.name for one in team if one.agent is not None}
        if self._wanted is not None:
            named = [find_participant(team, one, "with_request_info(agents=...)") for one in self._wanted]
            for one in named:
                if one.agent is None:
                    raise ValueError(f"with_request_info names {one.name!r}, which is an executor. It can ask itself.")
            asked_about = {one.name for one in named}
        hosts: dict[bool, Callable[[Any], Executor]]
        hosts = {True: partial(AgentApprovalExecutor, **options), False: partial(AgentExecutor, **options)}
        return {one.name: one.executor(hosts[one.name in asked_about]) for one in team}
