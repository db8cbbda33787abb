"""HandoffBuilder: agents that pass a conversation on to each other, and to the user."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from perdure.agents.base import RecordingAgent
from perdure.engine.run.options import Durability
from perdure.orchestrations.group_chat.types import TerminationCondition
from perdure.orchestrations.handoff.executor import (
    FLOOR_ID,
    MOST_HANDOFFS,
    Autonomy,
    HandoffAgentExecutor,
    HandoffFloor,
    HandoffRoute,
)
from perdure.orchestrations.participants import (
    IntermediateOutputFrom,
    OutputFrom,
    Participant,
    Settings,
    designate,
    find_participant,
    read_participants,
)
from perdure.workflows.agent import WorkflowAgent
from perdure.workflows.workflow import Workflow

AUTONOMOUS_PROMPT = "User did not respond. Continue assisting autonomously."
AUTONOMOUS_TURN_LIMIT = 50

_NOT_IN_TOOL_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_TOOL_NAME = 64


def get_handoff_tool_name(target_id: str) -> str:
    """`handoff_to_<id>`, with what models refuse in the name of a tool replaced by underscores."""
    return f"handoff_to_{_NOT_IN_TOOL_NAMES.sub('_', target_id)}"[:_LONGEST_TOOL_NAME]


class HandoffBuilder:
    """A team in which the agent that has the floor decides who is next: `HandoffBuilder(participants=[triage,
    refunds]).with_start_agent(triage).build()`.

    Each agent gets tools `handoff_to_<name>` that end its turn. One that ends its turn without a handoff asks the user,
    with a `HandoffAgentUserRequest`. Without `add_handoff` everybody may hand off to everybody. What each agent says
    is an output; the conversation is in the thread's state, under `conversation`.
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        participants: Sequence[Any] | None = None,
        description: str | None = None,
        checkpoint_storage: Any = None,
        termination_condition: TerminationCondition | None = None,
        durability: Durability = "sync",
        allowed_types: Iterable[type | str] = (),
        output_from: OutputFrom = None,
        intermediate_output_from: IntermediateOutputFrom = None,
    ) -> None:
        self._settings = Settings("handoff", name, description, checkpoint_storage, durability, tuple(allowed_types))
        self._output_from = output_from
        self._intermediate_output_from = intermediate_output_from
        self._team: list[Participant] = []
        self._start: str | None = None
        self._returns_to_previous = True
        self._routes: dict[str, dict[str, str | None]] = {}
        """Descriptions, by source and target."""
        self._autonomy: dict[str, Autonomy] = {}
        self._termination_condition: TerminationCondition | None = None
        if participants is not None:
            self.participants(participants)
        if termination_condition is not None:
            self.with_termination_condition(termination_condition)

    # ------------------------------------------------------------ who takes part

    def participants(self, participants: Sequence[Any]) -> Self:
        """The agents. Their `run` must take `tools=`. Raises TypeError for what is no such agent."""
        if self._team:
            raise ValueError(f"The participants were given before: {', '.join(self._names())}.")
        team = read_participants(participants)
        for one in team:
            _check_participant(one)
        self._team = team
        return self

    def with_start_agent(self, agent: Any) -> Self:
        """Who speaks first: an agent, or its name. Unless told, the first participant."""
        self._start = self._name_of(agent, "with_start_agent")
        return self

    def add_handoff(self, source: Any, targets: Sequence[Any], *, description: str | None = None) -> Self:
        """Let an agent hand off to some others. From the first call on, only what was added is allowed.

        `description` tells the source when to do so; unless given, the target's own does.
        """
        named = self._name_of(source, "add_handoff")
        if isinstance(targets, str) or not targets:
            raise ValueError(f"add_handoff({named!r}, ...) needs a list of agents to hand off to, got {targets!r}.")
        for one in targets:
            target = self._name_of(one, "add_handoff")
            if target == named:
                raise ValueError(f"{named!r} cannot hand off to itself: it has the floor. Leave it out of targets.")
            self._routes.setdefault(named, {})[target] = description
        return self

    # ------------------------------------------------------------ how it goes on

    def enable_return_to_previous(self, enabled: bool = True) -> Self:
        """Whether what the user says goes to the agent that asked, as it does unless told, or to the start agent."""
        self._returns_to_previous = enabled
        return self

    def with_autonomous_mode(
        self,
        *,
        agents: Sequence[Any] | None = None,
        prompts: Mapping[str, str] | None = None,
        turn_limits: Mapping[str, int] | None = None,
    ) -> Self:
        """Let agents, all unless some are named, go on without the user: told so by a prompt, up to 50 turns or a limit
        of their own, then they ask. `prompts` and `turn_limits` are by name; 0 turns asks at once."""
        if agents is not None and not agents:
            raise ValueError("with_autonomous_mode: agents= names nobody. Leave it out to mean all of them.")
        chosen = [self._name_of(agent, "with_autonomous_mode") for agent in agents or self._names()]
        prompts = {self._name_of(key, "prompts"): prompt for key, prompt in (prompts or {}).items()}
        limits = {self._name_of(key, "turn_limits"): one for key, one in (turn_limits or {}).items()}
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

    def with_checkpointing(self, checkpoint_storage: Any) -> Self:
        """Keep threads in a storage, so that they go on in any process."""
        self._settings.keep_in(checkpoint_storage)
        return self

    def with_termination_condition(self, termination_condition: TerminationCondition) -> Self:
        """End the conversation when this is true of it: a function of its messages, async or not."""
        if not callable(termination_condition):
            raise TypeError(f"A termination condition is a function of the messages, got {termination_condition!r}.")
        self._termination_condition = termination_condition
        return self

    # ------------------------------------------------------------ the workflow

    def build(self) -> Workflow:
        """Check all of it and make the workflow. Raises ValueError for a team that cannot work."""
        names = self._names()
        floor = HandoffFloor(
            self._start or names[0],
            self._autonomy,
            self._termination_condition,
            returns_to_previous=self._returns_to_previous,
        )
        designation = designate(self._team, self._output_from, self._intermediate_output_from, default=names)
        builder = self._settings.builder(self._team, floor, designation, max_iterations=self._max_iterations())
        for one in self._team:
            executor = HandoffAgentExecutor(one.agent, self._routes_of(one))
            builder.add_edge(floor, executor).add_edge(executor, floor)
        return builder.build()

    def _routes_of(self, source: Participant) -> tuple[HandoffRoute, ...]:
        if self._routes:
            described = self._routes.get(source.name, {})
        else:
            described = {name: None for name in self._names() if name != source.name}
        routes = []
        own = _tool_names(source.agent)
        taken: dict[str, str] = {}
        for target, description in described.items():
            tool_name = get_handoff_tool_name(target)
            if tool_name in own:
                raise ValueError(f"Agent {source.name!r} has a tool {tool_name!r} already. Rename it, or {target!r}.")
            if tool_name in taken:
                both = f"{taken[tool_name]!r} and {target!r}"
                raise ValueError(f"A handoff to {both} would be the same tool, {tool_name!r}. Rename one of them.")
            taken[tool_name] = target
            told = description or find_participant(self._team, target, "add_handoff").description
            routes.append(HandoffRoute(target, tool_name, told or f"Hand off to the agent {target}."))
        return tuple(routes)

    def _max_iterations(self) -> int:
        """More than there can be before the user is asked. A turn takes two supersteps."""
        longest = max((one.turn_limit for one in self._autonomy.values()), default=0)
        return 2 * (MOST_HANDOFFS + 2) * (1 + longest)

    def _names(self) -> list[str]:
        if not self._team:
            raise ValueError("Nobody takes part yet: give participants first.")
        return [one.name for one in self._team]

    def _name_of(self, given: Any, parameter: str) -> str:
        self._names()
        return find_participant(self._team, given, parameter).name


