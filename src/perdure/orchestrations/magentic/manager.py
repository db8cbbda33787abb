"""Managers of a Magentic team: the base class, and a manager that asks an agent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from perdure.agents.adapters import adapt_agent
from perdure.agents.conversation.message import Message
from perdure.agents.conversation.response import AgentResponse, value_in
from perdure.agents.executor import run_arguments
from perdure.agents.recording import current_delivery, emit_updates_to, record_call
from perdure.agents.tools import types_of
from perdure.agents.turn import take_live_turn, take_turn
from perdure.errors import WorkflowRunnerException
from perdure.graph.sub_workflow import agent_name
from perdure.orchestrations.magentic.ledger import (
    MAGENTIC_MANAGER_NAME,
    MagenticContext,
    MagenticProgressLedger,
    MagenticTaskLedger,
    ProgressAnswer,
)
from perdure.orchestrations.magentic.prompts import FIELDS, choose_prompt, fill

T = TypeVar("T")

RETRY_COUNT = 3


class MagenticManagerBase(ABC):
    """Base of managers: a subclass plans, judges the progress and gives the answer.

    Each method gets its own copy of the context. Its changes of `chat_history` are stored; the orchestrator keeps the
    counts. State in `self` between calls is saved by `on_checkpoint_save` and `on_checkpoint_restore`, as plain data:
    one manager serves many threads. Each call is recorded as a whole, and a recorded call is not repeated.
    """

    value_types: tuple[Any, ...] = ()
    """Types of its state, and of results of its agent's tools: a checkpoint may hold them."""

    def __init__(
        self, *, max_stall_count: int = 3, max_reset_count: int | None = None, max_round_count: int | None = None
    ) -> None:
        self.max_stall_count = _at_least("max_stall_count", max_stall_count, minimum=0)
        self.max_reset_count = (
            None if max_reset_count is None else _at_least("max_reset_count", max_reset_count, minimum=0)
        )
        self.max_round_count = (
            None if max_round_count is None else _at_least("max_round_count", max_round_count, minimum=1)
        )

    @abstractmethod
    async def plan(self, magentic_context: MagenticContext) -> Message:
        """A first plan, for the team."""

    @abstractmethod
    async def replan(self, magentic_context: MagenticContext) -> Message:
        """Another plan, after a stall or a review. The conversation is complete."""

    @abstractmethod
    async def create_progress_ledger(self, magentic_context: MagenticContext) -> MagenticProgressLedger:
        """The state of the work, and the next speaker."""

    @abstractmethod
    async def prepare_final_answer(self, magentic_context: MagenticContext) -> Message:
        """The answer from the conversation so far."""

    def on_checkpoint_save(self) -> dict[str, Any]:
        """The state of `self` to save in this thread."""
        return {}

    def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        """Restore the saved state."""
        return


def _at_least(name: str, value: int, *, minimum: int) -> int:
    if type(value) is not int or value < minimum:
        raise ValueError(f"{name} is a number of at least {minimum}, got {value!r}.")
    return value


class _Unusable(ValueError):
    """An unusable answer; `ledger` is its content, if it is a ledger."""

    def __init__(self, problem: str, ledger: MagenticProgressLedger | None = None) -> None:
        super().__init__(problem)
        self.ledger = ledger


