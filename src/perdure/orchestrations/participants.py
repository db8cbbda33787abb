"""Participants and settings that the builders of orchestrations share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypedDict

import msgspec

from perdure.agents.adapters import adapted
from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import Message, as_messages
from perdure.agents.executor import AgentExecutor
from perdure.engine.run.options import Durability, check_storage
from perdure.errors import DuplicateExecutorId, did_you_mean
from perdure.graph.builder import DEFAULT_MAX_ITERATIONS
from perdure.graph.context import WorkflowContext
from perdure.graph.executor import Executor
from perdure.graph.handlers import handler
from perdure.graph.sub_workflow import agent_name, find_graph, is_agent
from perdure.names import check_identifier
from perdure.workflows.builder import WorkflowBuilder

INPUT_ID = "input-conversation"
OutputFrom: TypeAlias = "Sequence[Any] | Literal['all'] | None"
"""Participants, by name or as they were given."""
IntermediateOutputFrom: TypeAlias = "Sequence[Any] | Literal['all', 'all_other'] | None"


@dataclass(frozen=True, slots=True)
class Participant:
    """One of a team: an agent, or an executor."""

    name: str
    given: Any
    """As the caller has it."""
    agent: Any | None
    """None for an executor."""

    @property
    def description(self) -> str | None:
        found = getattr(self.given, "description", None)
        return found if isinstance(found, str) and found else None

    def executor(self, host: Callable[[Any], Executor] = AgentExecutor) -> Executor:
        """What stands in the graph, under the participant's name. `host` is for agents."""
        if self.agent is not None:
            return host(self.agent)
        stands: Executor = self.given
        return stands


def read_participants(
    participants: Iterable[Any] | None, factories: Iterable[Callable[[], Any]] | None = None, *, least: int = 1
) -> list[Participant]:
    """The team: as given, or as the factories make it. Raises TypeError for what can take no part, ValueError for too
    few, and DuplicateExecutorId for two of one name."""
    if participants is not None and factories is not None:
        raise ValueError("Give participants= or participant_factories=, not both.")
    if factories is not None:
        given = [_made_by(factory) for factory in _several("participant_factories", factories)]
    else:
        given = _several("participants", participants)
    if len(given) < least:
        needed = "a participant" if least == 1 else f"{least} participants"
        raise ValueError(f"A team needs at least {needed}, got {len(given)}.")
    team = [_read(one) for one in given]
    names: set[str] = set()
    for one in team:
        if one.name in names:
            raise DuplicateExecutorId(one.name)
        names.add(one.name)
    return team


def find_participant(team: Sequence[Participant], wanted: Any, parameter: str) -> Participant:
    """By name, or as it was given. Raises ValueError, which names the parameter."""
    found = next((one for one in team if wanted is one.given or wanted is one.agent), None)
    if found is None:
        name = wanted if isinstance(wanted, str) else _name_of(wanted)
        found = next((one for one in team if one.name == name), None)
    if found is None:
        shown = wanted if isinstance(wanted, str) else _name_of(wanted) or wanted
        names = [one.name for one in team]
        near = did_you_mean(shown, names) if isinstance(shown, str) else ""
        raise ValueError(f"{parameter} names {shown!r}, who takes no part{near}. Those who do: {', '.join(names)}.")
    return found


def _several(parameter: str, given: Iterable[Any] | None) -> list[Any]:
    if given is None or isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise TypeError(f"{parameter} is a list of agents and executors, got {given!r}.")
    return list(given)


def _made_by(factory: Callable[[], Any]) -> Any:
    if not callable(factory):
        raise TypeError(f"A participant factory is a function that makes an agent or an executor, got {factory!r}.")
    return factory()


def _read(given: Any) -> Participant:
    if isinstance(given, Executor):
        return Participant(given.id, given, None)
    if find_graph(given) is not None:
        raise TypeError(f"A workflow takes part as an agent: pass {given!r}.as_agent().")
    agent = None if isinstance(given, (str, type)) else adapted(given)
    if agent is None or not is_agent(agent):
        raise TypeError(f"A participant is an agent (something with run() and a name) or an Executor, got {given!r}.")
    return Participant(agent_name(agent), given, agent)


def _name_of(thing: Any) -> str | None:
    try:
        return thing.id if isinstance(thing, Executor) else agent_name(thing)
    except ValueError:
        return None


class Designation(TypedDict):
    """For WorkflowBuilder(**designation)."""

    output_from: list[str]
    intermediate_output_from: list[str]


