"""Executions that were begun with another definition."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.unit.orchestrations.agent_workflow.making import says

from perdure import AgentWorkflow, IncompatibleWorkflow, InMemoryCheckpointStorage, condition


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


async def test_what_has_ended_is_told_again_whatever_became_of_the_definition() -> None:
    storage, request_id = await waiting()
    await built(storage, BEFORE).build().approve(request_id)

    result = await built(storage, lambda one: one.from_("c").to("a")).build().run("i", "e")

    assert (result.final_answer, result.outputs["b.answer"]) == ("C", "B")


class Says:
    def __init__(self, word: str) -> None:
        self.word = word

    def __call__(self, outputs: Mapping[str, Any]) -> bool:
        return bool(outputs["answer"] == self.word)


def says_so(word: str, outputs: Mapping[str, Any]) -> bool:
    return bool(outputs["answer"] == word)


@pytest.mark.parametrize(
    "make", [lambda: Says("A"), lambda: functools.partial(says_so, "A")], ids=["object", "partial"]
)
async def test_a_predicate_has_the_same_name_in_every_process(make: Callable[[], Callable[..., bool]]) -> None:
    edges: Callable[[AgentWorkflow], object] = lambda one: one.from_("a").to("b").when(make())  # noqa: E731  # short
    storage = InMemoryCheckpointStorage()
    result = await built(storage, edges).build().run("i", "e")

    assert (await built(storage, edges).build().approve(result.pending[0].request_id)).outputs["b.answer"] == "B"


async def test_an_execution_names_the_version_that_it_was_begun_with() -> None:
    storage, request_id = await waiting()

    with pytest.raises(IncompatibleWorkflow) as refused:
        await built(storage, lambda one: one.from_("b").to("c")).build().approve(request_id)
    assert refused.value.__notes__ == ["Execution 'e' was started with version 1.0.0 of the definition."]


async def test_a_fork_of_an_execution_asks_the_same_request_once() -> None:
    storage, _ = await waiting()
    workflow = built(storage, BEFORE).build()
    head = await workflow.workflow.head("e")
    assert head is not None
    await workflow.workflow.fork(head.checkpoint_id, thread_id="f")

    asked = (await workflow.resume("f")).pending

    assert [one.request_id.partition(":")[0] for one in asked] == ["f"]
    assert (await workflow.approve(asked[0].request_id)).final_answer == "C"
    assert [one.execution_id for one in await workflow.pending()] == ["e"]
