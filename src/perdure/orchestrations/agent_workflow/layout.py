"""The shape of a workflow: which edges lead back, and in which order nodes can be looked at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


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
