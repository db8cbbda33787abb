"""The fluent builder: what each method of an edge does to where an execution goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from tests.unit.agent_workflow.making import drafted, kept, stub

from perdure.agent_workflow import condition
from perdure.agent_workflow.builder.workflow import EdgeTargetBuilder
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.errors import InvalidDefinition


class Review(msgspec.Struct):
    score: int = 7
    text: str = "Tides rise"
    tags: list[str] = msgspec.field(default_factory=lambda: ["sea", "moon"])
    nothing: str | None = None


Edge = Callable[[EdgeTargetBuilder], EdgeTargetBuilder]

TAKEN: list[Edge] = [
    lambda edge: edge,
    lambda edge: edge.when(condition.equals("score", 7)),
    lambda edge: edge.when(lambda outputs: outputs["score"] == 7),
    lambda edge: edge.when_equals("score", 7),
    lambda edge: edge.when_not_equals("score", 8),
    lambda edge: edge.when_exists("score"),
    lambda edge: edge.when_not_exists("nothing"),
    lambda edge: edge.when_greater_than("score", 6),
    lambda edge: edge.when_less_than("score", 8),
    lambda edge: edge.when_contains("text", "rise"),
    lambda edge: edge.when_starts_with("text", "Tides"),
    lambda edge: edge.when_ends_with("text", "rise"),
    lambda edge: edge.when_matches_regex("text", "^tides", ignore_case=True),
    lambda edge: edge.when_empty("nothing"),
    lambda edge: edge.when_not_empty("text"),
    lambda edge: edge.when_contains_any("tags", ["star", "sea"]),
    lambda edge: edge.when_contains_all("tags", ["moon", "sea"]),
    lambda edge: edge.as_default(),
    lambda edge: edge.when_equals("score", 7).when_exists("text"),
    lambda edge: edge.when_equals("score", 7).when(lambda outputs: True),
]
NOT_TAKEN: list[Edge] = [
    lambda edge: edge.when(condition.equals("score", 8)),
    lambda edge: edge.when(lambda outputs: outputs["score"] == 8),
    lambda edge: edge.when_equals("score", 8),
    lambda edge: edge.when_not_equals("score", 7),
    lambda edge: edge.when_exists("nothing"),
    lambda edge: edge.when_not_exists("score"),
    lambda edge: edge.when_greater_than("score", 7),
    lambda edge: edge.when_less_than("score", 7),
    lambda edge: edge.when_contains("text", "fall"),
    lambda edge: edge.when_starts_with("text", "rise"),
    lambda edge: edge.when_ends_with("text", "Tides"),
    lambda edge: edge.when_matches_regex("text", "^tides"),
    lambda edge: edge.when_empty("text"),
    lambda edge: edge.when_not_empty("nothing"),
    lambda edge: edge.when_contains_any("tags", ["star"]),
    lambda edge: edge.when_contains_all("tags", ["moon", "star"]),
    lambda edge: edge.when_equals("score", 7).when_exists("nothing"),
    lambda edge: edge.when_exists("nothing").when_equals("score", 7),
    lambda edge: edge.when_equals("score", 7).when(lambda outputs: False),
    lambda edge: edge.when_equals("score", 8).when(lambda outputs: True),
]


def with_edge(configure: Edge) -> AgentWorkflowInstance:
    builder = drafted().add_agent("review", stub({"score": 7}), lambda node: node.structured_output(Review))
    return configure(builder.add_agent("next", stub("went on")).from_("review").to("next")).build()


@pytest.mark.parametrize("configure", TAKEN)
async def test_an_edge_is_taken(configure: Edge) -> None:
    assert (await with_edge(configure).run("i")).outputs["next.answer"] == "went on"


@pytest.mark.parametrize("configure", NOT_TAKEN)
async def test_an_edge_is_not_taken(configure: Edge) -> None:
    assert "next.answer" not in (await with_edge(configure).run("i")).outputs


async def test_one_call_makes_an_edge_from_each_source_to_each_target() -> None:
    builder = drafted()
    for name in "abcd":
        builder.add_agent(name, stub(name))
    edges = builder.from_("a", "b").to("c", "d").when_equals("answer", "a").build().definition.edges

    assert [(edge.source, edge.target) for edge in edges] == [("a", "c"), ("a", "d"), ("b", "c"), ("b", "d")]
    assert all(edge.when == condition.equals("answer", "a") for edge in edges)


async def test_only_the_edges_that_were_added_last_get_the_condition() -> None:
    builder = drafted().add_agent("a", stub("a")).add_agent("b", stub("b")).add_agent("c", stub("c"))
    workflow = builder.from_("a").to("b").from_("a").to("c").when_equals("answer", "never").build()

    assert set((await workflow.run("i")).outputs) == {"a.answer", "b.answer"}


def test_a_second_function_as_the_condition_of_an_edge_is_rejected() -> None:
    edge = drafted().add_agent("a", stub("a")).from_("a").to("END").when(lambda outputs: True)

    with pytest.raises(ValueError, match="one function"):
        edge.when(lambda outputs: False)


def test_when_rejects_a_value_that_is_not_a_condition() -> None:
    edge: Any = drafted().add_agent("a", stub("a")).from_("a").to("END")

    with pytest.raises(TypeError, match="when expects a condition or a function"):
        edge.when("score > 3")


def test_an_edge_needs_a_node_at_each_end() -> None:
    with pytest.raises(ValueError, match="from_"):
        drafted().from_()
    with pytest.raises(ValueError, match="to"):
        drafted().from_("a").to()


def test_second_node_with_the_same_id_is_rejected() -> None:
    builder = drafted().add_agent("a", stub("a"))

    with pytest.raises(InvalidDefinition, match=r"agents\.a"):
        builder.add_agent("a", stub("b"))


def test_a_node_without_an_agent_is_rejected() -> None:
    with pytest.raises(TypeError, match="add_agent expects an agent"):
        drafted().add_agent("a", None)


def test_build_reports_all_problems_at_once_with_their_places() -> None:
    builder = drafted().with_checkpointing().add_agent("review", stub("x")).add_agent("draft", stub("y"))
    edges = builder.from_("draft").to("reviw").from_("review").to("draft").from_("draft").to("review")

    with pytest.raises(InvalidDefinition) as caught:
        edges.build()

    text = str(caught.value)
    assert "edges[0].to: no node 'reviw' exists" in text
    assert "did you mean 'review'?" in text
    assert "settings.max_iterations" in text
    assert "settings.checkpointing" in text


async def test_builder_methods_can_follow_an_edge_and_a_router() -> None:
    workflow = (
        drafted()
        .add_agent("a", stub("a"))
        .from_("a")
        .to("b")
        .add_agent("b", stub("b"))
        .from_("b")
        .to("route")
        .add_router_agent("route", stub("c"))
        .with_handoff("c")
        .add_agent("c", stub("end"))
        .with_name("later")
        .build()
    )

    assert workflow.name == "later"
    assert (await workflow.run("i")).final_answer == "end"


async def test_a_predicate_sees_the_outputs_of_its_source() -> None:
    seen: list[Mapping[str, Any]] = []

    def is_good(outputs: Mapping[str, Any]) -> bool:
        seen.append(dict(outputs))
        return True

    builder = drafted().add_agent("a", stub("x"), lambda node: node.with_output_key("draft"))
    await builder.add_agent("b", stub("y")).from_("a").to("b").when(is_good).build().run("i")

    assert seen
    assert all(outputs == {"draft": "x"} for outputs in seen)


async def test_later_name_does_not_change_a_built_workflow() -> None:
    builder = kept("first").add_agent("a", stub("x"))
    workflow = builder.build()
    builder.with_name("second").add_agent("b", stub("y"))

    assert workflow.name == "first"
    assert (await workflow.run("i")).outputs == {"a.answer": "x"}
    assert "b" not in workflow.to_diagram()


async def no(outputs: Any) -> bool:
    return False


def test_async_function_is_rejected_as_a_condition() -> None:
    builder = drafted().add_agent("a", stub("x")).add_agent("b", stub("y"))
    wrong: Any = no
    with pytest.raises((InvalidDefinition, TypeError), match="async"):
        builder.from_("a").to("b").when(wrong).build()
    with pytest.raises((InvalidDefinition, TypeError), match="async"):
        drafted().add_agent("a", stub("x"), lambda node: node.requires_approval("?", when=wrong)).build()


def test_all_async_functions_and_all_unusable_agents_are_reported() -> None:
    def problems_of(builder: Any) -> list[tuple[str, str]]:
        with pytest.raises(InvalidDefinition) as refused:
            builder.build()
        return list(refused.value.problems)

    wrong: Any = no
    builder = (
        drafted().add_agent("a", stub("x")).add_agent("b", stub("y"), lambda node: node.requires_approval(when=wrong))
    )
    problem = "expected a plain function, 'no' is async: use an agent for work that takes time"
    places = ["agents.b.approval.predicate", "edges[0].predicate"]
    assert problems_of(builder.from_("a").to("b").when(wrong)) == [(place, problem) for place in places]
    builder = drafted().add_agent("a", object()).add_agent("b", type(stub("x")))
    assert [place for place, _ in problems_of(builder)] == ["agents.a.agent", "agents.b.agent"]


async def test_predicate_cannot_change_the_outputs_it_receives() -> None:
    def changes(outputs: Any) -> bool:
        outputs.update(answer="changed")
        return True

    builder = kept().add_agent(
        "a", stub("x"), lambda node: node.requires_approval("?", when=lambda context: changes(context.outputs))
    )
    workflow = builder.add_agent("b", stub("y")).from_("a").to("b").when(changes).build()
    result = await workflow.run("i", "e")
    assert result.pending[0].outputs == {"answer": "x"}

    assert (await workflow.approve(result.pending[0].request_id)).outputs["a.answer"] == "x"


@pytest.mark.parametrize("name", ["", 3])
def test_invalid_workflow_name_is_rejected(name: Any) -> None:
    with pytest.raises(ValueError, match="name"):
        drafted().with_name(name)
