"""A manager of a Magentic team that asks an agent, with its prompts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from string import Formatter
from typing import Any, TypedDict, TypeVar, Unpack

from perdure.agents.base import adapt_agent, agent_name, take_live_turn, take_turn
from perdure.agents.conversation.message import Message
from perdure.agents.conversation.response import AgentResponse, value_in
from perdure.agents.executor import run_arguments
from perdure.agents.recording import current_delivery, emit_updates_to, record_call
from perdure.agents.tools import types_of
from perdure.errors import AgentFailed
from perdure.graph.graph import is_agent
from perdure.log import get_logger
from perdure.names import check_options
from perdure.orchestrations.magentic import (
    MAGENTIC_MANAGER_NAME,
    MagenticContext,
    MagenticManagerBase,
    MagenticProgressLedger,
    MagenticTaskLedger,
    ProgressAnswer,
    check_number,
)

T = TypeVar("T")
logger = get_logger(__name__)
RETRY_COUNT = 3

ORCHESTRATOR_TASK_LEDGER_FACTS_PROMPT = """\
Here is a task:

{task}

Before anybody starts, take stock of it. Write four short lists, under these headings:

GIVEN: facts, names and numbers that the task states.
TO LOOK UP: facts that the team has to find, and where they may be found.
TO WORK OUT: what follows from facts by calculation or reasoning.
GUESSES: what you believe from memory or intuition, and would want to have checked.

A list may be empty: then write "none" under its heading. Write no plan and no next steps yet."""

ORCHESTRATOR_TASK_LEDGER_PLAN_PROMPT = """\
Only the people on your team can do the work:

{team}

Write a short plan for the task, as a list of steps. Name for each step who does it and what comes out of it. Not
everybody has to take part."""

ORCHESTRATOR_TASK_LEDGER_FULL_PROMPT = """\
The team works on this task:

{task}

The team:

{team}

What is known so far:

{facts}

The plan:

{plan}"""

ORCHESTRATOR_TASK_LEDGER_FACTS_UPDATE_PROMPT = """\
The work on the task below does not get on as planned. Its task, again:

{task}

Go over the four lists of facts. Put what was found out since where it belongs, drop what turned out to be wrong, and
add at least one new guess that could help, with the reason for it. Write all lists again, in full.

The lists as they were:

{old_facts}"""

ORCHESTRATOR_TASK_LEDGER_PLAN_UPDATE_PROMPT = """\
Say in one or two sentences why the last plan did not work. Then write a new one that avoids this: a list of steps, each
with who does it and what comes out of it. The team is still:

{team}"""

ORCHESTRATOR_PROGRESS_LEDGER_PROMPT = """\
The task, again:

{task}

The team:

{team}

Judge where the work stands, from the conversation so far:

- is_request_satisfied: is the task done, wholly and well? True only if nothing is left to do.
- is_in_loop: are the same requests and answers coming up again and again, over more than one turn?
- is_progress_being_made: did the last turns bring the task forward? False if they added nothing, or if something blocks
  the work.
- next_speaker: who should speak next? One of: {names}
- instruction_or_question: what would you say to them now? Address them directly, and give them what they need to know.

Answer with one JSON object of this form, and with nothing else:

{{
  "is_request_satisfied": {{"reason": "...", "answer": true or false}},
  "is_in_loop": {{"reason": "...", "answer": true or false}},
  "is_progress_being_made": {{"reason": "...", "answer": true or false}},
  "next_speaker": {{"reason": "...", "answer": "one of the names"}},
  "instruction_or_question": {{"reason": "...", "answer": "what you say to them"}}
}}"""

ORCHESTRATOR_FINAL_ANSWER_PROMPT = """\
The work on this task has ended:

{task}

