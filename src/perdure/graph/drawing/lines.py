"""The lines of links, between placed shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import itemgetter

from perdure.graph.drawing.layers import EdgeRoute, Spot
from perdure.graph.drawing.picture import Link, Picture, Point, Rectangle, Step, Stroke
from perdure.graph.drawing.placing import Heights

_STEP = 16.0
_SAME = 0.5


def spread(middle: float, half_width: float, wanted: Sequence[float], *, is_wide: bool, corner: float) -> list[float]:
    """A place for each link, whose other ends are at `wanted`, sorted: side by side around the middle of the box.

    A link that comes straight from above the middle stays straight. On a wide box (a sub-workflow) each one does for
    which there is room.
    """
    room = max(half_width - corner, 0)
    if is_wide:
        limited = [min(max(x, middle - room), middle + room) for x in wanted]
        if all(right - left >= _STEP for left, right in pairwise(limited)):
            return limited
    fixed = next((number for number, x in enumerate(wanted) if abs(x - middle) < _SAME), None)
    centre = (len(wanted) - 1) / 2 if fixed is None else fixed
    widest = max(centre, len(wanted) - 1 - centre)
    step = min(_STEP, room / widest) if widest else 0
    return [middle + (number - centre) * step for number in range(len(wanted))]


ARROW = 8.0
"""Length of an arrow's head: the line ends where it begins."""

_RADIUS = 10.0
_SAME_POINT = 0.05


class Pen:
    def __init__(self, x: float, y: float) -> None:
        self._steps: list[Step] = [("M", ((x, y),))]

    @property
    def at(self) -> Point:
        return self._steps[-1][1][-1]

    def line(self, x: float, y: float) -> None:
        """Straight on; nothing if already there. Pieces in one direction become one."""
        if abs(self.at[0] - x) < _SAME_POINT and abs(self.at[1] - y) < _SAME_POINT:
            return
        if self._steps[-1][0] == "L" and _straight(self._steps[-2][1][-1], self.at, (x, y)):
            self._steps.pop()
        self._steps.append(("L", ((x, y),)))

    def sway(self, x: float, y: float) -> None:
        """Up or down to another place, beginning and ending upright."""
        from_x, from_y = self.at
        if abs(from_x - x) < _SAME_POINT:
            self.line(x, y)
            return
        middle = (from_y + y) / 2
        self._steps.append(("C", ((from_x, middle), (x, middle), (x, y))))

    def steps(self) -> tuple[Step, ...]:
        """The drawn path, with rounded corners."""
        rounded: list[Step] = [self._steps[0]]
        for step, following in zip(self._steps[1:], [*self._steps[2:], None], strict=True):
            corner = step[1][-1]
            if step[0] == "L" and following is not None and following[0] == "L":
                before, after = rounded[-1][1][-1], following[1][0]
                size = min(_RADIUS, _length(before, corner) / 2, _length(corner, after) / 2)
                rounded.append(("L", (_towards(corner, before, size),)))
                rounded.append(("Q", (corner, _towards(corner, after, size))))
            else:
                rounded.append(step)
        return tuple(rounded)


def _straight(first: Point, second: Point, third: Point) -> bool:
    """Whether the way through these points is upright or level."""
    return any(
        abs(a - b) < _SAME_POINT and abs(b - c) < _SAME_POINT for a, b, c in zip(first, second, third, strict=True)
    )


def _length(start: Point, end: Point) -> float:
    """Of a piece that is upright or level."""
    return abs(start[0] - end[0]) + abs(start[1] - end[1])


def _towards(start: Point, end: Point, distance: float) -> Point:
    part = distance / (_length(start, end) or 1)
    return (start[0] + (end[0] - start[0]) * part, start[1] + (end[1] - start[1]) * part)


LOOP_WIDTH = 30.0
"""How far a link of a shape to itself stands out."""


