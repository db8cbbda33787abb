"""Events of an execution: their order, correct numbers, and no event twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.unit.agent_workflow.making import RecordingAgent, drafted, kept, of_kind, own, stub, watched

from perdure.agent_workflow import events as event_types
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.agents.conversation.message import Message
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.conversation.update import AgentResponseUpdate
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
                    type(event).__name__.removeprefix("Workflow").removesuffix("Event"),
                    str(getattr(event, "agent_id", "") or ""),
                    str(getattr(event, "layer_index", "")) if "Layer" in type(event).__name__ else "",
                    "-".join(filter(None, (getattr(event, "from_node_id", ""), getattr(event, "to_node_id", "")))),
                ),
            )
        )
        for event in own(events)
    ]


async def test_small_workflow_emits_its_events_in_order() -> None:
    builder = kept().add_agent("a", stub("x")).add_agent("b", stub("y")).add_agent("c", stub("z"))
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
    assert {event.workflow_name for event in own(events)} == {"w"}
    assert {event.execution_id for event in own(events)} == {"e"}


async def test_event_fields_are_correct() -> None:
    builder = (
        kept()
        .add_agent("a", stub("x", name="writer"))
        .add_agent("b", stub(ValueError("boom")), lambda node: node.on_error_isolate())
    )
    builder.add_agent("c", stub("z"))
    events, _ = await watched(builder.from_("a").to("c").when_equals("answer", "no").build().stream("i"))

    (began,) = of_kind(events, event_types.WorkflowStartedEvent)
    assert (began.node_count, began.layer_count) == (3, 2)
    (writer,) = [event for event in of_kind(events, event_types.WorkflowAgentStartedEvent) if event.agent_id == "a"]
    assert (writer.agent_name, writer.layer_index) == ("writer", 0)
    ended = {event.agent_id: event for event in of_kind(events, event_types.WorkflowAgentCompletedEvent)}
    assert (ended["a"].success, ended["a"].outputs, ended["a"].error_message) == (True, {"answer": "x"}, None)
    assert (ended["b"].success, ended["b"].outputs, ended["b"].error_message) == (False, {}, "ValueError: boom")
    assert "c" not in ended
    layers = {
        event.layer_index: event.successful_nodes for event in of_kind(events, event_types.WorkflowLayerCompletedEvent)
    }
    assert layers == {0: 1, 1: 0}
    (whole,) = of_kind(events, event_types.WorkflowCompletedEvent)
    assert (whole.successful_nodes, whole.failed_nodes, whole.skipped_nodes) == (1, 1, 1)
    assert (whole.success, whole.error) == (False, "b: ValueError: boom")


async def test_progress_is_the_share_of_settled_nodes() -> None:
    builder = kept()
    for name in "abcd":
        builder.add_agent(name, stub(name))
    edges = builder.from_("a").to("b").from_("b").to("c").from_("a").to("d").when_equals("answer", "no")
    events, _ = await watched(edges.build().stream("i"))

    progress = [(event.agent_id, event.progress) for event in of_kind(events, event_types.WorkflowAgentCompletedEvent)]
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


async def test_durations_are_correct() -> None:
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

    agents = {event.agent_id: event.duration for event in of_kind(events, event_types.WorkflowAgentCompletedEvent)}
    assert agents == {"a": 5, "b": 8, "c": 2}
    assert [event.duration for event in of_kind(events, event_types.WorkflowLayerCompletedEvent)] == [8, 2]
    assert [event.duration for event in of_kind(events, event_types.WorkflowCompletedEvent)] == [10]
    assert result.duration == 10


async def test_agent_text_is_streamed_word_by_word() -> None:
    events, _ = await watched(drafted().add_agent("a", stub("one two three", name="writer")).build().stream("i"))
    updates = [event.data for event in of_kind(events, WorkflowEvent) if isinstance(event.data, AgentResponseUpdate)]

    assert "".join(update.text for update in updates) == "one two three"
    assert len(updates) >= 3


# ---------------------------------------------------------------- nothing twice


async def test_ended_execution_emits_no_more_events() -> None:
    workflow = kept().add_agent("a", stub("x")).build()
    await workflow.run("i", "e")
    events, result = await watched(workflow.stream("i", "e"))

    assert own(events) == []
    assert result.final_answer == "x"


async def test_resume_emits_only_new_events() -> None:
    second = RecordingAgent(ValueError("boom"), "y")
    builder = kept().add_agent("a", stub("x")).add_agent("b", second).add_agent("c", stub("z"))
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
    (ended,) = of_kind(again, event_types.WorkflowCompletedEvent)
    assert (ended.successful_nodes, ended.success) == (3, True)
    progress = [event.progress for event in of_kind(again, event_types.WorkflowAgentCompletedEvent)]
    assert progress == [2 / 3, 1.0]


async def test_answered_approval_emits_only_new_events() -> None:
    builder = kept().add_agent("a", stub("x")).add_agent("b", stub("y"), lambda node: node.requires_approval("?"))
    workflow = builder.from_("a").to("b").build()
    seen: list[Any] = []
    workflow.subscribe_any(seen.append)
    result = await workflow.run("i", "e")
    assert names(seen)[-2:] == ["AgentStarted b", "ApprovalRequested b"]
    seen.clear()
    await workflow.approve(result.pending[0].request_id)

    assert names(seen) == ["ApprovalResolved b", "AgentCompleted b", "LayerCompleted 1", "Completed"]
    assert not [event for event in seen if isinstance(event, WorkflowEvent)]  # b streams nothing again


async def test_failed_execution_emits_completed_without_success() -> None:
    events, _ = await watched(kept().add_agent("a", stub(ValueError("boom"))).build().stream("i"))

    (ended,) = of_kind(events, event_types.WorkflowCompletedEvent)
    assert (ended.success, ended.error) == (False, "a: ValueError: boom")
    (agent,) = of_kind(events, event_types.WorkflowAgentCompletedEvent)
    assert agent.error_message == "ValueError: boom"


async def test_progress_after_a_resume_counts_nodes_done_before_it() -> None:
    storage, is_well = InMemoryCheckpointStorage(), False

    def built() -> AgentWorkflowInstance:
        builder = drafted().with_checkpointing().with_workflow_store(storage)
        builder.add_agent("a", ScriptedAgent("a", lambda messages: "A" if is_well else ValueError("boom")))
        return builder.add_agent("b", stub("B")).add_agent("c", stub("C")).from_("a", "b").to("c").build()

    await built().run("i", "e")
    is_well = True
    events, _ = await watched(built().stream_resumed("e"))

    completed = [event for event in events if isinstance(event, event_types.WorkflowAgentCompletedEvent)]
    assert [(event.agent_id, event.progress) for event in completed] == [("a", 2 / 3), ("c", 1.0)]


async def test_outputs_so_far_are_returned_each_time_a_predicate_fails() -> None:
    def fails(outputs: Mapping[str, Any]) -> bool:
        raise KeyError("zz")

    workflow = kept().add_agent("a", stub("A")).add_agent("b", stub("B")).from_("a").to("b").when(fails).build()
    results = [await workflow.run("i", "e"), await workflow.resume("e")]

    assert [result.outputs for result in results] == [{"a.answer": "A"}] * 2
    assert {result.error for result in results} == {"edges[0].predicate: KeyError: 'zz'"}
