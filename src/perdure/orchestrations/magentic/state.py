"""What a thread of a Magentic team remembers, and its manager at work on that."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from perdure.agents.conversation.message import Message
from perdure.agents.turns.recording import record_call
from perdure.errors import WorkflowRunnerException
from perdure.orchestrations.magentic.ledger import MAGENTIC_MANAGER_NAME, MagenticContext, MagenticProgressLedger
from perdure.orchestrations.magentic.manager import MagenticManagerBase

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
