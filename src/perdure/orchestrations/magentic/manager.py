"""Managers of a Magentic team: what one has to do, and the one that has an agent do it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from perdure.agents.adapters import adapted
from perdure.agents.conversation.message import Message
from perdure.agents.conversation.response import AgentResponse, value_in
from perdure.agents.executor import run_arguments
from perdure.agents.recording import heard_by, record_call, working_for
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
from perdure.orchestrations.magentic.prompts import FIELDS, chosen_prompt, filled

T = TypeVar("T")

RETRY_COUNT = 3


class MagenticManagerBase(ABC):
    """Base of managers: a subclass plans, judges progress and gives the answer.

    Each method is given a context of its own. What it adds to `chat_history` is kept; counts are the orchestrator's.
    What it keeps in `self` between calls goes through `on_checkpoint_save` and `on_checkpoint_restore`, as plain data:
    one manager serves many threads, in turns. Each call is recorded as a whole, and not made again once it is.
    """

    value_types: tuple[Any, ...] = ()
    """Types that it keeps, or that its agent's tools give: a checkpoint may hold them."""

    def __init__(
        self, *, max_stall_count: int = 3, max_reset_count: int | None = None, max_round_count: int | None = None
    ) -> None:
        self.max_stall_count = _limit("max_stall_count", max_stall_count, least=0)
        self.max_reset_count = None if max_reset_count is None else _limit("max_reset_count", max_reset_count, least=0)
        self.max_round_count = None if max_round_count is None else _limit("max_round_count", max_round_count, least=1)

    @abstractmethod
    async def plan(self, magentic_context: MagenticContext) -> Message:
        """A first plan, as the team is told it."""

    @abstractmethod
    async def replan(self, magentic_context: MagenticContext) -> Message:
        """Another plan, after one that led nowhere or was sent back. The conversation is still there."""

    @abstractmethod
    async def create_progress_ledger(self, magentic_context: MagenticContext) -> MagenticProgressLedger:
        """Where the work stands, and who speaks next."""

    @abstractmethod
    async def prepare_final_answer(self, magentic_context: MagenticContext) -> Message:
        """The answer, from what there is."""

    def on_checkpoint_save(self) -> dict[str, Any]:
        """What to remember of `self` in this thread."""
        return {}

    def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        """Put back what was saved."""
        return


def _limit(name: str, value: int, *, least: int) -> int:
    if type(value) is not int or value < least:
        raise ValueError(f"{name} is a number of at least {least}, got {value!r}.")
    return value


class _Unusable(ValueError):
    """An answer that cannot be used as it is; `ledger` is what it was, if it was one."""

    def __init__(self, problem: str, ledger: MagenticProgressLedger | None = None) -> None:
        super().__init__(problem)
        self.ledger = ledger


