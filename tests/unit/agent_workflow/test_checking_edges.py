"""Edges that lead nowhere, conditions that cannot hold, cycles that cannot be left."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.agent_workflow.document_parts import HERE, document, edge, nodes, problems_of

from perdure.agent_workflow.builder.workflow import AgentWorkflow

VERDICT = {"output_mode": "structured", "output_types": [f"{HERE}:Verdict"]}
UNION = {"output_mode": "union", "output_types": [f"{HERE}:Invoice", f"{HERE}:Complaint"]}
GIVES = "Its types: Invoice, Complaint"
SET_LIMIT = "Set the maximum of passes"
LIMIT = {"max_iterations": 3}


def of(*edges: dict[str, Any], settings: dict[str, Any] | None = None, **configs: Any) -> dict[str, Any]:
    """Return a document with these nodes, or with nodes a, b and c."""
    chosen = configs or {"a": {}, "b": {}, "c": {}}
    return document(agents=nodes(**chosen), edges=list(edges), settings=settings or {})


def asks(field: str, **more: Any) -> dict[str, Any]:
    return {"type": "exists", "field": field, **more}


def is_sound(definition: dict[str, Any]) -> bool:
    return AgentWorkflow.from_config(definition).build().node_count > 0


@pytest.mark.parametrize(
    ("definition", "problem"),
    [
        (of(edge("a", "reviw"), a={}, review={}), "edges[0].to: no node 'reviw' exists (did you mean 'review'?)"),
        (of(edge("reviw", "a"), a={}, review={}), "edges[0].from: no node 'reviw' exists (did you mean 'review'?)"),
        (of(edge("a", "EN"), a={}), "edges[0].to: no node 'EN' exists (did you mean 'END'?)"),
        (of(edge("a", "START")), "edges[0].to: START has no predecessors: it is the input of the execution"),
        (of(edge("END", "a")), "edges[0].from: END has no successors: it is the end of the execution"),
        (of(edge("START", "END")), "edges[0]: leads from START to END, past every node"),
        (of(edge("a", "b"), edge("a", "c"), edge("a", "b")), "edges[2]: the same as edges[0]"),
        (
            of(edge("a", "b", when=asks("answer")), edge("a", "b", when=asks("answer"))),
            "edges[1]: the same as edges[0]",
        ),
        (
            of(edge("a", "b", default=True), edge("a", "c", default=True)),
            "edges[1].default: 'a' has a default edge already: edges[0]",
        ),
        *(
            (
                of(edge("a", "b", default=True, **more), a=UNION, b={}),
                "edges[0].default: a default edge has no condition: it is taken if no other edge of 'a' is",
            )
            for more in ({"when": asks("why")}, {"predicate": f"{HERE}:is_long"}, {"matched_type": "Invoice"})
        ),
        (
            of(edge("a", "b", predicate=f"{HERE}:number")),
            f"edges[0].predicate: expected a function of the outputs; '{HERE}:number' is 3",
        ),
        (
            of(edge("a", "b", predicate="nowhere:x")),
            "edges[0].predicate: 'nowhere' cannot be imported: No module named 'nowhere'",
        ),
        # types
        (
            of(edge("a", "b", matched_type="Invoise"), a=UNION, b={}),
            f"edges[0].matched_type: 'Invoise' is not an output type of 'a' (did you mean 'Invoice'?). {GIVES}",
        ),
        (
            of(edge("a", "b", matched_type="Invoice")),
            "edges[0].matched_type: 'a' has no union output, so that nothing is routed by its type",
        ),
        (
            of(edge("a", "b", matched_type="Invoice"), a={**UNION, "map": {"over": "items"}}, b={}),
            "edges[0].matched_type: 'a' has no union output, so that nothing is routed by its type",
        ),
        (
            of(edge("START", "b", matched_type="Invoice")),
            "edges[0].matched_type: the input of the execution has no type: START has no union output",
        ),
        # fields
        (
            of(edge("a", "b", when=asks("scor")), a=VERDICT, b={}),
            "edges[0].when.field: 'a' has no output 'scor' (did you mean 'score'?). It has: score, advice",
        ),
        (
            of(edge("a", "b", when={"type": "not", "conditions": [{"type": "or", "conditions": [asks("x")]}]})),
            "edges[0].when.conditions[0].conditions[0].field: 'a' has no output 'x'. It has: answer",
        ),
        # cycles
        (
            of(edge("a", "b"), edge("b", "a")),
            f"settings.max_iterations: missing: the workflow has a cycle, a -> b -> a. {SET_LIMIT}",
        ),
        (
            of(edge("a", "a"), edge("a", "b"), edge("b", "c"), edge("c", "b")),
            f"settings.max_iterations: missing: the workflow has cycles, a -> a and b -> c -> b. {SET_LIMIT}",
        ),
        (
            of(edge("b", "a"), a={"output_mode": "handoff", "handoffs": [{"target": "b"}]}, b={}),
            f"settings.max_iterations: missing: the workflow has a cycle, a -> b -> a. {SET_LIMIT}",
        ),
        (
            of(edge("START", "a"), edge("b", "c"), edge("c", "b"), settings=LIMIT, a={}, b={}, c={}),
            "agents.b: not reachable from START. Add an edge to it, or remove it",
        ),
    ],
)
def test_invalid_edges_are_reported_with_their_places(definition: Any, problem: str) -> None:
    assert problems_of(definition)[0] == problem


def test_edge_to_an_unknown_node_reports_no_further_problems() -> None:
    definition = of(edge("a", "x", when=asks("answer")), edge("x", "b", when=asks("anything"), matched_type="Any"))
    assert problems_of(definition) == ["edges[0].to: no node 'x' exists", "edges[1].from: no node 'x' exists"]


def test_each_node_of_an_unreachable_cycle_is_reported() -> None:
    definition = of(edge("START", "a"), edge("b", "c"), edge("c", "b"), settings=LIMIT)
    assert [line.split(":")[0] for line in problems_of(definition)] == ["agents.b", "agents.c"]


@pytest.mark.parametrize(
    "definition",
    [
        of(edge("a", "b"), edge("b", "a"), settings=LIMIT),  # nothing leads in: the first node begins
        of(edge("START", "a"), edge("a", "b"), edge("b", "a"), settings=LIMIT),
        of(edge("a", "b", when=asks("answer")), edge("a", "b", when=asks("answer.length"))),
        of(edge("a", "b", predicate=f"{HERE}:is_long"), edge("a", "b", predicate=f"{HERE}:is_short")),
        of(edge("a", "b", when=asks("answer")), edge("a", "c", default=True), edge("b", "END", default=True)),
        of(edge("START", "a", when=asks("topic")), edge("START", "b", default=True)),
        of(edge("a", "b", when=asks("matched_type")), edge("a", "c", matched_type="Invoice"), a=UNION, b={}, c={}),
        of(edge("a", "b", when=asks("score.of.some.depth")), a=VERDICT, b={}),
        of(edge("a", "b", when=asks("handoff")), a={"output_mode": "handoff", "default_handoff": "b"}, b={}),
        of(edge("a", "b", when=asks("outputs.say")), a={"workflow": f"{HERE}:inner"}, b={}),
    ],
)
def test_edges_that_can_be_taken_are_built(definition: dict[str, Any]) -> None:
    assert is_sound(definition)


def one_type(name: str, **more: Any) -> dict[str, Any]:
    return {"output_mode": "structured", "output_types": [f"{HERE}:{name}"], **more}


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"approval": {}}, "whatever the one who approves puts in"),
        (one_type("OpenModel"), "whatever the model says beside its fields"),
        (one_type("Model"), "title"),
        (one_type("Tagged"), "kind"),
        (one_type("Listed"), "answer"),
        (one_type("Pair"), "answer"),
        (one_type("Verdict", output_key="verdict"), "verdict.score"),
        ({"on_error": {"mode": "fallback", "fallback": "spare"}}, "of_the_spare"),
    ],
)
def test_field_that_may_exist_is_accepted(config: dict[str, Any], field: str) -> None:
    assert is_sound(of(edge("a", "b", when=asks(field)), a=config, b={}, spare={"output_key": "of_the_spare"}))


@pytest.mark.parametrize(
    ("config", "there"),
    [
        (one_type("Model"), "title"),
        (one_type("Tagged"), "kind, size"),
        (one_type("Listed"), "answer"),
        (one_type("Verdict", output_key="verdict"), "verdict"),
        ({**UNION}, "total, why, matched_type"),
        ({**UNION, "output_key": "letter"}, "letter, matched_type"),
        (one_type("Verdict", map={"over": "items"}), "answer"),
    ],
)
def test_field_that_cannot_exist_is_rejected(config: dict[str, Any], there: str) -> None:
    definition = of(edge("a", "b", when=asks("no")), a=config, b={})
    assert problems_of(definition) == [f"edges[0].when.field: 'a' has no output 'no'. It has: {there}"]
