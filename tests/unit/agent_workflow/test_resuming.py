"""An execution resumes from anywhere: with skipped branches, inside loops, with its values, counts and siblings."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from tests.chance import SOAK
from tests.unit.agent_workflow.interrupted import (
    Calls,
    Make,
    Place,
    cut_off,
    resume_elsewhere,
    standing_of,
    stored,
    writes_of,
)
from tests.unit.agent_workflow.making import RecordingAgent, echo, stub

from perdure.agent_workflow.execution.node import ApprovalContext
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.agents.conversation.message import Message
from perdure.testing import Call, FakeClock
from perdure.testing.faults import Point, When


async def instants(make: Make, workflow_input: Any, place: Place) -> list[tuple[str, tuple[Point, int, When]]]:
    """Writes of an undisturbed execution, each with an id for the execution that dies after it. Some of them: all are
    tried to soak, and in `tests/crash` at random."""
    counts = await writes_of(make, workflow_input)
    points: tuple[Point, ...] = ("commit", "journal")
    writes: list[tuple[str, tuple[Point, int, When]]] = []
    for point in points:
        # The last commit ends the execution: what dies after it has nothing left to do.
        last = counts[point] - (point == "commit")
        writes += [(f"{point}-{nth}", (point, nth, "after")) for nth in range(1, last + 1)]
    return writes[:: 1 if SOAK else 3 if place.kind == "memory" else 11]


# ---------------------------------------------------------------- skipped branches


async def test_a_workflow_with_a_skipped_branch_resumes_from_anywhere(place: Place) -> None:
    calls = Calls()

    def make(storage: Any) -> AgentWorkflowInstance:
        return (
            stored(storage)
            .add_agent("sort", calls.agent("sort", ["invoice"]))
            .add_agent("pay", calls.agent("pay", ["paid"]))
            .add_agent("answer", calls.agent("answer", ["never"]))
            .add_agent("apologise", calls.agent("apologise", ["never"]))
            .add_agent("file", calls.agent("file", ["filed"]))
            .from_("sort")
            .to("pay")
            .when_equals("answer", "invoice")
            .from_("sort")
            .to("answer")
            .as_default()
            .from_("answer")
            .to("apologise")
            .from_("pay", "apologise")
            .to("file")
            .build()
        )

    calm = await make(place.open()).run("x", "calm")
    assert calls.again() == Counter(sort=1, pay=1, file=1)
    for execution_id, instant in await instants(make, "x", place):
        calls.again()
        await cut_off(make, place.open(), "x", execution_id, instant)
        result = await resume_elsewhere(make, place.open(), execution_id)
        assert (result.state, result.outputs, result.success) == ("completed", calm.outputs, True), execution_id
        assert calls.again() == Counter(sort=1, pay=1, file=1), execution_id
        nodes = (await standing_of(make(place.open()), execution_id)).nodes
        assert {name for name, node in nodes.items() if node.status == "skipped"} == {"answer", "apologise"}


async def test_isolated_skipped_and_denied_branches_resume(place: Place) -> None:
    def make(storage: Any, last: Any) -> AgentWorkflowInstance:
        return (
            stored(storage)
            .add_agent("alone", stub(ValueError("boom")), lambda node: node.on_error_isolate())
            .add_agent("cut", stub(ValueError("boom")), lambda node: node.on_error_skip())
            .add_agent("after", stub("never"))
            .add_agent("denied", stub("a draft"), lambda node: node.requires_approval())
            .add_agent("good", stub("fine"))
            .add_agent("last", stub(last))
            .from_("cut")
            .to("after")
            .from_("alone", "denied", "good")
            .to("last")
            .build()
        )

    asked = await make(place.open(), ConnectionError("down")).run("x", "e")
    failed = await make(place.open(), ConnectionError("down")).deny(asked.pending[0].request_id, reason="no")
    assert failed.state == "failed"

    result = await make(place.open(), "done").resume("e")

    assert (result.state, result.outputs) == ("completed", {"good.answer": "fine", "last.answer": "done"})
    assert (result.success, result.error) == (False, "alone: ValueError: boom; cut: ValueError: boom")


# ---------------------------------------------------------------- loops


class Verdict(msgspec.Struct, frozen=True):
    ok: bool
    message: str


def reviewing(calls: Calls, storage: Any, passes: int) -> AgentWorkflowInstance:
    """The reviewer is content with the third draft."""

    def draft(messages: list[Message]) -> str:
        return f"{messages[-1].text}+"

    def review(messages: list[Message]) -> dict[str, Any]:
        return {"ok": messages[-1].text.count("+") == 3, "message": messages[-1].text}

    return (
        stored(storage)
        .with_max_iterations(passes)
        .add_agent("draft", calls.agent("draft", draft), lambda node: node.with_output_key("message"))
        .add_agent("review", calls.agent("review", review), lambda node: node.structured_output(Verdict))
        .add_agent("print", calls.agent("print", ["printed"]))
        .from_("draft")
        .to("review")
        .from_("review")
        .to("draft")
        .when_equals("ok", False)
        .from_("review")
        .to("print")
        .when_equals("ok", True)
        .build()
    )


@pytest.mark.parametrize("passes", [2, 5], ids=["to its limit", "until it is content"])
async def test_loop_resumes_in_the_middle_of_its_pass(place: Place, passes: int) -> None:
    calls = Calls()

    def make(storage: Any) -> AgentWorkflowInstance:
        return reviewing(calls, storage, passes)

    calm = await make(place.open()).run("x", "calm")
    expected = calls.again()
    assert expected == (Counter(draft=2, review=2) if passes == 2 else Counter(draft=3, review=3, print=1))
    for execution_id, instant in await instants(make, "x", place):
        calls.again()
        await cut_off(make, place.open(), "x", execution_id, instant)
        result = await resume_elsewhere(make, place.open(), execution_id)
        assert (result.outputs, result.final_answer) == (calm.outputs, calm.final_answer), execution_id
        assert calls.again() == expected, execution_id
        standing = await standing_of(make(place.open()), execution_id)
        assert standing.passes == min(passes, 3)
        assert standing.nodes["draft"].runs == expected["draft"]


# ---------------------------------------------------------------- values that came back as something else


class Measured(msgspec.Struct, frozen=True):
    height: float
    count: int
    is_high: bool
    notes: list[str | None]
    place: dict[str, int]


async def test_values_are_equal_before_and_after_a_restart(place: Place) -> None:
    measured = {"height": 7.5, "count": 3, "is_high": True, "notes": ["a", None], "place": {"row": 2}}
    seen: list[Any] = []

    def needs_a_word(context: ApprovalContext) -> bool:
        seen.append((context.outputs, context.original_input, context.workflow_data))
        return False

    def make(storage: Any, second: Any) -> AgentWorkflowInstance:
        return (
            stored(storage)
            .add_agent("measure", stub(measured), lambda node: node.structured_output(Measured))
            .add_agent("wait", stub(second), lambda node: node.requires_approval(when=needs_a_word))
            .add_agent("high", RecordingAgent(echo, name="high"), lambda node: node.with_input_template(TEMPLATE))
            .add_agent("low", stub("never"))
            .from_("measure")
            .to("wait")
            .from_("wait")
            .to("high")
            .from_("measure")
            .to("high")
            .when(lambda outputs: outputs["count"] + 1 == 4 and outputs["place"]["row"] == 2)
            .from_("measure")
            .to("low")
            .when_less_than("height", 7)
            .build()
        )

    calm = await make(place.open(), "ready").run({"what": "tides"}, "calm")
    assert calm.final_answer == '<7.5 3 true ["a",null] 2 tides>'
    assert (await make(place.open(), ConnectionError("down")).run({"what": "tides"}, "e")).state == "failed"

    result = await make(place.open(), "ready").resume("e")

    assert (result.outputs, result.final_answer) == (calm.outputs, calm.final_answer)
    assert [type(result.outputs[f"measure.{key}"]) for key in measured] == [float, int, bool, list, dict]
    assert seen[0] == seen[1] == ({"answer": "ready"}, {"what": "tides"}, {"measure": measured})


TEMPLATE = (
    "{{measure.height}} {{measure.count}} {{measure.is_high}} {{measure.notes}} {{measure.place.row}} {{input.what}}"
)


# ---------------------------------------------------------------- what the checkpoint lacked


async def test_input_counts_failures_and_requests_survive_a_restart(place: Place) -> None:
    clock, last = FakeClock(), RecordingAgent(name="last")

    def make() -> AgentWorkflowInstance:
        return (
            stored(place.open())
            .with_clock(clock)
            .with_timeout(10_000)
            .add_agent("bad", stub(ValueError("boom")), lambda node: node.on_error_isolate())
            .add_agent("draft", stub("a draft"), lambda node: node.requires_approval("Publish?", timeout=1000))
            .add_agent("last", last, lambda node: node.with_input_template("{{input.topic}}: {{draft.answer}}"))
            .from_("draft", "bad")
            .to("last")
            .build()
        )

    first = await make().run({"topic": "tides"}, "e")
    [asked] = first.pending
    clock.advance(400)

    [again] = await make().pending()
    assert (again.request_id, again.deadline, again.outputs) == (asked.request_id, asked.deadline, asked.outputs)
    resumed = await make().resume("e")
    assert (resumed.state, resumed.pending[0].deadline) == ("waiting", asked.deadline)
    result = await make().approve(asked.request_id)

    assert last.inputs == ["tides: a draft"]
    assert (result.success, result.error, result.duration) == (False, "bad: ValueError: boom", 400.0)
    assert {name: node.runs for name, node in (await standing_of(make(), "e")).nodes.items()} == {
        "START": 1,
        "bad": 1,
        "draft": 1,
        "last": 1,
    }


# ---------------------------------------------------------------- siblings, and what happened inside a node


async def test_siblings_of_a_failed_node_are_not_asked_again(place: Place) -> None:
    calls, is_down = Calls(), True

    def make() -> AgentWorkflowInstance:
        names = ["one", "two", "three"]
        workflow = stored(place.open()).add_agent("first", calls.agent("first", ["go"]))
        for name in names:
            workflow.add_agent(name, calls.agent(name, [f"{name} done"]))
        workflow.add_agent("bad", calls.agent("bad", lambda _: ConnectionError("down") if is_down else "well again"))
        return workflow.from_("first").to(*names, "bad").build()

    for attempt in range(1, 4):
        failed = await make().run("x", "e")
        assert (failed.state, calls.counts["bad"]) == ("failed", attempt)
    is_down = False
    result = await make().resume("e")

    assert result.final_answer == "one done\n\ntwo done\n\nthree done\n\nwell again"
    assert calls.counts == Counter(first=1, one=1, two=1, three=1, bad=4)


async def test_finished_calls_of_a_failed_agent_are_not_repeated(place: Place) -> None:
    calls, is_down = Calls(), True

    def reply(messages: list[Message]) -> Any:
        results = sum(message.role == "tool" for message in messages)
        if results < 2:
            return Call("charge", {"cents": 100 + results})
        return ConnectionError("down") if is_down else "charged twice, as asked"

    def charge(cents: int) -> str:
        return f"charged {cents}"

    def make() -> AgentWorkflowInstance:
        return stored(place.open()).add_agent("till", calls.agent("till", reply, tools=[charge])).build()

    assert (await make().run("x", "e")).state == "failed"
    assert calls.again() == Counter({"till": 3, "till.charge": 2})
    is_down = False
    assert (await make().run("x", "e")).final_answer == "charged twice, as asked"
    assert calls.again() == Counter({"till": 1})


async def test_finished_map_items_do_not_run_again_and_failed_items_do(place: Place) -> None:
    calls, is_down = Calls(), True

    def reply(messages: list[Message]) -> Any:
        return ConnectionError("down") if is_down and messages[-1].text in "bc" else f"{messages[-1].text} done"

    def make() -> AgentWorkflowInstance:
        agent = calls.agent("each", reply)
        return stored(place.open()).add_agent("each", agent, lambda node: node.map_over("input.items")).build()

    workflow_input = {"items": ["a", "b", "c", "d"]}
    assert (await make().run(workflow_input, "e")).state == "failed"
    assert calls.again() == Counter(each=4)
    is_down = False
    assert (await make().run(workflow_input, "e")).outputs == {"each.answer": ["a done", "b done", "c done", "d done"]}
    assert calls.again() == Counter(each=2)
