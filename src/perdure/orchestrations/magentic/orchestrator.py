"""The executor that leads a Magentic team: plan, progress, stalls and replanning, all stored."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec

from perdure.agents.conversation.message import Message, as_messages
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.executor import AgentExecutorRequest, AgentExecutorResponse
from perdure.agents.recording import current_delivery, record_call
from perdure.errors import WorkflowRunnerException
from perdure.events import WorkflowEvent
from perdure.graph.context import WorkflowContext
from perdure.graph.executor import Executor
from perdure.graph.handlers import handler, response_handler
from perdure.orchestrations.group_chat.types import (
    GroupChatParticipantMessage,
    GroupChatRequestMessage,
    GroupChatResponseMessage,
)
from perdure.orchestrations.magentic.manager import MagenticManagerBase
from perdure.orchestrations.magentic.types import (
    MAGENTIC_MANAGER_NAME,
    MagenticContext,
    MagenticOrchestratorEvent,
    MagenticOrchestratorEventType,
    MagenticPlanReviewRequest,
    MagenticPlanReviewResponse,
    MagenticProgressLedger,
    MagenticResetSignal,
    Member,
)
from perdure.orchestrations.participants import UserInput

T = TypeVar("T")


class MagenticState(msgspec.Struct):
    """The state of a thread, in the orchestrator's private state."""

    context: MagenticContext
    plan: Message | None = None
    """The newest plan; part of the conversation once the team works on it."""
    progress: MagenticProgressLedger | None = None
    manager: dict[str, Any] = msgspec.field(default_factory=dict)
    """The manager's state."""
    begins_at: int = 0
    """The index of the plan in the conversation: participants get the messages from there on."""
    seen: dict[str, int] = msgspec.field(default_factory=dict)
    """How many messages of the conversation each participant has seen."""
    has_begun: bool = False
    """Whether a participant has spoken since the last plan."""
    resets: int = 0
    """Over all tasks of the thread."""
    dialogue: list[Message] = msgspec.field(default_factory=list)
    """Messages of people to the team, and its answers: tasks, remarks, reviews. A reset keeps them."""
    is_done: bool = False

    def add_from_user(self, messages: list[Message]) -> None:
        self.context.chat_history += messages
        self.dialogue += messages

    def enter_plan(self) -> None:
        """The team works on the plan from here on."""
        self.begins_at = len(self.context.chat_history)
        self.seen, self.has_begun = {}, False
        if self.plan is not None:
            self.context.chat_history.append(self.plan)

    def messages_not_seen_by(self, name: str) -> list[Message]:
        return self.context.chat_history[self.seen.get(name, self.begins_at) :]

    def reset(self, planning: list[Message]) -> None:
        """Remove the team's messages; keep those of people, and the planning of the new plan."""
        self.context.reset()
        self.context.chat_history += [*self.dialogue, *planning]
        self.resets += 1


class ManagerOutcome(msgspec.Struct, frozen=True):
    """The recorded result of a call of the manager."""

    value: Any
    unchanged: int
    """How many messages of the conversation are unchanged."""
    added: list[Message]
    manager: dict[str, Any]


class ManagerCalls:
    """A manager with the state of one thread, for one delivery."""

    def __init__(self, manager: MagenticManagerBase, state: MagenticState) -> None:
        # A copy, so that its state does not reach another delivery or thread.
        self.manager = copy.copy(manager)
        self._state = state
        self._calls = 0
        if state.manager:
            self.manager.on_checkpoint_restore(dict(state.manager))

    async def plan(self) -> Message:
        return await self._record(self.manager.plan, Message)

    async def replan(self) -> Message:
        return await self._record(self.manager.replan, Message)

    async def judge(self) -> MagenticProgressLedger:
        return await self._record(self.manager.create_progress_ledger, MagenticProgressLedger)

    async def answer(self) -> Message:
        return await self._record(self.manager.prepare_final_answer, Message)

    async def _record(self, method: Callable[[MagenticContext], Any], expected: type[T]) -> T:
        """The manager's result, recorded with its changes of the conversation and of its own state."""
        self._calls += 1

        async def call() -> ManagerOutcome:
            return await self._call(method, expected)

        name = f"{MAGENTIC_MANAGER_NAME}.{method.__name__}"
        outcome = await record_call(call, name=name, key=str(self._calls))
        self.manager.on_checkpoint_restore(dict(outcome.manager))
        context = self._state.context
        context.chat_history = [*context.chat_history[: outcome.unchanged], *outcome.added]
        self._state.manager = outcome.manager
        value: T = outcome.value
        return value

    async def _call(self, method: Callable[[MagenticContext], Any], expected: type) -> ManagerOutcome:
        before = self._state.context.chat_history
        context = self._state.context.clone(deep=True)
        value = await method(context)
        self._check(value, expected, method.__name__)  # before it is recorded: a resumed run asks again
        after = context.chat_history
        unchanged = 0
        while unchanged < min(len(before), len(after)) and before[unchanged] == after[unchanged]:
            unchanged += 1
        return ManagerOutcome(value, unchanged, after[unchanged:], dict(self.manager.on_checkpoint_save()))

    def _check(self, value: object, expected: type, method_name: str) -> None:
        source = f"{type(self.manager).__name__}.{method_name}"
        if not isinstance(value, expected):
            raise TypeError(f"{source} returned {value!r}, expected a {expected.__name__}.")
        if isinstance(value, Message) and not value.text.strip():
            raise WorkflowRunnerException(
                f"{source} returned a message without text for the task {self._state.context.task!r}. Nothing was "
                "sent to the team, and the thread is unchanged. Correct the manager, then resume."
            )


