"""Group chats: their messages and state, and orchestrators, which select the next speaker."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeAlias

import msgspec

from perdure.agents.conversation.message import Message, as_messages
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.executor import AgentExecutor, AgentExecutorRequest, AgentExecutorResponse
from perdure.errors import InvalidSelection, did_you_mean
from perdure.events import WorkflowEvent
from perdure.graph.context import WorkflowContext
from perdure.graph.executor import Executor, accepts, is_async
from perdure.graph.handlers import handler
from perdure.orchestrations.participants import clean_conversation_for_handoff, create_completion_message

TerminationCondition: TypeAlias = Callable[[list[Message]], "bool | Awaitable[bool]"]
"""Whether the conversation has ended."""


@dataclass(frozen=True, slots=True)
class GroupChatState:
    """The input for the selection of the next speaker."""

    current_round: int
    """How many participants have spoken since the last input."""
    participants: dict[str, str]
    """Descriptions by name, in their order."""
    conversation: list[Message]


GroupChatSelectionFunction: TypeAlias = Callable[[GroupChatState], "str | Awaitable[str]"]
"""Returns the name of the next speaker."""


class AgentOrchestrationOutput(msgspec.Struct, frozen=True):
    """The decision of an orchestrator."""

    terminate: bool
    """Whether the conversation ends here."""
    reason: str
    next_speaker: str | None = None
    """Required unless the conversation ends."""
    final_message: str | None = None
    """The last message of the conversation."""


class GroupChatParticipantMessage(msgspec.Struct, frozen=True):
    """New messages for a participant that is an executor. Agents get an AgentExecutorRequest."""

    messages: list[Message]


class GroupChatRequestMessage(msgspec.Struct, frozen=True):
    """Asks a participant that is an executor to speak."""

    additional_instruction: str | None = None
    metadata: dict[str, Any] | None = None


class GroupChatResponseMessage(msgspec.Struct, frozen=True):
    """The message of an executor."""

    message: Message


GroupChatRequest: TypeAlias = AgentExecutorRequest | GroupChatRequestMessage | GroupChatParticipantMessage


class GroupChatRequestSentEvent(msgspec.Struct, frozen=True):
    """Data of a `group_chat` event: a participant was asked."""

    round_index: int
    """How many participants were asked before."""
    participant_name: str


class GroupChatResponseReceivedEvent(msgspec.Struct, frozen=True):
    """Data of a `group_chat` event: a participant has answered."""

    round_index: int
    """How many participants were asked until then."""
    participant_name: str


class ParticipantRegistry:
    """The participants of a group chat."""

    NO_DESCRIPTION = "(no description: go by the name)"

    def __init__(self, participants: Iterable[Executor]) -> None:
        self._executors = {participant.id: participant for participant in participants}

    @property
    def participants(self) -> dict[str, str]:
        """Descriptions by name."""
        return {
            name: getattr(executor, "description", None) or self.NO_DESCRIPTION
            for name, executor in self._executors.items()
        }

    def is_agent(self, name: str) -> bool:
        return isinstance(self._executors.get(name), AgentExecutor)

    def reads_messages(self, name: str) -> bool:
        """Whether it is an executor with a handler for GroupChatParticipantMessage."""
        return name in self._executors and accepts(self._executors[name], GroupChatParticipantMessage)


class OrchestrationState(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The state of an orchestration, stored by its orchestrator in each thread."""

    conversation: list[Message] = []  # msgspec copies it
    round_index: int = 0
    orchestrator_name: str = ""
    """Empty if it is the orchestrator's id."""
    metadata: dict[str, Any] = {}
    """Other values of an orchestrator."""
    task: Message | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields, without an empty task."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        return cls(**{name: data[name] for name in cls.__struct_fields__ if name in data})


ORCHESTRATOR_ID = "group_chat_orchestrator"
Context: TypeAlias = WorkflowContext[GroupChatRequest, AgentResponse]
SEEN = "seen"
"""By participant: how many messages of the conversation it has seen."""
SPEAKER = "speaker"
"""The participant whose turn is running; absent before and after the chat."""
LATE = "late"
"""Messages from outside during a participant's turn."""


