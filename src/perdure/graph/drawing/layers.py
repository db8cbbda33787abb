"""Layers: shapes from top to bottom, and the spots that links between them pass.

Executors are in even ranks; between them, in odd ones, are hubs and the labels of links. A link that spans several
layers has a bend in each, so that the layer keeps room for it. A link that would lead upwards is a lane beside the
layers it passes, its ends included, and turns above its target and below its source.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from itertools import pairwise
from typing import Literal, TypeVar

from perdure.graph.drawing.picture import Link, Picture

T = TypeVar("T")


def _back_links(picture: Picture) -> set[int]:
    """The numbers of the links to draw upwards.

    Two ways to choose them, and the one that needs fewer: those that a walk from the start finds leading to where it
    came from, or those that close a circle of links leading away from the start.
    """
    roots = sorted(range(len(picture.shapes)), key=lambda number: not picture.shapes[number].is_start)
    leaving: dict[int, list[tuple[int, int]]] = {shape: [] for shape in roots}
    for number, link in enumerate(picture.links):
        if link.source != link.target:
            leaving[link.source].append((number, link.target))
    by_walking = find_back_edges(roots, leaving)
    by_distance = _found_by_distance(picture, _distances(roots, leaving))
    return by_distance if len(by_distance) < len(by_walking) else by_walking


def find_back_edges(roots: Iterable[T], leaving: Mapping[T, Iterable[tuple[int, T]]]) -> set[int]:
    """The numbers of the edges that a walk in depth, from each of these nodes, finds leading to where it came from.

    `leaving`: the edges from each node, each with its number and its target.
    """
    back: set[int] = set()
    is_on_path: dict[T, bool] = {}
    """Visited nodes, and whether the current path contains them."""
    for root in roots:
        if root in is_on_path:
            continue
        is_on_path[root] = True
        path = [(root, iter(leaving[root]))]  # not recursive: a chain may be longer than Python's stack
        while path:
            node, edges = path[-1]
            for number, target in edges:
                if is_on_path.get(target):
                    back.add(number)
                elif target not in is_on_path:
                    is_on_path[target] = True
                    path.append((target, iter(leaving[target])))
                    break
            else:
                is_on_path[node] = False
                path.pop()
    return back


def _found_by_distance(picture: Picture, distances: Mapping[int, int]) -> set[int]:
    following: list[set[int]] = [set() for _ in picture.shapes]
    others = []
    for number, link in enumerate(picture.links):
        if distances[link.target] > distances[link.source]:
            following[link.source].add(link.target)
        elif link.source != link.target:
            others.append((number, link))
    back: set[int] = set()
    for number, link in others:
        if _leads_to(following, link.target, link.source):
            back.add(number)
        else:
            following[link.source].add(link.target)
    return back


def _distances(roots: Sequence[int], leaving: Mapping[int, Sequence[tuple[int, int]]]) -> dict[int, int]:
    """How many links each shape is away from the start, by the shortest way."""
    distances: dict[int, int] = {}
    for root in roots:
        distances.setdefault(root, 0)
        queue = [root]
        for shape in queue:  # grows while it is read
            for _, target in leaving[shape]:
                if target not in distances:
                    distances[target] = distances[shape] + 1
                    queue.append(target)
    return distances


def _leads_to(following: list[set[int]], start: int, end: int) -> bool:
    seen, walk = {start}, [start]
    while walk:
        shape = walk.pop()
        if shape == end:
            return True
        fresh = following[shape] - seen
        seen |= fresh
        walk += fresh
    return False


@dataclass(frozen=True)
class Extent:
    """How much room something takes to both sides of its middle, and from top to bottom."""

    left: float = 0
    right: float = 0
    height: float = 0


@dataclass(eq=False)
class Spot:
    """A place in a layer."""

    kind: Literal["shape", "label", "bend", "turn"]
    rank: int
    extent: Extent = Extent()
    above: list[Spot] = field(default_factory=list, repr=False)
    below: list[Spot] = field(default_factory=list, repr=False)
    span: int = 2
    """Of a bend, label or turn: how many ranks its link spans."""
    order: int = 0
    """Its number in the layer, from the left."""
    x: float = 0
    top: float = 0

    @property
    def is_solid(self) -> bool:
        """Whether there is something to see, which links must not run through."""
        return self.kind in ("shape", "label")

    @property
    def is_inner(self) -> bool:
        """Whether it belongs to a link, which should be straight here."""
        return self.kind in ("label", "bend")

    @property
    def is_near(self) -> bool:
        """Whether it is a shape, or leads to one in the next layer of boxes."""
        return self.kind == "shape" or self.span <= 2


@dataclass(eq=False)
class End:
    """Where a link touches a shape."""

    shape: Spot
    is_source: bool
    x: float = 0
    is_sideways: bool = False
    """Whether a link upwards takes the side of its box: its lane is right beside the box."""
    track: int = 0
    """Of a link that turns here: its number among them, from the box outwards."""


@dataclass(eq=False)
class EdgeRoute:
    """A link and what it passes, from top to bottom: for one that leads upwards that is from target to source."""

    number: int
    link: Link
    source: End
    target: End
    passes: list[Spot]
    turns: list[Spot]
    """Above the target and below the source, of a link that leads upwards."""
    is_back: bool

    def lane(self, end: End) -> Spot:
        """The spot beside this end of a link that leads upwards."""
        return self.passes[-1 if end.is_source else 0]

    @property
    def label(self) -> Spot | None:
        return next((spot for spot in self.passes if spot.kind == "label"), None)


def make_layers(
    picture: Picture, shapes: Sequence[Extent], labels: Sequence[Extent | None]
) -> tuple[list[list[Spot]], list[Spot], list[EdgeRoute]]:
    """The layers, not yet in a good order, the spots of the shapes, and the routes of the links.

    Links of a shape to itself are left out: they need no layer.
    """
    back = _back_links(picture)
    ranks = _ranks(picture, back)
    spots = [Spot("shape", rank, extent) for rank, extent in zip(ranks, shapes, strict=True)]
    links = [(number, link) for number, link in enumerate(picture.links) if link.source != link.target]
    used = set(ranks)
    for number, link in links:
        if labels[number] is not None:
            used.add(_label_rank(ranks[link.source], number in back))
        if number in back:
            used |= {ranks[link.target] - 1, ranks[link.source] + 1}
    ranks_used = sorted(used)
    routes = [_route(spots, ranks_used, number, link, labels[number], is_back=number in back) for number, link in links]
    layers: dict[int, list[Spot]] = {rank: [] for rank in ranks_used}
    for spot in [*spots, *(spot for route in routes for spot in (*route.passes, *route.turns))]:
        layers[spot.rank].append(spot)
    for number, layer in enumerate(layers.values()):
        for spot in layer:
            spot.rank = number
    return list(layers.values()), spots, routes


def _ranks(picture: Picture, back: Collection[int]) -> list[int]:
    """Each shape as high as the links into it allow; a join right above what it leads to."""
    links = enumerate(picture.links)
    forward = [link for number, link in links if number not in back and link.source != link.target]
    arriving: list[list[Link]] = [[] for _ in picture.shapes]
    for link in forward:
        arriving[link.target].append(link)
    ranks = [0] * len(picture.shapes)
    sources = {shape: [link.source for link in links_in] for shape, links_in in enumerate(arriving)}
    for shape in TopologicalSorter(sources).static_order():
        ranks[shape] = max((ranks[link.source] + _span(picture, link) for link in arriving[shape]), default=0)
    for link in forward:
        if picture.shapes[link.source].kind == "join":
            ranks[link.source] = ranks[link.target] - 1
    return ranks


def _span(picture: Picture, link: Link) -> int:
    """How many ranks lie at least between the ends: a label below a hub needs the odd rank after next."""
    hubs = picture.shapes[link.source].is_hub + picture.shapes[link.target].is_hub
    return 3 if hubs and link.label is not None else 2 - hubs


def _label_rank(source_rank: int, is_back: bool) -> int:
    """The odd rank nearest to the source, where a reader looks for it."""
    if is_back:
        return source_rank if source_rank % 2 else source_rank - 1
    return source_rank + (2 if source_rank % 2 else 1)


def _route(
    shapes: Sequence[Spot], used: Sequence[int], number: int, link: Link, label: Extent | None, *, is_back: bool
) -> EdgeRoute:
    """A link with its spots, each connected to the next."""
    source, target = shapes[link.source], shapes[link.target]
    labelled = None if label is None else _label_rank(source.rank, is_back)
    low, high = (target.rank - 1, source.rank + 1) if is_back else (source.rank, target.rank)
    span = abs(source.rank - target.rank)
    passes = [
        Spot("bend", rank, span=span) if label is None or rank != labelled else Spot("label", rank, label, span=span)
        for rank in used
        if low < rank < high
    ]
    turns = [Spot("turn", rank, span=span) for rank in (low, high)] if is_back else []
    chain = [turns[0], *passes, turns[1]] if is_back else [source, *passes, target]
    if is_back:
        _connect(turns[0], target)
        _connect(source, turns[1])
    for upper, lower in pairwise(chain):
        _connect(upper, lower)
    return EdgeRoute(number, link, End(source, True), End(target, False), passes, turns, is_back)


def _connect(upper: Spot, lower: Spot) -> None:
    upper.below.append(lower)
    lower.above.append(upper)
