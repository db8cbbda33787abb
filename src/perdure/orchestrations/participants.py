"""Common parts of the builders of orchestrations: participants, settings, and reviews of the agents' answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Self, TypeAlias, TypedDict

import msgspec

from perdure.agents.base import adapt_agent, agent_name, has_name
from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import Message, as_messages
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.executor import AgentExecutor, AgentExecutorResponse
from perdure.agents.recording import current_delivery
from perdure.engine.run.request import Durability, check_storage
from perdure.errors import DuplicateExecutorId, did_you_mean
from perdure.graph.context import WorkflowContext
from perdure.graph.executor import Executor
from perdure.graph.graph import find_graph, is_agent
from perdure.graph.handlers import handler
from perdure.names import check_identifier, check_options, join_names
from perdure.workflows.builder import DEFAULT_MAX_ITERATIONS, WorkflowBuilder

OutputFrom: TypeAlias = "Sequence[Any] | Literal['all'] | None"
"""Participants, by name or as objects."""
UserInput: TypeAlias = str | Message | list[str | Message]
"""The input of an orchestration: a text, a message, or several."""
IntermediateOutputFrom: TypeAlias = "Sequence[Any] | Literal['all', 'all_other'] | None"


@dataclass(frozen=True, slots=True)
class Participant:
    """A member of a team: an agent, or an executor."""

    name: str
    source: Any
    """The object that the caller passed."""
    agent: Any | None
    """None for an executor."""

    @property
    def description(self) -> str | None:
        description = getattr(self.source, "description", None)
        return description if isinstance(description, str) and description else None

    def executor(self, host: Callable[..., Executor] = AgentExecutor) -> Executor:
        """The executor in the graph, with the participant's name. `host` creates it for an agent."""
        executor: Executor = self.source if self.agent is None else host(self.agent, id=self.name)
        return executor


def read_participants(
    participants: Iterable[Any] | None,
    factories: Iterable[Callable[[], Any]] | None = None,
    *,
    minimum: int = 1,
    must_have_names: bool = False,
) -> list[Participant]:
    """The team, from objects or from factories. Raises TypeError for an object that cannot take part, ValueError for
    too few or for one without a name where names are needed, and DuplicateExecutorId for a repeated name."""
    if participants is not None and factories is not None:
        raise ValueError("Cannot provide both participants and participant_factories.")
    if factories is not None:
        sources = [_call_factory(factory) for factory in _as_list("participant_factories", factories)]
    else:
        sources = _as_list("participants", participants)
    if not sources:
        raise ValueError(f"participants cannot be empty. A team needs at least {minimum}.")
    team: dict[str, Participant] = {}
    for source in sources:
        participant = _read(source, team)
        if must_have_names and participant.agent is not None and not has_name(source):
            raise ValueError(
                "SupportsAgentRun participants must have a non-empty name, since the next speaker is selected by name: "
                f"{source!r} has none."
            )
        if participant.name in team:
            kind = "agent" if participant.agent is not None else "executor"
            problem = f"Duplicate {kind} participant detected: id {participant.name!r}"
            named = f"Duplicate participant name {participant.name!r} detected"
            raise DuplicateExecutorId(participant.name, named if must_have_names else problem)
        team[participant.name] = participant
    if len(sources) < minimum:
        raise ValueError(f"A team needs at least {minimum} participants, got {len(sources)}.")
    return list(team.values())


def find_participant(team: Sequence[Participant], wanted: Any, parameter: str) -> Participant:
    """By name, or by the object. Raises ValueError, which names the parameter."""
    name = wanted if isinstance(wanted, str) else _name_of(wanted)
    for member in team:
        if wanted is member.source or wanted is member.agent or name == member.name:
            return member
    names = [member.name for member in team]
    near = "" if name is None else did_you_mean(name, names)
    raise ValueError(
        f"{_SUBJECTS.get(parameter, parameter)} {name or wanted!r} is not in the participants list{near}. "
        f"Participants: {', '.join(names)}."
    )


_SUBJECTS = {
    "output_from": "Unknown output participant",
    "intermediate_output_from": "Unknown intermediate participant",
    "with_start_agent": "Start agent",
    "add_handoff source": "Source agent",
    "add_handoff targets": "Target agent",
    "with_request_info": "with_request_info() names agents that are not agent participants:",
}
"""By parameter: what an error calls the participant."""


def _as_list(parameter: str, value: Iterable[Any] | None) -> list[Any]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable | None):
        raise TypeError(f"{parameter} is a list of agents and executors, got {value!r}.")
    return list(value or ())


def _call_factory(factory: Callable[[], Any]) -> Any:
    if not callable(factory):
        raise TypeError(f"A participant factory is a function that makes an agent or an executor, got {factory!r}.")
    return factory()


