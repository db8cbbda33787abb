"""HandoffBuilder: agents that hand a conversation off to each other, and to the user."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Self, Unpack

from perdure.agents.base import RecordingAgent, parameters_of
from perdure.agents.tools import Tool
from perdure.orchestrations.group_chat import TerminationCondition, check_condition
from perdure.orchestrations.handoff import (
    COORDINATOR_ID,
    MAX_HANDOFFS,
    Autonomy,
    HandoffAgentExecutor,
    HandoffCoordinator,
    handoff_tool,
)
from perdure.orchestrations.participants import (
    Participant,
    TeamBuilder,
    TeamSettings,
    find_participant,
    read_participants,
)
from perdure.workflows.agent import WorkflowAgent
from perdure.workflows.functions import FunctionalWorkflowAgent
from perdure.workflows.workflow import Workflow

AUTONOMOUS_PROMPT = "User did not respond. Continue assisting autonomously."
AUTONOMOUS_TURN_LIMIT = 50

_NOT_IN_TOOL_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_TOOL_NAME = 64


def get_handoff_tool_name(target_id: str) -> str:
    """`handoff_to_<id>`, with underscores for characters that models reject in the name of a tool."""
    return f"handoff_to_{_NOT_IN_TOOL_NAMES.sub('_', target_id)}"[:_MAX_TOOL_NAME]


class HandoffBuilder(TeamBuilder):
    """A team in which the active agent selects the next agent: `HandoffBuilder(participants=[triage,
    refunds]).with_start_agent(triage).build()`.

    Each agent gets tools `handoff_to_<name>` that end its turn. An agent that ends its turn without a handoff asks the
    user, with a `HandoffAgentUserRequest`. Without `add_handoff` every agent may hand off to every other. The response
    of each agent is an output; the conversation is in the thread's state, under `conversation`.
    """

    KIND = "handoff"

    def __init__(
        self,
        *,
        participants: Sequence[Any] | None = None,
        termination_condition: TerminationCondition | None = None,
        **settings: Unpack[TeamSettings],
    ) -> None:
        super().__init__(settings)
        self._team: list[Participant] = []
        self._start: str | None = None
        self._returns_to_previous = True
        self._routes: dict[str, dict[str, str | None]] = {}
        """Descriptions, by source and target."""
        self._autonomy: dict[str, Autonomy] = {}
        self._termination_condition = check_condition(termination_condition)
        if participants:
            self.participants(participants)

    def participants(self, participants: Sequence[Any]) -> Self:
        """The agents. Their `run` must accept `tools=`. Raises TypeError for other objects."""
        if self._team:
            raise ValueError(f"participants have already been assigned: {', '.join(self._names())}.")
        team = read_participants(participants)
        for participant in team:
            _check_participant(participant)
        self._team = team
        return self

    def with_start_agent(self, agent: Any) -> Self:
        """The first speaker: an agent, or its name. The default is the first participant."""
        self._start = self._name_of(agent, "with_start_agent")
        return self

    def add_handoff(self, source: Any, targets: Sequence[Any], *, description: str | None = None) -> Self:
        """Let an agent hand off to some others. After the first call, only added handoffs are allowed.

        `description` is the instruction for the source's model; the default is the target's description.
        """
        source_name = self._name_of(source, "add_handoff source")
        if isinstance(targets, str) or not targets:
            raise ValueError(f"add_handoff({source_name!r}, ...) needs a list of target agents, got {targets!r}.")
        for item in targets:
            target = self._name_of(item, "add_handoff targets")
            if target == source_name:
                raise ValueError(f"{source_name!r} cannot hand off to itself. Leave it out of targets.")
            self._routes.setdefault(source_name, {})[target] = description
        return self

    def enable_return_to_previous(self, enabled: bool = True) -> Self:
        """Whether the agent that asked gets the user's answer (the default), or the start agent."""
        self._returns_to_previous = enabled
        return self

    def with_autonomous_mode(
        self,
        *,
        agents: Sequence[Any] | None = None,
        prompts: Mapping[str, str] | None = None,
        turn_limits: Mapping[str, int] | None = None,
    ) -> Self:
        """Let agents continue without the user: all, or the named ones. They get a prompt instead, for up to 50 turns
        or their own limit, and then ask. `prompts` and `turn_limits` are by name; 0 turns asks immediately."""
        chosen = [self._name_of(agent, "with_autonomous_mode") for agent in agents or self._names()]
        prompts = {self._name_of(key, "prompts"): prompt for key, prompt in (prompts or {}).items()}
        limits = {self._name_of(key, "turn_limits"): limit for key, limit in (turn_limits or {}).items()}
        for name, limit in limits.items():
            if type(limit) is not int or limit < 0:
                raise ValueError(f"The turn limit of {name!r} must be a whole number of turns, got {limit!r}.")
        idle = next((name for name in (*prompts, *limits) if name not in chosen), None)
        if idle is not None:
            raise ValueError(f"{idle!r} has a prompt or a turn limit, but is not among agents=: {', '.join(chosen)}.")
        self._autonomy = {
            name: Autonomy(prompts.get(name, AUTONOMOUS_PROMPT), limits.get(name, AUTONOMOUS_TURN_LIMIT))
            for name in chosen
        }
        return self

    def with_termination_condition(self, termination_condition: TerminationCondition) -> Self:
        """End the conversation when this function of its messages is true. It may be async."""
        self._termination_condition = check_condition(termination_condition)
        return self

    def build(self) -> Workflow:
        """Check the team and build the workflow. Raises ValueError for a team that cannot work."""
        names = self._names()
        coordinator = HandoffCoordinator(
            self._start or names[0],
            self._autonomy,
            self._termination_condition,
            returns_to_previous=self._returns_to_previous,
        )
        # More than can occur before the user is asked: a turn takes two supersteps, a question one more.
        turns = 1 + max((autonomy.turn_limit for autonomy in self._autonomy.values()), default=0)
        iterations = 2 * (MAX_HANDOFFS + 2) * turns
        builder = self._workflow_builder(self._team, coordinator, default=names, max_iterations=iterations)
        for participant in self._team:
            executor = participant.executor(partial(HandoffAgentExecutor, handoffs=self._handoffs_of(participant)))
            builder.add_edge(coordinator, executor).add_edge(executor, coordinator)
        return builder.build()

    def _handoffs_of(self, source: Participant) -> dict[str, Tool]:
        """The tools of a participant, by target."""
        if self._routes:
            descriptions = self._routes.get(source.name, {})
        else:
            descriptions = {name: None for name in self._names() if name != source.name}
        handoffs: dict[str, Tool] = {}
        own = _tool_names(source.agent)
        taken: dict[str, str] = {}
        for target, description in descriptions.items():
            tool_name = get_handoff_tool_name(target)
            if tool_name in own:
                raise ValueError(
                    f"Agent {source.name!r} already has a tool named {tool_name!r}, the name of its handoff. Rename "
                    f"it, or {target!r}."
                )
            if tool_name in taken:
                both = f"{taken[tool_name]!r} and {target!r}"
                raise ValueError(f"A handoff to {both} would be the same tool, {tool_name!r}. Rename one of them.")
            taken[tool_name] = target
            text = description or find_participant(self._team, target, "add_handoff").description
            handoffs[target] = handoff_tool(target, tool_name, text or f"Handoff to the {target} agent.")
        return handoffs

    def _names(self) -> list[str]:
        if not self._team:
            raise ValueError("No participants provided. Call .participants() first.")
        return [participant.name for participant in self._team]

    def _name_of(self, wanted: Any, parameter: str) -> str:
        if not self._team:
            raise ValueError(f"Call participants(...) before {parameter.partition(' ')[0]}(...).")
        return find_participant(self._team, wanted, parameter).name


