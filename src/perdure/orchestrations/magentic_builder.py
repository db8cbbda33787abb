"""MagenticBuilder: a manager plans, instructs participants, judges their progress, and replans after stalls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Self, TypeAlias, TypeVar, Unpack

from perdure.agents.conversation.message import AgentSession, Message, as_messages
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.executor import AgentExecutor, AgentExecutorRequest, AgentExecutorResponse, session_id_for
from perdure.agents.recording import current_delivery, record_call
from perdure.errors import TypeCompatibilityError
from perdure.events import WorkflowEvent
from perdure.graph.context import WorkflowContext
from perdure.graph.executor import Executor, accepts
from perdure.graph.handlers import handler, response_handler
from perdure.names import check_options
from perdure.orchestrations.group_chat import (
    GroupChatParticipantMessage,
    GroupChatRequestMessage,
    GroupChatRequestSentEvent,
    GroupChatResponseMessage,
    GroupChatResponseReceivedEvent,
)
from perdure.orchestrations.magentic import (
    MAGENTIC_MANAGER_NAME,
    MagenticContext,
    MagenticManagerBase,
    MagenticOrchestratorEvent,
    MagenticOrchestratorEventType,
    MagenticPlanReviewRequest,
    MagenticPlanReviewResponse,
    MagenticProgressLedger,
    MagenticResetSignal,
    MagenticState,
    MagenticTaskLedger,
    ManagerOutcome,
    check_result,
)
from perdure.orchestrations.magentic_manager import MANAGERS, ManagerOptions, choose_manager
from perdure.orchestrations.participants import TeamBuilder, TeamSettings, UserInput, read_participants
from perdure.workflows.builder import DEFAULT_MAX_ITERATIONS
from perdure.workflows.workflow import Workflow

T = TypeVar("T")
NO_DESCRIPTION = "(no description: the name says what they do)"


class MagenticAgentExecutor(AgentExecutor):
    """An agent of the team. A reset gives it a new session without earlier messages."""

    @handler
    async def handle_magentic_reset(self, signal: MagenticResetSignal, ctx: WorkflowContext) -> None:
        ctx.private.clear()
        # A new id too: services that store conversations by id must not find the old one.
        ctx.private["session"] = AgentSession(session_id=f"{session_id_for(ctx)}/{signal.reset_count}")


ORCHESTRATOR_ID = "magentic_orchestrator"
STATE = "magentic"
"""The key of the MagenticState in the orchestrator's private state."""
Context: TypeAlias = WorkflowContext[
    AgentExecutorRequest | GroupChatParticipantMessage | GroupChatRequestMessage | MagenticResetSignal, AgentResponse
]


