"""Where in its layer each spot stands: links straight where possible, shapes in the middle of what they lead to.

After Brandes and Köpf: spots are aligned with a median neighbour into straight columns, columns are pushed together,
and that is done from all four corners; the middle of the four results favours no side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

from perdure.graph.drawing.layout.layers import EdgeRoute, Spot

# ---------------------------------------------------------------- heights


_BETWEEN_BOXES, _BESIDE_SMALL, _BETWEEN_SMALL = 46.0, 28.0, 20.0
_TRACK, _FIRST_TRACK = 9.0, 14.0
_BOX = 30.0
"""Layers with something of at least this height hold boxes; lower ones hold hubs and labels."""


@dataclass
class Heights:
    """Top and bottom of each layer, and at which height links turn there."""

    tops: list[float] = field(default_factory=list)
    bottoms: list[float] = field(default_factory=list)
    tracks_above: dict[EdgeRoute, int] = field(default_factory=dict)
    tracks_below: dict[EdgeRoute, int] = field(default_factory=dict)
    total: float = 0

    def turn_above(self, route: EdgeRoute) -> float:
        return self.tops[route.target.rank] - _FIRST_TRACK - _TRACK * self.tracks_above[route]

    def turn_below(self, route: EdgeRoute) -> float:
        return self.bottoms[route.source.rank] + _FIRST_TRACK + _TRACK * self.tracks_below[route]


def measure(
    layers: Sequence[Sequence[Spot]],
    routes: Sequence[EdgeRoute],
    above: Sequence[EdgeRoute],
    below: Sequence[EdgeRoute],
) -> Heights:
    """Set `top` of every spot. `above` turn over their targets, `below` under their sources."""
    made = Heights(tracks_above=_tracks(above, upwards=True), tracks_below=_tracks(below, upwards=False))
    heights = [max((one.extent.height for one in layer if one.is_solid), default=0) for layer in layers]
    room_above = _turning(made.tracks_above, [route.target.rank for route in made.tracks_above])
    room_below = _turning(made.tracks_below, [route.source.rank for route in made.tracks_below])
    y, last = 0.0, None
    for number, height in enumerate(heights):
        if height:
            turning = room_above.get(number, 0) + (room_below.get(last, 0) if last is not None else 0)
            between = 0 if last is None else _gap(heights[last], height) + _sideways(routes, last, number)
            y += between + turning
            last = number
        made.tops.append(y)
        y += height
        made.bottoms.append(y)
    made.total = y + (room_below.get(last, 0) if last is not None else 0)
    for layer in layers:
        for spot in layer:
            top, bottom = made.tops[spot.rank], made.bottoms[spot.rank]
            spot.top = (top + bottom - spot.extent.height) / 2
    return made


def _gap(upper: float, lower: float) -> float:
    small = (upper < _BOX) + (lower < _BOX)
    return (_BETWEEN_BOXES, _BESIDE_SMALL, _BETWEEN_SMALL)[small]


def _sideways(routes: Sequence[EdgeRoute], upper: int, lower: int) -> float:
    """More room the further a link has to go sideways, so that its curve does not become flat."""
    furthest = 0.0
    for route in routes:
        spots = route.passes if route.is_back else [route.source, *route.passes, route.target]
        for one, two in pairwise(spots):
            if one.rank <= upper and two.rank >= lower:
                furthest = max(furthest, abs(one.x - two.x))
    return min(max(furthest - 90, 0) * 0.09, 44)


def _tracks(routes: Sequence[EdgeRoute], *, upwards: bool) -> dict[EdgeRoute, int]:
    """A height of its own for each link that turns at one layer; short ones next to the boxes, so that they nest."""
    made: dict[EdgeRoute, int] = {}
    taken: dict[int, int] = {}

    def distance(route: EdgeRoute) -> float:
        near, lane = (route.target, route.passes[0]) if upwards else (route.source, route.passes[-1])
        return abs(near.x - lane.x)

    for route in sorted(routes, key=lambda one: (distance(one), one.number)):
        rank = route.target.rank if upwards else route.source.rank
        made[route] = taken.get(rank, 0)
        taken[rank] = made[route] + 1
    return made


def _turning(tracks: dict[EdgeRoute, int], ranks: Sequence[int]) -> dict[int, float]:
    """How much room the turning links of each layer need."""
    room: dict[int, float] = {}
    for track, rank in zip(tracks.values(), ranks, strict=True):
        room[rank] = max(room.get(rank, 0), _FIRST_TRACK + _TRACK * track + 6)
    return room


Positions: TypeAlias = dict[Spot, float]

_BETWEEN_SHAPES, _BESIDE_LINK, _BETWEEN_LINKS = 32, 24, 18


def place(layers: Sequence[Sequence[Spot]]) -> None:
    """Set `x` of every spot that takes room. No two of a layer come nearer than they should."""
    rows = [[spot for spot in layer if spot.kind != "turn"] for layer in layers]
    rows = [row for row in rows if row]
    bending = _bending(rows)
    results: list[Positions] = []
    for upwards in (False, True):
        for mirrored in (False, True):
            results.append(_aligned(rows, bending, upwards=upwards, mirrored=mirrored))
    _move_over_narrowest(results)
    for spot in results[0]:
        middle = sorted(result[spot] for result in results)[1:3]
        spot.x = sum(middle) / 2


def gap(left: Spot, right: Spot) -> float:
    """How far the outlines of two neighbours stay apart."""
    solid = left.is_solid + right.is_solid
    if solid < 2:
        return _BESIDE_LINK if solid else _BETWEEN_LINKS
    return _BETWEEN_SHAPES if left.kind == right.kind == "shape" else _BESIDE_LINK


def _bending(rows: Sequence[Sequence[Spot]]) -> set[tuple[Spot, Spot]]:
    """Pieces of links that give way: to a piece that they cross and that must be straight, and to the next box."""
    found: set[tuple[Spot, Spot]] = set()
    for row in rows:
        pieces = [(one, two) for one in row for two in one.below if two.kind != "turn"]
        straight = [(one, two) for one, two in pieces if one.is_inner and two.is_inner]
        for one, two in pieces:
            if one.is_inner and two.is_inner:
                continue
            crosses = any((one.order - a.order) * (two.order - b.order) < 0 for a, b in straight)
            if crosses or _comes_from_far(two, one.below) or _comes_from_far(one, two.above):
                found.add((one, two))
    return found


def _comes_from_far(other: Spot, neighbours: Sequence[Spot]) -> bool:
    """Whether a box has something nearer on that side to stand straight above or below of."""
    return not other.is_near and any(one.is_near for one in neighbours)


def _aligned(
    rows: Sequence[Sequence[Spot]], bending: set[tuple[Spot, Spot]], *, upwards: bool, mirrored: bool
) -> Positions:
    """One of the four results. Mirrored ones are computed from the right, and turned back."""
    seen = [list(reversed(row)) if mirrored else list(row) for row in (reversed(rows) if upwards else rows)]
    numbers = {spot: number for row in seen for number, spot in enumerate(row)}
    root = {spot: spot for spot in numbers}
    for row in seen:
        reached = -1
        for spot in row:
            pairs = [(spot, one) for one in spot.below] if upwards else [(one, spot) for one in spot.above]
            near = [pair[upwards] for pair in pairs if pair[upwards].kind != "turn" and pair not in bending]
            near.sort(key=numbers.__getitem__)
            for one in near[(len(near) - 1) // 2 : len(near) // 2 + 1]:
                if root[spot] is spot and reached < numbers[one]:
                    root[spot] = root[one]
                    reached = numbers[one]
    columns = _push_together(seen, root, _mirrored_room if mirrored else _room)
    return {spot: -columns[root[spot]] if mirrored else columns[root[spot]] for spot in numbers}


def _room(left: Spot, right: Spot) -> float:
    return left.extent.right + gap(left, right) + right.extent.left


def _mirrored_room(left: Spot, right: Spot) -> float:
    return _room(right, left)


def _push_together(
    rows: Sequence[Sequence[Spot]], root: dict[Spot, Spot], room: Callable[[Spot, Spot], float]
) -> Positions:
    """Each column as far to the left as its neighbours allow, then back to the right as far as that frees no room."""
    before: dict[Spot, dict[Spot, float]] = {one: {} for one in root.values()}
    after: dict[Spot, dict[Spot, float]] = {one: {} for one in root.values()}
    for row in rows:
        for left, right in pairwise(row):
            one, two, distance = root[left], root[right], room(left, right)
            before[two][one] = after[one][two] = max(distance, before[two].get(one, 0))
    order = _sorted_columns(before, after)
    x: Positions = {}
    for column in order:
        x[column] = max((x[one] + distance for one, distance in before[column].items()), default=0)
    for column in reversed(order):
        x[column] = max(
            x[column], min((x[one] - distance for one, distance in after[column].items()), default=x[column])
        )
    return x


def _sorted_columns(before: dict[Spot, dict[Spot, float]], after: dict[Spot, dict[Spot, float]]) -> list[Spot]:
    """Every column after those to its left. There is such an order, since columns never cross."""
    waiting = {column: len(left) for column, left in before.items()}
    ready = [column for column, count in waiting.items() if count == 0]
    order: list[Spot] = []
    while ready:
        column = ready.pop()
        order.append(column)
        for one in after[column]:
            waiting[one] -= 1
            if waiting[one] == 0:
                ready.append(one)
    return order


def _move_over_narrowest(results: list[Positions]) -> None:
    """Results aligned to the left get the left edge of the narrowest one, those to the right its right edge."""
    edges = [(min(one - spot.extent.left for spot, one in result.items()),
              max(one + spot.extent.right for spot, one in result.items())) for result in results]  # fmt: skip
    left, right = min(edges, key=lambda edge: edge[1] - edge[0])
    for number, result in enumerate(results):
        shift = right - edges[number][1] if number % 2 else left - edges[number][0]
        for spot in result:
            result[spot] += shift