def _read(source: Any, taken: Collection[str]) -> Participant:
    if isinstance(source, Executor):
        return Participant(source.id, source, None)
    if find_graph(source) is not None:
        raise TypeError(f"A workflow takes part as an agent: pass {source!r}.as_agent().")
    agent = None if isinstance(source, (str, type)) else adapt_agent(source)
    if agent is None or not is_agent(agent):
        raise TypeError(
            "Participants must be SupportsAgentRun or Executor instances: an agent has run() and a name. "
            f"Got {type(source).__name__}: {source!r}."
        )
    return Participant(agent_name(source if is_agent(source) else agent, taken), source, agent)


def _name_of(thing: Any) -> str | None:
    if isinstance(thing, Executor):
        return thing.id
    return agent_name(thing) if has_name(thing) else None


def designate(
    team: Sequence[Participant],
    output_from: OutputFrom,
    intermediate_output_from: IntermediateOutputFrom,
    *,
    default: Sequence[str] = (),
    always: Sequence[str] = (),
) -> dict[str, Any]:
    """`output_from` and `intermediate_output_from` of the workflow, by name. Outputs of others stay inside.

    `default` are the participants whose outputs count by default; `always` are executors that are not participants,
    such as an orchestrator. Raises ValueError for an unknown or repeated participant, or one in both lists.
    """
    is_explicit = output_from is not None or intermediate_output_from is not None
    if is_explicit and not (output_from or intermediate_output_from):
        raise ValueError("output_from and intermediate_output_from cannot both be empty. Leave them out, or fill one.")
    outputs = _selected_names(team, output_from, "output_from")
    if intermediate_output_from == "all_other":
        intermediates = [name for name in _yielding_names(team) if name not in (outputs or ())]
    else:
        intermediates = _selected_names(team, intermediate_output_from, "intermediate_output_from") or []
    if outputs is None:
        outputs = [name for name in default if name not in intermediates]
    both = next((name for name in outputs if name in intermediates), None)
    if both is not None:
        raise ValueError(f"Participants cannot be both output and intermediate designated: {both!r} is in both lists.")
    return {"output_from": [*always, *outputs], "intermediate_output_from": intermediates}


def _selected_names(team: Sequence[Participant], selection: Any, parameter: str) -> list[str] | None:
    if selection is None:
        return None
    if selection == "all":
        return _yielding_names(team)
    names = [find_participant(team, wanted, parameter).name for wanted in selection]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        kind = "output" if parameter == "output_from" else "intermediate"
        raise ValueError(f"Duplicate {kind} participant {twice!r} in {parameter}.")
    return names


def _yielding_names(team: Sequence[Participant]) -> list[str]:
    return [member.name for member in team if member.agent is not None or member.source.workflow_output_types]


class InputConversation(Executor):
    """Converts the input of a run to a conversation."""

    @handler
    async def convert(self, user_input: UserInput, ctx: WorkflowContext[list[Message]]) -> None:
        await ctx.send_message(as_messages(user_input))


def clean_conversation_for_handoff(conversation: Iterable[Message]) -> list[Message]:
    """The messages of another agent's turn that an agent may get: without calls of tools and their results.

    A model's service rejects calls that its model did not make. Messages without other content are left out; messages
    without calls stay unchanged.
    """
    cleaned = []
    for message in conversation:
        contents = tuple(content for content in message.contents if _is_shared(content, message.role))
        if contents:
            is_same = len(contents) == len(message.contents)
            cleaned.append(message if is_same else msgspec.structs.replace(message, contents=contents))
    return cleaned


def _is_shared(content: Content, role: str) -> bool:
    return bool(content.text) if content.type == "text" else role == "user" and content.type in ("data", "uri")


def create_completion_message(*, text: str | None = None, author_name: str, reason: str = "completed") -> Message:
    """The last message of an orchestration."""
    return Message("assistant", text or f"Conversation {reason}.", author_name)


class TeamSettings(TypedDict, total=False):
    """The settings that the builders of all orchestrations accept."""

    name: str | None
    """The workflow's name; by default the kind of orchestration and the participants' names."""
    description: str | None
    checkpoint_storage: Any
    """Saves threads, so that any process can resume them."""
    durability: Durability
    allowed_types: Iterable[type | str]
    output_from: OutputFrom
    intermediate_output_from: IntermediateOutputFrom


def _check_literal(parameter: str, selection: Any, *literals: str) -> None:
    if parameter == "output_from" and selection == "all_other":
        raise ValueError("output_from='all_other' is invalid: use intermediate_output_from='all_other'.")
    if isinstance(selection, str) and selection not in literals:
        choices = " or ".join(map(repr, literals))
        raise ValueError(f"Unsupported {parameter} literal {selection!r}: use {choices}, or a list of participants.")


