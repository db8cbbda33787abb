"""GroupChatBuilder: participants speak one at a time, and an orchestrator selects the next speaker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

from perdure.agents.adapters import adapt_agent
from perdure.agents.executor import AgentExecutor
from perdure.engine.run.request import Durability
from perdure.graph.executor import Executor, accepts
from perdure.graph.sub_workflow import agent_name, is_agent
from perdure.orchestrations.group_chat.orchestrator import (
    ORCHESTRATOR_ID,
    AgentBasedGroupChatOrchestrator,
    BaseGroupChatOrchestrator,
    GroupChatOrchestrator,
    check_condition,
    check_rounds,
)
from perdure.orchestrations.group_chat.types import (
    GroupChatParticipantMessage,
    GroupChatRequestMessage,
    GroupChatSelectionFunction,
    ParticipantRegistry,
    TerminationCondition,
)
from perdure.orchestrations.participants import (
    IntermediateOutputFrom,
    OutputFrom,
    ReviewedTeamBuilder,
    designate,
    read_participants,
)
from perdure.workflows.builder import DEFAULT_MAX_ITERATIONS
from perdure.workflows.workflow import Workflow

MAX_SUPERSTEPS = 1_000_000


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
        checkpoint_storage: Any = None,
        output_from: OutputFrom = None,
        intermediate_output_from: IntermediateOutputFrom = None,
        name: str | None = None,
        description: str | None = None,
        durability: Durability = "sync",
        allowed_types: Iterable[type | str] = (),
    ) -> None:
        super().__init__(name, description, checkpoint_storage, durability, allowed_types)
        if participant_factories is None:
            read_participants(participants)
        elif participants is not None:
            raise ValueError("Give participants= or participant_factories=, not both.")
        self._participants, self._factories = participants, participant_factories
        leaders = [leader for leader in (orchestrator_agent, orchestrator, selection_func) if leader is not None]
        if len(leaders) != 1:
            raise ValueError(
                f"A group chat is led by one of orchestrator_agent=, orchestrator= and selection_func=, got "
                f"{len(leaders)} of them."
            )
        if selection_func is not None and not callable(selection_func):
            raise TypeError(f"selection_func is a function of the GroupChatState, got {selection_func!r}.")
        self._agent, self._orchestrator, self._selection_func = orchestrator_agent, orchestrator, selection_func
        self._orchestrator_name = orchestrator_name
        self._condition = check_condition(termination_condition)
        self._max_rounds = check_rounds(max_rounds)
        self._output_from, self._intermediate_output_from = output_from, intermediate_output_from

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
        team = read_participants(self._participants, self._factories)
        executors = list(self._executors(team).values())
        for executor in executors:
            _check_handlers(executor)
        leader = self._leader(ParticipantRegistry(executors))
        is_bounded = leader.max_rounds is not None or leader.termination_condition is not None
        designation = designate(team, self._output_from, self._intermediate_output_from, always=[leader.id])
        builder = self._workflow_builder(
            team,
            leader,
            designation,
            # Without a limit of the chat, the engine's limit applies.
            max_iterations=MAX_SUPERSTEPS if is_bounded else DEFAULT_MAX_ITERATIONS,
        )
        for executor in executors:
            builder.add_edge(leader, executor).add_edge(executor, leader)
        return builder.build()

    def _leader(self, registry: ParticipantRegistry) -> BaseGroupChatOrchestrator:
        limits: dict[str, Any] = {"max_rounds": self._max_rounds, "termination_condition": self._condition}
        if self._selection_func is not None:
            name = self._orchestrator_name
            return GroupChatOrchestrator(ORCHESTRATOR_ID, registry, self._selection_func, name=name, **limits)
        if self._agent is not None:
            agent = adapt_agent(self._agent)
            if not is_agent(agent) and callable(agent):
                agent = adapt_agent(agent())
            if not is_agent(agent):
                raise TypeError(f"orchestrator_agent is an agent, or a function that makes one, got {agent!r}.")
            if agent_name(agent) in registry.participants:
                raise ValueError(f"{agent_name(agent)!r} cannot lead the chat and take part in it.")
            return AgentBasedGroupChatOrchestrator(agent, registry, **limits)
        own: Any = self._orchestrator
        if isinstance(own, BaseGroupChatOrchestrator):
            own = own.fresh()  # the original may lead other teams
        elif callable(own):
            own = own()
        if not isinstance(own, BaseGroupChatOrchestrator):
            raise TypeError(f"orchestrator is a BaseGroupChatOrchestrator, or a function that makes one, got {own!r}.")
        if any(limit is not None for limit in limits.values()):
            raise ValueError(f"max_rounds and termination_condition belong to the orchestrator: pass them to {own!r}.")
        own.participant_registry = registry
        return own


def _check_handlers(executor: Executor) -> None:
    if isinstance(executor, AgentExecutor):
        return
    for kind in (GroupChatParticipantMessage, GroupChatRequestMessage):
        if not accepts(executor, kind):
            raise TypeError(
                f"Executor {executor.id!r} has no handler for {kind.__name__}. In a group chat it gets messages with "
                "GroupChatParticipantMessage, is asked with GroupChatRequestMessage, and answers with "
                "GroupChatResponseMessage."
            )
