"""The executor that leads a Magentic team: plan, progress, stalls and replanning, all stored."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec

from perdure.agents.conversation.message import Message, as_messages
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.executor import AgentExecutorRequest, AgentExecutorResponse
from perdure.agents.recording import record_call, working_for
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
from perdure.orchestrations.magentic.ledger import (
    MAGENTIC_MANAGER_NAME,
    MagenticContext,
    MagenticOrchestratorEvent,
    MagenticOrchestratorEventType,
    MagenticProgressLedger,
    MagenticResetSignal,
)
from perdure.orchestrations.magentic.manager import MagenticManagerBase
from perdure.orchestrations.magentic.participant import MagenticPlanReviewRequest, MagenticPlanReviewResponse, Member

T = TypeVar("T")


class MagenticState(msgspec.Struct):
    """All that the orchestrator remembers of a thread, in its private state."""

    context: MagenticContext
    plan: Message | None = None
    """The newest one; part of the conversation once work goes by it."""
    progress: MagenticProgressLedger | None = None
    manager: dict[str, Any] = msgspec.field(default_factory=dict)
    """What the manager keeps."""
    begins_at: int = 0
    """Where in the conversation the plan stands: participants are told what is said from there on."""
    told: dict[str, int] = msgspec.field(default_factory=dict)
    """Participant -> how much of the conversation it knows."""
    has_begun: bool = False
    """Whether somebody has spoken since the last plan."""
    resets: int = 0
    """Over all tasks of the thread."""
    dialogue: list[Message] = msgspec.field(default_factory=list)
    """What people said to the team, and its answers: tasks, remarks, reviews. No reset forgets it."""
    is_done: bool = False

    def hear(self, messages: list[Message]) -> None:
        """Something that a person said."""
        self.context.chat_history += messages
        self.dialogue += messages

    def enter_plan(self) -> None:
        """From here on work goes by the plan."""
        self.begins_at = len(self.context.chat_history)
        self.told, self.has_begun = {}, False
        if self.plan is not None:
            self.context.chat_history.append(self.plan)

    def unheard_by(self, name: str) -> list[Message]:
        return self.context.chat_history[self.told.get(name, self.begins_at) :]

    def begin_anew(self, planning: list[Message]) -> None:
        """Forget what the team said; not what people said, nor how the new plan was made."""
        self.context.reset()
        self.context.chat_history += [*self.dialogue, *planning]
        self.resets += 1


class Outcome(msgspec.Struct, frozen=True):
    """What a call of the manager came to."""

    value: Any
    kept: int
    """How much of the conversation is as it was."""
    added: list[Message]
    manager: dict[str, Any]


class Managing:
    """A manager as it stands in one thread, for one delivery."""

    def __init__(self, manager: MagenticManagerBase, state: MagenticState) -> None:
        # Its own, so that what one delivery leaves in it, or one thread, does not reach another.
        self.manager = copy.copy(manager)
        self._state = state
        self._calls = 0
        if state.manager:
            self.manager.on_checkpoint_restore(dict(state.manager))

    async def plan(self) -> Message:
        return await self._made(self.manager.plan, Message)

    async def replan(self) -> Message:
        return await self._made(self.manager.replan, Message)

    async def judge(self) -> MagenticProgressLedger:
        return await self._made(self.manager.create_progress_ledger, MagenticProgressLedger)

    async def answer(self) -> Message:
        return await self._made(self.manager.prepare_final_answer, Message)

    async def _made(self, method: Callable[[MagenticContext], Any], expected: type[T]) -> T:
        """What the manager gives, recorded. What it adds to the conversation is kept, and what it keeps in itself."""
        self._calls += 1

        async def call() -> Outcome:
            return await self._call(method, expected)

        name = f"{MAGENTIC_MANAGER_NAME}.{method.__name__}"
        outcome = await record_call(call, name=name, key=str(self._calls))
        self.manager.on_checkpoint_restore(dict(outcome.manager))
        context = self._state.context
        context.chat_history = [*context.chat_history[: outcome.kept], *outcome.added]
        self._state.manager = outcome.manager
        value: T = outcome.value
        return value

    async def _call(self, method: Callable[[MagenticContext], Any], expected: type) -> Outcome:
        before = self._state.context.chat_history
        given = self._state.context.clone(deep=True)
        value = await method(given)
        self._check(value, expected, method.__name__)  # before it is recorded: a resumed run asks again
        after = given.chat_history
        kept = 0
        while kept < min(len(before), len(after)) and before[kept] == after[kept]:
            kept += 1
        return Outcome(value, kept, after[kept:], dict(self.manager.on_checkpoint_save()))

    def _check(self, value: object, expected: type, method_name: str) -> None:
        made_by = f"{type(self.manager).__name__}.{method_name}"
        if not isinstance(value, expected):
            raise TypeError(f"{made_by} gave {value!r}, expected a {expected.__name__}.")
        if isinstance(value, Message) and not value.text.strip():
            raise WorkflowRunnerException(
                f"{made_by} gave a message without text for the task {self._state.context.task!r}. Nothing was sent to "
                "the team, and the thread is where it was. Mend the manager, then resume."
            )


ORCHESTRATOR_ID = "magentic_orchestrator"
STATE = "magentic"
"""Where in its private state the orchestrator keeps a MagenticState."""
Context: TypeAlias = WorkflowContext[
    AgentExecutorRequest | GroupChatParticipantMessage | GroupChatRequestMessage | MagenticResetSignal, AgentResponse
]
PLAN_CREATED = MagenticOrchestratorEventType.PLAN_CREATED
REPLANNED = MagenticOrchestratorEventType.REPLANNED
PROGRESS_LEDGER_UPDATED = MagenticOrchestratorEventType.PROGRESS_LEDGER_UPDATED


class MagenticOrchestrator(Executor):
    """Goes by what its manager says. Nothing of a thread is in `self`."""

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
        self.team = {one.name: one for one in team}
        self.enable_plan_review = enable_plan_review

    @handler
    async def from_str(self, text: str, ctx: Context) -> None:
        await self._hear(as_messages(text), ctx)

    @handler
    async def from_message(self, message: Message, ctx: Context) -> None:
        await self._hear([message], ctx)

    @handler
    async def from_messages(self, messages: list[str | Message], ctx: Context) -> None:
        await self._hear(as_messages(messages), ctx)

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

    async def _hear(self, messages: list[Message], ctx: Context) -> None:
        """From outside, or from an executor on the team that answers with plain messages."""
        source = ctx.get_source_executor_id()
        state: MagenticState | None = ctx.private.get(STATE)
        if source in self.team:
            await _MagenticTurn(self, ctx).take_reply(source, messages)
        elif not any(message.text.strip() for message in messages):
            said = Message("assistant", "The task is empty: say what is to be done.", MAGENTIC_MANAGER_NAME)
            await ctx.yield_output(AgentResponse(messages=(said,)))
        elif state is not None and not state.is_done:
            state.hear(messages)  # for the manager to heed when it judges next
            ctx.private[STATE] = state
        else:
            await _MagenticTurn(self, ctx, self._with_task(messages, state)).plan()

    def _with_task(self, messages: list[Message], before: MagenticState | None) -> MagenticState:
        task = next(message.text for message in reversed(messages) if message.text.strip())
        descriptions = {one.name: one.description for one in self.team.values()}
        state = MagenticState(MagenticContext(task, participant_descriptions=descriptions))
        if before is not None:
            state.context.chat_history += before.dialogue
            state.dialogue += before.dialogue
            state.manager, state.resets = before.manager, before.resets
        state.hear(messages)
        return state


class _MagenticTurn:
    """One delivery to the orchestrator: what it knows, and what it does about it."""

    def __init__(self, orchestrator: MagenticOrchestrator, ctx: Context, state: MagenticState | None = None) -> None:
        self._ctx = ctx
        self._orchestrator = orchestrator
        self._state: MagenticState = state if state is not None else ctx.private[STATE]
        self._manager = orchestrator.manager
        self._managing = Managing(orchestrator.manager, self._state)

    # ------------------------------------------------------------ planning

    async def plan(self) -> None:
        """For a new task."""
        await self._take_plan(await self._managing.plan(), PLAN_CREATED)
        await self._review_or_work(is_stalled=False)

    async def revise(self, request: MagenticPlanReviewRequest, review: list[Message]) -> None:
        """After a plan was sent back."""
        self._state.hear(review)
        await self._take_plan(await self._managing.replan(), REPLANNED)
        await self._review_or_work(is_stalled=request.is_stalled)

    async def _take_plan(self, plan: Message, event_type: MagenticOrchestratorEventType) -> None:
        self._state.plan = plan
        await self._tell(event_type, plan)

    async def _review_or_work(self, *, is_stalled: bool) -> None:
        if self._orchestrator.enable_plan_review:
            await self._ask_for_review(is_stalled=is_stalled)
        else:
            await self.work()

    async def _ask_for_review(self, *, is_stalled: bool) -> None:
        state, delivery = self._state, working_for()
        if state.plan is None or delivery is None:
            raise WorkflowRunnerException("There is no plan to be reviewed, or nobody to be asked.")
        request_id = f"{delivery.delivery_name}-plan-review"  # the same, should the delivery be run again
        request = MagenticPlanReviewRequest(state.plan, state.progress, is_stalled, request_id)
        await self._ctx.request_info(request, MagenticPlanReviewResponse, request_id=request_id)
        self._keep()

    # ------------------------------------------------------------ working

    async def work(self) -> None:
        """Begin to go by the plan."""
        self._state.enter_plan()
        await self._go_on()

    async def take_reply(self, name: str, messages: Sequence[Message]) -> None:
        """What the one who was asked has said."""
        state = self._state
        if state.is_done:
            return
        state.context.chat_history += _spoken(name, messages)
        state.told[name] = len(state.context.chat_history)
        state.has_begun = True
        await self._go_on()

    async def _go_on(self) -> None:
        """Judge, and say who is next. There is at most one new plan before somebody speaks again."""
        context, most = self._state.context, self._manager.max_round_count
        while most is None or context.round_count < most:
            context.round_count += 1
            ledger = self._state.progress = await self._managing.judge()
            await self._tell(PROGRESS_LEDGER_UPDATED, ledger)
            if ledger.is_request_satisfied.answer:
                return await self._finish()
            context.stall_count = context.stall_count + 1 if ledger.is_stalled else max(0, context.stall_count - 1)
            if context.stall_count <= self._manager.max_stall_count or not self._state.has_begun:
                return await self._instruct(ledger)
            if not await self._begin_anew():
                return None
        return await self._finish(f"The limit of {most} rounds is reached.")

    async def _instruct(self, ledger: MagenticProgressLedger) -> None:
        """Have the next one speak: it is told all that it has not heard yet, and what to do."""
        state = self._state
        name, instruction = ledger.next_speaker.answer, str(ledger.instruction_or_question.answer)
        if not isinstance(name, str) or name not in self._orchestrator.team:
            return await self._finish(f"The manager wanted {name!r} to speak, who is not on the team.")
        await self._orchestrator.team[name].ask(state.unheard_by(name), instruction, self._ctx)
        state.context.chat_history.append(Message("assistant", instruction, MAGENTIC_MANAGER_NAME))
        return self._keep()

    async def _begin_anew(self) -> bool:
        """A new plan, and an empty conversation. False if work does not go on now: it is reviewed first, or was ended.

        The plan is made before all is forgotten: it has to avoid what went wrong.
        """
        state, most = self._state, self._manager.max_reset_count
        if most is not None and state.context.reset_count >= most:
            await self._finish(f"The work does not get on, and the limit of {most} resets is reached.")
            return False
        known = len(state.context.chat_history)
        await self._take_plan(await self._managing.replan(), REPLANNED)
        state.begin_anew(state.context.chat_history[known:])
        for one in self._orchestrator.team.values():
            if one.can_forget:
                await self._ctx.send_message(MagenticResetSignal(state.resets), target_id=one.name)
        if self._orchestrator.enable_plan_review:
            await self._ask_for_review(is_stalled=True)
            return False
        state.enter_plan()
        return True

    async def _finish(self, because: str | None = None) -> None:
        """The answer, from what there is."""
        state = self._state
        if because is not None:
            note = f"{because} Nobody will work on this any more: answer from what there is, and say what is missing."
            state.context.chat_history.append(Message("user", note))
            text = f"The task {state.context.task!r} ends before it is done. {because}"
            await self._ctx.add_event(WorkflowEvent("warning", text))
        answer = await self._managing.answer()
        state.context.chat_history.append(answer)
        state.dialogue.append(answer)
        state.is_done = True
        self._keep()
        await self._ctx.yield_output(AgentResponse(messages=(answer,)))

    # ------------------------------------------------------------ keeping and telling

    def _keep(self) -> None:
        self._ctx.private[STATE] = self._state

    async def _tell(self, event_type: MagenticOrchestratorEventType, content: Message | MagenticProgressLedger) -> None:
        event = MagenticOrchestratorEvent(event_type, content)
        await self._ctx.add_event(WorkflowEvent("magentic_orchestrator", event))


def _spoken(name: str, messages: Sequence[Message]) -> list[Message]:
    """What the others are told of a reply: its text. Calls of tools stay with the one who made them."""
    spoken = []
    for message in messages:
        if message.role == "tool" or not message.text.strip():
            continue
        is_plain = (
            message.role == "assistant"
            and message.author_name
            and all(part.type == "text" for part in message.contents)
        )
        spoken.append(message if is_plain else Message("assistant", message.text, message.author_name or name))
    return spoken or [Message("assistant", f"({name} gave no answer.)", name)]
