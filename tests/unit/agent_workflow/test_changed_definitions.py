"""Executions that were begun with another definition."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.unit.agent_workflow.making import stub

from perdure import AgentWorkflow, IncompatibleWorkflow, InMemoryCheckpointStorage, condition


def built(storage: InMemoryCheckpointStorage, edges: Callable[[AgentWorkflow], object]) -> AgentWorkflow:
    builder = AgentWorkflow.create().with_name("changed").with_checkpointing().with_workflow_store(storage)
    builder.add_agent("a", stub("A"), lambda node: node.requires_approval("?"))
    builder.add_agent("b", stub("B")).add_agent("c", stub("C"))
    edges(builder)
    return builder


BEFORE: Callable[[AgentWorkflow], object] = lambda builder: builder.from_("a").to("b").from_("b").to("c")  # noqa: E731  # a table


async def waiting() -> tuple[InMemoryCheckpointStorage, str]:
    storage = InMemoryCheckpointStorage()
    result = await built(storage, BEFORE).build().run("i", "e")
    return storage, result.pending[0].request_id


@pytest.mark.parametrize(
    ("edges", "gone"),
    [
        (lambda builder: builder.from_("b").to("c"), "a->b"),
        (lambda builder: builder.from_("a").to("b").when(condition.equals("answer", "A")).from_("b").to("c"), "a->b"),
        (lambda builder: builder.from_("a").to("b").from_("a").to("c"), "b->c"),
    ],
    ids=["gone", "with a condition", "led elsewhere"],
)
async def test_execution_rejects_changed_edges_unless_forced(
    edges: Callable[[AgentWorkflow], object], gone: str
) -> None:
    storage, request_id = await waiting()

    with pytest.raises(IncompatibleWorkflow, match=f"edge 'Single: {gone}' is gone"):
        await built(storage, edges).build().approve(request_id)
    assert (await built(storage, edges).build().approve(request_id, force=True)).state == "completed"


async def test_added_nodes_are_reported_and_run() -> None:
    storage, request_id = await waiting()
    builder = built(storage, BEFORE)
    builder.add_agent("d", stub("D")).from_("c").to("d")
    messages: list[str] = []
    workflow = builder.build()
    workflow.subscribe_any(lambda event: messages.append(getattr(event, "message", "")))

    result = await workflow.approve(request_id)

    assert result.final_answer == "D"
    assert any("edge 'Single: c->d' is new" in message for message in messages)


async def test_ended_execution_returns_its_result_despite_a_changed_definition() -> None:
    storage, request_id = await waiting()
    await built(storage, BEFORE).build().approve(request_id)

    result = await built(storage, lambda builder: builder.from_("c").to("a")).build().run("i", "e")

    assert (result.final_answer, result.outputs["b.answer"]) == ("C", "B")


class AnswerIs:
    def __init__(self, word: str) -> None:
        self.word = word

    def __call__(self, outputs: Mapping[str, Any]) -> bool:
        return bool(outputs["answer"] == self.word)


def answer_is(word: str, outputs: Mapping[str, Any]) -> bool:
    return bool(outputs["answer"] == word)


@pytest.mark.parametrize(
    "make", [lambda: AnswerIs("A"), lambda: functools.partial(answer_is, "A")], ids=["object", "partial"]
)
async def test_a_predicate_has_the_same_name_in_every_process(make: Callable[[], Callable[..., bool]]) -> None:
    edges: Callable[[AgentWorkflow], object] = lambda builder: builder.from_("a").to("b").when(make())  # noqa: E731  # short
    storage = InMemoryCheckpointStorage()
    result = await built(storage, edges).build().run("i", "e")

    assert (await built(storage, edges).build().approve(result.pending[0].request_id)).outputs["b.answer"] == "B"


async def test_incompatible_execution_names_the_version_it_started_with() -> None:
    storage, request_id = await waiting()

    with pytest.raises(IncompatibleWorkflow) as refused:
        await built(storage, lambda builder: builder.from_("b").to("c")).build().approve(request_id)
    assert refused.value.__notes__ == ["Execution 'e' was started with version 1.0.0 of the definition."]


async def test_a_fork_of_an_execution_asks_the_same_request_once() -> None:
    storage, _ = await waiting()
    workflow = built(storage, BEFORE).build()
    head = await workflow.workflow.head("e")
    assert head is not None
    await workflow.workflow.fork(head.checkpoint_id, thread_id="f")

    asked = (await workflow.resume("f")).pending

    assert [request.request_id.partition(":")[0] for request in asked] == ["f"]
    assert (await workflow.approve(asked[0].request_id)).final_answer == "C"
    assert [request.execution_id for request in await workflow.pending()] == ["e"]
