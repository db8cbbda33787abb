"""A scripted Magentic team. The manager selects its next reply by the messages that it receives."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from perdure.agents.conversation.message import Message
from perdure.events import WorkflowEvent
from perdure.orchestrations.magentic import MagenticState
from perdure.orchestrations.magentic_builder import MagenticBuilder
from perdure.testing.scripted import ScriptedAgent
from perdure.workflows.workflow import Workflow

TASK = "How high is the spring tide at Brest?"
TEAM = ("researcher", "writer")

Judgement: TypeAlias = "Mapping[str, Any] | str | BaseException"
Rounds: TypeAlias = "Sequence[Judgement | Sequence[Judgement]]"
"""What the manager judges after no reply of the team, after one, after two ... A list of several: one after the other,
each time that it is asked again."""


def judged(
    speaker: str = "researcher", instruction: str = "Go on.", *, is_done: bool = False, is_stalled: bool = False
) -> dict[str, Any]:
    answers: dict[str, Any] = {
        "is_request_satisfied": is_done,
        "is_in_loop": is_stalled,
        "is_progress_being_made": not is_stalled,
        "next_speaker": speaker,
        "instruction_or_question": instruction,
    }
    return {name: {"reason": f"because of {name}", "answer": answer} for name, answer in answers.items()}


PLAIN: Rounds = [judged("researcher", "Look it up."), judged("writer", "Write it down."), judged(is_done=True)]
STALLING: list[Rounds] = [
    [judged("researcher", "Look it up."), judged("researcher", is_stalled=True), judged(is_stalled=True)],
    PLAIN,
]
"""With max_stall_count=1, the manager plans again after two replies."""


class Manager:
    """The script of a manager's agent. Its facts and plans are numbered, and rounds are written down by plan."""

    def __init__(self, *by_plan: Rounds, plans: Mapping[int, str] | None = None) -> None:
        self._by_plan = by_plan
        self._plans = plans or {}
        self.received: list[list[str]] = []
        """The texts of the messages that it received, by request."""

    def __call__(self, messages: list[Message]) -> Any:
        self.received.append([message.text for message in messages])
        at = max(place for place, message in enumerate(messages) if _kind(message.text) is not None)
        asked_again = sum(message.text.startswith("This cannot be used") for message in messages[at:])
        kind, number = _kind(messages[at].text), _newest(messages)
        if kind == "facts":
            return f"Facts {number + 1}"
        if kind == "plan":
            return self._plans.get(number, f"Plan {number}") if not asked_again else f"Plan {number}"
        if kind == "answer":
            return f"Answer from: {_last_of_team(messages)}"
        rounds = self._by_plan[min(number, len(self._by_plan)) - 1]
        judgement = rounds[sum(message.author_name in TEAM for message in messages)]
        if isinstance(judgement, (str, Mapping, BaseException)):
            return judgement
        return judgement[min(asked_again, len(judgement) - 1)]


def _kind(text: str) -> str | None:
    marks = {"take stock": "facts", "lists of facts": "facts", "short plan": "plan", "last plan did not": "plan"}
    marks |= {"Judge where": "ledger", "has ended": "answer"}
    return next((kind for mark, kind in marks.items() if mark in text), None)


def _newest(messages: Sequence[Message]) -> int:
    return max((int(number) for message in messages for number in re.findall(r"Facts (\d+)", message.text)), default=0)


def _last_of_team(messages: Sequence[Message]) -> str:
    return next((message.text for message in reversed(messages) if message.author_name in TEAM), "nothing")


def crew(log: Path | None = None) -> list[ScriptedAgent]:
    researcher = ScriptedAgent("researcher", ["7 metres.", "7.5 metres.", "8."], description="looks things up", log=log)
    return [researcher, ScriptedAgent("writer", ["It is 7 metres.", "It is 7.5 metres."], log=log)]


def team(
    storage: Any = None,
    *by_plan: Rounds,
    manager: Callable[[list[Message]], Any] | None = None,
    log: Path | None = None,
    participants: Sequence[Any] | None = None,
    **options: Any,
) -> Workflow:
    script = manager or Manager(*(by_plan or (PLAIN,)))
    return MagenticBuilder(
        participants=crew(log) if participants is None else participants,
        manager_agent=ScriptedAgent("manager", script, log=log),
        checkpoint_storage=storage,
        **options,
    ).build()


async def remembered(storage: Any, thread_id: str) -> MagenticState:
    """What the orchestrator of a thread knows."""
    state: MagenticState = (await private_of(storage, thread_id, "magentic_orchestrator"))["magentic"]
    return state


async def private_of(storage: Any, thread_id: str, executor_id: str) -> Mapping[str, Any]:
    head = await storage.get_latest(thread_id=thread_id)
    return head.executors[executor_id].private or {}


def first_lines(messages: Sequence[Message]) -> list[tuple[str | None, str]]:
    """Return the author and the first line of each message."""
    return [(message.author_name, message.text.splitlines()[0]) for message in messages]


def kinds(events: Sequence[WorkflowEvent]) -> list[str]:
    """Return the types of the events that the manager emitted."""
    return [event.data.event_type.value for event in events if event.type == "magentic_orchestrator"]


def warned(events: Sequence[WorkflowEvent]) -> list[str]:
    return [str(event.data) for event in events if event.type == "warning"]
