"""GroupChatBuilder: participants speak one at a time, and an orchestrator selects the next speaker: also an agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, Unpack

from perdure.agents.base import adapt_agent, agent_name, take_turn
from perdure.agents.conversation.message import AgentSession, Message
from perdure.agents.conversation.response import AgentResponse, value_in
from perdure.agents.executor import AgentExecutor, run_arguments, session_id_for
from perdure.agents.recording import is_first_record
from perdure.agents.tools import types_of
from perdure.errors import InvalidSelection, TypeCompatibilityError
from perdure.graph.context import WorkflowContext
from perdure.graph.executor import accepts
from perdure.graph.graph import is_agent
from perdure.orchestrations.group_chat import (
    ORCHESTRATOR_ID,
    AgentOrchestrationOutput,
    BaseGroupChatOrchestrator,
    GroupChatOrchestrator,
    GroupChatRequestMessage,
    GroupChatSelectionFunction,
    GroupChatState,
    ParticipantRegistry,
    TerminationCondition,
    check_condition,
    check_rounds,
)
from perdure.orchestrations.participants import ReviewedTeamBuilder, TeamSettings, read_participants
from perdure.workflows.builder import DEFAULT_MAX_ITERATIONS
from perdure.workflows.workflow import Workflow

INSTRUCTION = """\
Decide how the conversation continues. Answer with a JSON object, and nothing else:
{{
  "terminate": <true if it should end now, else false>,
  "reason": "<why>",
  "next_speaker": "<who speaks next; null if it ends>",
  "final_message": "<what to end with, if it ends; else null>"
}}
These may speak. Write a name exactly as it stands here:
{participants}"""


class AgentBasedGroupChatOrchestrator(BaseGroupChatOrchestrator):
    """Selects the next speaker by an agent, which gets new messages and returns an AgentOrchestrationOutput.

    An unusable answer, such as an unknown name, is returned to the agent with the reason, `retry_attempts` times. Then
    the run fails with InvalidSelection; a resume asks again.
    """

    TERMINATED_MESSAGE = "The conversation has been terminated by the agent."

    def __init__(
        self,
        agent: Any,
        participant_registry: ParticipantRegistry | None = None,
        *,
        max_rounds: int | None = None,
        termination_condition: TerminationCondition | None = None,
        retry_attempts: int | None = 2,
        session: AgentSession | None = None,
        id: str | None = None,
    ) -> None:
        super().__init__(
            id or agent_name(agent),
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
        start = self._session or AgentSession()
        session: AgentSession = ctx.private.get("session") or start.copy(session_id=session_id_for(ctx))
        seen = ctx.private.get("seen_messages", 0)
        listed = "\n".join(f"{name}: {description}" for name, description in state.participants.items())
        # The agent's session has its own last message.
        new = [message for message in state.conversation[seen:] if message.author_name != self.name]
        messages = [*new, Message("user", INSTRUCTION.format(participants=listed))]
        answers = new_answers = 0
        while True:
            response = await take_turn(
                self.agent, messages, session, response_format=AgentOrchestrationOutput, **run_arguments(ctx)
            )
            try:
                decision = _usable_decision(response, state.participants)
            except ValueError as problem:
                answers += 1
                # Replayed answers of an earlier run do not count: a resumed run gets all its attempts.
                new_answers += await is_first_record("unusable answer", str(answers))
                if new_answers > self.retry_attempts:
                    raise InvalidSelection(
                        f"Agent {self.name!r}, which leads the group chat, gave {new_answers} unusable answers. The "
                        f"last: {problem} Nothing of this round was written. Correct the agent or the team, and resume "
                        f"thread {ctx.thread_id!r}: the agent is asked again."
                    ) from problem
                again = f"That answer cannot be used: {problem} Answer again, with the JSON object and nothing else."
                messages = [Message("user", again)]
                continue
            ctx.private["session"], ctx.private["seen_messages"] = session, len(state.conversation)
            return decision


def _usable_decision(response: AgentResponse, participants: Mapping[str, str]) -> AgentOrchestrationOutput:
    """Raises ValueError with the problem of the answer."""
    decision = value_in(response, AgentOrchestrationOutput)
    if not decision.terminate and decision.next_speaker not in participants:
        problem = f"Orchestrator agent selected unknown participant {decision.next_speaker!r}"
        if decision.next_speaker is None:
            problem = "next_speaker must be provided if not terminating the conversation"
        raise ValueError(f"{problem}. Valid participants: {', '.join(participants)}.")
    return decision


MAX_SUPERSTEPS = 1_000_000
_LEADERS = "orchestrator_agent, orchestrator, or selection_func"


class GroupChatBuilder(ReviewedTeamBuilder):
    """`GroupChatBuilder(participants=[writer, critic], selection_func=take_turns, max_rounds=4).build()`.

    Exactly one leads: a function of the GroupChatState that returns the next speaker (`selection_func`), an agent
    (`orchestrator_agent`), or your own orchestrator (`orchestrator`). The chat ends when `termination_condition` is
    true, after `max_rounds`, or when the orchestrator ends it. The output is the AgentResponse with its last message.
    `intermediate_output_from="all"` adds the other messages.
    """

    KIND = "group_chat"
    DEFAULT_ORCHESTRATOR_ID = ORCHESTRATOR_ID

    def __init__(
        self,
        *,
        participants: Sequence[Any] | None = None,
        participant_factories: Sequence[Callable[[], Any]] | None = None,
        orchestrator_agent: Any = None,
        orchestrator: BaseGroupChatOrchestrator | Callable[[], BaseGroupChatOrchestrator] | None = None,
        selection_func: GroupChatSelectionFunction | None = None,
        orchestrator_name: str | None = None,
        termination_condition: TerminationCondition | None = None,
        max_rounds: int | None = None,
        **settings: Unpack[TeamSettings],
    ) -> None:
        super().__init__(settings)
        if participants is None and participant_factories is None:
            raise ValueError("Either participants or participant_factories must be provided.")
        if participants is not None:
            read_participants(participants, participant_factories, must_have_names=True)
        elif not participant_factories:
            raise ValueError("participant_factories cannot be empty.")
        self._participants, self._factories = participants, participant_factories
        leaders = [leader for leader in (orchestrator_agent, orchestrator, selection_func) if leader is not None]
        if len(leaders) > 1:
            raise ValueError(f"Exactly one of {_LEADERS} must be provided, got {len(leaders)} of them.")
        if selection_func is not None and not callable(selection_func):
            raise TypeError(f"selection_func is a function of the GroupChatState, got {selection_func!r}.")
        self._agent, self._orchestrator, self._selection_func = orchestrator_agent, orchestrator, selection_func
        self._orchestrator_name = orchestrator_name
        self._condition = check_condition(termination_condition)
        self._max_rounds = check_rounds(max_rounds)

    def with_termination_condition(self, termination_condition: TerminationCondition) -> Self:
        """A function of the conversation, called after every message."""
        self._condition = check_condition(termination_condition)
        return self

    def with_max_rounds(self, max_rounds: int | None) -> Self:
        """The maximum of answers after one input."""
        self._max_rounds = check_rounds(max_rounds)
        return self

    def build(self) -> Workflow:
        """Raises WorkflowValidationError or ValueError."""
        team = read_participants(self._participants, self._factories, must_have_names=True)
        executors = list(self._executors(team).values())
        leader = self._leader(ParticipantRegistry(executors))
        for executor in executors:
            if not isinstance(executor, AgentExecutor) and not accepts(executor, GroupChatRequestMessage):
                raise TypeCompatibilityError(leader.id, executor.id, [GroupChatRequestMessage], executor.input_types)
        is_bounded = leader.max_rounds is not None or leader.termination_condition is not None
        # Without a limit of the chat, the engine's limit applies.
        iterations = MAX_SUPERSTEPS if is_bounded else DEFAULT_MAX_ITERATIONS
        builder = self._workflow_builder(team, leader, always=[leader.id], max_iterations=iterations)
        for executor in executors:
            builder.add_edge(leader, executor).add_edge(executor, leader)
        return builder.build()

    def _leader(self, registry: ParticipantRegistry) -> BaseGroupChatOrchestrator:
        limits: dict[str, Any] = {"max_rounds": self._max_rounds, "termination_condition": self._condition}
        if self._selection_func is not None:
            name = self._orchestrator_name
            return GroupChatOrchestrator(ORCHESTRATOR_ID, registry, self._selection_func, name=name, **limits)
        leader: Any = self._orchestrator if self._agent is None else adapt_agent(self._agent)
        if leader is None:
            raise ValueError(f"No orchestrator has been configured. Pass {_LEADERS}.")
        if isinstance(leader, BaseGroupChatOrchestrator):
            leader = leader.fresh()  # the original may lead other teams
        elif callable(leader) and not is_agent(leader):
            leader = leader()
        if is_agent(agent := adapt_agent(leader)):
            return AgentBasedGroupChatOrchestrator(agent, registry, **limits)
        if not isinstance(leader, BaseGroupChatOrchestrator):
            raise TypeError(
                "Orchestrator factory must return Agent or BaseGroupChatOrchestrator instance. "
                f"Got {type(leader).__name__}: {leader!r}."
            )
        if any(limit is not None for limit in limits.values()):
            raise ValueError(
                f"max_rounds and termination_condition belong to {leader!r}, the orchestrator: pass them there."
            )
        leader.participant_registry = registry
        return leader
