"""Results and events: success is success, the final answer is found, and each node ends once in the events."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest
from tests.unit.orchestrations.agent_workflow.interrupted import Place, stored
from tests.unit.orchestrations.agent_workflow.making import drafted, kept, of_kind, says, watched

from perdure.agent_workflow import events as told
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.events import WorkflowEvent
from perdure.testing import ScriptedAgent

# ---------------------------------------------------------------- success, and the final answer


async def test_a_failure_is_no_success() -> None:
    result = await drafted().add_agent("one", says(ValueError("boom"))).build().run("x")
    assert (result.state, result.success, result.final_answer) == ("failed", False, None)
    assert result.error is not None and "ValueError: boom" in result.error
    assert isinstance(result.exception, ValueError)


async def test_a_failure_that_was_isolated_is_no_success_either() -> None:
    workflow = drafted().add_agent("one", says(ValueError("boom")), lambda node: node.on_error_isolate())
    result = await workflow.add_agent("two", says("fine")).build().run("x")
    assert (result.state, result.success, result.error) == ("completed", False, "one: ValueError: boom")


class Scored(msgspec.Struct, frozen=True):
    score: int


@pytest.mark.parametrize(
    ("reply", "configure", "expected"),
    [
        ("the text", lambda node: node, "the text"),
        ("the text", lambda node: node.with_output_key("report"), "the text"),
        ({"score": 3}, lambda node: node.structured_output(Scored), '{"score":3}'),
        ({"score": 3}, lambda node: node.structured_output(Scored).with_output_key("it"), '{"score":3}'),
    ],
    ids=["as it is", "output key", "structured", "structured, with an output key"],
)
async def test_the_final_answer_is_found_under_any_key(reply: Any, configure: Any, expected: str) -> None:
    workflow = drafted().add_agent("first", says("not this")).add_agent("last", says(reply), configure)
    result = await workflow.from_("first").to("last").build().run("x")
    assert result.final_answer == expected


async def test_the_final_answer_of_parallel_nodes_has_all_of_them_in_the_order_of_the_definition() -> None:
    released = asyncio.Event()

    class Slow(ScriptedAgent):
        async def turn(self, *given: Any, **options: Any) -> Any:
            await released.wait()
            return await super().turn(*given, **options)

    class Quick(ScriptedAgent):
        async def turn(self, *given: Any, **options: Any) -> Any:
            answer = await super().turn(*given, **options)
            released.set()
            return answer

    workflow = (
        drafted()
        .add_agent("slow", Slow("slow", ["said last"]), lambda node: node.with_output_key("one"))
        .add_agent("quick", Quick("quick", ["said first"]), lambda node: node.with_output_key("two"))
        .build()
    )
    result = await workflow.run("x")
    assert result.final_answer == "said last\n\nsaid first"
    assert result.outputs == {"slow.one": "said last", "quick.two": "said first"}


async def test_the_answer_of_a_skipped_end_is_no_part_of_the_final_answer() -> None:
    workflow = (
        drafted()
        .add_agent("sort", says("a"))
        .add_agent("a", says("from a"))
        .add_agent("b", says("from b"))
        .from_("sort")
        .to("a")
        .when_equals("answer", "a")
        .from_("sort")
        .to("b")
        .when_equals("answer", "b")
        .build()
    )
    assert (await workflow.run("x")).final_answer == "from a"


# ---------------------------------------------------------------- one event for each node


def ends(events: list[Any]) -> Counter[tuple[str, str]]:
    skipped = [(one.agent_id, "skipped") for one in of_kind(events, told.WorkflowAgentSkippedEvent)]
    completed = of_kind(events, told.WorkflowAgentCompletedEvent)
    return Counter([*skipped, *((one.agent_id, "done" if one.success else "failed") for one in completed)])


async def test_each_node_is_told_as_completed_or_as_skipped_once_and_never_both() -> None:
    workflow = (
        kept()
        .add_agent("first", says("go"))
        .add_agent("bad", says(ValueError("boom")), lambda node: node.on_error_skip())
        .add_agent("after", says("never"))
        .add_agent("later", says("never"))
        .add_agent("unwanted", says("never"))
        .add_agent("denied", says("a draft"), lambda node: node.requires_approval())
        .add_agent("good", says("fine"))
        .from_("first")
        .to("bad", "denied", "good")
        .from_("bad")
        .to("after")
        .from_("after")
        .to("later")
        .from_("first")
        .to("unwanted")
        .when_equals("answer", "stop")
        .build()
    )
    events: list[Any] = []
    workflow.subscribe_any(events.append)
    asked = await workflow.run("x", "e")
    await workflow.deny(asked.pending[0].request_id)

    assert ends(events) == Counter(
        {
            ("first", "done"): 1,
            ("bad", "failed"): 1,
            ("after", "skipped"): 1,
            ("later", "skipped"): 1,
            ("unwanted", "skipped"): 1,
            ("denied", "skipped"): 1,
            ("good", "done"): 1,
        }
    )
    [failed] = [one for one in of_kind(events, told.WorkflowAgentCompletedEvent) if not one.success]
    assert (failed.agent_id, failed.error_message, failed.outputs) == ("bad", "ValueError: boom", {})


async def test_a_node_that_failed_and_stops_is_told_as_completed_without_success() -> None:
    events, _ = await watched(drafted().add_agent("bad", says(ValueError("boom"))).build().stream("x"))
    assert ends(events) == Counter({("bad", "failed"): 1})
    assert len(of_kind(events, told.WorkflowCompletedEvent)) == 1


async def test_what_was_told_before_a_restart_is_not_told_again(place: Place) -> None:
    def make(last: Any) -> AgentWorkflowInstance:
        workflow = stored(place.open()).add_agent("first", says("one")).add_agent("unwanted", says("never"))
        workflow.add_agent("beside", says("fine")).add_agent("last", says(last)).from_("first").to("beside", "last")
        return workflow.from_("first").to("unwanted").when_equals("answer", "two").build()

    before, _ = await watched(make(ConnectionError("down")).stream("x", "e"))
    after, _ = await watched(make("done").stream_resumed("e"))

    told_before = {("first", "done"): 1, ("unwanted", "skipped"): 1, ("beside", "done"): 1, ("last", "failed"): 1}
    assert ends(before) == Counter(told_before)
    assert ends(after) == Counter({("last", "done"): 1})
    assert of_kind(after, told.WorkflowStartedEvent) == []
    assert [len(of_kind(events, told.WorkflowCompletedEvent)) for events in (before, after)] == [1, 1]


async def test_what_an_agent_said_is_not_streamed_again_when_it_is_approved() -> None:
    workflow = kept().add_agent("draft", says("a long draft"), lambda node: node.requires_approval()).build()
    events: list[Any] = []
    workflow.subscribe_any(events.append)
    asked = await workflow.run("x", "e")
    await workflow.approve(asked.pending[0].request_id)

    words = [one.data.text for one in of_kind(events, WorkflowEvent) if one.data.text]
    assert "".join(words) == "a long draft"
    assert len(of_kind(events, told.WorkflowAgentStartedEvent)) == 1