class TeamBuilder:
    """Base of the builders of orchestrations: the settings of the workflow, checked on creation."""

    KIND: ClassVar[str]
    """The kind of orchestration: with the participants' names, the default name."""

    def __init__(self, settings: TeamSettings) -> None:
        check_options(type(self).__name__, settings, TeamSettings.__annotations__)
        check_identifier("name", settings.get("name"))
        self._settings: TeamSettings = {**settings, "allowed_types": tuple(settings.get("allowed_types", ()))}
        _check_literal("output_from", settings.get("output_from"), "all")
        _check_literal("intermediate_output_from", settings.get("intermediate_output_from"), "all", "all_other")
        if settings.get("checkpoint_storage") is not None:
            self.with_checkpointing(settings["checkpoint_storage"])

    def with_checkpointing(self, checkpoint_storage: Any) -> Self:
        """Save threads in a storage, so that any process can resume them."""
        check_storage(checkpoint_storage)
        self._settings["checkpoint_storage"] = checkpoint_storage
        return self

    def _workflow_builder(
        self,
        team: Sequence[Participant],
        start: Executor,
        *,
        default: Sequence[str] = (),
        always: Sequence[str] = (),
        max_iterations: int = DEFAULT_MAX_ITERATIONS,
    ) -> WorkflowBuilder:
        """`default` and `always` are those of `designate`."""
        outputs, intermediates = self._settings.get("output_from"), self._settings.get("intermediate_output_from")
        designation = designate(team, outputs, intermediates, default=default, always=always)
        settings: dict[str, Any] = {**self._settings, **designation}
        settings["name"] = self._settings.get("name") or join_names(self.KIND, (member.name for member in team))
        return WorkflowBuilder(max_iterations, start_executor=start, **settings)


class AgentRequestInfoResponse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The review of an agent's answer: no messages approve it; the agent answers again to messages."""

    messages: list[Message]

    @staticmethod
    def approve() -> AgentRequestInfoResponse:
        return AgentRequestInfoResponse([])

    @staticmethod
    def from_messages(messages: Iterable[Message]) -> AgentRequestInfoResponse:
        return AgentRequestInfoResponse(as_messages(messages))

    @staticmethod
    def from_strings(texts: Iterable[str]) -> AgentRequestInfoResponse:
        if isinstance(texts, str):
            raise TypeError(f"from_strings takes several texts, got one: {texts!r}.")
        return AgentRequestInfoResponse.from_messages([Message("user", text) for text in texts])


class AgentApprovalExecutor(AgentExecutor):
    """An AgentExecutor that requests a review of each answer, with the AgentExecutorResponse, before it sends it on.

    The review is an AgentRequestInfoResponse. Answers without approval stay in the conversation, with their reviews.
    """

    streams_output = False  # an answer is an output once it is approved

    async def converse(
        self, messages: Sequence[Message], ctx: WorkflowContext[Any, Any], repeated: Sequence[Message] = ()
    ) -> tuple[list[Message], AgentResponse]:
        before = self.conversation(ctx)
        new = list(messages)
        recorded: list[Message] = []
        delivery = current_delivery()
        assert delivery is not None  # noqa: S101  # handlers run in a delivery
        drafts = 0
        while True:
            response = await self.respond(new, ctx, () if drafts else repeated)
            drafts += 1
            recorded += [*new, *response.messages]
            draft = AgentExecutorResponse(self.id, response, [*before, *recorded])
            request_id = f"{delivery.delivery_name}-draft-{drafts}"
            review: AgentRequestInfoResponse = await delivery.ask(
                draft, AgentRequestInfoResponse, request_id=request_id
            )
            new = as_messages(review.messages)
            if not new:
                return recorded, response


class ReviewedTeamBuilder(TeamBuilder):
    """Base of builders whose agents' answers can be reviewed."""

    _reviewed: Sequence[Any] | None = ()
    """None: all agents."""

    def with_request_info(self, *, agents: Sequence[Any] | None = None) -> Self:
        """Request a review of each answer of these agents, or of all, before the workflow uses it."""
        if isinstance(agents, str):
            raise TypeError(f"agents= is a list, got {agents!r}.")
        self._reviewed = list(agents) if agents else None
        return self

    def _executors(self, team: Sequence[Participant], **options: Any) -> dict[str, Executor]:
        """The executors in the graph, by name; `options` are those of AgentExecutor. Raises ValueError for a reviewed
        participant that is not an agent of the team."""
        reviewed = [member for member in team if member.agent is not None]
        if self._reviewed is not None:
            reviewed = [find_participant(team, wanted, "with_request_info") for wanted in self._reviewed]
        for member in reviewed:
            if member.agent is None:
                raise ValueError(
                    f"{_SUBJECTS['with_request_info']} {member.name!r} is an executor, which can ask itself."
                )
        hosts = dict.fromkeys((member.name for member in team), AgentExecutor)
        hosts |= {member.name: AgentApprovalExecutor for member in reviewed}
        return {member.name: member.executor(partial(hosts[member.name], **options)) for member in team}
