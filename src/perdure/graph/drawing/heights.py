"""How far apart the layers are: room for curves, for arrow heads, and for links that turn upwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from perdure.graph.drawing.layers import Route, Spot

_BETWEEN_BOXES, _BESIDE_SMALL, _BETWEEN_SMALL = 46.0, 28.0, 20.0
_TRACK, _FIRST_TRACK = 9.0, 14.0
_BOX = 30.0
"""Layers with something of at least this height hold boxes; lower ones hold hubs and labels."""


@dataclass
class Heights:
    """Top and bottom of each layer, and at which height links turn there."""

    tops: list[float] = field(default_factory=list)
    bottoms: list[float] = field(default_factory=list)
    tracks_above: dict[Route, int] = field(default_factory=dict)
    tracks_below: dict[Route, int] = field(default_factory=dict)
    total: float = 0

    def turn_above(self, route: Route) -> float:
        return self.tops[route.target.rank] - _FIRST_TRACK - _TRACK * self.tracks_above[route]

    def turn_below(self, route: Route) -> float:
        return self.bottoms[route.source.rank] + _FIRST_TRACK + _TRACK * self.tracks_below[route]


def measure(
    layers: Sequence[Sequence[Spot]], routes: Sequence[Route], above: Sequence[Route], below: Sequence[Route]
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


def _sideways(routes: Sequence[Route], upper: int, lower: int) -> float:
    """More room the further a link has to go sideways, so that its curve does not become flat."""
    furthest = 0.0
    for route in routes:
        spots = route.passes if route.is_back else [route.source, *route.passes, route.target]
        for one, two in pairwise(spots):
            if one.rank <= upper and two.rank >= lower:
                furthest = max(furthest, abs(one.x - two.x))
    return min(max(furthest - 90, 0) * 0.09, 44)


def _tracks(routes: Sequence[Route], *, upwards: bool) -> dict[Route, int]:
    """A height of its own for each link that turns at one layer; short ones next to the boxes, so that they nest."""
    made: dict[Route, int] = {}
    taken: dict[int, int] = {}

    def distance(route: Route) -> float:
        near, lane = (route.target, route.passes[0]) if upwards else (route.source, route.passes[-1])
        return abs(near.x - lane.x)

    for route in sorted(routes, key=lambda one: (distance(one), one.number)):
        rank = route.target.rank if upwards else route.source.rank
        made[route] = taken.get(rank, 0)
        taken[rank] = made[route] + 1
    return made


def _turning(tracks: dict[Route, int], ranks: Sequence[int]) -> dict[int, float]:
    """How much room the turning links of each layer need."""
    room: dict[int, float] = {}
    for track, rank in zip(tracks.values(), ranks, strict=True):
        room[rank] = max(room.get(rank, 0), _FIRST_TRACK + _TRACK * track + 6)
    return room