class BaseGroupChatOrchestrator(Executor):
    """Base of your own orchestrators: a subclass writes `decide`.

    `ctx.private` holds the state of the chat, as the fields of an OrchestrationState; `self` holds none. A message from
    outside begins a chat or continues an ended one, and resets the count of rounds.
    """

    streams_output = True
    TERMINATION_CONDITION_MET_MESSAGE: ClassVar[str] = "The group chat has reached its termination condition."
    MAX_ROUNDS_MET_MESSAGE: ClassVar[str] = "The group chat has reached the maximum number of rounds."
    TERMINATED_MESSAGE: ClassVar[str] = "The group chat was ended by its orchestrator."
    CHOOSER: ClassVar[str] = "Orchestrator"

    def __init__(
        self,
        id: str = ORCHESTRATOR_ID,
        participant_registry: ParticipantRegistry | None = None,
        *,
        name: str | None = None,
        max_rounds: int | None = None,
        termination_condition: TerminationCondition | None = None,
        **policy: Any,
    ) -> None:
        super().__init__(id, **policy)
        self.name = name or id
        self.participant_registry = participant_registry or ParticipantRegistry([])
        """The participants; the builder sets them."""
        self.max_rounds = check_rounds(max_rounds)
        self.termination_condition = check_condition(termination_condition)

    def fresh(self, *, shares: bool = False) -> Executor:
        orchestrator = super().fresh(shares=shares)
        assert isinstance(orchestrator, BaseGroupChatOrchestrator)  # noqa: S101  # it has this class
        orchestrator.participant_registry = self.participant_registry
        return orchestrator

    async def decide(self, state: GroupChatState, ctx: WorkflowContext[Any, Any]) -> AgentOrchestrationOutput:
        """The next speaker, or the end. It is called again if the process dies before the decision is committed, so
        calls that must not be repeated use `ctx.step`."""
        raise NotImplementedError(f"{type(self).__name__} must implement `decide`.")

    @handler
    async def handle_str(self, task: str, ctx: Context) -> None:
        await self._begin(as_messages(task), ctx)

    @handler
    async def handle_message(self, task: Message, ctx: Context) -> None:
        await self._begin([task], ctx)

    @handler
    async def handle_messages(self, task: list[str | Message], ctx: Context) -> None:
        await self._begin(as_messages(task), ctx)

    @handler
    async def handle_participant_response(
        self, response: AgentExecutorResponse | GroupChatResponseMessage, ctx: Context
    ) -> None:
        chat = OrchestrationState.from_dict(ctx.private)
        speaker = ctx.get_source_executor_id()
        await ctx.add_event(WorkflowEvent("group_chat", GroupChatResponseReceivedEvent(chat.round_index, speaker)))
        if isinstance(response, GroupChatResponseMessage):
            new = [response.message]
        else:
            new = clean_conversation_for_handoff(response.agent_response.messages)
        conversation = [*chat.conversation, *new]
        chat.conversation = [*conversation, *chat.metadata.get(LATE, [])]
        chat.metadata = {SEEN: {**chat.metadata.get(SEEN, {}), speaker: len(conversation)}}
        await self._advance(chat, ctx)

    async def _begin(self, messages: list[Message], ctx: Context) -> None:
        if not messages:  # not an error: the thread contains the message, and a resume would deliver it again
            text = f"Group chat {ctx.executor_id!r} got no message, so no participant ran. Send a text or a Message."
            await ctx.add_event(WorkflowEvent("warning", text))
            return
        chat = OrchestrationState.from_dict(ctx.private)
        chat.orchestrator_name = self.name if self.name != self.id else ""
        if chat.metadata.get(SPEAKER) is not None:
            chat.metadata = {**chat.metadata, LATE: [*chat.metadata.get(LATE, []), *messages]}
            ctx.private.update(chat.to_dict())
            return
        chat.conversation = [*chat.conversation, *messages]
        chat.round_index = 0
        await self._advance(chat, ctx)

    async def _advance(self, chat: OrchestrationState, ctx: Context) -> None:
        if await self._is_over(chat, ctx):
            await self._end(chat, self.TERMINATION_CONDITION_MET_MESSAGE, ctx)
        elif self.max_rounds is not None and chat.round_index >= self.max_rounds:
            await self._end(chat, self.MAX_ROUNDS_MET_MESSAGE, ctx)
        else:
            state = GroupChatState(chat.round_index, self.participant_registry.participants, list(chat.conversation))
            decision: Any = await self.decide(state, ctx)
            if not isinstance(decision, AgentOrchestrationOutput):
                raise InvalidSelection(
                    f"{type(self).__name__}.decide returned {decision!r}, expected an AgentOrchestrationOutput. "
                    "Nothing of this round was written; correct it and resume the thread."
                )
            if decision.terminate:
                await self._end(chat, decision.final_message or self.TERMINATED_MESSAGE, ctx)
            else:
                await self._ask(chat, self.check_speaker(decision.next_speaker, ctx), ctx)
        ctx.private.update(chat.to_dict())

    async def _is_over(self, chat: OrchestrationState, ctx: Context) -> bool:
        if self.termination_condition is None:
            return False
        is_over = await call_function(self.termination_condition, list(chat.conversation), ctx, "termination_condition")
        return bool(is_over)

    async def _end(self, chat: OrchestrationState, text: str, ctx: Context) -> None:
        last = create_completion_message(text=text, author_name=self.name)
        chat.conversation = [*chat.conversation, last]
        await ctx.yield_output(AgentResponse(messages=(last,)))

    async def _ask(self, chat: OrchestrationState, name: str, ctx: Context) -> None:
        seen = chat.metadata.get(SEEN, {})
        new = chat.conversation[seen.get(name, 0) :]
        if self.participant_registry.is_agent(name):
            await ctx.send_message(AgentExecutorRequest(new), target_id=name)
        else:
            if new and self.participant_registry.reads_messages(name):
                await ctx.send_message(GroupChatParticipantMessage(new), target_id=name)
            await ctx.send_message(GroupChatRequestMessage(), target_id=name)
        await ctx.add_event(WorkflowEvent("group_chat", GroupChatRequestSentEvent(chat.round_index, name)))
        chat.metadata = {SEEN: seen, SPEAKER: name}
        chat.round_index += 1

    def check_speaker(self, name: Any, ctx: WorkflowContext[Any, Any]) -> str:
        """The name of a participant. Raises InvalidSelection."""
        names = self.participant_registry.participants
        if isinstance(name, str) and name in names:
            return name
        near = did_you_mean(name, names) if isinstance(name, str) else ""
        raise InvalidSelection(
            f"{self.CHOOSER} returned unknown participant {name!r} as the next speaker of {self.name!r}{near}. "
            f"Participants: {', '.join(names)}. Nothing of this round was written: correct it, and resume thread "
            f"{ctx.thread_id!r}."
        )


