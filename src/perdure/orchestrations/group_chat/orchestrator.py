"""Who leads a group chat: keeps the conversation, chooses who speaks next, and tells each only what is new to it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

from perdure.agents.conversation.message import Message, as_messages
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.executor import AgentExecutorRequest, AgentExecutorResponse
from perdure.errors import InvalidSelection, did_you_mean
from perdure.events import WorkflowEvent
from perdure.graph.context import WorkflowContext
from perdure.graph.executor import Executor
from perdure.graph.function_executor import is_async
from perdure.graph.handlers import handler
from perdure.orchestrations.group_chat.types import (
    AgentOrchestrationOutput,
    GroupChatParticipantMessage,
    GroupChatRequest,
    GroupChatRequestMessage,
    GroupChatRequestSentEvent,
    GroupChatResponseMessage,
    GroupChatResponseReceivedEvent,
    GroupChatSelectionFunction,
    GroupChatState,
    OrchestrationState,
    ParticipantRegistry,
    TerminationCondition,
)
from perdure.orchestrations.settings import clean_conversation_for_handoff, create_completion_message

ORCHESTRATOR_ID = "orchestrator"

Context: TypeAlias = WorkflowContext[GroupChatRequest, AgentResponse]

SEEN = "seen"
"""By participant: how many messages of the conversation it knows."""
SPEAKER = "speaker"
"""Whose turn it is; nobody's before and after the chat."""
LATE = "late"
"""What came from outside while somebody was speaking."""


class BaseGroupChatOrchestrator(Executor):
    """Base of orchestrators of your own: a subclass writes `decide`.

    How far the chat is stands in `ctx.private`, as the fields of an OrchestrationState: nothing is kept in `self`. A
    message from outside begins a chat, or goes on with one that has ended, and its rounds are counted anew.
    """

    TERMINATION_CONDITION_MET_MESSAGE: ClassVar[str] = "The group chat has reached its termination condition."
    MAX_ROUNDS_MET_MESSAGE: ClassVar[str] = "The group chat has reached the maximum number of rounds."
    TERMINATED_MESSAGE: ClassVar[str] = "The group chat was ended by its orchestrator."

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
        """Who takes part; given by the builder."""
        self.max_rounds = checked_rounds(max_rounds)
        self.termination_condition = checked_condition(termination_condition)

    def fresh(self) -> Executor:
        made = super().fresh()
        assert isinstance(made, BaseGroupChatOrchestrator)  # noqa: S101  # it is of this class
        made.participant_registry = self.participant_registry
        return made

    async def decide(self, state: GroupChatState, ctx: WorkflowContext[Any, Any]) -> AgentOrchestrationOutput:
        """Who is next, or that it ends. Called anew if the process dies before the decision is committed, so what
        must not be done twice goes through `ctx.step`."""
        raise NotImplementedError(f"{type(self).__name__} does not write `decide`: a subclass has to.")

    # ------------------------------------------------------------ what comes in

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
        await ctx.add_event(
            WorkflowEvent("group_chat", GroupChatResponseReceivedEvent(chat.round_index, speaker)),
        )
        if isinstance(response, GroupChatResponseMessage):
            said = [response.message]
        else:
            said = clean_conversation_for_handoff(response.agent_response.messages)
        conversation = [*chat.conversation, *said]
        chat.conversation = [*conversation, *chat.metadata.get(LATE, [])]
        chat.metadata = {SEEN: {**chat.metadata.get(SEEN, {}), speaker: len(conversation)}}
        await self._go_on(chat, ctx)

    # ------------------------------------------------------------ what comes of it

    async def _begin(self, messages: list[Message], ctx: Context) -> None:
        if not messages:  # not an error: what was sent is part of the thread, and would be delivered again and again
            text = (
                f"Group chat {ctx.executor_id!r} was given no message, so nobody was asked. Send a text or a Message."
            )
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
        await self._go_on(chat, ctx)

    async def _go_on(self, chat: OrchestrationState, ctx: Context) -> None:
        if await self._is_over(chat, ctx):
            await self._end(chat, self.TERMINATION_CONDITION_MET_MESSAGE, ctx)
        elif self.max_rounds is not None and chat.round_index >= self.max_rounds:
            await self._end(chat, self.MAX_ROUNDS_MET_MESSAGE, ctx)
        else:
            known = self.participant_registry.participants
            decision: Any = await self.decide(GroupChatState(chat.round_index, known, list(chat.conversation)), ctx)
            if not isinstance(decision, AgentOrchestrationOutput):
                raise InvalidSelection(
                    f"{type(self).__name__}.decide gave {decision!r}, expected an AgentOrchestrationOutput. Nothing of "
                    "this round was kept; mend it and resume the thread."
                )
            if decision.terminate:
                await self._end(chat, decision.final_message or self.TERMINATED_MESSAGE, ctx)
            else:
                await self._ask(chat, self.checked_speaker(decision.next_speaker, ctx), ctx)
        ctx.private.update(chat.to_dict())

    async def _is_over(self, chat: OrchestrationState, ctx: Context) -> bool:
        if self.termination_condition is None:
            return False
        return bool(await asked(self.termination_condition, list(chat.conversation), ctx, "termination_condition"))

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
            if new:
                await ctx.send_message(GroupChatParticipantMessage(new), target_id=name)
            await ctx.send_message(GroupChatRequestMessage(), target_id=name)
        await ctx.add_event(WorkflowEvent("group_chat", GroupChatRequestSentEvent(chat.round_index, name)))
        chat.metadata = {SEEN: seen, SPEAKER: name}
        chat.round_index += 1

    def checked_speaker(self, name: Any, ctx: WorkflowContext[Any, Any]) -> str:
        """The name, if it is that of a participant. Raises InvalidSelection."""
        known = self.participant_registry.participants
        if isinstance(name, str) and name in known:
            return name
        near = did_you_mean(name, known) if isinstance(name, str) else ""
        raise InvalidSelection(
            f"{self.name!r} was to name the next speaker of the group chat, and gave {name!r}, who takes no part"
            f"{near}. Those who do: {', '.join(known)}. Nothing of this round was written: mend it, and resume thread "
            f"{ctx.thread_id!r}."
        )


class GroupChatOrchestrator(BaseGroupChatOrchestrator):
    """Leads by a function that names the next speaker. The answer of an async one is recorded."""

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
        def checked(name: Any) -> str:
            return self.checked_speaker(name, ctx)

        name = await asked(self.selection_func, state, ctx, "selection_func", checked)
        return AgentOrchestrationOutput(False, "the selection function says so", name)


async def asked(
    function: Callable[[Any], Any],
    argument: Any,
    ctx: WorkflowContext[Any, Any],
    name: str,
    check: Callable[[Any], Any] = lambda answer: answer,
) -> Any:
    """What a user's function says. An async one may ask the world, so its answer is recorded, once it was checked."""
    if not is_async(function):
        answer = function(argument)
        return check(await answer if inspect.isawaitable(answer) else answer)

    async def ask() -> Any:
        return check(await function(argument))

    return await ctx.step(ask, name=name, key=name)


def checked_rounds(max_rounds: int | None) -> int | None:
    if max_rounds is not None and (type(max_rounds) is not int or max_rounds < 1):
        raise ValueError(f"max_rounds is a number of rounds, at least 1, or None, got {max_rounds!r}.")
    return max_rounds


def checked_condition(condition: TerminationCondition | None) -> TerminationCondition | None:
    if condition is not None and not callable(condition):
        raise TypeError(f"termination_condition is a function of the conversation, got {condition!r}.")
    return condition
