"""Approval of an agent's output before its use: when the workflow requests it, and the effect of an answer."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.agent_workflow.making import RecordingAgent, kept, of_kind, own, stub, watched

from perdure.agent_workflow import condition, events as event_types
from perdure.agent_workflow.builder.workflow import Configure
from perdure.agent_workflow.definition import ApprovalConfig
from perdure.agent_workflow.execution.node import ApprovalContext
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.errors import AlreadyAnswered, RequestError, UnknownRequest


class Review(msgspec.Struct):
    score: int
    note: str | None = None


def asking(configure: Configure, agent: Any = None, after: Any = None) -> AgentWorkflowInstance:
    """`a` may need approval; `b` comes after it."""
    builder = kept().add_agent("a", agent or stub("said"), configure).add_agent("b", after or stub("went on"))
    return builder.from_("a").to("b").build()


async def test_execution_waits_until_the_output_is_approved() -> None:
    agent, after = RecordingAgent("said"), RecordingAgent("went on")
    workflow = asking(lambda node: node.requires_approval("Publish?", description="The draft."), agent, after)
    result = await workflow.run("tides", "e")

    assert result.state == "waiting"
    assert not result.success
    (asked,) = result.pending
    assert (asked.agent_id, asked.message, asked.description) == ("a", "Publish?", "The draft.")
    assert asked.outputs == {"answer": "said"}
    assert asked.execution_id == "e"
    assert after.turns == 0

    result = await workflow.approve(asked.request_id)

    assert result.success
    assert result.final_answer == "went on"
    assert agent.turns == 1


async def test_denied_node_and_its_dependents_count_as_skipped() -> None:
    workflow = asking(lambda node: node.requires_approval("Publish?"))
    request_id = (await workflow.run("i", "e")).pending[0].request_id

    result = await workflow.deny(request_id, reason="too long")

    assert result.state == "completed"
    assert result.outputs == {}
    assert result.final_answer is None
    assert result.error is None


async def test_denied_approval_emits_one_resolved_event() -> None:
    workflow = asking(lambda node: node.requires_approval("Publish?"))
    seen: list[Any] = []
    workflow.subscribe_any(seen.append)
    request_id = (await workflow.run("i", "e")).pending[0].request_id
    before = len(seen)
    await workflow.deny(request_id, reason="too long")

    (resolved,) = of_kind(seen, event_types.WorkflowApprovalResolvedEvent)
    assert (resolved.request_id, resolved.agent_id, resolved.approved) == (request_id, "a", False)
    assert (resolved.reason, resolved.timed_out) == ("too long", False)
    assert [type(event) for event in own(seen[before:])] == [
        event_types.WorkflowApprovalResolvedEvent,
        event_types.WorkflowAgentSkippedEvent,
        event_types.WorkflowAgentSkippedEvent,
        event_types.WorkflowLayerCompletedEvent,
        event_types.WorkflowLayerStartedEvent,
        event_types.WorkflowLayerCompletedEvent,
        event_types.WorkflowCompletedEvent,
    ]
    reasons = [event.reason for event in of_kind(seen, event_types.WorkflowAgentSkippedEvent)]
    assert reasons[0] == "denied: too long"


async def test_data_of_an_approval_is_merged_into_the_outputs() -> None:
    after = RecordingAgent()
    builder = kept().add_agent("a", stub("said"), lambda node: node.requires_approval("Publish?"))
    builder.add_agent("b", after, lambda node: node.with_input_key("answer"))
    workflow = builder.from_("a").to("b").when_equals("extra", 1).build()
    request_id = (await workflow.run("i", "e")).pending[0].request_id

    result = await workflow.approve(request_id, data={"answer": "edited", "extra": 1})

    assert result.outputs == {"a.answer": "edited", "a.extra": 1, "b.answer": "<edited>"}


def structured(configure: Configure, reply: dict[str, Any]) -> AgentWorkflowInstance:
    def both(node: Any) -> None:
        configure(node.structured_output(Review))

    return asking(both, stub(reply))


LOW, HIGH = {"score": 1}, {"score": 9, "note": "n"}
WHEN: list[Configure] = [
    lambda node: node.requires_approval("?", when=condition.greater_than("score", 5)),
    lambda node: node.requires_approval("?", when=lambda context: context.outputs["score"] > 5),
    lambda node: node.requires_approval_when("score", 9),
    lambda node: node.requires_approval_when_exists("note"),
    lambda node: node.requires_approval(ApprovalConfig(message="?", when=condition.is_not_empty("note"))),
]


@pytest.mark.parametrize("configure", WHEN, ids=["condition", "predicate", "value", "exists", "config"])
async def test_approval_is_asked_for_only_where_it_is_needed(configure: Configure) -> None:
    assert (await structured(configure, LOW).run("i")).success
    assert (await structured(configure, HIGH).run("i")).state == "waiting"


async def test_predicate_receives_outputs_input_and_outputs_of_other_nodes() -> None:
    seen: list[ApprovalContext] = []

    def is_needed(context: ApprovalContext) -> bool:
        seen.append(context)
        return False

    builder = (
        kept().add_agent("a", stub("x")).add_agent("b", stub("y"), lambda node: node.requires_approval(when=is_needed))
    )
    await builder.from_("a").to("b").build().run("tides")

    (context,) = seen
    assert (context.node_id, context.outputs, context.original_input) == ("b", {"answer": "y"}, "tides")
    assert context.workflow_data == {"a": {"answer": "x"}}
    assert context.has_output("answer")
    assert not context.has_output("other")


async def test_failing_predicate_fails_its_node() -> None:
    result = await asking(lambda node: node.requires_approval(when=lambda context: context.outputs["none"])).run("i")

    assert result.state == "failed"
    assert "KeyError" in str(result.error)


async def test_other_branches_continue_while_one_branch_waits() -> None:
    other = RecordingAgent("other")
    builder = kept().add_agent("a", stub("said"), lambda node: node.requires_approval("?")).add_agent("other", other)
    result = await builder.build().run("i", "e")

    assert result.state == "waiting"
    assert result.outputs == {"other.answer": "other"}
    assert other.turns == 1


async def test_several_approvals_are_pending_at_once_and_answered_one_by_one() -> None:
    builder = kept()
    for name in "abc":
        builder.add_agent(name, stub(name), lambda node: node.requires_approval("?"))
    workflow = builder.build()
    pending = {request.agent_id: request.request_id for request in (await workflow.run("i", "e")).pending}
    assert set(pending) == {"a", "b", "c"}

    result = await workflow.deny(pending["b"])
    assert {request.agent_id for request in result.pending} == {"a", "c"}
    assert {request.agent_id for request in await workflow.pending("e")} == {"a", "c"}
    await workflow.approve(pending["c"])
    result = await workflow.approve(pending["a"])

    assert result.outputs == {"a.answer": "a", "c.answer": "c"}


# ---------------------------------------------------------------- requests that cannot be answered


async def test_answer_to_an_unknown_request_is_rejected() -> None:
    workflow = asking(lambda node: node.requires_approval("?"))
    await workflow.run("i", "e")

    for unknown in ("nonsense", "e:nonsense", "other:a-2"):
        with pytest.raises(UnknownRequest, match=unknown.removeprefix("e:")):
            await workflow.approve(unknown)
    assert (await workflow.resume("e")).state == "waiting"


async def test_a_request_is_answered_once() -> None:
    workflow = asking(lambda node: node.requires_approval("?"))
    request_id = (await workflow.run("i", "e")).pending[0].request_id
    await workflow.approve(request_id)

    with pytest.raises(AlreadyAnswered):
        await workflow.deny(request_id)
    assert (await workflow.resume("e")).success


async def test_an_answer_to_an_execution_that_has_ended_is_rejected() -> None:
    workflow = kept().add_agent("a", stub("x")).build()
    await workflow.run("i", "e")

    with pytest.raises(RequestError):
        await workflow.approve("e:a-2")


async def test_rerun_of_a_waiting_execution_emits_the_same_request() -> None:
    workflow = asking(lambda node: node.requires_approval("?"))
    first = await workflow.run("i", "e")
    events, again = await watched(workflow.stream("i", "e"))

    assert again.pending == first.pending
    assert [event.request_id for event in of_kind(events, event_types.WorkflowApprovalRequestedEvent)] == [
        first.pending[0].request_id
    ]
