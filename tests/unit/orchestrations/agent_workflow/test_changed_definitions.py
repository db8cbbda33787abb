"""Executions that were begun with another definition."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.orchestrations.agent_workflow.making import says

from holdfast import AgentWorkflow, IncompatibleWorkflow, InMemoryCheckpointStorage, condition


def built(storage: InMemoryCheckpointStorage, edges: Callable[[AgentWorkflow], object]) -> AgentWorkflow:
    builder = AgentWorkflow.create().with_name("changed").with_checkpointing().with_workflow_store(storage)
    builder.add_agent("a", says("A"), lambda node: node.requires_approval("?"))
    builder.add_agent("b", says("B")).add_agent("c", says("C"))
    edges(builder)
    return builder


BEFORE: Callable[[AgentWorkflow], object] = lambda one: one.from_("a").to("b").from_("b").to("c")  # noqa: E731  # a table


async def waiting() -> tuple[InMemoryCheckpointStorage, str]:
    storage = InMemoryCheckpointStorage()
    result = await built(storage, BEFORE).build().run("i", "e")
    return storage, result.pending[0].request_id


@pytest.mark.parametrize(
    ("edges", "gone"),
    [
        (lambda one: one.from_("b").to("c"), "a->b"),
        (lambda one: one.from_("a").to("b").when(condition.equals("answer", "A")).from_("b").to("c"), "a->b"),
        (lambda one: one.from_("a").to("b").from_("a").to("c"), "b->c"),
    ],
    ids=["gone", "with a condition", "led elsewhere"],
)
async def test_an_execution_does_not_go_on_along_other_edges_unless_told_to(
    edges: Callable[[AgentWorkflow], object], gone: str
) -> None:
    storage, request_id = await waiting()

    with pytest.raises(IncompatibleWorkflow, match=f"edge 'Single: {gone}' is gone"):
        await built(storage, edges).build().approve(request_id)
    assert (await built(storage, edges).build().approve(request_id, force=True)).state == "completed"


async def test_what_was_only_added_is_told_and_run() -> None:
    storage, request_id = await waiting()
    builder = built(storage, BEFORE)
    builder.add_agent("d", says("D")).from_("c").to("d")
    told: list[str] = []
    workflow = builder.build()
    workflow.subscribe_any(lambda event: told.append(getattr(event, "message", "")))

    result = await workflow.approve(request_id)

    assert result.final_answer == "D"
    assert any("edge 'Single: c->d' is new" in one for one in told)
