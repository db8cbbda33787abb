"""Building a workflow reports nodes that cannot do what their config asks for."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.agent_workflow.document_parts import HERE, agent, document, edge, nodes, problems_of

from perdure.agent_workflow.builder.workflow import AgentWorkflow
from perdure.agent_workflow.definition import AgentConfig
from perdure.errors import InvalidDefinition


def of(*edges: dict[str, Any], **configs: Any) -> dict[str, Any]:
    return document(agents=nodes(**configs), edges=list(edges))


def router(*targets: str, **more: Any) -> dict[str, Any]:
    return {"output_mode": "handoff", "handoffs": [{"target": target} for target in targets], **more}


def falls(to: str | None = None, mode: str = "fallback") -> dict[str, Any]:
    return {"on_error": {"mode": mode} if to is None else {"mode": mode, "fallback": to}}


NO_SESSIONS = "the workflow has no session store: add one, such as with_json_session_store(folder)"
MODEL = "missing: name a model here, or one for the whole workflow (settings.model, with_model)"
VERDICT, INVOICE, COMPLAINT = (f"{HERE}:{name}" for name in ("Verdict", "Invoice", "Complaint"))


@pytest.mark.parametrize(
    ("definition", "problem"),
    [
        (document(agents={}, edges=[]), "agents: missing: a workflow needs a node"),
        (of(START={}), "agents.START: START, END and input are reserved. Give the node another id"),
        (of(END={}), "agents.END: START, END and input are reserved. Give the node another id"),
        (of(**{"a b": {}}), 'agents["a b"]: expected an id of letters, digits, _ and -'),
        (of(**{"a.b": {}}), 'agents["a.b"]: expected an id of letters, digits, _ and -'),
        (of(**{"": {}}), 'agents[""]: expected an id of letters, digits, _ and -'),
        (of(ä={}), "agents.ä: expected an id of letters, digits, _ and -"),
        (document(agents={"a": {}}, edges=[]), "agents.a: missing: a node needs an agent, or a workflow"),
        (
            of(a={"agent": agent(), "workflow": f"{HERE}:inner"}),
            "agents.a: has an agent and a workflow: a node is one of them",
        ),
        (of(a={"agent": {"name": "x"}}), f"agents.a.agent.model: {MODEL}"),
        *(
            (
                of(a={"workflow": f"{HERE}:inner", **more}),
                f"agents.a.{field}: applies to agents, and this node is a workflow",
            )
            for field, more in (
                ("output_mode", {"output_mode": "structured", "output_types": [VERDICT]}),
                ("map", {"map": {"over": "items"}}),
                ("instructions", {"instructions": "Be brief."}),
                ("context", {"context": {"x": 1}}),
                ("tools", {"tools": [f"{HERE}:search"]}),
            )
        ),
        (
            of(a={"output_mode": "structured"}),
            "agents.a.output_types: expected one type, since output_mode is 'structured'; got 0",
        ),
        (
            of(a={"output_mode": "structured", "output_types": [INVOICE, COMPLAINT]}),
            "agents.a.output_types: expected one type, since output_mode is 'structured'; got 2",
        ),
        (
            of(a={"output_mode": "union"}),
            "agents.a.output_types: expected types, since output_mode is 'union'; got none",
        ),
        (
            of(a={"output_types": [VERDICT]}),
            "agents.a.output_types: are of structured and union outputs, and output_mode is 'string'",
        ),
        (
            of(a={"output_mode": "union", "output_types": [INVOICE, INVOICE]}),
            "agents.a.output_types: 2 of them are called 'Invoice', so that 'matched_type' cannot distinguish them",
        ),
        (
            of(a={"retry": {"initial_delay": 5, "max_delay": 2}}),
            "agents.a.retry.max_delay: 2 s is shorter than initial_delay, 5 s",
        ),
        # handoffs
        (of(a=router("bb"), b={}), "agents.a.handoffs[0].target: no node 'bb' exists (did you mean 'b'?)"),
        (of(a=router("START")), "agents.a.handoffs[0].target: no node 'START' exists"),
        (of(a=router("b", "b"), b={}), "agents.a.handoffs[1].target: 'b' is among them already"),
        (
            of(a=router(default_handoff="bb"), b={}),
            "agents.a.default_handoff: no node 'bb' exists (did you mean 'b'?)",
        ),
        (
            of(a={"output_mode": "handoff"}),
            "agents.a.handoffs: missing: output_mode is 'handoff', and no target is defined",
        ),
        (
            of(a={"handoffs": [{"target": "b"}]}, b={}),
            "agents.a.output_mode: expected 'handoff', since there are handoffs; got 'string'",
        ),
        (
            of(a=router("b", map={"over": "items"}), b={}),
            "agents.a.map: a node that hands off runs once, not for each item of a list",
        ),
        # fallbacks
        (
            of(a=falls()),
            "agents.a.on_error.fallback: missing: the mode is 'fallback', so name a fallback node",
        ),
        (of(a=falls("spar"), spare={}), "agents.a.on_error.fallback: no node 'spar' exists (did you mean 'spare'?)"),
        (of(a=falls("END")), "agents.a.on_error.fallback: no node 'END' exists"),
        (of(a=falls("a")), "agents.a.on_error.fallback: a node cannot be its own fallback"),
        (
            of(edge("a", "b"), a=falls("b"), b={}),
            "agents.a.on_error.fallback: 'b' cannot be a fallback: an edge leads to it, edges[0]",
        ),
        (
            of(edge("START", "b"), a=falls("b"), b={}),
            "agents.a.on_error.fallback: 'b' cannot be a fallback: an edge leads to it, edges[0]",
        ),
        (
            of(a=falls("b"), b={}, r=router("b")),
            "agents.a.on_error.fallback: 'b' cannot be a fallback: 'r' hands off to it",
        ),
        (
            of(a=falls("b", mode="skip"), b={}),
            "agents.a.on_error.mode: expected 'fallback', since a fallback is named; got 'skip'",
        ),
        # approvals
        (
            of(a={"approval": {"when": {"type": "exists", "field": "answr"}}}),
            "agents.a.approval.when.field: 'a' has no output 'answr' (did you mean 'answer'?). It has: answer",
        ),
        (
            of(a={"agent": "nowhere"}),
            "agents.a.agent: expected an import path such as 'package.module:name', got 'nowhere'",
        ),
        (of(a={"agent": "nowhere:x"}), "agents.a.agent: 'nowhere' cannot be imported: No module named 'nowhere'"),
        (of(a={"agent": f"{HERE}:writr"}), f"agents.a.agent: {HERE!r} has no 'writr' (did you mean 'writer'?)"),
        (
            of(a={"agent": f"{HERE}:number"}),
            f"agents.a.agent: expected an agent, or a function that makes one; '{HERE}:number' is 3",
        ),
        (
            of(a={"agent": {"model": "test", "tools": [f"{HERE}:number"]}}),
            f"agents.a.agent.tools[0]: expected a function; '{HERE}:number' is 3",
        ),
        (of(a={"tools": [f"{HERE}:number"]}), f"agents.a.tools[0]: expected a function; '{HERE}:number' is 3"),
        (
            of(a={"output_mode": "structured", "output_types": [f"{HERE}:number"]}),
            f"agents.a.output_types[0]: expected a type; '{HERE}:number' is 3",
        ),
        (
            of(a={"approval": {"predicate": f"{HERE}:number"}}),
            f"agents.a.approval.predicate: expected a function of an ApprovalContext; '{HERE}:number' is 3",
        ),
        (
            of(a={"workflow": f"{HERE}:number"}),
            f"agents.a.workflow: expected a workflow that was built; '{HERE}:number' is 3",
        ),
    ],
)
def test_invalid_node_is_reported_with_its_place(definition: Any, problem: str) -> None:
    assert problems_of(definition) == [problem]


def test_circular_fallbacks_are_reported_with_their_paths() -> None:
    definition = of(a=falls("b"), b=falls("c"), c=falls("a"), d=falls("a"))
    problems = [line for line in problems_of(definition) if "is a cycle" in line]
    assert problems == [
        "agents.a.on_error.fallback: is a cycle: a -> b -> c -> a",
        "agents.b.on_error.fallback: is a cycle: b -> c -> a -> b",
        "agents.c.on_error.fallback: is a cycle: c -> a -> b -> c",
    ]


def test_sound_nodes_are_built() -> None:
    definition = of(
        edge("router", "END", default=True),
        router=router("b", "END", default_handoff="b"),
        b=falls("spare"),
        spare={"output_mode": "structured", "output_types": [VERDICT]},
        either={"output_mode": "union", "output_types": [INVOICE, COMPLAINT]},
        sub={"workflow": f"{HERE}:inner", "output_key": "said"},
        **{"with-Every_kind-0f-id": {}},
    )
    assert AgentWorkflow.from_config(definition).build().node_count == 6


def test_agent_without_a_model_uses_the_model_of_the_workflow() -> None:
    """This includes an agent of an inner workflow."""
    inside = {"name": "in", "agents": {"b": {"agent": {"instructions": "x"}}}, "edges": [edge("b", "c")]}
    definition = document(agents={"a": {"workflow": inside}}, edges=[])
    nowhere = "agents.a.workflow.edges[0].to: no node 'c' exists"
    assert problems_of(definition) == [f"agents.a.workflow.agents.b.agent.model: {MODEL}", nowhere]
    assert problems_of({**definition, "settings": {"model": "test"}}) == [nowhere]


def test_problems_of_an_inner_workflow_are_reported_with_their_places() -> None:
    inside = {"name": "in", "agents": nodes(b={}), "edges": [edge("b", "c")], "settings": {"checkpointing": True}}
    definition = document(agents={"a": {"workflow": inside}}, edges=[])
    assert problems_of(definition) == ["agents.a.workflow.edges[0].to: no node 'c' exists"]


def test_checkpointing_needs_a_store_and_conversations_a_session_store() -> None:
    settings = {"checkpointing": True, "conversation": {"mode": "shared"}}
    assert problems_of(document(settings=settings)) == [
        "settings.checkpointing: the workflow has no workflow store: add one, such as with_sqlite_workflow_store(path)",
        f"settings.conversation.mode: 'shared' stores messages, and {NO_SESSIONS}",
    ]
    builder = AgentWorkflow.from_config(document(settings=settings))
    assert builder.with_in_memory_workflow_store().with_in_memory_session_store().build().node_count == 2


def test_builder_reports_the_same_problems() -> None:
    builder = (
        AgentWorkflow.create()
        .with_checkpointing()
        .add_agent("a", AgentConfig(model="x"), lambda node: node.on_error_fallback("b"))
        .add_agent("b b", AgentConfig(model="x"))
        .from_("a")
        .to("c")
    )
    with pytest.raises(InvalidDefinition) as refused:
        builder.build()
    assert [place for place, _ in refused.value.problems] == [
        "agents.a.on_error.fallback",
        'agents["b b"]',
        "edges[0].to",
        "settings.checkpointing",
    ]
    assert refused.value.source is None
