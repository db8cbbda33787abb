"""AgentBasedGroupChatOrchestrator: an agent that leads a group chat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.agents.conversation.message import AgentSession, Message
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.executor import run_arguments, session_id_for
from perdure.agents.tools import types_of
from perdure.agents.turns.structured import value_in
from perdure.agents.turns.turn import take_turn
from perdure.errors import InvalidSelection
from perdure.graph.context import WorkflowContext
from perdure.graph.participants import agent_name
from perdure.orchestrations.group_chat.orchestrator import ORCHESTRATOR_ID, BaseGroupChatOrchestrator
from perdure.orchestrations.group_chat.types import (
    AgentOrchestrationOutput,
    GroupChatState,
    ParticipantRegistry,
    TerminationCondition,
)

INSTRUCTION = """\
Decide how the conversation goes on. Answer with a JSON object, and nothing else:
{{
  "terminate": <true if it should end now, else false>,
  "reason": "<why>",
  "next_speaker": "<who speaks next; null if it ends>",
  "final_message": "<what to end with, if it ends; else null>"
}}
These may speak. Write a name exactly as it stands here:
{participants}"""


class AgentBasedGroupChatOrchestrator(BaseGroupChatOrchestrator):
    """Leads by an agent, which is told what is new and gives an AgentOrchestrationOutput.

    An answer that cannot be used, such as the name of somebody who takes no part, is given back to it with the reason,
    `retry_attempts` times. Then the run fails with InvalidSelection; a resume asks again.
    """

    def __init__(
        self,
        agent: Any,
        participant_registry: ParticipantRegistry | None = None,
        *,
        max_rounds: int | None = None,
        termination_condition: TerminationCondition | None = None,
        retry_attempts: int | None = 2,
        session: AgentSession | None = None,
        id: str = ORCHESTRATOR_ID,
    ) -> None:
        super().__init__(
            id,
            participant_registry,
            name=agent_name(agent),
            max_rounds=max_rounds,
            termination_condition=termination_condition,
        )
        self.agent = agent
        self.value_types = types_of(agent)
        self.retry_attempts = retry_attempts or 0
        self._session = session

    async def decide(self, state: GroupChatState, ctx: WorkflowContext[Any, Any]) -> AgentOrchestrationOutput:
        session = self._session_of(ctx)
        told = ctx.private.get("told", 0)
        listed = "\n".join(f"{name}: {description}" for name, description in state.participants.items())
        new = [one for one in state.conversation[told:] if one.author_name != self.name]  # it knows what it ended with
        messages = [*new, Message("user", INSTRUCTION.format(participants=listed))]
        answers = new_answers = 0
        while True:
            response = await take_turn(
                self.agent, messages, session, response_format=AgentOrchestrationOutput, **run_arguments(ctx)
            )
            try:
                decision = _usable(response, state.participants)
            except ValueError as problem:
                answers += 1
                new_answers += await _is_new(ctx, answers)
                if new_answers > self.retry_attempts:
                    raise self._given_up(new_answers, problem, ctx) from problem
                again = f"That answer cannot be used: {problem} Answer again, with the JSON object and nothing else."
                messages = [Message("user", again)]
                continue
            ctx.private["session"], ctx.private["told"] = session, len(state.conversation)
            return decision

    def _session_of(self, ctx: WorkflowContext[Any, Any]) -> AgentSession:
        kept: AgentSession | None = ctx.private.get("session")
        if kept is not None:
            return kept
        if self._session is not None:
            return self._session.copy(session_id=session_id_for(ctx))
        return AgentSession(session_id=session_id_for(ctx))

    def _given_up(self, answers: int, problem: ValueError, ctx: WorkflowContext[Any, Any]) -> InvalidSelection:
        return InvalidSelection(
            f"Agent {self.name!r}, which leads the group chat, gave {answers} answers that cannot be used, the last "
            f"since: {problem} Nothing of this round was written. Mend the agent or the team, and resume thread "
            f"{ctx.thread_id!r}: the agent is asked again."
        )


def _usable(response: AgentResponse, participants: Mapping[str, str]) -> AgentOrchestrationOutput:
    """Raises ValueError, which says what is wrong with the answer."""
    decision = value_in(response, AgentOrchestrationOutput)
    if not decision.terminate and decision.next_speaker not in participants:
        raise ValueError(
            f"next_speaker is {decision.next_speaker!r}, who takes no part. Those who do: {', '.join(participants)}."
        )
    return decision


async def _is_new(ctx: WorkflowContext[Any, Any], number: int) -> bool:
    """Whether this answer was given now. What an earlier run was told is replayed, and must not use up the tries of
    the run that is to go on after the mistake was mended."""
    is_new = False

    async def note() -> None:
        nonlocal is_new
        is_new = True

    await ctx.step(note, name="unusable answer", key=str(number))
    return is_new
