"""Teams of scripted agents, and one life of a thread of theirs: to its end, or killed at a chosen instant."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from tests.crash.lives import PLACES
from tests.unit.orchestrations import handoff_team, magentic_team

from perdure.agents.tools import tool
from perdure.events import WorkflowEvent
from perdure.orchestrations.fixed_order import ConcurrentBuilder, SequentialBuilder
from perdure.orchestrations.group_chat import GroupChatState
from perdure.orchestrations.group_chat_builder import GroupChatBuilder
from perdure.orchestrations.magentic_builder import MagenticBuilder
from perdure.records import JournalEntry
from perdure.testing import Faults
from perdure.testing.crash import take_to_the_end
from perdure.testing.scripted import Call, ScriptedAgent
from perdure.workflows.builder import WorkflowBuilder
from perdure.workflows.workflow import Workflow

Log = Callable[[dict[str, Any]], object]


def search(query: str) -> str:
    return f"found: {query}"


@tool(approval=True)
def publish(text: str) -> str:
    return f"published: {text}"


SEARCHES = [Call("search", {"query": "tides"}), Call("search", {"query": "moon"})]


def sequential(storage: Any, log: Any) -> Workflow:
    researcher = ScriptedAgent(
        "researcher", [SEARCHES, Call("search", {"query": "sun"}), "facts"], tools=[search], log=log
    )
    writer = ScriptedAgent("writer", ["a draft"], log=log)
    editor = ScriptedAgent("editor", [Call("publish", {"text": "a draft"}), "the end"], tools=[publish], log=log)
    return SequentialBuilder(participants=[researcher, writer, editor], checkpoint_storage=storage).build()


def concurrent(storage: Any, log: Any) -> Workflow:
    team = [
        ScriptedAgent(name, [Call("search", {"query": name}), f"{name} says so"], tools=[search], log=log)
        for name in ("economist", "engineer", "lawyer")
    ]
    team[2] = ScriptedAgent("lawyer", [Call("publish", {"text": "law"}), "the law says no"], tools=[publish], log=log)
    return ConcurrentBuilder(participants=team, checkpoint_storage=storage).build()


def group_chat(storage: Any, log: Any) -> Workflow:
    team = [
        ScriptedAgent("ann", [SEARCHES, "ann once", "ann twice"], tools=[search], log=log),
        ScriptedAgent("bob", ["bob once", Call("publish", {"text": "it"}), "bob twice"], tools=[publish], log=log),
    ]

    def choose(state: GroupChatState) -> str:
        return list(state.participants)[state.current_round % 2]

    return GroupChatBuilder(participants=team, selection_func=choose, max_rounds=4, checkpoint_storage=storage).build()


def magentic(storage: Any, log: Any) -> Workflow:
    researcher = ScriptedAgent("researcher", [SEARCHES, "7 metres."], tools=[search], description="looks up", log=log)
    writer = ScriptedAgent("writer", [Call("publish", {"text": "7"}), "It is 7 metres."], tools=[publish], log=log)
    script = magentic_team.Manager(magentic_team.PLAIN, magentic_team.PLAIN)
    return MagenticBuilder(
        participants=[researcher, writer],
        manager_agent=ScriptedAgent("manager", script, log=log),
        enable_plan_review=True,
        checkpoint_storage=storage,
    ).build()


def led_by_an_agent(storage: Any, log: Any) -> Workflow:
    team = [ScriptedAgent(name, [f"{name} once", f"{name} twice"], log=log) for name in ("ann", "bob")]
    turns: list[Any] = [{"terminate": False, "reason": "", "next_speaker": name} for name in ("ann", "bob", "bob")]
    leader = ScriptedAgent(
        "leader", [*turns, {"terminate": True, "reason": "", "final_message": "enough said"}], log=log
    )
    return GroupChatBuilder(
        name="led", participants=team, orchestrator_agent=leader, checkpoint_storage=storage
    ).build()


def stalling(storage: Any, log: Any) -> Workflow:
    """Magentic, restarted with another plan."""
    script = magentic_team.Manager(*magentic_team.STALLING)
    return magentic_team.team(storage, manager=script, log=log, name="stalling", max_stall_count=1)


def nested(storage: Any, log: Any) -> Workflow:
    """A workflow that is an agent in another."""
    team = sequential(storage, log).as_agent("team")
    last = ScriptedAgent("last", ["so be it"], log=log)
    return WorkflowBuilder(name="nested", start_executor=team, checkpoint_storage=storage).add_edge(team, last).build()


def agree(event: WorkflowEvent) -> Any:
    return event.data.approve()


@dataclass(frozen=True)
class Team:
    build: Callable[[Any, Any], Workflow]
    message: str
    ends_with: str
    """In what it gave and knows when it has ended."""
    answers: Callable[[WorkflowEvent], Any] = agree
    width: int = 2
    """Calls that may be in flight at once."""


TEAMS: dict[str, Team] = {
    "sequential": Team(sequential, "Write about tides.", "the end"),
    "concurrent": Team(concurrent, "May we?", "the law says no", width=3),
    "group_chat": Team(group_chat, "Discuss.", "bob twice"),
    "handoff": Team(handoff_team.support, handoff_team.FIRST, "It comes tomorrow.", handoff_team.answer),
    "magentic": Team(magentic, magentic_team.TASK, "It is 7 metres."),
    "group_chat, led by an agent": Team(led_by_an_agent, "Discuss.", "enough said"),
    "magentic, stalling": Team(stalling, magentic_team.TASK, "It is 7 metres."),
    "a workflow as an agent": Team(nested, "Write about tides.", "so be it"),
}


# ---------------------------------------------------------------- one life


class Instant(TypedDict):
    """`begin`: in the middle of the nth call. `commit` and `journal`: before or after the nth write."""

    point: str
    nth: int
    when: str


class Order(TypedDict):
    place: str
    folder: str
    team: str
    thread_id: str
    kill_at: Instant | None


def live(order: Order, report_ready: Callable[[], object]) -> None:
    report_ready()
    asyncio.run(_Life(order).live())


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class _Life:
    def __init__(self, order: Order) -> None:
        self._order = order
        path = notes_of(Path(order["folder"]), order["thread_id"])
        self._notes = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._begun = 0

    async def live(self) -> None:
        order, team = self._order, TEAMS[self._order["team"]]
        self._note(life=True)
        storage = PLACES[order["place"]](Path(order["folder"]))
        faults = Faults()
        faults.watch(self._written)
        kill_at = order["kill_at"]
        if kill_at is not None and kill_at["point"] != "begin":
            faults.call(kill_at["point"], _die, nth=kill_at["nth"], when=kill_at["when"])  # type: ignore[arg-type]
        watched = faults.wrap(storage)
        workflow = team.build(watched, self._begin)
        ending = await take_to_the_end(workflow, watched, team.message, team.answers, thread_id=order["thread_id"])
        await storage.close()
        self._note(ended={"rests": ending.rests, "parts": ending.parts}, writes=dict(faults.counts))

    def _begin(self, call: Mapping[str, Any]) -> None:
        name = f"model = {call['place']}" if call["kind"] == "model" else f"tool.{call['name']} = {call['call_id']}"
        self._note(begun=f"{call['agent']}.{name}")
        self._begun += 1
        kill_at = self._order["kill_at"]
        if kill_at is not None and kill_at["point"] == "begin" and kill_at["nth"] == self._begun:
            _die()

    def _written(self, point: str, written: Any) -> None:
        """Note what the store has acknowledged. It must not be done again."""
        if isinstance(written, JournalEntry):
            record = json.loads(written.body)
            if record.get("kind") in ("step", "failed"):
                self._note(recorded=record["key"].partition(" in ")[0])

    def _note(self, **what: Any) -> None:
        os.write(self._notes, json.dumps(what).encode() + b"\n")
        os.fsync(self._notes)


def notes_of(folder: Path, thread_id: str) -> Path:
    return folder / f"{thread_id}.notes"


# ---------------------------------------------------------------- reading the notes


class Story:
    """All lives of one thread."""

    def __init__(self, path: Path) -> None:
        self.begun: list[Counter[str]] = []
        """By life."""
        self.recorded: list[Counter[str]] = []
        self.ended: dict[str, Any] = {}
        self.writes: dict[str, int] = {}
        """Of the life that came to the end."""
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n"):  # else its writer was killed in the middle of it
                self._take(json.loads(line))

    def _take(self, note: dict[str, Any]) -> None:
        if "life" in note:
            self.begun.append(Counter())
            self.recorded.append(Counter())
        elif "begun" in note:
            self.begun[-1][note["begun"]] += 1
        elif "recorded" in note:
            self.recorded[-1][note["recorded"]] += 1
        else:
            self.ended, self.writes = note["ended"], note["writes"]

    @property
    def all_begun(self) -> Counter[str]:
        return sum(self.begun, Counter[str]())

    @property
    def in_flight(self) -> list[Counter[str]]:
        """At the end of each life: what was begun, and is not recorded."""
        return [begun - recorded for begun, recorded in zip(self.begun, self.recorded, strict=True)]
