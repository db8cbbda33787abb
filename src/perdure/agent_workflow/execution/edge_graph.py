"""The edges of a workflow: layers, edges that lead back, and fallbacks of failed nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from perdure.agent_workflow.definition.config import END, START
from perdure.agent_workflow.state import NodeStanding


@dataclass(frozen=True)
class Layout:
    """Nodes in an order in which each comes after those before it, but for the edges that lead back."""

    layers: tuple[tuple[str, ...], ...]
    """Nodes that may run at the same time."""
    back: frozenset[int]
    """Places of edges that lead back to a node that was there before."""

    @property
    def order(self) -> tuple[str, ...]:
        return tuple(node for layer in self.layers for node in layer)


def lay_out(nodes: Sequence[str], edges: Sequence[tuple[str, str]]) -> Layout:
    """By the order in which nodes were added: an edge leads back if its target is on the way to its source."""
    after: dict[str, list[tuple[int, str]]] = {node: [] for node in nodes}
    for place, (source, target) in enumerate(edges):
        after[source].append((place, target))
    entered = {target for source, target in edges if source != target}
    roots = [node for node in nodes if node not in entered]
    back = _leading_back([*roots, *nodes], after)
    before: dict[str, set[str]] = {node: set() for node in nodes}
    for place, (source, target) in enumerate(edges):
        if place not in back:
            before[target].add(source)
    layers: list[tuple[str, ...]] = []
    placed: set[str] = set()
    while len(placed) < len(nodes):
        layer = tuple(node for node in nodes if node not in placed and before[node] <= placed)
        layers.append(layer)
        placed.update(layer)
    return Layout(tuple(layers), frozenset(back))


def cycle_through(source: str, target: str, edges: Iterable[tuple[str, str]]) -> list[str]:
    """The nodes of a cycle that the edge from `source` back to `target` closes."""
    after: dict[str, list[str]] = {}
    for one, other in edges:
        after.setdefault(one, []).append(other)
    paths, seen = [[target]], {target}
    for path in paths:
        if path[-1] == source:
            return [*path, target]
        for node in after.get(path[-1], ()):
            if node not in seen:
                seen.add(node)
                paths.append([*path, node])
    return [source, target]


def _leading_back(roots: Iterable[str], after: dict[str, list[tuple[int, str]]]) -> set[int]:
    back: set[int] = set()
    on_the_way: dict[str, bool] = {}
    """Nodes that were come to, and whether the way that led there is still being gone."""
    for root in roots:
        if root in on_the_way:
            continue
        on_the_way[root] = True
        path = [(root, iter(after[root]))]
        while path:
            node, edges = path[-1]
            for place, target in edges:
                if on_the_way.get(target):
                    back.add(place)
                elif target not in on_the_way:
                    on_the_way[target] = True
                    path.append((target, iter(after[target])))
                    break
            else:
                on_the_way[node] = False
                path.pop()
    return back


Test: TypeAlias = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True)
class NodeEdge:
    source: str
    target: str
    test: Test | None = None
    """Of the source's outputs; None: it is always taken."""
    description: str | None = None
    """Of the test."""
    is_default: bool = False
    delay: float | None = None
    kind: Literal["edge", "handoff", "fallback"] = "edge"


class Ways:
    """Of one workflow."""

    def __init__(self, nodes: Sequence[str], edges: Sequence[NodeEdge]) -> None:
        self.nodes = tuple(nodes)
        self.edges = tuple(edges)
        self._names = _names(self.edges)
        self._fallbacks = {one.source: one.target for one in edges if one.kind == "fallback"}
        self.out_of = {node: [one for one in edges if one.source == node] for node in (START, *nodes)}
        inner = [one for one in edges if one.source != START and one.target != END]
        stand_ins = [(other, one.target) for one in inner for other in self.sources(one)[1:]]
        layout = lay_out(nodes, [*((one.source, one.target) for one in inner), *stand_ins])
        self.layers = layout.layers
        self.order = layout.order
        self._layer = {node: index for index, layer in enumerate(layout.layers) for node in layer}
        self.back = [inner[place] for place in sorted(layout.back) if place < len(inner)]
        """Edges that lead back: each closes a cycle."""
        self.into = {node: [one for one in edges if one.target == node and one not in self.back] for node in nodes}
        """Edges to each node, but for those that lead back."""

    def name_of(self, edge: NodeEdge) -> str:
        """Under which it is remembered: also in a workflow that has more edges since."""
        return self._names[id(edge)]

    def layer_of(self, node: str) -> int:
        return self._layer[node]

    def reached_from(self, nodes: Sequence[str]) -> set[str]:
        """These, and all that comes after them without going back."""
        reached = set(nodes)
        for node in self.order:
            if any(source in reached for one in self.into[node] for source in self.sources(one)):
                reached.add(node)
        return reached

    def sources(self, edge: NodeEdge) -> list[str]:
        """Nodes that must be settled before it is known whether the edge is taken."""
        return [edge.source] if edge.kind == "fallback" else [edge.source, *self._stand_ins(edge.source)]

    # ------------------------------------------------------------ fallbacks

    def _stand_ins(self, node: str) -> list[str]:
        """Fallbacks that speak for it, should it fail: the first has no edges of its own, and so on."""
        found: list[str] = []
        while (fallback := self._fallbacks.get(node)) is not None and fallback not in found:
            if any(one.kind != "fallback" for one in self.out_of[fallback]):
                break
            found.append(fallback)
            node = fallback
        return found

    def voice_of(self, node: str, nodes: Mapping[str, NodeStanding]) -> str:
        """Whoever speaks for a node: itself or, where it has failed, its fallback."""
        for one in (node, *self._stand_ins(node)):
            if not _has_failed(nodes[one]):
                return one
        return node

    def speaker(self, edge: NodeEdge, nodes: Mapping[str, NodeStanding]) -> str:
        """Whose outputs decide about the edge: its source or, where that has failed, its fallback."""
        return edge.source if edge.kind == "fallback" else self.voice_of(edge.source, nodes)

    def is_failed(self, node: str, nodes: Mapping[str, NodeStanding]) -> bool:
        """Whether it failed and nobody stood in for it."""
        if nodes[node].status != "failed":
            return False
        fallback = self._fallbacks.get(node)
        if fallback is None:
            return True
        is_covered = nodes[fallback].status == "failed" and not self.is_failed(fallback, nodes)
        return nodes[fallback].status != "done" and not is_covered


def _names(edges: Sequence[NodeEdge]) -> dict[int, str]:
    """By the edge's identity: functions of one name make equal names, which are numbered."""
    names: dict[int, str] = {}
    seen: Counter[str] = Counter()
    for one in edges:
        name = f"{one.source} > {one.target}: {one.kind} {one.description or ''}".rstrip()
        seen[name] += 1
        names[id(one)] = name if seen[name] == 1 else f"{name} {seen[name]}"
    return names


def _has_failed(one: NodeStanding) -> bool:
    """In this pass or, until it is known, in the one before: whoever took an edge back spoke then."""
    return one.status == "failed" or (not one.is_settled and one.last == "failed")