def _check_participant(one: Participant) -> None:
    if one.agent is None:
        raise TypeError(f"A handoff is between agents; {one.name!r} is an executor, which can be given no tools.")
    if one.name == FLOOR_ID:
        raise ValueError(f"An agent in a handoff cannot be named {FLOOR_ID!r}: the executor that gives the floor is.")
    if isinstance(one.agent, WorkflowAgent) or not _takes_tools(one.agent):
        raise TypeError(
            f"Agent {one.name!r} cannot hand off: its run() does not take `tools=`, which is how it is told to whom it "
            f"may. It is a {type(one.agent).__name__}. Give it that parameter, or use another orchestration."
        )


def _takes_tools(agent: Any) -> bool:
    """One that records itself takes any argument in `run`, and says in `turn` which it heeds."""
    if isinstance(agent, RecordingAgent):
        return "tools" in inspect.signature(agent.turn).parameters
    parameters = inspect.signature(agent.run).parameters
    return "tools" in parameters or any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())


def _tool_names(agent: Any) -> set[str]:
    """Of the agent's own tools, as far as it shows them."""
    tools = getattr(agent, "tools", None) or ()
    named = tools if isinstance(tools, (Mapping, Sequence, set, frozenset)) else ()
    return {one if isinstance(one, str) else str(getattr(one, "name", None)) for one in named}
