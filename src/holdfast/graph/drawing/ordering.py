"""Who stands beside whom: an order of each layer in which few links cross."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence

from holdfast.graph.drawing.layers import Spot

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


def _move_outside(layers: list[list[Spot]], lane: Sequence[Spot]) -> None:
    """Lead a link around everything, on the right or the left, if that saves a crossing.

    Its spots stand in each other's way: moved one by one, each would first have to make things worse.
    """
    for to_the_left in (False, True):
        before, crossings = _copy(layers), _crossings(layers)
        for spot in lane:
            layer = layers[spot.rank]
            layer.remove(spot)
            layer.insert(0 if to_the_left else len(layer), spot)
            _number(layer)
        if _crossings(layers) >= crossings:
            _restore(layers, before)


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


def _crossings(layers: list[list[Spot]]) -> int:
    return sum(_inversions([one for spot in layer for one in sorted(below.order for below in spot.below)])
               for layer in layers)  # fmt: skip


def _inversions(numbers: list[int]) -> int:
    found, seen = 0, list[int]()
    for number in numbers:
        found += len(seen) - bisect_right(seen, number)
        insort(seen, number)
    return found
