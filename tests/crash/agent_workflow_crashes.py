"""A workflow of agents with something of everything, and crashes before and after each of its writes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from perdure.agent_workflow.builder.workflow import AgentWorkflow
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.agents.conversation.message import Message
from perdure.records import JournalEntry
from perdure.testing import Call, FakeClock, Faults, ProcessGone, ScriptedAgent
from perdure.testing.faults import Point, When

EXECUTION = "rich"
INPUT = {"topic": "tides", "items": ["moon", "sun"]}


class Review(msgspec.Struct, frozen=True):
    ok: bool
    message: str


def look_up(what: str) -> str:
    return f"found {what}"


def rich(storage: Any, clock: FakeClock, log: Callable[[dict[str, Any]], object]) -> AgentWorkflowInstance:
    """A router, a tool, a map, a loop, a retry, a fallback, a skipped branch, a delay, a workflow and two approvals."""

    def agent(name: str, replies: Any, **more: Any) -> ScriptedAgent:
        return ScriptedAgent(name, replies, log=log, **more)

    def reviewed(messages: list[Message]) -> dict[str, Any]:
        text = messages[-1].text
        return {"ok": text.count("again") == 1, "message": f"{text} again"}

    inner = (
        AgentWorkflow.create()
        .with_name("inner")
        .add_agent(
            "check",
            agent("check", lambda messages: f"checked {messages[-1].text}"),
            lambda node: node.requires_approval(),
        )
        .add_agent("seal", agent("seal", ["sealed"]))
        .from_("check")
        .to("seal")
        .build()
    )
    return (
        AgentWorkflow.create()
        .with_name("rich")
        .with_checkpointing()
        .with_workflow_store(storage)
        .with_clock(clock)
        .with_max_iterations(3)
        .add_router_agent("route", agent("route", [Call("handoff_to_draft")]))
        .with_handoff("draft")
        .with_handoff("other")
        .add_agent("other", agent("other", ["never said"]))
        .add_agent(
            "draft",
            agent(
                "draft",
                lambda messages: Call("look_up", {"what": "it"}) if messages[-1].role == "user" else _draft(messages),
                tools=[look_up],
            ),
            lambda node: node.with_output_key("message"),
        )
        .add_agent("review", agent("review", reviewed), lambda node: node.structured_output(Review))
        .add_agent(
            "facts",
            agent("facts", lambda messages: f"about {messages[-1].text}"),
            lambda node: node.map_over("input.items"),
        )
        .add_agent(
            "art",
            agent("art", [ValueError("no paint")]),
            lambda node: node.with_retry(2, initial_delay=5.0).on_error_fallback("stock"),
        )
        .add_agent("stock", agent("stock", ["a photograph"]))
        .add_agent("print", agent("print", ["printed"]), lambda node: node.requires_approval("Print?"))
        .add_workflow("archive", inner)
        .from_("draft")
        .to("review", "facts", "art")
        .from_("review")
        .to("draft")
        .when_equals("ok", False)
        .from_("review")
        .to("print")
        .when_equals("ok", True)
        .with_delay(60.0)
        .from_("art", "facts")
        .to("print")
        .from_("print")
        .to("archive")
        .build()
    )


def _about(messages: list[Message]) -> str:
    return f"about {messages[-1].text}"


def _draft(messages: list[Message]) -> str:
    return f"draft of {next(message.text for message in messages if message.role == 'user')}"


async def to_the_end(workflow: AgentWorkflowInstance, clock: FakeClock, **options: Any) -> dict[str, Any]:
    """Return the result and the node statuses. Every approval request is granted."""
    async with clock.skipping():
        result = await workflow.run(INPUT, EXECUTION, **options)
        while result.state == "waiting":
            result = await workflow.approve(result.pending[0].request_id, data={"by": "Ann"})
    known = await workflow.find(EXECUTION)
    assert known is not None and known.state is not None
    nodes = {name: node.status for name, node in known.state.nodes.items()}
    return {"result": msgspec.to_builtins({**vars(result), "checkpoint_id": None}), "nodes": nodes}


class CrashTrials:
    """In storages that `make` makes, an empty one for each."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self.calm: dict[str, Any] = {}
        self._calm_calls: Counter[str] = Counter()
        self.instants: list[tuple[Point, int, When]] = []

    async def run_undisturbed(self) -> None:
        faults, clock, storage = Faults(), FakeClock(), self._make()
        self.calm = await to_the_end(rich(faults.wrap(storage), clock, self._count(self._calm_calls)), clock)
        await storage.close()
        points: tuple[Point, ...] = ("commit", "journal")
        moments: tuple[When, ...] = ("before", "after")
        self.instants = [
            (point, nth, when) for point in points for nth in range(1, faults.counts[point] + 1) for when in moments
        ]

    @staticmethod
    def _count(calls: Counter[str]) -> Callable[[dict[str, Any]], object]:
        return lambda call: calls.update([f"{call['agent']}.{call['kind']}"])

    async def problems(self, point: Point, nth: int, when: When) -> list[str]:
        """Return the problems after a crash at this point and a resume by the execution id."""
        faults, clock, storage = Faults(), FakeClock(), self._make()
        faults.crash(point, nth=nth, when=when)
        begun, recorded, after = Counter[str](), Counter[str](), Counter[str]()
        faults.watch(lambda _, written: recorded.update(_recorded_in(written)))
        try:
            await to_the_end(rich(faults.wrap(storage), clock, self._count(begun)), clock)
        except ProcessGone:
            pass
        ended = await to_the_end(rich(storage, clock, self._count(after)), clock, takeover=True)
        await storage.close()
        again = begun + after - self._calm_calls - (begun - recorded)
        problems = [f"recorded, and done again: {dict(again)}"] if again else []
        problems += [f"{key}: {ended[key]}, not {self.calm[key]}" for key in ended if ended[key] != self.calm[key]]
        return [f"crashed {when} {point} {nth}: {problem}" for problem in problems]


def _recorded_in(written: Any) -> list[str]:
    """Return the calls whose end the store has acknowledged."""
    if not isinstance(written, JournalEntry):
        return []
    record = json.loads(written.body)
    name = str(record.get("name"))
    if record.get("kind") == "step" and name.endswith(".model"):
        return [name]
    return [f"{name.partition('.')[0]}.tool"] if record.get("kind") == "step" and ".tool." in name else []