class StandardMagenticManager(MagenticManagerBase):
    """Asks an agent: for the facts, for a plan, for a judgement before each turn, and for the answer.

    An answer that cannot be used (no text, no JSON, a speaker that is not there) is sent back with what is wrong with
    it, `progress_ledger_retry_count` times in all. Then a speaker that is not there is left to the orchestrator, which
    ends the task with what there is; anything else raises WorkflowRunnerException, and a resumed run asks again.

    A `task_ledger` is used as the first plan, in place of asking for one.
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
        given = locals()
        self._prompts = {name: chosen_prompt(name, given[name]) for name in FIELDS}
        self._agent = agent
        self.value_types = types_of(adapted(agent))
        self._name = agent_name(agent)
        self._first_ledger = task_ledger
        self.task_ledger: MagenticTaskLedger | None = None
        """Facts and plan of this thread, once there are any."""
        retries = RETRY_COUNT if progress_ledger_retry_count is None else progress_ledger_retry_count
        self.progress_ledger_retry_count = _limit("progress_ledger_retry_count", retries, least=1)

    # ------------------------------------------------------------ what a manager does

    async def plan(self, magentic_context: MagenticContext) -> Message:
        if self._first_ledger is not None and self.task_ledger is None:
            return self._told(magentic_context, self._first_ledger)
        facts = self._prompt("task_ledger_facts_prompt", task=magentic_context.task)
        return await self._planned(magentic_context, facts, "task_ledger_plan_prompt")

    async def replan(self, magentic_context: MagenticContext) -> Message:
        known = "" if self.task_ledger is None else self.task_ledger.facts.text
        facts = self._prompt("task_ledger_facts_update_prompt", task=magentic_context.task, old_facts=known)
        return await self._planned(magentic_context, facts, "task_ledger_plan_update_prompt")

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
                raise _Unusable(f"There is no {speaker!r} on the team. Choose one of: {', '.join(names)}", ledger)
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

    # ------------------------------------------------------------ planning

    async def _planned(self, context: MagenticContext, facts_prompt: Message, plan_prompt_name: str) -> Message:
        history = context.chat_history
        facts = await self._answer("facts", [*history, facts_prompt], _text)
        plan_prompt = self._prompt(plan_prompt_name, team=_team(context))
        plan = await self._answer("a plan", [*history, facts_prompt, facts, plan_prompt], _text)
        history += [facts_prompt, facts, plan_prompt, plan]
        return self._told(context, MagenticTaskLedger(facts, plan))

    def _told(self, context: MagenticContext, ledger: MagenticTaskLedger) -> Message:
        """Facts and plan as the team is told them."""
        self.task_ledger = ledger
        text = filled(
            self._prompts["task_ledger_full_prompt"],
            task=context.task,
            team=_team(context),
            facts=ledger.facts.text,
            plan=ledger.plan.text,
        )
        return Message("assistant", text, MAGENTIC_MANAGER_NAME)

    def _prompt(self, name: str, **values: Any) -> Message:
        return Message("user", filled(self._prompts[name], **values))

    # ------------------------------------------------------------ asking

    async def _answer(
        self,
        wanted: str,
        conversation: Sequence[Message],
        read: Callable[[AgentResponse], T],
        *,
        response_format: type | None = None,
        is_live: bool = False,
    ) -> T:
        """What `read` makes of the agent's answer. Raises WorkflowRunnerException if it can make nothing of any."""
        given, asked, made_now = list(conversation), 0, 0
        while True:
            asked += 1
            response, is_made = await self._turn(wanted, asked, given, response_format, is_live=is_live)
            made_now += is_made
            try:
                return read(response)
            except ValueError as error:
                ledger: Any = getattr(error, "ledger", None)
                if ledger is not None and asked >= self.progress_ledger_retry_count:
                    return ledger  # type: ignore[no-any-return]  # only where T is one
                # What was answered before a restart does not count: or a resumed run could only fail again.
                if made_now >= self.progress_ledger_retry_count:
                    raise WorkflowRunnerException(
                        f"The manager's agent {self._name!r} was asked for {wanted} {made_now} times, and gave none "
                        f"that can be used. {error}. Its answers are recorded, nothing else was written. Resume the "
                        "thread to have it asked again; clearer instructions for the agent may help."
                    ) from error
                said = [message for message in response.messages if message.text][-1:]
                given += [*said, Message("user", f"This cannot be used: {error}\nGive {wanted} as it was asked for.")]

    async def _turn(
        self, wanted: str, number: int, messages: list[Message], response_format: type | None, *, is_live: bool
    ) -> tuple[AgentResponse, bool]:
        """The agent's answer, and whether it was made just now rather than found among the records."""
        is_made = False

        async def ask(wanted: str, number: int) -> AgentResponse:
            nonlocal is_made
            is_made = True
            context = working_for()
            options = {} if context is None else run_arguments(context)
            if response_format is not None and getattr(self._agent, "records_itself", False):
                options["response_format"] = response_format
            if is_live and context is not None:
                return await take_live_turn(self._agent, messages, **options)
            with heard_by(None):  # plans and judgements are no part of the answer, whoever listens
                return await take_turn(self._agent, messages, **options)

        # Known by what is asked for, not by what was said: a message that comes in between is no other question.
        response = await record_call(ask, wanted, number, name=f"{MAGENTIC_MANAGER_NAME}.ask")
        return response, is_made


def _team(context: MagenticContext) -> str:
    return "\n".join(f"- {name}: {what}" for name, what in context.participant_descriptions.items())


def _text(response: AgentResponse) -> Message:
    """The last message that says something."""
    found = next((message for message in reversed(response.messages) if message.text.strip()), None)
    if found is None:
        raise _Unusable("It has no text.")
    return found
