"""Results and events: success is success, the final answer is found, and each node ends once in the events."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest
from tests.unit.agent_workflow.interrupted import Place, stored
from tests.unit.agent_workflow.making import drafted, kept, of_kind, stub, watched

from perdure.agent_workflow import events as event_types
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.events import WorkflowEvent
from perdure.testing import ScriptedAgent

# ---------------------------------------------------------------- success, and the final answer


async def test_failed_execution_is_not_successful() -> None:
    result = await drafted().add_agent("one", stub(ValueError("boom"))).build().run("x")
    assert (result.state, result.success, result.final_answer) == ("failed", False, None)
    assert result.error is not None and "ValueError: boom" in result.error
    assert isinstance(result.exception, ValueError)


async def test_execution_with_an_isolated_failure_is_not_successful() -> None:
    workflow = drafted().add_agent("one", stub(ValueError("boom")), lambda node: node.on_error_isolate())
    result = await workflow.add_agent("two", stub("fine")).build().run("x")
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
    workflow = drafted().add_agent("first", stub("not this")).add_agent("last", stub(reply), configure)
    result = await workflow.from_("first").to("last").build().run("x")
    assert result.final_answer == expected


async def test_final_answer_of_parallel_nodes_follows_the_definition_order() -> None:
    released = asyncio.Event()

    class Slow(ScriptedAgent):
        async def turn(self, *arguments: Any, **options: Any) -> Any:
            await released.wait()
            return await super().turn(*arguments, **options)

    class Quick(ScriptedAgent):
        async def turn(self, *arguments: Any, **options: Any) -> Any:
            answer = await super().turn(*arguments, **options)
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


async def test_final_answer_omits_skipped_end_nodes() -> None:
    workflow = (
        drafted()
        .add_agent("sort", stub("a"))
        .add_agent("a", stub("from a"))
        .add_agent("b", stub("from b"))
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
    skipped = [(event.agent_id, "skipped") for event in of_kind(events, event_types.WorkflowAgentSkippedEvent)]
    completed = of_kind(events, event_types.WorkflowAgentCompletedEvent)
    return Counter([*skipped, *((event.agent_id, "done" if event.success else "failed") for event in completed)])


async def test_each_node_emits_completed_or_skipped_once_and_never_both() -> None:
    workflow = (
        kept()
        .add_agent("first", stub("go"))
        .add_agent("bad", stub(ValueError("boom")), lambda node: node.on_error_skip())
        .add_agent("after", stub("never"))
        .add_agent("later", stub("never"))
        .add_agent("unwanted", stub("never"))
        .add_agent("denied", stub("a draft"), lambda node: node.requires_approval())
        .add_agent("good", stub("fine"))
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
    [failed] = [event for event in of_kind(events, event_types.WorkflowAgentCompletedEvent) if not event.success]
    assert (failed.agent_id, failed.error_message, failed.outputs) == ("bad", "ValueError: boom", {})


async def test_node_that_fails_and_stops_emits_completed_without_success() -> None:
    events, _ = await watched(drafted().add_agent("bad", stub(ValueError("boom"))).build().stream("x"))
    assert ends(events) == Counter({("bad", "failed"): 1})
    assert len(of_kind(events, event_types.WorkflowCompletedEvent)) == 1


async def test_events_before_a_restart_are_not_emitted_again(place: Place) -> None:
    def make(last: Any) -> AgentWorkflowInstance:
        workflow = stored(place.open()).add_agent("first", stub("one")).add_agent("unwanted", stub("never"))
        workflow.add_agent("beside", stub("fine")).add_agent("last", stub(last)).from_("first").to("beside", "last")
        return workflow.from_("first").to("unwanted").when_equals("answer", "two").build()

    before, _ = await watched(make(ConnectionError("down")).stream("x", "e"))
    after, _ = await watched(make("done").stream_resumed("e"))

    ends_before = {("first", "done"): 1, ("unwanted", "skipped"): 1, ("beside", "done"): 1, ("last", "failed"): 1}
    assert ends(before) == Counter(ends_before)
    assert ends(after) == Counter({("last", "done"): 1})
    assert of_kind(after, event_types.WorkflowStartedEvent) == []
    assert [len(of_kind(events, event_types.WorkflowCompletedEvent)) for events in (before, after)] == [1, 1]


async def test_approved_output_is_not_streamed_again() -> None:
    workflow = kept().add_agent("draft", stub("a long draft"), lambda node: node.requires_approval()).build()
    events: list[Any] = []
    workflow.subscribe_any(events.append)
    asked = await workflow.run("x", "e")
    await workflow.approve(asked.pending[0].request_id)

    words = [event.data.text for event in of_kind(events, WorkflowEvent) if event.data.text]
    assert "".join(words) == "a long draft"
    assert len(of_kind(events, event_types.WorkflowAgentStartedEvent)) == 1