class GroupChatOrchestrator(BaseGroupChatOrchestrator):
    """Selects the next speaker by a function. The result of an async function is recorded."""

    CHOOSER = "Selection function"

    def __init__(
        self,
        id: str,
        participant_registry: ParticipantRegistry,
        selection_func: GroupChatSelectionFunction,
        *,
        name: str | None = None,
        max_rounds: int | None = None,
        termination_condition: TerminationCondition | None = None,
    ) -> None:
        super().__init__(
            id, participant_registry, name=name, max_rounds=max_rounds, termination_condition=termination_condition
        )
        self.selection_func = selection_func

    async def decide(self, state: GroupChatState, ctx: WorkflowContext[Any, Any]) -> AgentOrchestrationOutput:
        name = await call_function(
            self.selection_func, state, ctx, "selection_func", lambda name: self.check_speaker(name, ctx)
        )
        return AgentOrchestrationOutput(False, "selected by the selection function", name)


async def call_function(
    function: Callable[[Any], Any],
    argument: Any,
    ctx: WorkflowContext[Any, Any],
    name: str,
    check: Callable[[Any], Any] = lambda answer: answer,
) -> Any:
    """The checked result of a user's function. An async function may call services, so its result is recorded."""
    if not is_async(function):
        answer = function(argument)
        return check(await answer if inspect.isawaitable(answer) else answer)

    async def ask() -> Any:
        return check(await function(argument))

    return await ctx.step(ask, name=name, key=name)


def check_rounds(max_rounds: int | None) -> int | None:
    if max_rounds is not None and (type(max_rounds) is not int or max_rounds < 1):
        raise ValueError(f"max_rounds is a number of rounds, at least 1, or None, got {max_rounds!r}.")
    return max_rounds


def check_condition(condition: TerminationCondition | None) -> TerminationCondition | None:
    if condition is not None and not callable(condition):
        raise TypeError(f"termination_condition is a function of the conversation, got {condition!r}.")
    return condition