ORCHESTRATOR_ID = "magentic_orchestrator"
STATE = "magentic"
"""The key of the MagenticState in the orchestrator's private state."""
Context: TypeAlias = WorkflowContext[
    AgentExecutorRequest | GroupChatParticipantMessage | GroupChatRequestMessage | MagenticResetSignal, AgentResponse
]
PLAN_CREATED = MagenticOrchestratorEventType.PLAN_CREATED
REPLANNED = MagenticOrchestratorEventType.REPLANNED
PROGRESS_LEDGER_UPDATED = MagenticOrchestratorEventType.PROGRESS_LEDGER_UPDATED


class MagenticOrchestrator(Executor):
    """Carries out the manager's decisions. `self` holds no state of a thread."""

    def __init__(
        self,
        make_manager: Callable[[], MagenticManagerBase],
        team: Sequence[Member],
        *,
        enable_plan_review: bool = False,
    ) -> None:
        super().__init__(ORCHESTRATOR_ID)
        self.manager = make_manager()
        if not isinstance(self.manager, MagenticManagerBase):
            raise TypeError(f"A manager is a MagenticManagerBase, got {self.manager!r}.")
        self.value_types = tuple(getattr(self.manager, "value_types", ()))
        self.team = {member.name: member for member in team}
        self.enable_plan_review = enable_plan_review

    @handler
    async def from_response(self, response: AgentExecutorResponse, ctx: Context) -> None:
        await _MagenticTurn(self, ctx).take_reply(ctx.get_source_executor_id(), response.agent_response.messages)

    @response_handler
    async def from_review(
        self, request: MagenticPlanReviewRequest, response: MagenticPlanReviewResponse, ctx: Context
    ) -> None:
        turn = _MagenticTurn(self, ctx)
        if response.is_approved:
            await turn.work()
        else:
            await turn.revise(request, response.review)

    @handler
    async def from_turn(self, response: GroupChatResponseMessage, ctx: Context) -> None:
        await _MagenticTurn(self, ctx).take_reply(ctx.get_source_executor_id(), [response.message])

    @handler
    async def from_user(self, user_input: UserInput, ctx: Context) -> None:
        """Messages from outside, or from an executor of the team that answers with plain messages."""
        messages, source = as_messages(user_input), ctx.get_source_executor_id()
        state: MagenticState | None = ctx.private.get(STATE)
        if source in self.team:
            await _MagenticTurn(self, ctx).take_reply(source, messages)
        elif not any(message.text.strip() for message in messages):
            text = "The task is empty: say what is to be done."
            answer = Message("assistant", text, MAGENTIC_MANAGER_NAME)
            await ctx.yield_output(AgentResponse(messages=(answer,)))
        elif state is not None and not state.is_done:
            state.add_from_user(messages)  # the manager reads them when it next judges the progress
            ctx.private[STATE] = state
        else:
            await _MagenticTurn(self, ctx, self._with_task(messages, state)).plan()

    def _with_task(self, messages: list[Message], before: MagenticState | None) -> MagenticState:
        task = next(message.text for message in reversed(messages) if message.text.strip())
        descriptions = {member.name: member.description for member in self.team.values()}
        state = MagenticState(MagenticContext(task, participant_descriptions=descriptions))
        if before is not None:
            state.context.chat_history += before.dialogue
            state.dialogue += before.dialogue
            state.manager, state.resets = before.manager, before.resets
        state.add_from_user(messages)
        return state


