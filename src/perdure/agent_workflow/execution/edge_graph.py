"""The edges of a workflow: layers, edges that lead back, and fallbacks of failed nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from perdure.agent_workflow.definition import END, START
from perdure.agent_workflow.state import NodeState
from perdure.graph.drawing.layers import find_back_edges


def lay_out(nodes: Sequence[str], edges: Sequence[tuple[str, str]]) -> tuple[list[tuple[str, ...]], set[int]]:
    """Layers of nodes that may run at the same time, each in the order in which nodes were added, and the indexes of
    edges that lead back. An edge leads back if its target is on a path to its source."""
    after: dict[str, list[tuple[int, str]]] = {node: [] for node in nodes}
    for index, (source, target) in enumerate(edges):
        after[source].append((index, target))
    entered = {target for source, target in edges if source != target}
    roots = [node for node in nodes if node not in entered]
    back = find_back_edges([*roots, *nodes], after)
    before: dict[str, set[str]] = {node: set() for node in nodes}
    for index, (source, target) in enumerate(edges):
        if index not in back:
            before[target].add(source)
    layers: list[tuple[str, ...]] = []
    placed: set[str] = set()
    while len(placed) < len(nodes):
        layer = tuple(node for node in nodes if node not in placed and before[node] <= placed)
        layers.append(layer)
        placed.update(layer)
    return layers, back


def cycle_through(source: str, target: str, edges: Iterable[tuple[str, str]]) -> list[str]:
    """The nodes of a cycle that the edge from `source` back to `target` closes."""
    after: dict[str, list[str]] = {}
    for start, end in edges:
        after.setdefault(start, []).append(end)
    paths, seen = [[target]], {target}
    for path in paths:
        if path[-1] == source:
            return [*path, target]
        for node in after.get(path[-1], ()):
            if node not in seen:
                seen.add(node)
                paths.append([*path, node])
    return [source, target]


Test: TypeAlias = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True)
class NodeEdge:
    source: str
    target: str
    test: Test | None = None
    """Of the source's outputs; None: the edge is always taken."""
    description: str | None = None
    """A description of the test."""
    is_default: bool = False
    delay: float | None = None
    kind: Literal["edge", "handoff", "fallback"] = "edge"


class EdgeGraph:
    """The nodes and edges of one workflow."""

    def __init__(self, nodes: Sequence[str], edges: Sequence[NodeEdge]) -> None:
        self.nodes = tuple(nodes)
        self.edges = tuple(edges)
        self._names = _names(self.edges)
        self._fallbacks = {edge.source: edge.target for edge in edges if edge.kind == "fallback"}
        self.out_of = {node: [edge for edge in edges if edge.source == node] for node in (START, *nodes)}
        inner = [edge for edge in edges if edge.source != START and edge.target != END]
        stand_ins = [(source, edge.target) for edge in inner for source in self.sources(edge)[1:]]
        self.layers, back = lay_out(nodes, [*((edge.source, edge.target) for edge in inner), *stand_ins])
        self.layer_of = {node: index for index, layer in enumerate(self.layers) for node in layer}
        self.order = tuple(self.layer_of)
        self.back = [inner[index] for index in sorted(back) if index < len(inner)]
        """Edges that lead back: each closes a cycle."""
        self.into = {node: [edge for edge in edges if edge.target == node and edge not in self.back] for node in nodes}
        """Edges to each node, without those that lead back."""

    def name_of(self, edge: NodeEdge) -> str:
        """The stored name of an edge: it stays the same when the workflow gets more edges."""
        return self._names[id(edge)]

    def reached_from(self, nodes: Sequence[str]) -> set[str]:
        """These nodes, and all nodes after them along edges that do not lead back."""
        reached = set(nodes)
        for node in self.order:
            if any(source in reached for edge in self.into[node] for source in self.sources(edge)):
                reached.add(node)
        return reached

    def sources(self, edge: NodeEdge) -> list[str]:
        """Nodes that must be settled before the edge can be decided."""
        return [edge.source] if edge.kind == "fallback" else [edge.source, *self._stand_ins(edge.source)]

    def _stand_ins(self, node: str) -> list[str]:
        """The chain of fallbacks that replace the node if it fails. Only fallbacks without own edges belong to it."""
        chain: list[str] = []
        while (fallback := self._fallbacks.get(node)) is not None and fallback not in chain:
            if any(edge.kind != "fallback" for edge in self.out_of[fallback]):
                break
            chain.append(fallback)
            node = fallback
        return chain

    def resolve_fallback(self, node: str, nodes: Mapping[str, NodeState]) -> str:
        """The node itself or, if it has failed, the fallback that replaces it."""
        for candidate in (node, *self._stand_ins(node)):
            state = nodes[candidate]
            # Until it settles, as in the pass before: an edge back was decided then.
            if (state.status if state.is_settled else state.last) != "failed":
                return candidate
        return node

    def deciding_node(self, edge: NodeEdge, nodes: Mapping[str, NodeState]) -> str:
        """The node whose outputs decide about the edge: its source or, if that has failed, its fallback."""
        return edge.source if edge.kind == "fallback" else self.resolve_fallback(edge.source, nodes)

    def is_failed(self, node: str, nodes: Mapping[str, NodeState]) -> bool:
        """Whether the node failed and no fallback replaced it."""
        if nodes[node].status != "failed":
            return False
        fallback = self._fallbacks.get(node)
        if fallback is None:
            return True
        is_covered = nodes[fallback].status == "failed" and not self.is_failed(fallback, nodes)
        return nodes[fallback].status != "done" and not is_covered

    def count(self, nodes: Mapping[str, NodeState]) -> dict[str, Any]:
        """How many nodes succeeded, failed and were skipped, as events and results have it."""
        own = {name: node for name, node in nodes.items() if name != START}
        return {
            "successful_nodes": sum(node.has_succeeded for node in own.values()),
            "failed_nodes": sum(self.is_failed(name, nodes) for name in own),
            "skipped_nodes": sum(node.status == "skipped" and not node.has_succeeded for node in own.values()),
        }


def _names(edges: Sequence[NodeEdge]) -> dict[int, str]:
    """By identity of the edge: functions of the same name give equal names, which are numbered."""
    names: dict[int, str] = {}
    seen: Counter[str] = Counter()
    for edge in edges:
        name = f"{edge.source} > {edge.target}: {edge.kind} {edge.description or ''}".rstrip()
        seen[name] += 1
        names[id(edge)] = name if seen[name] == 1 else f"{name} {seen[name]}"
    return names
