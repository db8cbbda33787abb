"""Generated workflows of agents: data that a test can read, built of agents whose replies depend on their input."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias
from zlib import crc32

import msgspec

from perdure.agent_workflow import condition
from perdure.agent_workflow.builder.node import AgentNodeOptions
from perdure.agent_workflow.builder.workflow import AgentWorkflow
from perdure.agent_workflow.condition import Condition
from perdure.agent_workflow.definition import ErrorMode, MapErrors
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.agents.conversation.message import Message
from perdure.testing import ScriptedAgent

Kind: TypeAlias = Literal["graded", "text", "map"]
Approval: TypeAlias = Literal["none", "granted", "denied", "by what it says"]
Log: TypeAlias = Callable[[dict[str, Any]], object]
GRADES = 4


class Graded(msgspec.Struct, frozen=True):
    """What most nodes give: edges are chosen by the grade, and the message is the input of the next node."""

    message: str
    grade: int


@dataclass(frozen=True)
class PlannedNode:
    id: str
    kind: Kind = "graded"
    is_constant: bool = False
    """Its reply is the same for every input: a loop of such nodes converges."""
    mode: ErrorMode = "stop"
    fails: Literal["never", "at times", "at first"] = "never"
    """`at times`: for some inputs. `at first`: until it is repaired."""
    fallback: str | None = None
    approval: Approval = "none"
    map_errors: MapErrors = "null"
    has_template: bool = False


@dataclass(frozen=True)
class PlannedEdge:
    source: str
    target: str
    grades: frozenset[int] | None = None
    """Of the source, with which it is taken; None: with all."""
    is_default: bool = False
    delay: float | None = None


@dataclass(frozen=True)
class Plan:
    nodes: tuple[PlannedNode, ...]
    edges: tuple[PlannedEdge, ...]
    input: dict[str, Any]
    passes: int = 1
    converges: bool = True

    def node(self, node_id: str) -> PlannedNode:
        return next(node for node in self.nodes if node.id == node_id)

    @property
    def is_stopping(self) -> bool:
        return any(node.fails == "at first" for node in self.nodes)


# ---------------------------------------------------------------- replies of its agents


def reply_of(node: PlannedNode, text: str) -> str | dict[str, Any] | None:
    """None: it fails."""
    number = 0 if node.is_constant else crc32(text.encode())
    if node.fails == "at times" and crc32(f"{node.id} {text}".encode()) % 3 == 0:
        return None
    message = f"{node.id}-{number:08x}"
    return {"message": message, "grade": crc32(message.encode()) % GRADES} if node.kind == "graded" else message


def is_granted(node: PlannedNode, outputs: dict[str, Any]) -> bool:
    if node.approval == "by what it says":
        return crc32(msgspec.json.encode(outputs["message"])) % 2 == 0
    return node.approval == "granted"


def _agent(node: PlannedNode, is_repaired: Callable[[], bool], log: Log | None) -> ScriptedAgent:
    def reply(messages: list[Message]) -> Any:
        if node.fails == "at first" and not is_repaired():
            return ConnectionError(f"{node.id} cannot be reached")
        answer = reply_of(node, messages[-1].text)
        return ValueError(f"{node.id} does not know") if answer is None else answer

    return ScriptedAgent(node.id, reply, log=log)


# ---------------------------------------------------------------- built


def built(
    plan: Plan,
    make: Callable[[AgentWorkflow], AgentWorkflow],
    *,
    is_repaired: Callable[[], bool] = lambda: True,
    log: Log | None = None,
) -> AgentWorkflowInstance:
    """`make` gives it a store, a clock and what else it needs."""
    workflow = make(AgentWorkflow.create().with_name("planned").with_convergence(plan.converges))
    if plan.passes > 1:
        workflow.with_max_iterations(plan.passes)
    for node in plan.nodes:
        agent = _agent(node, is_repaired, log)
        workflow.add_agent(node.id, agent, lambda options, node=node: _configure(options, node))  # type: ignore[misc]
    for edge in plan.edges:
        added = workflow.from_(edge.source).to(edge.target)
        if edge.grades is not None:
            added.when(_with_grade(edge.grades))
        if edge.is_default:
            added.as_default()
        if edge.delay is not None:
            added.with_delay(edge.delay)
    return workflow.build()


def _with_grade(grades: frozenset[int]) -> Condition:
    return condition.or_(*(condition.equals("grade", grade) for grade in sorted(grades)))


def _configure(options: AgentNodeOptions, node: PlannedNode) -> None:
    if node.kind == "graded":
        options.structured_output(Graded)
    else:
        options.with_output_key("message")
    if node.kind == "map":
        options.map_over("input.items", on_error=node.map_errors)
    if node.has_template:
        options.with_input_template("{{input.topic}} by {{ message }}")
    if node.mode == "fallback":
        assert node.fallback is not None
        options.on_error_fallback(node.fallback)
    elif node.mode != "stop":
        {"skip": options.on_error_skip, "isolate": options.on_error_isolate}[node.mode]()
    if node.approval != "none":
        options.requires_approval("May it be used?")


# ---------------------------------------------------------------- made by chance


def a_plan(chance: random.Random, *, most: int = 7, stops: float = 0.08, delay: float = 0.004) -> Plan:
    """Chains, fan-outs and joins from one or two beginnings, with loops, failures, fallbacks, maps and approvals.

    `stops`: how likely it is that a node whose failure stops all has to be repaired.
    """
    names = [f"n{number}" for number in range(chance.randint(2, most))]
    roots = 2 if len(names) > 3 and chance.random() < 0.2 else 1
    nodes = [_a_node(name, place < roots, chance) for place, name in enumerate(names)]
    edges: list[PlannedEdge] = []
    for place in range(roots, len(names)):
        for source in chance.sample(names[:place], chance.choice([1, 1, min(2, place)])):
            edges.append(_an_edge(nodes[names.index(source)], names[place], edges, chance, delay))
    backs = _loops(nodes, edges, chance) if roots == 1 and chance.random() < 0.5 else []
    edges += backs
    chance.shuffle(edges)
    stand_ins = list(_fallbacks(nodes, names, chance))
    for place, node in enumerate(nodes):
        if node.mode == "stop" and chance.random() < stops:
            nodes[place] = replace(node, fails="at first", map_errors="fail")
    return Plan(
        (*nodes, *stand_ins),
        tuple(edges),
        {
            "topic": f"about {chance.randint(0, 99)}",
            "items": [f"item {number}" for number in range(chance.randint(0, 4))],
        },
        chance.randint(2, 4) if backs else 1,
        chance.random() < 0.8,
    )


def _a_node(name: str, is_root: bool, chance: random.Random) -> PlannedNode:
    kind: Kind = chance.choice(["graded", "graded", "graded", "text", "map"])
    mode: ErrorMode = chance.choice(["stop", "stop", "skip", "isolate", "fallback"])
    approvals: list[Approval] = [*["none"] * 6, "granted", "denied", "by what it says"]  # type: ignore[list-item]
    return PlannedNode(
        name,
        kind,
        is_constant=chance.random() < 0.3,
        mode=mode,
        fails="never" if mode == "stop" or chance.random() < 0.3 else "at times",
        approval=chance.choice(approvals),
        map_errors="fail" if mode != "stop" and chance.random() < 0.5 else chance.choice(["null", "omit"]),
        has_template=not is_root and kind != "map" and chance.random() < 0.4,
    )


def _an_edge(
    source: PlannedNode, target: str, others: Sequence[PlannedEdge], chance: random.Random, delay: float
) -> PlannedEdge:
    waits = delay if chance.random() < 0.15 else None
    has_default = any(edge.is_default for edge in others if edge.source == source.id)
    if not has_default and chance.random() < 0.15:
        return PlannedEdge(source.id, target, None, True, waits)
    if source.kind == "graded" and chance.random() < 0.5:
        return PlannedEdge(
            source.id, target, frozenset(chance.sample(range(GRADES), chance.randint(1, 3))), False, waits
        )
    return PlannedEdge(source.id, target, None, False, waits)


def _loops(nodes: Sequence[PlannedNode], edges: Sequence[PlannedEdge], chance: random.Random) -> list[PlannedEdge]:
    """Edges back to a node that every way to their source leads through: to no other can one lead back for certain."""
    loops: list[PlannedEdge] = []
    for _ in range(chance.randint(1, 2)):
        source = chance.choice(nodes)
        target = chance.choice(sorted(always_before(source.id, [node.id for node in nodes], edges)))
        if not any((edge.source, edge.target) == (source.id, target) for edge in loops):
            loops.append(_an_edge(source, target, [*edges, *loops], chance, 0.001))
    return loops


def always_before(node: str, order: Sequence[str], edges: Sequence[PlannedEdge]) -> set[str]:
    """Nodes that every way from the beginning to this one leads through, itself included."""
    known: dict[str, set[str]] = {}
    for node_id in order:
        sources = [edge.source for edge in edges if edge.target == node_id and edge.source in known]
        known[node_id] = {node_id} | (set.intersection(*(known[source] for source in sources)) if sources else set())
    return known[node]


def _fallbacks(nodes: list[PlannedNode], names: Sequence[str], chance: random.Random) -> Iterator[PlannedNode]:
    for place, node in enumerate(nodes):
        if node.mode == "fallback":
            stand_in = f"spare-{node.id}"
            nodes[place] = replace(node, fallback=stand_in)
            yield PlannedNode(stand_in, mode="isolate", fails="at times" if chance.random() < 0.2 else "never")