def designate(
    team: Sequence[Participant],
    output_from: OutputFrom,
    intermediate_output_from: IntermediateOutputFrom,
    *,
    default: Sequence[str] = (),
    always: Sequence[str] = (),
) -> Designation:
    """Whose outputs are the workflow's, and whose are shown on the way; those of others stay between them.

    `default` are the participants whose outputs count unless something else is said of them; `always` are executors
    that are no participants, such as an orchestrator. Raises ValueError for one who takes no part, is named twice, or
    in both.
    """
    for given in (output_from, intermediate_output_from):
        if given is not None and not given:
            raise ValueError("output_from and intermediate_output_from may be left out, but not be empty.")
    if isinstance(output_from, str) and output_from != "all":
        raise ValueError(f"output_from is a list of participants or 'all', got {output_from!r}.")
    outputs = _chosen(team, output_from, "output_from")
    if intermediate_output_from == "all_other":
        intermediates = [name for name in _yielding(team) if name not in (outputs or ())]
    else:
        intermediates = _chosen(team, intermediate_output_from, "intermediate_output_from") or []
    if outputs is None:
        outputs = [name for name in default if name not in intermediates]
    both = next((name for name in outputs if name in intermediates), None)
    if both is not None:
        raise ValueError(f"{both!r} is in output_from and in intermediate_output_from; it can be only in one.")
    return {"output_from": [*always, *outputs], "intermediate_output_from": intermediates}


def _chosen(team: Sequence[Participant], given: Any, parameter: str) -> list[str] | None:
    if given is None:
        return None
    if isinstance(given, str):
        if given != "all":
            raise ValueError(f"{parameter} is a list of participants, 'all' or 'all_other', got {given!r}.")
        return _yielding(team)
    names = [find_participant(team, one, parameter).name for one in given]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{parameter} names {twice!r} twice.")
    return names


def _yielding(team: Sequence[Participant]) -> list[str]:
    return [one.name for one in team if one.agent is not None or one.given.workflow_output_types]


class InputConversation(Executor):
    """Makes a conversation of whatever a run is given: a text, a message, or several."""

    def __init__(self, id: str = INPUT_ID) -> None:
        super().__init__(id)

    @handler
    async def from_str(self, text: str, ctx: WorkflowContext[list[Message]]) -> None:
        await ctx.send_message(as_messages(text))

    @handler
    async def from_message(self, message: Message, ctx: WorkflowContext[list[Message]]) -> None:
        await ctx.send_message([message])

    @handler
    async def from_messages(self, messages: list[str | Message], ctx: WorkflowContext[list[Message]]) -> None:
        await ctx.send_message(as_messages(messages))


SAID_BY_USERS = frozenset({"text", "data", "uri"})
SAID_BY_OTHERS = frozenset({"text"})


def clean_conversation_for_handoff(conversation: Iterable[Message]) -> list[Message]:
    """What one agent may be told of another's turn: what was said, without calls of tools and their results.

    A model's service refuses calls that it has not made itself. A message with nothing else is left out; one that has
    nothing of it stays as it is.
    """
    cleaned = []
    for message in conversation:
        kept = tuple(content for content in message.contents if _is_said(content, message.role))
        if kept:
            is_same = len(kept) == len(message.contents)
            cleaned.append(message if is_same else msgspec.structs.replace(message, contents=kept))
    return cleaned


def _is_said(content: Content, role: str) -> bool:
    if content.type not in (SAID_BY_USERS if role == "user" else SAID_BY_OTHERS):
        return False
    return content.type != "text" or bool(content.text)


def create_completion_message(*, text: str | None = None, author_name: str, reason: str = "completed") -> Message:
    """The message that an orchestration ends with."""
    return Message("assistant", text or f"Conversation {reason}.", author_name)


LONGEST = 60
"""Characters of participants' names in the name of a team."""


@dataclass(slots=True)
class Settings:
    """Checked when it is made."""

    kind: str
    """Of the orchestration: what it is called by, with the names of its participants, where it was given no name."""
    name: str | None
    description: str | None
    checkpoint_storage: Any
    durability: Durability
    allowed_types: tuple[type | str, ...] = ()

    def __post_init__(self) -> None:
        check_identifier("name", self.name)
        if self.checkpoint_storage is not None:
            check_storage(self.checkpoint_storage)

    def keep_in(self, checkpoint_storage: Any) -> None:
        check_storage(checkpoint_storage)
        self.checkpoint_storage = checkpoint_storage

    def builder(
        self,
        team: Sequence[Participant],
        start: Executor,
        designation: Designation,
        *,
        max_iterations: int = DEFAULT_MAX_ITERATIONS,
    ) -> WorkflowBuilder:
        return WorkflowBuilder(
            max_iterations,
            _team_name(self.kind, team) if self.name is None else self.name,
            self.description,
            start_executor=start,
            checkpoint_storage=self.checkpoint_storage,
            durability=self.durability,
            allowed_types=self.allowed_types,
            **designation,
        )


def _team_name(kind: str, team: Sequence[Participant]) -> str:
    """The same in every process, and another for another team."""
    names = "-".join(one.name for one in team)
    if len(names) > LONGEST:
        digest = hashlib.blake2b(names.encode(), digest_size=4).hexdigest()
        names = f"{names[:LONGEST]}-{digest}"
    return f"{kind}-{names}"