class MagenticOrchestrator(Executor):
    """Carries out the manager's decisions. `self` holds no state of a thread but the manager's own."""

    streams_output = True

    def __init__(
        self,
        make_manager: Callable[[], MagenticManagerBase],
        team: Mapping[str, Executor],
        descriptions: Mapping[str, str],
        *,
        enable_plan_review: bool = False,
    ) -> None:
        super().__init__(ORCHESTRATOR_ID)
        self.manager = make_manager()
        if not isinstance(self.manager, MagenticManagerBase):
            raise TypeError(f"A manager is a MagenticManagerBase, got {self.manager!r}.")
        self.value_types = tuple(getattr(self.manager, "value_types", ()))
        self.team = team
        self.descriptions = descriptions
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
        state = MagenticState(MagenticContext(task, participant_descriptions=dict(self.descriptions)))
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
        self._calls = 0
        if self._state.manager:
            self._manager.on_checkpoint_restore(dict(self._state.manager))

    async def plan(self) -> None:
        """Plan a new task."""
        await self._set_plan(self._manager.plan, MagenticOrchestratorEventType.PLAN_CREATED)
        await self._review_or_work(is_stalled=False)

    async def revise(self, request: MagenticPlanReviewRequest, review: list[Message]) -> None:
        """Replan after a review."""
        self._state.add_from_user(review)
        await self._set_plan(self._manager.replan, MagenticOrchestratorEventType.REPLANNED)
        await self._review_or_work(is_stalled=request.is_stalled)

    async def _set_plan(
        self, method: Callable[[MagenticContext], Awaitable[Message]], event_type: MagenticOrchestratorEventType
    ) -> None:
        self._state.plan = plan = await self._call(method, Message)
        await self._emit(event_type, plan)

    async def _review_or_work(self, *, is_stalled: bool) -> None:
        if self._orchestrator.enable_plan_review:
            await self._ask_for_review(is_stalled=is_stalled)
        else:
            await self.work()

    async def _ask_for_review(self, *, is_stalled: bool) -> None:
        state, delivery = self._state, current_delivery()
        assert state.plan is not None and delivery is not None  # noqa: S101, PT018  # handlers run in a delivery
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
        received = GroupChatResponseReceivedEvent(state.context.round_count, name)
        await self._ctx.add_event(WorkflowEvent("group_chat", received))
        if state.is_done:
            return
        state.context.chat_history += _text_messages(name, messages)
        state.seen[name] = len(state.context.chat_history)
        state.has_begun = state.has_work = True
        await self._advance()

    async def _advance(self) -> None:
        """Judge the progress, and ask the next participant. At most one new plan comes before the next reply."""
        context, maximum = self._state.context, self._manager.max_round_count
        while maximum is None or context.round_count < maximum:
            context.round_count += 1
            ledger = self._state.progress = await self._call(
                self._manager.create_progress_ledger, MagenticProgressLedger
            )
            await self._emit(MagenticOrchestratorEventType.PROGRESS_LEDGER_UPDATED, ledger)
            if ledger.is_request_satisfied.answer:
                return await self._finish()
            context.stall_count = context.stall_count + 1 if ledger.is_stalled else max(0, context.stall_count - 1)
            is_bounded = self._manager.max_reset_count is not None
            if context.stall_count <= self._manager.max_stall_count or not (self._state.has_begun or is_bounded):
                return await self._instruct(ledger)
            if not await self._reset():
                return None
        return await self._finish(f"The limit of {maximum} rounds is reached.", "round")

    async def _instruct(self, ledger: MagenticProgressLedger) -> None:
        """Ask the next participant, with the messages that it has not seen and the instruction."""
        state = self._state
        name, instruction = ledger.next_speaker.answer, str(ledger.instruction_or_question.answer)
        if not isinstance(name, str) or name not in self._orchestrator.team:
            return await self._finish(f"The manager selected {name!r}, which is not on the team.")
        new = state.context.chat_history[state.seen.get(name, state.begins_at) :]
        await self._ask(name, new, instruction)
        sent = GroupChatRequestSentEvent(state.context.round_count, name)
        await self._ctx.add_event(WorkflowEvent("group_chat", sent))
        state.context.chat_history.append(Message("assistant", instruction, MAGENTIC_MANAGER_NAME))
        return self._save()

    async def _ask(self, name: str, new: list[Message], instruction: str) -> None:
        """Send a participant one AgentExecutorRequest, or the new messages and then a request to speak."""
        executor = self._orchestrator.team[name]
        if accepts(executor, AgentExecutorRequest):
            request = Message("user", instruction, MAGENTIC_MANAGER_NAME)
            await self._ctx.send_message(AgentExecutorRequest([*new, request]), target_id=name)
            return
        if accepts(executor, GroupChatParticipantMessage):
            await self._ctx.send_message(GroupChatParticipantMessage(new), target_id=name)
        await self._ctx.send_message(GroupChatRequestMessage(instruction), target_id=name)

    async def _reset(self) -> bool:
        """Make a new plan, and clear the conversation. False if work does not continue now: it waits for a review, or
        has ended.

        The plan is made before the conversation is cleared: it has to avoid earlier errors.
        """
        state, maximum = self._state, self._manager.max_reset_count
        if maximum is not None and state.context.reset_count >= maximum:
            await self._finish(f"The work does not progress, and the limit of {maximum} resets is reached.", "reset")
            return False
        await self._set_plan(self._manager.replan, MagenticOrchestratorEventType.REPLANNED)
        state.reset()
        for name, executor in self._orchestrator.team.items():
            if accepts(executor, MagenticResetSignal):
                await self._ctx.send_message(MagenticResetSignal(state.resets), target_id=name)
        if self._orchestrator.enable_plan_review:
            await self._ask_for_review(is_stalled=True)
            return False
        state.enter_plan()
        return True

    async def _finish(self, because: str | None = None, limit: str | None = None) -> None:
        """End with an answer from the conversation so far. A limit before any work leaves nothing to answer from."""
        state = self._state
        if because is not None:
            note = f"{because} The work has ended: answer from the conversation so far, and name what is missing."
            state.context.chat_history.append(Message("user", note))
            text = f"The task {state.context.task!r} ends before it is done. {because}"
            await self._ctx.add_event(WorkflowEvent("warning", text))
        if limit is None or state.has_work:
            answer = await self._call(self._manager.prepare_final_answer, Message)
        else:
            text = f"Workflow terminated due to reaching maximum {limit} count."
            answer = Message("assistant", text, MAGENTIC_MANAGER_NAME)
        state.context.chat_history.append(answer)
        state.dialogue.append(answer)
        state.is_done = True
        self._save()
        await self._ctx.yield_output(AgentResponse(messages=(answer,)))

    async def _call(self, method: Callable[[MagenticContext], Awaitable[T]], expected: type[T]) -> T:
        """The result of the manager's method, recorded with the manager's state."""
        self._calls += 1
        manager, context = self._manager, self._state.context

        async def call() -> ManagerOutcome:
            before = dict(manager.on_checkpoint_save())
            try:
                value = await method(context.clone(deep=True))
                # Before it is recorded: a resumed run asks again.
                check_result(value, expected, f"{type(manager).__name__}.{method.__name__}", context.task)
            except BaseException:
                manager.on_checkpoint_restore(before)
                raise
            return ManagerOutcome(value, dict(manager.on_checkpoint_save()))

        name = f"{MAGENTIC_MANAGER_NAME}.{method.__name__}"
        outcome = await record_call(call, name=name, key=str(self._calls), is_shown=False)
        manager.on_checkpoint_restore(dict(outcome.manager))
        self._state.manager = outcome.manager
        value: T = outcome.value
        return value

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


