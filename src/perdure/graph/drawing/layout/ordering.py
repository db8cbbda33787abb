"""Who stands beside whom: an order of each layer in which few links cross."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from perdure.graph.drawing.layout.layers import Spot

_SWEEPS = 12


def order_layers(layers: list[list[Spot]], lanes: Sequence[Sequence[Spot]]) -> None:
    """Sort each layer in place and number its spots. The order of declaration stays where nothing is gained.

    `lanes` are the spots of each link that passes several layers: these are also moved as a whole.
    """
    _follow_links(layers)
    best, fewest = _copy(layers), _crossings(layers)
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
            best, fewest = _copy(layers), crossings
    _restore(layers, best)
    for lane in outermost_last:
        _move_outside(layers, lane)


def _move_outside(layers: list[list[Spot]], lane: Sequence[Spot]) -> None:
    """Lead a link around everything, on the right or the left, if that saves a crossing or a turn.

    Its spots stand in each other's way: moved one by one, each would first have to make things worse.
    """
    ranks = [spot.rank for spot in lane]
    near = layers[max(min(ranks) - 1, 0) : max(ranks) + 2]
    before, cost = _copy(near), (_crossings(near), _open_turns(lane))
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


def _copy(layers: list[list[Spot]]) -> list[list[Spot]]:
    return [list(layer) for layer in layers]


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
            walk += [one for one in reversed(spot.below) if one.kind != "turn"]
    for layer in layers:
        layer.clear()
    for spot in seen:
        layers[spot.rank].append(spot)
    for layer in layers:
        _number(layer)


def _first_seen(spot: Spot) -> tuple[bool, int]:
    """Lanes come last, short ones first: then a lane stands outside of those it spans."""
    return spot.kind == "turn", spot.span if spot.kind == "turn" else spot.rank


def _sweep(layers: list[list[Spot]], *, downwards: bool) -> None:
    """Put each spot at the average place of its neighbours in the layer before."""
    for layer in layers if downwards else reversed(layers):
        wanted = {spot: _average(spot.above if downwards else spot.below, spot.order) for spot in layer}
        layer.sort(key=lambda spot: wanted[spot])
        _number(layer)


def _average(neighbours: list[Spot], otherwise: float) -> float:
    return sum(one.order for one in neighbours) / len(neighbours) if neighbours else otherwise


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
        one.order > other.order
        for mine, theirs in ((left.above, right.above), (left.below, right.below))
        for one in mine
        for other in theirs
    )


def _crossings(layers: Sequence[Sequence[Spot]]) -> int:
    """Between each of the layers and the next."""
    return sum(_inversions(_ends_below(layer)) for layer in layers[:-1])


def _ends_below(layer: Sequence[Spot]) -> list[int]:
    """Where the links of a layer end in the next one, from left to right by their upper ends."""
    found: list[int] = []
    for spot in layer:
        ends = [below.order for below in spot.below]
        if len(ends) > 1:
            ends.sort()
        found += ends
    return found


def _inversions(numbers: list[int]) -> int:
    found, seen = 0, list[int]()
    for number in numbers:
        if not seen or number >= seen[-1]:
            seen.append(number)
            continue
        place = bisect_right(seen, number)
        found += len(seen) - place
        seen.insert(place, number)
    return found