class _MagenticTurn:
    """One delivery to the orchestrator."""

    def __init__(self, orchestrator: MagenticOrchestrator, ctx: Context, state: MagenticState | None = None) -> None:
        self._ctx = ctx
        self._orchestrator = orchestrator
        self._state: MagenticState = state if state is not None else ctx.private[STATE]
        self._manager = orchestrator.manager
        self._calls = ManagerCalls(orchestrator.manager, self._state)

    async def plan(self) -> None:
        """Plan a new task."""
        await self._set_plan(await self._calls.plan(), PLAN_CREATED)
        await self._review_or_work(is_stalled=False)

    async def revise(self, request: MagenticPlanReviewRequest, review: list[Message]) -> None:
        """Replan after a review."""
        self._state.add_from_user(review)
        await self._set_plan(await self._calls.replan(), REPLANNED)
        await self._review_or_work(is_stalled=request.is_stalled)

    async def _set_plan(self, plan: Message, event_type: MagenticOrchestratorEventType) -> None:
        self._state.plan = plan
        await self._emit(event_type, plan)

    async def _review_or_work(self, *, is_stalled: bool) -> None:
        if self._orchestrator.enable_plan_review:
            await self._ask_for_review(is_stalled=is_stalled)
        else:
            await self.work()

    async def _ask_for_review(self, *, is_stalled: bool) -> None:
        state, delivery = self._state, current_delivery()
        if state.plan is None or delivery is None:
            raise WorkflowRunnerException("A plan review needs a plan and a delivery.")
        request_id = f"{delivery.delivery_name}-plan-review"  # equal in every run of the delivery
        request = MagenticPlanReviewRequest(state.plan, state.progress, is_stalled, request_id)
        await self._ctx.request_info(request, MagenticPlanReviewResponse, request_id=request_id)
        self._save()

    async def work(self) -> None:
        """Start to work on the plan."""
        self._state.enter_plan()
        await self._advance()

    async def take_reply(self, name: str, messages: Sequence[Message]) -> None:
        """Add the reply of the asked participant."""
        state = self._state
        if state.is_done:
            return
        state.context.chat_history += _text_messages(name, messages)
        state.seen[name] = len(state.context.chat_history)
        state.has_begun = True
        await self._advance()

    async def _advance(self) -> None:
        """Judge the progress, and ask the next participant. At most one new plan comes before the next reply."""
        context, maximum = self._state.context, self._manager.max_round_count
        while maximum is None or context.round_count < maximum:
            context.round_count += 1
            ledger = self._state.progress = await self._calls.judge()
            await self._emit(PROGRESS_LEDGER_UPDATED, ledger)
            if ledger.is_request_satisfied.answer:
                return await self._finish()
            context.stall_count = context.stall_count + 1 if ledger.is_stalled else max(0, context.stall_count - 1)
            if context.stall_count <= self._manager.max_stall_count or not self._state.has_begun:
                return await self._instruct(ledger)
            if not await self._reset():
                return None
        return await self._finish(f"The limit of {maximum} rounds is reached.")

    async def _instruct(self, ledger: MagenticProgressLedger) -> None:
        """Ask the next participant, with the messages that it has not seen and the instruction."""
        state = self._state
        name, instruction = ledger.next_speaker.answer, str(ledger.instruction_or_question.answer)
        if not isinstance(name, str) or name not in self._orchestrator.team:
            return await self._finish(f"The manager selected {name!r}, which is not on the team.")
        await self._orchestrator.team[name].ask(state.messages_not_seen_by(name), instruction, self._ctx)
        state.context.chat_history.append(Message("assistant", instruction, MAGENTIC_MANAGER_NAME))
        return self._save()

    async def _reset(self) -> bool:
        """Make a new plan, and clear the conversation. False if work does not continue now: it waits for a review, or
        has ended.

        The plan is made before the conversation is cleared: it has to avoid earlier errors.
        """
        state, maximum = self._state, self._manager.max_reset_count
        if maximum is not None and state.context.reset_count >= maximum:
            await self._finish(f"The work does not progress, and the limit of {maximum} resets is reached.")
            return False
        before = len(state.context.chat_history)
        await self._set_plan(await self._calls.replan(), REPLANNED)
        state.reset(state.context.chat_history[before:])
        for member in self._orchestrator.team.values():
            if member.can_reset:
                await self._ctx.send_message(MagenticResetSignal(state.resets), target_id=member.name)
        if self._orchestrator.enable_plan_review:
            await self._ask_for_review(is_stalled=True)
            return False
        state.enter_plan()
        return True

    async def _finish(self, because: str | None = None) -> None:
        """End with an answer from the conversation so far."""
        state = self._state
        if because is not None:
            note = f"{because} The work has ended: answer from the conversation so far, and name what is missing."
            state.context.chat_history.append(Message("user", note))
            text = f"The task {state.context.task!r} ends before it is done. {because}"
            await self._ctx.add_event(WorkflowEvent("warning", text))
        answer = await self._calls.answer()
        state.context.chat_history.append(answer)
        state.dialogue.append(answer)
        state.is_done = True
        self._save()
        await self._ctx.yield_output(AgentResponse(messages=(answer,)))

    def _save(self) -> None:
        self._ctx.private[STATE] = self._state

    async def _emit(self, event_type: MagenticOrchestratorEventType, content: Message | MagenticProgressLedger) -> None:
        event = MagenticOrchestratorEvent(event_type, content)
        await self._ctx.add_event(WorkflowEvent("magentic_orchestrator", event))


def _text_messages(name: str, messages: Sequence[Message]) -> list[Message]:
    """The texts of a reply, for the other participants. Calls of tools are left out."""
    texts = []
    for message in messages:
        if message.role == "tool" or not message.text.strip():
            continue
        is_plain = (
            message.role == "assistant"
            and message.author_name
            and all(part.type == "text" for part in message.contents)
        )
        texts.append(message if is_plain else Message("assistant", message.text, message.author_name or name))
    return texts or [Message("assistant", f"({name} gave no answer.)", name)]