Give the one who set the task their answer now, from what the conversation brought to light. Speak to them directly, and
do not write about the team or about how the work went, unless they asked for that."""

DEFAULTS: dict[str, str] = {
    "task_ledger_facts_prompt": ORCHESTRATOR_TASK_LEDGER_FACTS_PROMPT,
    "task_ledger_plan_prompt": ORCHESTRATOR_TASK_LEDGER_PLAN_PROMPT,
    "task_ledger_full_prompt": ORCHESTRATOR_TASK_LEDGER_FULL_PROMPT,
    "task_ledger_facts_update_prompt": ORCHESTRATOR_TASK_LEDGER_FACTS_UPDATE_PROMPT,
    "task_ledger_plan_update_prompt": ORCHESTRATOR_TASK_LEDGER_PLAN_UPDATE_PROMPT,
    "progress_ledger_prompt": ORCHESTRATOR_PROGRESS_LEDGER_PROMPT,
    "final_answer_prompt": ORCHESTRATOR_FINAL_ANSWER_PROMPT,
}


class ManagerOptions(TypedDict, total=False):
    """Prompts that replace the default ones, and the limits of the work."""

    task_ledger_facts_prompt: str | None
    task_ledger_plan_prompt: str | None
    task_ledger_full_prompt: str | None
    task_ledger_facts_update_prompt: str | None
    task_ledger_plan_update_prompt: str | None
    progress_ledger_prompt: str | None
    final_answer_prompt: str | None
    max_stall_count: int
    max_reset_count: int | None
    max_round_count: int | None


def choose_prompt(name: str, prompt: str | None) -> str:
    """The prompt, or the default. It may name the fields that the default names. Raises ValueError or TypeError for a
    prompt that cannot be filled in."""
    if prompt is None:
        return DEFAULTS[name]
    if not isinstance(prompt, str):
        raise TypeError(f"{name} is a text, got {prompt!r}.")
    fields = dict.fromkeys((field for _, field, _, _ in Formatter().parse(DEFAULTS[name]) if field), "")
    try:
        prompt.format(**fields)
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        known = ", ".join(f"{{{field}}}" for field in fields)
        raise ValueError(
            f"{name} cannot be filled in ({type(error).__name__}: {error}). It may name {known}; other braces, such as "
            "those of JSON, are written twice: {{ and }}."
        ) from error
    return prompt


class UnusableAnswer(ValueError):
    """An unusable answer; `ledger` is its content, if it is a ledger."""

    def __init__(self, problem: str, ledger: MagenticProgressLedger | None = None) -> None:
        super().__init__(problem)
        self.ledger = ledger


class StandardMagenticManager(MagenticManagerBase):
    """Asks an agent for the facts, for a plan, for a judgement before each turn, and for the answer.

    An unusable answer (no text, no JSON, an unknown speaker) is returned to the agent with its problem,
    `progress_ledger_retry_count` times in all. Then an unknown speaker is passed to the orchestrator, which ends the
    task with an answer; other problems raise AgentFailed, and a resumed run asks again.

    A `task_ledger` replaces the first plan. The prompts are attributes with the names of the options.
    """

    def __init__(
        self,
        agent: Any,
        task_ledger: MagenticTaskLedger | None = None,
        *,
        progress_ledger_retry_count: int | None = None,
        **options: Unpack[ManagerOptions],
    ) -> None:
        check_options(type(self).__name__, options, ManagerOptions.__annotations__)
        limits: dict[str, Any] = dict(options)
        for name in DEFAULTS:
            setattr(self, name, choose_prompt(name, limits.pop(name, None)))
        super().__init__(**limits)
        if task_ledger is not None and not isinstance(task_ledger, MagenticTaskLedger):
            raise TypeError(f"task_ledger is a MagenticTaskLedger(facts, plan), got {task_ledger!r}.")
        self._agent = agent
        self.value_types = types_of(adapt_agent(agent))
        self._name = agent_name(agent)
        self._first_ledger = task_ledger
        self.task_ledger: MagenticTaskLedger | None = None
        """Facts and plan of this thread, if known."""
        retries = RETRY_COUNT if progress_ledger_retry_count is None else progress_ledger_retry_count
        self.progress_ledger_retry_count = check_number("progress_ledger_retry_count", retries, minimum=1)

    async def plan(self, magentic_context: MagenticContext) -> Message:
        if self._first_ledger is not None and self.task_ledger is None:
            return self._plan_message(magentic_context, self._first_ledger)
        facts = self._prompt("task_ledger_facts_prompt", magentic_context)
        return await self._ask_for_plan(magentic_context, facts, "task_ledger_plan_prompt")

    async def replan(self, magentic_context: MagenticContext) -> Message:
        known = "" if self.task_ledger is None else self.task_ledger.facts.text
        facts = self._prompt("task_ledger_facts_update_prompt", magentic_context, old_facts=known)
        return await self._ask_for_plan(magentic_context, facts, "task_ledger_plan_update_prompt")

    async def create_progress_ledger(self, magentic_context: MagenticContext) -> MagenticProgressLedger:
        names = list(magentic_context.participant_descriptions)
        prompt = self._prompt("progress_ledger_prompt", magentic_context, names=", ".join(names))

        def read(response: AgentResponse) -> MagenticProgressLedger:
            ledger = value_in(response, ProgressAnswer).ledger()
            speaker = str(ledger.next_speaker.answer)
            if not ledger.is_request_satisfied.answer and speaker not in names:
                raise UnusableAnswer(f"{speaker!r} is not on the team. Choose one of: {', '.join(names)}", ledger)
            return ledger

        conversation = [*magentic_context.chat_history, prompt]
        return await self._answer("a progress ledger", conversation, read, response_format=ProgressAnswer)

    async def prepare_final_answer(self, magentic_context: MagenticContext) -> Message:
        prompt = self._prompt("final_answer_prompt", magentic_context)
        return await self._answer("a final answer", [*magentic_context.chat_history, prompt], _text, is_live=True)

    def on_checkpoint_save(self) -> dict[str, Any]:
        return {} if self.task_ledger is None else {"task_ledger": self.task_ledger}

    def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.task_ledger = state.get("task_ledger")

    async def _ask_for_plan(self, context: MagenticContext, facts_prompt: Message, plan_prompt_name: str) -> Message:
        history = context.chat_history
        facts = await self._answer("facts", [*history, facts_prompt], _text)
        plan_prompt = self._prompt(plan_prompt_name, context)
        plan = await self._answer("a plan", [*history, facts_prompt, facts, plan_prompt], _text)
        history += [facts_prompt, facts, plan_prompt, plan]
        return self._plan_message(context, MagenticTaskLedger(facts, plan))

    def _plan_message(self, context: MagenticContext, ledger: MagenticTaskLedger) -> Message:
        """Facts and plan as a message for the team."""
        self.task_ledger = ledger
        facts, plan = ledger.facts.text, ledger.plan.text
        prompt = self._prompt("task_ledger_full_prompt", context, facts=facts, plan=plan)
        return Message("assistant", prompt.text, MAGENTIC_MANAGER_NAME)

    def _prompt(self, prompt_name: str, context: MagenticContext, **values: str) -> Message:
        team = "\n".join(f"- {name}: {what}" for name, what in context.participant_descriptions.items())
        return Message("user", str(getattr(self, prompt_name)).format(task=context.task, team=team, **values))

    async def _answer(
        self,
        wanted: str,
        conversation: Sequence[Message],
        read: Callable[[AgentResponse], T],
        *,
        response_format: type | None = None,
        is_live: bool = False,
    ) -> T:
        """The result of `read` for a usable answer. Raises AgentFailed if no attempt is left."""
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
                    raise AgentFailed(
                        self._name,
                        f"it was asked for {wanted} {new_attempts} times, and gave no usable answer. {error}.",
                        "Its answers are recorded, nothing else was written. Resume the thread to ask it again; "
                        "clearer instructions for the agent may help.",
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
        response = await record_call(ask, wanted, number, name=f"{MAGENTIC_MANAGER_NAME}.ask", is_shown=False)
        return response, is_new


def _text(response: AgentResponse) -> Message:
    """The last message with text."""
    message = next((message for message in reversed(response.messages) if message.text.strip()), None)
    if message is None:
        raise UnusableAnswer("It has no text.")
    return message


MANAGERS = ("manager", "manager_agent", "manager_factory", "manager_agent_factory")


def choose_manager(managers: Mapping[str, Any], options: Mapping[str, Any]) -> Callable[[], MagenticManagerBase] | None:
    """A function that makes a manager; None without one. Raises ValueError or TypeError for invalid arguments."""
    named = [name for name, manager in managers.items() if manager is not None]
    set_options: dict[str, Any] = {name: option for name, option in options.items() if option is not None}
    if not named:
        return None
    if len(named) > 1:
        choices = f"{', '.join(MANAGERS[:-1])}, or {MANAGERS[-1]}"
        raise ValueError(f"Exactly one of {choices} must be provided, got {' and '.join(named)}.")
    name, chosen = named[0], managers[named[0]]
    if name in ("manager", "manager_factory") and set_options:
        logger.warning("MagenticBuilder ignores %s: a %s has its own. Set it there.", ", ".join(set_options), name)
    if name == "manager":
        if not isinstance(chosen, MagenticManagerBase):
            raise TypeError(f"manager= expects a MagenticManagerBase, got {chosen!r}. For an agent: manager_agent=.")
        unused, own = copy.copy(chosen), iter([chosen])
        return lambda: next(own, None) or copy.copy(unused)
    if name.endswith("factory") and not callable(chosen):
        raise TypeError(f"{name}= expects a function, got {chosen!r}.")
    if name == "manager_factory":
        return chosen  # type: ignore[no-any-return]  # the orchestrator checks its result
    make_agent: Callable[[], Any] = chosen if name == "manager_agent_factory" else lambda: chosen

    def make() -> MagenticManagerBase:
        agent = adapt_agent(make_agent())
        if not is_agent(agent):
            raise TypeError(f"{name}= expects an agent (something with run() and a name), got {agent!r}.")
        return StandardMagenticManager(agent, **set_options)

    if name == "manager_agent":
        make()  # reports invalid prompts or limits early
    return make