class Lines:
    def __init__(
        self, picture: Picture, areas: Sequence[Rectangle], routes: Sequence[EdgeRoute], heights: Heights
    ) -> None:
        self._picture = picture
        self._areas = areas
        self._heights = heights
        self._routes = routes
        self._choose_ports()

    def strokes(self) -> Iterator[Stroke]:
        for route in self._routes:
            pen, tip = self._upwards(route) if route.is_back else self._downwards(route)
            yield self._stroke(route.link, pen, tip)
        for link in self._picture.links:
            if link.source == link.target:
                yield self._loop(link)

    def _choose_ports(self) -> None:
        for down in (False, True):
            bundles: dict[int, dict[int, list[EdgeRoute]]] = {}
            for route in self._routes:
                end, shape = (route.source, route.link.source) if down else (route.target, route.link.target)
                if not end.is_sideways:
                    # Links of one group leave a box at one place; a link that turns upwards has its own.
                    bundle = route.link.bundle if down and not route.is_back else -3 - route.number
                    bundles.setdefault(shape, {}).setdefault(bundle, []).append(route)
            for shape, by_bundle in bundles.items():
                self._spread(shape, list(by_bundle.values()), down=down)

    def _spread(self, shape: int, bundles: list[list[EdgeRoute]], *, down: bool) -> None:
        area, kind = self._areas[shape], self._picture.shapes[shape].kind
        if kind in ("switch", "selection") and down:
            bundles = [[route for bundle in bundles for route in bundle]]
        placed = sorted(((self._place(bundle, down=down), bundle) for bundle in bundles), key=itemgetter(0))
        wanted = [x for (x, _), _ in placed]
        is_wide, corner = kind in ("workflow", "join"), {"join": 4, "workflow": 18}.get(kind, 12)
        chosen = spread(area.x + area.width / 2, area.width / 2, wanted, is_wide=is_wide, corner=corner)
        for (_, bundle), x in zip(placed, chosen, strict=True):
            for route in bundle:
                (route.source if down else route.target).x = x

    def _place(self, bundle: list[EdgeRoute], *, down: bool) -> tuple[float, int]:
        """The place of the other ends of links, and an order for equal places."""
        spots = [self._next_spot(route, down=down) for route in bundle]
        ends = [
            route.target.x if spot is route.target.shape else spot.x for route, spot in zip(bundle, spots, strict=True)
        ]
        # Not their mean: Python versions differ in how they add floats, and a drawing must not.
        return (min(ends) + max(ends)) / 2, spots[0].order

    def _next_spot(self, route: EdgeRoute, *, down: bool) -> Spot:
        """The first obstacle of a link after its source, or the last before its target."""
        if route.is_back:
            return route.lane(route.source if down else route.target)
        spots = [route.source.shape, *self._obstacles(route), route.target.shape]
        return spots[1] if down else spots[-2]

    def _downwards(self, route: EdgeRoute) -> tuple[Pen, tuple[Point, Point]]:
        source, target = self._areas[route.link.source], self._areas[route.link.target]
        pen = Pen(route.source.x, source.bottom)
        pen.line(route.source.x, self._heights.bottoms[route.source.shape.rank])
        for spot in self._obstacles(route):
            pen.sway(spot.x, self._heights.tops[spot.rank])
            pen.line(spot.x, self._heights.bottoms[spot.rank])
        end = route.target.x
        head = 0 if self._is_joined(route.link) else ARROW
        pen.sway(end, min(self._heights.tops[route.target.shape.rank], target.y - head))
        pen.line(end, target.y - head)
        return pen, ((end, target.y), (0, 1))

    def _upwards(self, route: EdgeRoute) -> tuple[Pen, tuple[Point, Point]]:
        lane = self._obstacles(route)
        pen = self._leave(route)
        pen.line(lane[-1].x, self._heights.tops[lane[-1].rank])
        for spot in reversed(lane[1:-1]):
            pen.sway(spot.x, self._heights.bottoms[spot.rank])
            pen.line(spot.x, self._heights.tops[spot.rank])
        pen.sway(lane[0].x, self._heights.bottoms[lane[0].rank])
        return self._arrive(route, pen)

    def _leave(self, route: EdgeRoute) -> Pen:
        """To the lane: from the side of the box, or from below it and round."""
        area, end, lane = self._areas[route.link.source], route.source, route.lane(route.source).x
        if end.is_sideways:
            x = area.right if lane > area.x else area.x
            pen = Pen(x, area.y + area.height / 2)
            pen.line(lane, area.y + area.height / 2)
        else:
            pen = Pen(end.x, area.bottom)
            pen.line(end.x, self._heights.turn(end))
            pen.line(lane, self._heights.turn(end))
        return pen

    def _arrive(self, route: EdgeRoute, pen: Pen) -> tuple[Pen, tuple[Point, Point]]:
        area, end, lane = self._areas[route.link.target], route.target, route.lane(route.target).x
        head = 0 if self._is_joined(route.link) else ARROW
        if end.is_sideways:
            side, way = (area.right, -1.0) if lane > area.x else (area.x, 1.0)
            pen.line(lane, area.y + area.height / 2)
            pen.line(side - way * head, area.y + area.height / 2)
            return pen, ((side, area.y + area.height / 2), (way, 0))
        pen.line(lane, self._heights.turn(end))
        pen.line(end.x, self._heights.turn(end))
        pen.line(end.x, area.y - head)
        return pen, ((end.x, area.y), (0, 1))

    def _obstacles(self, route: EdgeRoute) -> list[Spot]:
        """The spots that a link passes in layers with boxes; in empty layers it may curve freely."""
        tops, bottoms = self._heights.tops, self._heights.bottoms
        return [spot for spot in route.passes if bottoms[spot.rank] > tops[spot.rank]]

    def _is_joined(self, link: Link) -> bool:
        return self._picture.shapes[link.target].is_hub

    def _loop(self, link: Link) -> Stroke:
        area = self._areas[link.source]
        middle, out = area.y + area.height / 2, area.right + LOOP_WIDTH
        pen = Pen(area.right, middle - 9)
        for x, y in ((out - 8, middle - 9), (out - 8, middle + 9), (area.right + ARROW, middle + 9)):
            pen.line(x, y)
        return self._stroke(link, pen, ((area.right, middle + 9), (-1, 0)))

    def _stroke(self, link: Link, pen: Pen, tip: tuple[Point, Point]) -> Stroke:
        source, target = self._picture.shapes[link.source], self._picture.shapes[link.target]
        return Stroke(link, source, target, pen.steps(), None if self._is_joined(link) else tip)
