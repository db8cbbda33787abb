"""The order and place of each spot in its layer: straight links where possible, shapes centred over their targets.

After Brandes and Köpf: spots are aligned with a median neighbour into straight columns, columns are pushed together,
and that is done from all four corners; the middle of the four results favours no side.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from itertools import pairwise, product
from typing import TypeAlias

from perdure.graph.drawing.layers import EdgeRoute, End, Spot

_SWEEPS = 12


def order_layers(layers: list[list[Spot]], lanes: Sequence[Sequence[Spot]]) -> None:
    """Sort each layer in place and number its spots. The order of declaration stays where nothing is gained.

    `lanes` are the spots of each link that passes several layers: these are also moved as a whole.
    """
    _follow_links(layers)
    best, fewest = list(map(list, layers)), _crossings(layers)
    outermost_last = sorted(lanes, key=len)
    for sweep in range(_SWEEPS):
        if fewest == 0:
            break
        _sweep(layers, downwards=sweep % 2 == 0)
        _swap_neighbours(layers)
        for lane in outermost_last:
            _move_outside(layers, lane)
        crossings = _crossings(layers)
        if crossings < fewest:
            best, fewest = list(map(list, layers)), crossings
    _restore(layers, best)
    for lane in outermost_last:
        _move_outside(layers, lane)


def _move_outside(layers: list[list[Spot]], lane: Sequence[Spot]) -> None:
    """Lead a link around everything, on the right or the left, if that saves a crossing or a turn.

    Its spots stand in each other's way: moved one by one, each would first have to make things worse.
    """
    ranks = [spot.rank for spot in lane]
    near = layers[max(min(ranks) - 1, 0) : max(ranks) + 2]
    before, cost = list(map(list, near)), (_crossings(near), _open_turns(lane))
    for to_the_left in (False, True):
        if cost == (0, 0):
            return
        for spot in lane:
            layer = layers[spot.rank]
            layer.remove(spot)
            layer.insert(0 if to_the_left else len(layer), spot)
            _number(layer)
        if (_crossings(near), _open_turns(lane)) < cost:
            return
        _restore(near, before)


def _open_turns(lane: Sequence[Spot]) -> int:
    """How many ends of a link upwards are not right beside their box, where they need no turn."""
    ends = [spot.below or spot.above for spot in lane if spot.kind == "turn"]
    return sum(abs(box.order - beside.order) > 1 for box, beside in ends)


def _restore(layers: list[list[Spot]], orders: list[list[Spot]]) -> None:
    for layer, order in zip(layers, orders, strict=True):
        layer[:] = order
        _number(layer)


def _number(layer: list[Spot]) -> None:
    for number, spot in enumerate(layer):
        spot.order = number


def _follow_links(layers: list[list[Spot]]) -> None:
    """The order in which a walk along the links, from the top, comes to the spots; lanes upwards come last."""
    seen: dict[Spot, None] = {}
    roots = sorted((spot for layer in layers for spot in layer), key=_first_seen)
    for root in roots:
        walk = [root]
        while walk:
            spot = walk.pop()
            if spot in seen:
                continue
            seen[spot] = None
            walk += [below for below in reversed(spot.below) if below.kind != "turn"]
    orders: list[list[Spot]] = [[] for _ in layers]
    for spot in seen:
        orders[spot.rank].append(spot)
    _restore(layers, orders)


def _first_seen(spot: Spot) -> tuple[bool, int]:
    """Lanes come last, short ones first: then a lane stands outside of those it spans."""
    return spot.kind == "turn", spot.span if spot.kind == "turn" else spot.rank


def _sweep(layers: list[list[Spot]], *, downwards: bool) -> None:
    """Put each spot at the average place of its neighbours in the layer before."""
    for layer in layers if downwards else reversed(layers):
        near = {spot: [other.order for other in (spot.above if downwards else spot.below)] for spot in layer}
        wanted = {spot: sum(orders) / len(orders) if orders else spot.order for spot, orders in near.items()}
        layer.sort(key=lambda spot: wanted[spot])
        _number(layer)


def _swap_neighbours(layers: list[list[Spot]]) -> None:
    """Exchange two spots side by side as long as that saves a crossing."""
    improved = True
    while improved:
        improved = False
        for layer in layers:
            for place in range(len(layer) - 1):
                left, right = layer[place], layer[place + 1]
                if _crossings_of(left, right) > _crossings_of(right, left):
                    layer[place], layer[place + 1] = right, left
                    left.order, right.order = place + 1, place
                    improved = True


def _crossings_of(left: Spot, right: Spot) -> int:
    """Between the links of two spots, were they side by side in this order."""
    return sum(
        upper.order > other.order
        for mine, theirs in ((left.above, right.above), (left.below, right.below))
        for upper in mine
        for other in theirs
    )


def _crossings(layers: Sequence[Sequence[Spot]]) -> int:
    """Between each of the layers and the next."""
    return sum(
        _inversions([end for spot in layer for end in sorted([below.order for below in spot.below])])
        for layer in layers[:-1]
    )


def _inversions(numbers: list[int]) -> int:
    count, seen = 0, list[int]()
    for number in numbers:
        if not seen or number >= seen[-1]:
            seen.append(number)
            continue
        place = bisect_right(seen, number)
        count += len(seen) - place
        seen.insert(place, number)
    return count


_BETWEEN_BOXES, _BESIDE_SMALL, _BETWEEN_SMALL = 46.0, 28.0, 20.0
_TRACK, _FIRST_TRACK = 9.0, 14.0
_BOX = 30.0
"""Layers with something of at least this height hold boxes; lower ones hold hubs and labels."""


@dataclass
class Heights:
    """Top and bottom of each layer, and at which height links turn there."""

    tops: list[float] = field(default_factory=list)
    bottoms: list[float] = field(default_factory=list)

    def turn(self, end: End) -> float:
        away = _FIRST_TRACK + _TRACK * end.track
        return self.bottoms[end.shape.rank] + away if end.is_source else self.tops[end.shape.rank] - away


def measure(layers: Sequence[Sequence[Spot]], routes: Sequence[EdgeRoute]) -> Heights:
    """Set `top` of every spot, and the tracks of links that turn."""
    heights_of = Heights()
    heights = [max((spot.extent.height for spot in layer if spot.is_solid), default=0) for layer in layers]
    back = [route for route in routes if route.is_back]
    room_above = _take_tracks([(route, route.target) for route in back])
    room_below = _take_tracks([(route, route.source) for route in back])
    y, last = 0.0, None
    for number, height in enumerate(heights):
        if height:
            turning = room_above.get(number, 0) + (room_below.get(last, 0) if last is not None else 0)
            between = 0.0
            if last is not None:
                small = (heights[last] < _BOX) + (height < _BOX)
                between = (_BETWEEN_BOXES, _BESIDE_SMALL, _BETWEEN_SMALL)[small] + _sideways(routes, last, number)
            y += between + turning
            last = number
        heights_of.tops.append(y)
        y += height
        heights_of.bottoms.append(y)
    for layer in layers:
        for spot in layer:
            top, bottom = heights_of.tops[spot.rank], heights_of.bottoms[spot.rank]
            spot.top = (top + bottom - spot.extent.height) / 2
    return heights_of


def _sideways(routes: Sequence[EdgeRoute], upper: int, lower: int) -> float:
    """More room the further a link has to go sideways, so that its curve does not become flat."""
    furthest = 0.0
    for route in routes:
        spots = route.passes if route.is_back else [route.source.shape, *route.passes, route.target.shape]
        for upper_spot, lower_spot in pairwise(spots):
            if upper_spot.rank <= upper and lower_spot.rank >= lower:
                furthest = max(furthest, abs(upper_spot.x - lower_spot.x))
    return min(max(furthest - 90, 0) * 0.09, 44)


def _take_tracks(ends: Iterable[tuple[EdgeRoute, End]]) -> dict[int, float]:
    """Give each link that turns at one layer a height of its own: short ones next to the boxes, so that they nest.

    Returns the room that they need, by layer.
    """
    taken: dict[int, int] = {}
    """The last track of each layer."""
    turning = [(route, end) for route, end in ends if not end.is_sideways]
    for _, end in sorted(turning, key=lambda turn: (abs(turn[1].shape.x - turn[0].lane(turn[1]).x), turn[0].number)):
        end.track = taken[end.shape.rank] = taken.get(end.shape.rank, -1) + 1
    return {rank: _FIRST_TRACK + _TRACK * last + 6 for rank, last in taken.items()}


Positions: TypeAlias = dict[Spot, float]

_BETWEEN_SHAPES, _BESIDE_LINK, _BETWEEN_LINKS = 32, 24, 18


def place(layers: Sequence[Sequence[Spot]]) -> None:
    """Set `x` of every spot that takes room. No two of a layer come nearer than they should."""
    rows = [row for layer in layers if (row := [spot for spot in layer if spot.kind != "turn"])]
    bending = _bending_pieces(rows)
    corners = product((False, True), repeat=2)
    results = [_align(rows, bending, upwards=upwards, mirrored=mirrored) for upwards, mirrored in corners]
    _move_over_narrowest(results)
    for spot in results[0]:
        middle = sorted(result[spot] for result in results)[1:3]
        spot.x = sum(middle) / 2


def _bending_pieces(rows: Sequence[Sequence[Spot]]) -> set[tuple[Spot, Spot]]:
    """Pieces of links that give way: to a piece that they cross and that must be straight, and to the next box."""
    bending: set[tuple[Spot, Spot]] = set()
    for row in rows:
        pieces = [(upper, lower) for upper in row for lower in upper.below if lower.kind != "turn"]
        straight = [(upper, lower) for upper, lower in pieces if upper.is_inner and lower.is_inner]
        for upper, lower in pieces:
            if upper.is_inner and lower.is_inner:
                continue
            crosses = any((upper.order - a.order) * (lower.order - b.order) < 0 for a, b in straight)
            if crosses or _comes_from_far(lower, upper.below) or _comes_from_far(upper, lower.above):
                bending.add((upper, lower))
    return bending


def _comes_from_far(other: Spot, neighbours: Sequence[Spot]) -> bool:
    """Whether a box has something nearer on that side to stand straight above or below of."""
    return not other.is_near and any(spot.is_near for spot in neighbours)


def _align(
    rows: Sequence[Sequence[Spot]], bending: set[tuple[Spot, Spot]], *, upwards: bool, mirrored: bool
) -> Positions:
    """One of the four results. Mirrored ones are computed from the right, and turned back."""
    seen = [list(reversed(row)) if mirrored else list(row) for row in (reversed(rows) if upwards else rows)]
    numbers = {spot: number for row in seen for number, spot in enumerate(row)}
    root = {spot: spot for spot in numbers}
    for row in seen:
        reached = -1
        for spot in row:
            pieces = [(spot, below) for below in spot.below] if upwards else [(above, spot) for above in spot.above]
            near = [piece[upwards] for piece in pieces if piece[upwards].kind != "turn" and piece not in bending]
            near.sort(key=numbers.__getitem__)
            for neighbour in near[(len(near) - 1) // 2 : len(near) // 2 + 1]:
                if root[spot] is spot and reached < numbers[neighbour]:
                    root[spot] = root[neighbour]
                    reached = numbers[neighbour]
    columns = _push_together(seen, root, mirrored=mirrored)
    return {spot: -columns[root[spot]] if mirrored else columns[root[spot]] for spot in numbers}


def _room(left: Spot, right: Spot) -> float:
    """How far the middles of two neighbours stay apart."""
    solid = left.is_solid + right.is_solid
    gap = _BESIDE_LINK if solid else _BETWEEN_LINKS
    if left.kind == right.kind == "shape":
        gap = _BETWEEN_SHAPES
    return left.extent.right + gap + right.extent.left


def _push_together(rows: Sequence[Sequence[Spot]], root: dict[Spot, Spot], *, mirrored: bool) -> Positions:
    """Each column as far to the left as its neighbours allow, then back to the right as far as that frees no room."""
    before: dict[Spot, dict[Spot, float]] = {column: {} for column in root.values()}
    after: dict[Spot, dict[Spot, float]] = {column: {} for column in root.values()}
    for row in rows:
        for left, right in pairwise(row):
            first, second = root[left], root[right]
            distance = _room(right, left) if mirrored else _room(left, right)
            before[second][first] = after[first][second] = max(distance, before[second].get(first, 0))
    order = list(TopologicalSorter(before).static_order())  # columns never cross
    x: Positions = {}
    for column in order:
        x[column] = max((x[other] + distance for other, distance in before[column].items()), default=0)
    for column in reversed(order):
        limit = min((x[other] - distance for other, distance in after[column].items()), default=x[column])
        x[column] = max(x[column], limit)
    return x


def _move_over_narrowest(results: list[Positions]) -> None:
    """Results aligned to the left get the left edge of the narrowest one, those to the right its right edge."""
    edges = [(min(x - spot.extent.left for spot, x in result.items()),
              max(x + spot.extent.right for spot, x in result.items())) for result in results]  # fmt: skip
    left, right = min(edges, key=lambda edge: edge[1] - edge[0])
    for number, result in enumerate(results):
        shift = right - edges[number][1] if number % 2 else left - edges[number][0]
        for spot in result:
            result[spot] += shift
