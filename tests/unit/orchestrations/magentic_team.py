"""A Magentic team that says what is written down: a manager who knows by what it is told what to say next."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from perdure.agents.conversation.message import Message
from perdure.events import WorkflowEvent
from perdure.orchestrations.magentic.builder import MagenticBuilder
from perdure.orchestrations.magentic.orchestrator import MagenticState
from perdure.testing.scripted import ScriptedAgent
from perdure.workflows.workflow import Workflow

TASK = "How high is the spring tide at Brest?"
TEAM = ("researcher", "writer")

Judgement: TypeAlias = "Mapping[str, Any] | str | BaseException"
Rounds: TypeAlias = "Sequence[Judgement | Sequence[Judgement]]"
"""What the manager judges after no reply of the team, after one, after two ... A list of several: one after the other,
each time that it is asked again."""


def judged(
    speaker: str = "researcher", say: str = "Go on.", *, is_done: bool = False, is_stalled: bool = False
) -> dict[str, Any]:
    answers: dict[str, Any] = {
        "is_request_satisfied": is_done,
        "is_in_loop": is_stalled,
        "is_progress_being_made": not is_stalled,
        "next_speaker": speaker,
        "instruction_or_question": say,
    }
    return {name: {"reason": f"because of {name}", "answer": answer} for name, answer in answers.items()}


PLAIN: Rounds = [judged("researcher", "Look it up."), judged("writer", "Write it down."), judged(is_done=True)]
STALLING: list[Rounds] = [
    [judged("researcher", "Look it up."), judged("researcher", is_stalled=True), judged(is_stalled=True)],
    PLAIN,
]
"""With max_stall_count=1: begun anew after two replies."""


class Manager:
    """The script of a manager's agent. Its facts and plans are numbered, and rounds are written down by plan."""

    def __init__(self, *by_plan: Rounds, plans: Mapping[int, str] | None = None) -> None:
        self._by_plan = by_plan
        self._plans = plans or {}
        self.heard: list[list[str]] = []
        """All that it was told, request by request."""

    def __call__(self, messages: list[Message]) -> Any:
        self.heard.append([one.text for one in messages])
        at = max(place for place, one in enumerate(messages) if _kind(one.text) is not None)
        asked_again = sum(one.text.startswith("This cannot be used") for one in messages[at:])
        kind, number = _kind(messages[at].text), _newest(messages)
        if kind == "facts":
            return f"Facts {number + 1}"
        if kind == "plan":
            return self._plans.get(number, f"Plan {number}") if not asked_again else f"Plan {number}"
        if kind == "answer":
            return f"Answer from: {_last_of_team(messages)}"
        rounds = self._by_plan[min(number, len(self._by_plan)) - 1]
        judgement = rounds[sum(one.author_name in TEAM for one in messages)]
        if isinstance(judgement, (str, Mapping, BaseException)):
            return judgement
        return judgement[min(asked_again, len(judgement) - 1)]


def _kind(text: str) -> str | None:
    marks = {"take stock": "facts", "lists of facts": "facts", "short plan": "plan", "last plan did not": "plan"}
    marks |= {"Judge where": "ledger", "has ended": "answer"}
    return next((kind for mark, kind in marks.items() if mark in text), None)


def _newest(messages: Sequence[Message]) -> int:
    return max((int(one) for message in messages for one in re.findall(r"Facts (\d+)", message.text)), default=0)


def _last_of_team(messages: Sequence[Message]) -> str:
    return next((one.text for one in reversed(messages) if one.author_name in TEAM), "nothing")


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
    found: MagenticState = (await private_of(storage, thread_id, "magentic_orchestrator"))["magentic"]
    return found


async def private_of(storage: Any, thread_id: str, executor_id: str) -> Mapping[str, Any]:
    head = await storage.get_latest(thread_id=thread_id)
    return head.executors[executor_id].private or {}


def said(messages: Sequence[Message]) -> list[tuple[str | None, str]]:
    """Who said what, the long texts of prompts and plans cut short."""
    return [(one.author_name, one.text.splitlines()[0]) for one in messages]


def kinds(events: Sequence[WorkflowEvent]) -> list[str]:
    """What the manager told of its doings."""
    return [one.data.event_type.value for one in events if one.type == "magentic_orchestrator"]


def warned(events: Sequence[WorkflowEvent]) -> list[str]:
    return [str(one.data) for one in events if one.type == "warning"]
