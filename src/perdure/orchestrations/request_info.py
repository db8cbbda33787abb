"""`with_request_info`: a person reviews each answer of an agent before the workflow uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Self

import msgspec

from perdure.agents.conversation.message import Message, as_messages
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.executor import AgentExecutor, AgentExecutorResponse
from perdure.agents.recording import current_delivery
from perdure.graph.context import WorkflowContext
from perdure.graph.executor import Executor
from perdure.orchestrations.participants import Participant, TeamBuilder, find_participant


class AgentRequestInfoResponse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The review of an agent's answer: no messages approve it; the agent answers again to messages."""

    messages: list[Message]

    @staticmethod
    def approve() -> AgentRequestInfoResponse:
        return AgentRequestInfoResponse([])

    @staticmethod
    def from_messages(messages: Iterable[Message]) -> AgentRequestInfoResponse:
        review = as_messages(messages)
        if not review:
            raise ValueError("A review needs messages for the agent. To approve, use approve().")
        return AgentRequestInfoResponse(review)

    @staticmethod
    def from_strings(texts: Iterable[str]) -> AgentRequestInfoResponse:
        if isinstance(texts, str):
            raise TypeError(f"from_strings takes several texts, got one: {texts!r}.")
        return AgentRequestInfoResponse.from_messages([Message("user", text) for text in texts])


class AgentApprovalExecutor(AgentExecutor):
    """An AgentExecutor that requests a review of each answer, with the AgentExecutorResponse, before it sends it on.

    The review is an AgentRequestInfoResponse. Answers without approval stay in the conversation, with their reviews.
    """

    async def converse(
        self, messages: Sequence[Message], ctx: WorkflowContext[Any, Any]
    ) -> tuple[list[Message], AgentResponse]:
        before = self.conversation(ctx)
        new = list(messages)
        recorded: list[Message] = []
        drafts = 0
        while True:
            response = await self.respond(new, ctx)
            drafts += 1
            recorded += [*new, *response.messages]
            new = await _request_review(AgentExecutorResponse(self.id, response, [*before, *recorded]), drafts)
            if not new:
                return recorded, response


async def _request_review(response: AgentExecutorResponse, draft: int) -> list[Message]:
    context = current_delivery()
    assert context is not None  # noqa: S101  # handlers run in a delivery
    request_id = f"{context.delivery_name}-draft-{draft}"
    answer: AgentRequestInfoResponse = await context.ask(response, AgentRequestInfoResponse, request_id=request_id)
    return as_messages(answer.messages)


class ReviewedTeamBuilder(TeamBuilder):
    """Base of builders whose agents' answers can be reviewed."""

    _reviewed: Sequence[Any] | None = ()
    """None: all agents."""

    def with_request_info(self, *, agents: Sequence[Any] | None = None) -> Self:
        """Request a review of each answer of these agents, or of all, before the workflow uses it."""
        if isinstance(agents, str):
            raise TypeError(f"agents= is a list, got {agents!r}.")
        if agents is not None and not agents:
            raise ValueError("with_request_info(agents=[]) selects no agent. Leave it out to select all.")
        self._reviewed = None if agents is None else list(agents)
        return self

    def _executors(self, team: Sequence[Participant], **options: Any) -> dict[str, Executor]:
        """The executors in the graph, by name; `options` are those of AgentExecutor. Raises ValueError for a reviewed
        participant that is not an agent of the team."""
        reviewed = {member.name for member in team if member.agent is not None}
        if self._reviewed is not None:
            named = [find_participant(team, wanted, "with_request_info(agents=...)") for wanted in self._reviewed]
            for member in named:
                if member.agent is None:
                    name = member.name
                    raise ValueError(f"with_request_info names {name!r}, which is an executor. It can ask itself.")
            reviewed = {member.name for member in named}
        hosts: dict[bool, Callable[[Any], Executor]]
        hosts = {True: partial(AgentApprovalExecutor, **options), False: partial(AgentExecutor, **options)}
        return {member.name: member.executor(hosts[member.name in reviewed]) for member in team}
