"""What is told of an execution: in which order, with true numbers, and nothing twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.unit.orchestrations.agent_workflow.making import Overheard, drafted, kept, of_kind, own, says, watched

from perdure.agent_workflow import events as told
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.agents.conversation.message import Message
from perdure.agents.conversation.response import AgentResponse, AgentResponseUpdate
from perdure.events import WorkflowEvent
from perdure.storages import InMemoryCheckpointStorage
from perdure.testing import FakeClock, ScriptedAgent


def names(events: list[Any]) -> list[str]:
    """Each in a word or two: its kind, and whose it is."""
    return [
        " ".join(
            filter(
                None,
                (
                    type(one).__name__.removeprefix("Workflow").removesuffix("Event"),
                    str(getattr(one, "agent_id", "") or ""),
                    str(getattr(one, "layer_index", "")) if "Layer" in type(one).__name__ else "",
                    "-".join(filter(None, (getattr(one, "from_node_id", ""), getattr(one, "to_node_id", "")))),
                ),
            )
        )
        for one in own(events)
    ]


async def test_a_small_workflow_is_told_step_by_step() -> None:
    builder = kept().add_agent("a", says("x")).add_agent("b", says("y")).add_agent("c", says("z"))
    edges = builder.from_("a").to("b").from_("a").to("c").when_equals("answer", "never")
    events, _ = await watched(edges.build().stream("i", "e"))

    assert names(events) == [
        "Started",
        "LayerStarted 0",
        "AgentStarted a",
        "AgentCompleted a",
        "EdgeTraversed a-b",
        "AgentSkipped c",
        "LayerCompleted 0",
        "LayerStarted 1",
        "AgentStarted b",
        "AgentCompleted b",
        "LayerCompleted 1",
        "Completed",
    ]
    assert {one.workflow_name for one in own(events)} == {"w"}
    assert {one.execution_id for one in own(events)} == {"e"}


async def test_fields_are_true() -> None:
    builder = (
        kept()
        .add_agent("a", says("x", name="writer"))
        .add_agent("b", says(ValueError("boom")), lambda node: node.on_error_isolate())
    )
    builder.add_agent("c", says("z"))
    events, _ = await watched(builder.from_("a").to("c").when_equals("answer", "no").build().stream("i"))

    (began,) = of_kind(events, told.WorkflowStartedEvent)
    assert (began.node_count, began.layer_count) == (3, 2)
    (writer,) = [one for one in of_kind(events, told.WorkflowAgentStartedEvent) if one.agent_id == "a"]
    assert (writer.agent_name, writer.layer_index) == ("writer", 0)
    ended = {one.agent_id: one for one in of_kind(events, told.WorkflowAgentCompletedEvent)}
    assert (ended["a"].success, ended["a"].outputs, ended["a"].error_message) == (True, {"answer": "x"}, None)
    assert (ended["b"].success, ended["b"].outputs, ended["b"].error_message) == (False, {}, "ValueError: boom")
    assert "c" not in ended
    layers = {one.layer_index: one.successful_nodes for one in of_kind(events, told.WorkflowLayerCompletedEvent)}
    assert layers == {0: 1, 1: 0}
    (whole,) = of_kind(events, told.WorkflowCompletedEvent)
    assert (whole.successful_nodes, whole.failed_nodes, whole.skipped_nodes) == (1, 1, 1)
    assert (whole.success, whole.error) == (False, "b: ValueError: boom")


async def test_progress_is_the_part_that_is_settled() -> None:
    builder = kept()
    for name in "abcd":
        builder.add_agent(name, says(name))
    edges = builder.from_("a").to("b").from_("b").to("c").from_("a").to("d").when_equals("answer", "no")
    events, _ = await watched(edges.build().stream("i"))

    progress = [(one.agent_id, one.progress) for one in of_kind(events, told.WorkflowAgentCompletedEvent)]
    assert progress == [("a", 0.25), ("b", 0.75), ("c", 1.0)]


class Timed:
    """Takes a number of seconds."""

    description = None

    def __init__(self, clock: FakeClock, seconds: float) -> None:
        self.name = self.id = f"takes {seconds:g}"
        self._clock, self._seconds = clock, seconds

    async def run(self, messages: list[Message], *, session: Any = None) -> AgentResponse:
        await self._clock.sleep(self._seconds)
        return AgentResponse(messages=(Message("assistant", "done"),))


async def test_durations_are_true() -> None:
    clock = FakeClock()
    builder = (
        kept(clock=clock)
        .add_agent("a", Timed(clock, 5))
        .add_agent("b", Timed(clock, 8))
        .add_agent("c", Timed(clock, 2))
    )
    workflow = builder.from_("a", "b").to("c").build()
    async with clock.skipping():
        events, result = await watched(workflow.stream("i"))

    agents = {one.agent_id: one.duration for one in of_kind(events, told.WorkflowAgentCompletedEvent)}
    assert agents == {"a": 5, "b": 8, "c": 2}
    assert [one.duration for one in of_kind(events, told.WorkflowLayerCompletedEvent)] == [8, 2]
    assert [one.duration for one in of_kind(events, told.WorkflowCompletedEvent)] == [10]
    assert result.duration == 10


async def test_what_agents_say_is_passed_on_word_by_word() -> None:
    events, _ = await watched(drafted().add_agent("a", says("one two three", name="writer")).build().stream("i"))
    updates = [one.data for one in of_kind(events, WorkflowEvent) if isinstance(one.data, AgentResponseUpdate)]

    assert "".join(one.text for one in updates) == "one two three"
    assert len(updates) >= 3


# ---------------------------------------------------------------- nothing twice


async def test_an_execution_that_has_ended_tells_nothing_more() -> None:
    workflow = kept().add_agent("a", says("x")).build()
    await workflow.run("i", "e")
    events, result = await watched(workflow.stream("i", "e"))

    assert own(events) == []
    assert result.final_answer == "x"


async def test_a_resume_tells_only_what_is_new() -> None:
    second = Overheard(ValueError("boom"), "y")
    builder = kept().add_agent("a", says("x")).add_agent("b", second).add_agent("c", says("z"))
    workflow = builder.from_("a").to("b").from_("b").to("c").build()
    first, _ = await watched(workflow.stream("i", "e"))
    again, _ = await watched(workflow.stream_resumed("e"))

    assert names(first)[-3:] == ["AgentStarted b", "AgentCompleted b", "Completed"]
    assert names(again) == [
        "AgentStarted b",
        "AgentCompleted b",
        "EdgeTraversed b-c",
        "LayerCompleted 1",
        "LayerStarted 2",
        "AgentStarted c",
        "AgentCompleted c",
        "LayerCompleted 2",
        "Completed",
    ]
    (ended,) = of_kind(again, told.WorkflowCompletedEvent)
    assert (ended.successful_nodes, ended.success) == (3, True)
    progress = [one.progress for one in of_kind(again, told.WorkflowAgentCompletedEvent)]
    assert progress == [2 / 3, 1.0]


async def test_an_answered_approval_tells_only_what_is_new() -> None:
    builder = kept().add_agent("a", says("x")).add_agent("b", says("y"), lambda node: node.requires_approval("?"))
    workflow = builder.from_("a").to("b").build()
    seen: list[Any] = []
    workflow.subscribe_any(seen.append)
    result = await workflow.run("i", "e")
    assert names(seen)[-2:] == ["AgentStarted b", "ApprovalRequested b"]
    seen.clear()
    await workflow.approve(result.pending[0].request_id)

    assert names(seen) == ["ApprovalResolved b", "AgentCompleted b", "LayerCompleted 1", "Completed"]
    assert not [one for one in seen if isinstance(one, WorkflowEvent)]  # b says nothing again


async def test_a_failed_execution_is_told_as_completed_without_success() -> None:
    events, _ = await watched(kept().add_agent("a", says(ValueError("boom"))).build().stream("i"))

    (ended,) = of_kind(events, told.WorkflowCompletedEvent)
    assert (ended.success, ended.error) == (False, "a: ValueError: boom")
    (agent,) = of_kind(events, told.WorkflowAgentCompletedEvent)
    assert agent.error_message == "ValueError: boom"


async def test_progress_counts_what_was_done_beside_a_failure_before_a_resume() -> None:
    storage, is_well = InMemoryCheckpointStorage(), False

    def built() -> AgentWorkflowInstance:
        builder = drafted().with_checkpointing().with_workflow_store(storage)
        builder.add_agent("a", ScriptedAgent("a", lambda messages: "A" if is_well else ValueError("boom")))
        return builder.add_agent("b", says("B")).add_agent("c", says("C")).from_("a", "b").to("c").build()

    await built().run("i", "e")
    is_well = True
    events, _ = await watched(built().stream_resumed("e"))

    completed = [one for one in events if isinstance(one, told.WorkflowAgentCompletedEvent)]
    assert [(one.agent_id, one.progress) for one in completed] == [("a", 2 / 3), ("c", 1.0)]


async def test_outputs_so_far_are_told_however_often_a_predicate_fails() -> None:
    def fails(outputs: Mapping[str, Any]) -> bool:
        raise KeyError("zz")

    workflow = kept().add_agent("a", says("A")).add_agent("b", says("B")).from_("a").to("b").when(fails).build()
    results = [await workflow.run("i", "e"), await workflow.resume("e")]

    assert [one.outputs for one in results] == [{"a.answer": "A"}] * 2
    assert {one.error for one in results} == {"edges[0].predicate: KeyError: 'zz'"}
