"""Orchestrators of a group chat: they select the next speaker by a function or by an agent."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeAlias

from perdure.agents.conversation.message import AgentSession, Message, as_messages
from perdure.agents.conversation.response import AgentResponse, value_in
from perdure.agents.executor import AgentExecutorRequest, AgentExecutorResponse, run_arguments, session_id_for
from perdure.agents.tools import types_of
from perdure.agents.turn import take_turn
from perdure.errors import InvalidSelection, did_you_mean
from perdure.events import WorkflowEvent
from perdure.graph.context import WorkflowContext
from perdure.graph.executor import Executor
from perdure.graph.function_executor import is_async
from perdure.graph.handlers import handler
from perdure.graph.sub_workflow import agent_name
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
from perdure.orchestrations.participants import clean_conversation_for_handoff, create_completion_message

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