class MagenticOptions(TeamSettings, ManagerOptions, total=False):
    """The settings of the team, and the options of a manager that asks an agent."""


class MagenticBuilder(TeamBuilder):
    """`MagenticBuilder(participants=[researcher, writer], manager_agent=manager).build()`.

    The manager is an agent, a MagenticManagerBase, or a function that makes one of these: exactly one of the four. The
    prompts, `task_ledger` and the limits apply to an agent; a manager has its own. The output is the manager's final
    answer, an AgentResponse. With `enable_plan_review` each plan waits for approval.
    """

    KIND = "magentic"

    def __init__(
        self,
        *,
        participants: Sequence[Any],
        manager: MagenticManagerBase | None = None,
        manager_factory: Callable[[], MagenticManagerBase] | None = None,
        manager_agent: Any = None,
        manager_agent_factory: Callable[[], Any] | None = None,
        task_ledger: MagenticTaskLedger | None = None,
        enable_plan_review: bool = False,
        **options: Unpack[MagenticOptions],
    ) -> None:
        check_options(type(self).__name__, options, MagenticOptions.__annotations__)
        manager_options: dict[str, Any] = dict(options)
        settings: Any = {name: manager_options.pop(name) for name in options if name in TeamSettings.__annotations__}
        super().__init__(settings)
        self._team = read_participants(participants, must_have_names=True)
        self._enable_plan_review = enable_plan_review
        managers = dict(zip(MANAGERS, (manager, manager_agent, manager_factory, manager_agent_factory), strict=True))
        self._make_manager = choose_manager(managers, {**manager_options, "task_ledger": task_ledger})

    def with_plan_review(self, enable: bool = True) -> Self:
        """Request approval of each plan before the team works on it."""
        self._enable_plan_review = enable
        return self

    def build(self) -> Workflow:
        """Raises WorkflowValidationError or ValueError."""
        if self._make_manager is None:
            raise ValueError(f"No manager configured. Pass one of {', '.join(MANAGERS)}.")
        executors = {participant.name: participant.executor(MagenticAgentExecutor) for participant in self._team}
        descriptions = {participant.name: participant.description or NO_DESCRIPTION for participant in self._team}
        orchestrator = MagenticOrchestrator(
            self._make_manager, executors, descriptions, enable_plan_review=self._enable_plan_review
        )
        rounds = orchestrator.manager.max_round_count
        iterations = DEFAULT_MAX_ITERATIONS if rounds is None else max(DEFAULT_MAX_ITERATIONS, 2 * rounds + 2)
        builder = self._workflow_builder(self._team, orchestrator, always=[ORCHESTRATOR_ID], max_iterations=iterations)
        for executor in executors.values():
            if not accepts(executor, AgentExecutorRequest) and not accepts(executor, GroupChatRequestMessage):
                sent = [AgentExecutorRequest, GroupChatRequestMessage]
                raise TypeCompatibilityError(ORCHESTRATOR_ID, executor.id, sent, executor.input_types)
            builder.add_edge(orchestrator, executor).add_edge(executor, orchestrator)
        return builder.build()