class StandardMagenticManager(MagenticManagerBase):
    """Asks an agent for the facts, for a plan, for a judgement before each turn, and for the answer.

    An unusable answer (no text, no JSON, an unknown speaker) is returned to the agent with its problem,
    `progress_ledger_retry_count` times in all. Then an unknown speaker is passed to the orchestrator, which ends the
    task with an answer; other problems raise WorkflowRunnerException, and a resumed run asks again.

    A `task_ledger` replaces the first plan.
    """

    def __init__(
        self,
        agent: Any,
        task_ledger: MagenticTaskLedger | None = None,
        *,
        task_ledger_facts_prompt: str | None = None,
        task_ledger_plan_prompt: str | None = None,
        task_ledger_full_prompt: str | None = None,
        task_ledger_facts_update_prompt: str | None = None,
        task_ledger_plan_update_prompt: str | None = None,
        progress_ledger_prompt: str | None = None,
        final_answer_prompt: str | None = None,
        max_stall_count: int = 3,
        max_reset_count: int | None = None,
        max_round_count: int | None = None,
        progress_ledger_retry_count: int | None = None,
    ) -> None:
        super().__init__(
            max_stall_count=max_stall_count, max_reset_count=max_reset_count, max_round_count=max_round_count
        )
        if task_ledger is not None and not isinstance(task_ledger, MagenticTaskLedger):
            raise TypeError(f"task_ledger is a MagenticTaskLedger(facts, plan), got {task_ledger!r}.")
        arguments = locals()
        self._prompts = {name: choose_prompt(name, arguments[name]) for name in FIELDS}
        self._agent = agent
        self.value_types = types_of(adapt_agent(agent))
        self._name = agent_name(agent)
        self._first_ledger = task_ledger
        self.task_ledger: MagenticTaskLedger | None = None
        """Facts and plan of this thread, if known."""
        retries = RETRY_COUNT if progress_ledger_retry_count is None else progress_ledger_retry_count
        self.progress_ledger_retry_count = _at_least("progress_ledger_retry_count", retries, minimum=1)

    async def plan(self, magentic_context: MagenticContext) -> Message:
        if self._first_ledger is not None and self.task_ledger is None:
            return self._plan_message(magentic_context, self._first_ledger)
        facts = self._prompt("task_ledger_facts_prompt", task=magentic_context.task)
        return await self._ask_for_plan(magentic_context, facts, "task_ledger_plan_prompt")

    async def replan(self, magentic_context: MagenticContext) -> Message:
        known = "" if self.task_ledger is None else self.task_ledger.facts.text
        facts = self._prompt("task_ledger_facts_update_prompt", task=magentic_context.task, old_facts=known)
        return await self._ask_for_plan(magentic_context, facts, "task_ledger_plan_update_prompt")

    async def create_progress_ledger(self, magentic_context: MagenticContext) -> MagenticProgressLedger:
        names = list(magentic_context.participant_descriptions)
        prompt = self._prompt(
            "progress_ledger_prompt",
            task=magentic_context.task,
            team=_team(magentic_context),
            names=", ".join(names),
        )

        def read(response: AgentResponse) -> MagenticProgressLedger:
            ledger = value_in(response, ProgressAnswer).ledger()
            speaker = str(ledger.next_speaker.answer)
            if not ledger.is_request_satisfied.answer and speaker not in names:
                raise _Unusable(f"{speaker!r} is not on the team. Choose one of: {', '.join(names)}", ledger)
            return ledger

        conversation = [*magentic_context.chat_history, prompt]
        return await self._answer("a progress ledger", conversation, read, response_format=ProgressAnswer)

    async def prepare_final_answer(self, magentic_context: MagenticContext) -> Message:
        prompt = self._prompt("final_answer_prompt", task=magentic_context.task)
        return await self._answer("a final answer", [*magentic_context.chat_history, prompt], _text, is_live=True)

    def on_checkpoint_save(self) -> dict[str, Any]:
        return {} if self.task_ledger is None else {"task_ledger": self.task_ledger}

    def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.task_ledger = state.get("task_ledger")

    async def _ask_for_plan(self, context: MagenticContext, facts_prompt: Message, plan_prompt_name: str) -> Message:
        history = context.chat_history
        facts = await self._answer("facts", [*history, facts_prompt], _text)
        plan_prompt = self._prompt(plan_prompt_name, team=_team(context))
        plan = await self._answer("a plan", [*history, facts_prompt, facts, plan_prompt], _text)
        history += [facts_prompt, facts, plan_prompt, plan]
        return self._plan_message(context, MagenticTaskLedger(facts, plan))

    def _plan_message(self, context: MagenticContext, ledger: MagenticTaskLedger) -> Message:
        """Facts and plan as a message for the team."""
        self.task_ledger = ledger
        text = fill(
            self._prompts["task_ledger_full_prompt"],
            task=context.task,
            team=_team(context),
            facts=ledger.facts.text,
            plan=ledger.plan.text,
        )
        return Message("assistant", text, MAGENTIC_MANAGER_NAME)

    def _prompt(self, name: str, **values: Any) -> Message:
        return Message("user", fill(self._prompts[name], **values))

    async def _answer(
        self,
        wanted: str,
        conversation: Sequence[Message],
        read: Callable[[AgentResponse], T],
        *,
        response_format: type | None = None,
        is_live: bool = False,
    ) -> T:
        """The result of `read` for a usable answer. Raises WorkflowRunnerException if no attempt is left."""
        messages, attempts, new_attempts = list(conversation), 0, 0
        while True:
            attempts += 1
            response, is_new = await self._turn(wanted, attempts, messages, response_format, is_live=is_live)
            new_attempts += is_new
            try:
                return read(response)
            except ValueError as error:
                ledger: Any = getattr(error, "ledger", None)
                if ledger is not None and attempts >= self.progress_ledger_retry_count:
                    return ledger  # type: ignore[no-any-return]  # only where T is one
                # Replayed answers do not count: otherwise a resumed run could only fail again.
                if new_attempts >= self.progress_ledger_retry_count:
                    raise WorkflowRunnerException(
                        f"The manager's agent {self._name!r} was asked for {wanted} {new_attempts} times, and gave no "
                        f"usable answer. {error}. Its answers are recorded, nothing else was written. Resume the "
                        "thread to ask it again; clearer instructions for the agent may help."
                    ) from error
                last = [message for message in response.messages if message.text][-1:]
                messages += [
                    *last,
                    Message("user", f"This cannot be used: {error}\nGive {wanted} as it was asked for."),
                ]

    async def _turn(
        self, wanted: str, number: int, messages: list[Message], response_format: type | None, *, is_live: bool
    ) -> tuple[AgentResponse, bool]:
        """The agent's answer, and whether it is new, not replayed."""
        is_new = False

        async def ask(wanted: str, number: int) -> AgentResponse:
            nonlocal is_new
            is_new = True
            context = current_delivery()
            options = {} if context is None else run_arguments(context)
            if response_format is not None and getattr(self._agent, "records_itself", False):
                options["response_format"] = response_format
            if is_live and context is not None:
                return await take_live_turn(self._agent, messages, **options)
            with emit_updates_to(None):  # plans and judgements are not part of the answer
                return await take_turn(self._agent, messages, **options)

        # The key is the question, not the conversation: a message that arrives meanwhile does not change the question.
        response = await record_call(ask, wanted, number, name=f"{MAGENTIC_MANAGER_NAME}.ask")
        return response, is_new


def _team(context: MagenticContext) -> str:
    return "\n".join(f"- {name}: {what}" for name, what in context.participant_descriptions.items())


def _text(response: AgentResponse) -> Message:
    """The last message with text."""
    message = next((message for message in reversed(response.messages) if message.text.strip()), None)
    if message is None:
        raise _Unusable("It has no text.")
    return message
