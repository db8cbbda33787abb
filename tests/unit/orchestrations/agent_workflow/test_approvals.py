"""Somebody's word before what an agent said is used: when it is asked for, and what an answer does."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.orchestrations.agent_workflow.making import Overheard, kept, of_kind, own, says, watched

from perdure.agent_workflow import events as told
from perdure.agent_workflow.builder.workflow import Configure
from perdure.agent_workflow.definition import condition
from perdure.agent_workflow.definition.config import ApprovalConfig
from perdure.agent_workflow.execution.approvals import ApprovalContext
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.errors import AlreadyAnswered, RequestError, UnknownRequest


class Review(msgspec.Struct):
    score: int
    note: str | None = None


def asking(configure: Configure, agent: Any = None, after: Any = None) -> AgentWorkflowInstance:
    """`a` may need approval; `b` comes after it."""
    builder = kept().add_agent("a", agent or says("said"), configure).add_agent("b", after or says("went on"))
    return builder.from_("a").to("b").build()


async def test_nothing_goes_on_before_somebody_agrees() -> None:
    agent, after = Overheard("said"), Overheard("went on")
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


async def test_a_denied_node_counts_as_skipped_and_so_does_what_depends_on_it() -> None:
    workflow = asking(lambda node: node.requires_approval("Publish?"))
    request_id = (await workflow.run("i", "e")).pending[0].request_id

    result = await workflow.deny(request_id, reason="too long")

    assert result.state == "completed"
    assert result.outputs == {}
    assert result.final_answer is None
    assert result.error is None


async def test_what_became_of_an_approval_is_told_once() -> None:
    workflow = asking(lambda node: node.requires_approval("Publish?"))
    seen: list[Any] = []
    workflow.subscribe_any(seen.append)
    request_id = (await workflow.run("i", "e")).pending[0].request_id
    before = len(seen)
    await workflow.deny(request_id, reason="too long")

    (resolved,) = of_kind(seen, told.WorkflowApprovalResolvedEvent)
    assert (resolved.request_id, resolved.agent_id, resolved.approved) == (request_id, "a", False)
    assert (resolved.reason, resolved.timed_out) == ("too long", False)
    assert [type(one) for one in own(seen[before:])] == [
        told.WorkflowApprovalResolvedEvent,
        told.WorkflowAgentSkippedEvent,
        told.WorkflowAgentSkippedEvent,
        told.WorkflowLayerCompletedEvent,
        told.WorkflowLayerStartedEvent,
        told.WorkflowLayerCompletedEvent,
        told.WorkflowCompletedEvent,
    ]
    reasons = [one.reason for one in of_kind(seen, told.WorkflowAgentSkippedEvent)]
    assert reasons[0] == "denied: too long"


async def test_what_is_given_with_an_approval_is_put_into_the_outputs() -> None:
    after = Overheard()
    builder = kept().add_agent("a", says("said"), lambda node: node.requires_approval("Publish?"))
    builder.add_agent("b", after, lambda node: node.with_input_key("answer"))
    workflow = builder.from_("a").to("b").when_equals("extra", 1).build()
    request_id = (await workflow.run("i", "e")).pending[0].request_id

    result = await workflow.approve(request_id, data={"answer": "edited", "extra": 1})

    assert result.outputs == {"a.answer": "edited", "a.extra": 1, "b.answer": "<edited>"}


def structured(configure: Configure, reply: dict[str, Any]) -> AgentWorkflowInstance:
    def both(node: Any) -> None:
        configure(node.structured_output(Review))

    return asking(both, says(reply))


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


async def test_a_predicate_sees_outputs_input_and_what_others_gave() -> None:
    seen: list[ApprovalContext] = []

    def is_needed(context: ApprovalContext) -> bool:
        seen.append(context)
        return False

    builder = (
        kept().add_agent("a", says("x")).add_agent("b", says("y"), lambda node: node.requires_approval(when=is_needed))
    )
    await builder.from_("a").to("b").build().run("tides")

    (context,) = seen
    assert (context.node_id, context.outputs, context.original_input) == ("b", {"answer": "y"}, "tides")
    assert context.workflow_data == {"a": {"answer": "x"}}
    assert context.has_output("answer")
    assert not context.has_output("other")


async def test_a_predicate_that_fails_fails_its_node() -> None:
    result = await asking(lambda node: node.requires_approval(when=lambda context: context.outputs["none"])).run("i")

    assert result.state == "failed"
    assert "KeyError" in str(result.error)


async def test_the_rest_goes_on_while_one_branch_waits() -> None:
    other = Overheard("other")
    builder = kept().add_agent("a", says("said"), lambda node: node.requires_approval("?")).add_agent("other", other)
    result = await builder.build().run("i", "e")

    assert result.state == "waiting"
    assert result.outputs == {"other.answer": "other"}
    assert other.turns == 1


async def test_several_approvals_are_pending_at_once_and_answered_one_by_one() -> None:
    builder = kept()
    for name in "abc":
        builder.add_agent(name, says(name), lambda node: node.requires_approval("?"))
    workflow = builder.build()
    pending = {one.agent_id: one.request_id for one in (await workflow.run("i", "e")).pending}
    assert set(pending) == {"a", "b", "c"}

    result = await workflow.deny(pending["b"])
    assert {one.agent_id for one in result.pending} == {"a", "c"}
    assert {one.agent_id for one in await workflow.pending("e")} == {"a", "c"}
    await workflow.approve(pending["c"])
    result = await workflow.approve(pending["a"])

    assert result.outputs == {"a.answer": "a", "c.answer": "c"}


# ---------------------------------------------------------------- requests that cannot be answered


async def test_a_request_that_nobody_made_is_refused() -> None:
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


async def test_an_answer_to_an_execution_that_has_ended_is_refused() -> None:
    workflow = kept().add_agent("a", says("x")).build()
    await workflow.run("i", "e")

    with pytest.raises(RequestError):
        await workflow.approve("e:a-2")


async def test_asking_again_tells_of_the_same_request() -> None:
    workflow = asking(lambda node: node.requires_approval("?"))
    first = await workflow.run("i", "e")
    events, again = await watched(workflow.stream("i", "e"))

    assert again.pending == first.pending
    assert [one.request_id for one in of_kind(events, told.WorkflowApprovalRequestedEvent)] == [
        first.pending[0].request_id
    ]