def _check_participant(participant: Participant) -> None:
    name, agent = participant.name, participant.agent
    if agent is None:
        raise TypeError(f"Participants must be Agent instances. Got {name!r}, an executor, which accepts no tools.")
    if name == COORDINATOR_ID:
        raise ValueError(f"An agent in a handoff cannot be named {COORDINATOR_ID!r}: the coordinator has that name.")
    if isinstance(agent, WorkflowAgent | FunctionalWorkflowAgent) or not _takes_tools(agent):
        raise TypeError(
            f"Agent {name!r} cannot hand off: its run() does not accept `tools=`, and handoffs are tools. "
            f"It is a {type(agent).__name__}. Add that parameter, or use another orchestration."
        )


def _takes_tools(agent: Any) -> bool:
    """A RecordingAgent accepts any argument in `run`; the parameters of `turn` show which it uses."""
    if isinstance(agent, RecordingAgent):
        return "tools" in inspect.signature(agent.turn).parameters
    parameters = parameters_of(agent)
    return parameters is None or "tools" in parameters


def _tool_names(agent: Any) -> set[str]:
    """The names of the agent's own tools, if it has a `tools` attribute."""
    tools = getattr(agent, "tools", None) or ()
    named = tools if isinstance(tools, (Mapping, Sequence, set, frozenset)) else ()
    return {tool if isinstance(tool, str) else str(getattr(tool, "name", None)) for tool in named}
