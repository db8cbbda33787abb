"""The lines of links, once everything has its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perdure.graph.drawing.figures import Point, Rectangle, Stroke
from perdure.graph.drawing.heights import Heights
from perdure.graph.drawing.layers import Route, Spot
from perdure.graph.drawing.pen import ARROW, Pen
from perdure.graph.drawing.picture import Link, Picture
from perdure.graph.drawing.ports import spread

LOOP_WIDTH = 30.0
"""How far a link of a shape to itself stands out."""


@dataclass(frozen=True)
class Sides:
    """Which links that lead upwards leave, or arrive at, the side of a box: their lane is right beside it."""

    leaving: frozenset[Route]
    arriving: frozenset[Route]


class Lines:
    """Draws all links of one picture."""

    def __init__(
        self, picture: Picture, areas: Sequence[Rectangle], routes: Sequence[Route], heights: Heights, sides: Sides
    ) -> None:
        self._picture = picture
        self._areas = areas
        self._heights = heights
        self._sides = sides
        self._routes = routes
        self._from: dict[Route, float] = {}
        self._to: dict[Route, float] = {}
        self._choose_ports()

    def strokes(self) -> Iterator[Stroke]:
        for route in self._routes:
            pen, tip = self._upwards(route) if route.is_back else self._downwards(route)
            yield self._stroke(route.link, pen, tip)
        for link in self._picture.links:
            if link.source == link.target:
                yield self._loop(link)

    # ------------------------------------------------------------ where links end

    def _choose_ports(self) -> None:
        leaving: dict[int, dict[int, list[Route]]] = {}
        arriving: dict[int, dict[int, list[Route]]] = {}
        for route in self._routes:
            link = route.link
            if route not in self._sides.leaving:
                leaving.setdefault(link.source, {}).setdefault(self._bundle(route), []).append(route)
            if route not in self._sides.arriving:
                arriving.setdefault(link.target, {})[route.number] = [route]
        for shape, bundles in arriving.items():
            self._spread(shape, list(bundles.values()), self._to, down=False)
        for shape, bundles in leaving.items():
            self._spread(shape, list(bundles.values()), self._from, down=True)

    def _bundle(self, route: Route) -> int:
        """Links that are decided on together leave a box at one place; one that turns upwards has its own."""
        return -3 - route.number if route.is_back else route.link.bundle

    def _spread(self, shape: int, bundles: list[list[Route]], ports: dict[Route, float], *, down: bool) -> None:
        area, kind = self._areas[shape], self._picture.shapes[shape].kind
        middle = area.x + area.width / 2
        if kind in ("switch", "selection") and down:
            bundles = [[route for bundle in bundles for route in bundle]]
        places = {id(one): self._place(one, down=down) for one in bundles}
        bundles.sort(key=lambda one: places[id(one)])
        wanted = [places[id(one)][0] for one in bundles]
        is_wide, corner = kind in ("workflow", "join"), {"join": 4, "workflow": 18}.get(kind, 12)
        chosen = spread(middle, area.width / 2, wanted, is_wide=is_wide, corner=corner)
        for bundle, x in zip(bundles, chosen, strict=True):
            ports.update((route, x) for route in bundle)

    def _place(self, bundle: list[Route], *, down: bool) -> tuple[float, int]:
        """Where the other ends of links are, and in which order should that be the same."""
        spots = [self._next_spot(route, down=down) for route in bundle]
        ends = [self._to.get(route, spot.x) if spot is route.target else spot.x
                for route, spot in zip(bundle, spots, strict=True)]  # fmt: skip
        # Not their mean: Python versions differ in how they add floats, and a drawing must not.
        return (min(ends) + max(ends)) / 2, spots[0].order

    def _next_spot(self, route: Route, *, down: bool) -> Spot:
        """What a link comes to first after its source, or last before its target, that it cannot swing past."""
        if route.is_back:
            return route.passes[-1] if down else route.passes[0]
        spots = [route.source, *self._obstacles(route), route.target]
        return spots[1] if down else spots[-2]

    # ------------------------------------------------------------ the lines

    def _downwards(self, route: Route) -> tuple[Pen, tuple[Point, Point]]:
        source, target = self._areas[route.link.source], self._areas[route.link.target]
        pen = Pen(self._from[route], source.bottom)
        pen.line(self._from[route], self._heights.bottoms[route.source.rank])
        for spot in self._obstacles(route):
            pen.sway(spot.x, self._heights.tops[spot.rank])
            pen.line(spot.x, self._heights.bottoms[spot.rank])
        end = self._to[route]
        head = 0 if self._is_joined(route.link) else ARROW
        pen.sway(end, min(self._heights.tops[route.target.rank], target.y - head))
        pen.line(end, target.y - head)
        return pen, ((end, target.y), (0, 1))

    def _upwards(self, route: Route) -> tuple[Pen, tuple[Point, Point]]:
        lane = self._obstacles(route)
        pen = self._leave(route)
        pen.line(lane[-1].x, self._heights.tops[lane[-1].rank])
        for spot in reversed(lane[1:-1]):
            pen.sway(spot.x, self._heights.bottoms[spot.rank])
            pen.line(spot.x, self._heights.tops[spot.rank])
        pen.sway(lane[0].x, self._heights.bottoms[lane[0].rank])
        return self._arrive(route, pen)

    def _leave(self, route: Route) -> Pen:
        """To the lane: from the side of the box, or from below it and round."""
        area, lane = self._areas[route.link.source], route.passes[-1].x
        if route in self._sides.leaving:
            x = area.right if lane > area.x else area.x
            pen = Pen(x, area.y + area.height / 2)
            pen.line(lane, area.y + area.height / 2)
        else:
            pen = Pen(self._from[route], area.bottom)
            pen.line(self._from[route], self._heights.turn_below(route))
            pen.line(lane, self._heights.turn_below(route))
        return pen

    def _arrive(self, route: Route, pen: Pen) -> tuple[Pen, tuple[Point, Point]]:
        area, lane = self._areas[route.link.target], route.passes[0].x
        head = 0 if self._is_joined(route.link) else ARROW
        if route in self._sides.arriving:
            side, way = (area.right, -1.0) if lane > area.x else (area.x, 1.0)
            pen.line(lane, area.y + area.height / 2)
            pen.line(side - way * head, area.y + area.height / 2)
            return pen, ((side, area.y + area.height / 2), (way, 0))
        pen.line(lane, self._heights.turn_above(route))
        pen.line(self._to[route], self._heights.turn_above(route))
        pen.line(self._to[route], area.y - head)
        return pen, ((self._to[route], area.y), (0, 1))

    def _obstacles(self, route: Route) -> list[Spot]:
        """What it passes where there is something to keep clear of; in empty layers it may swing freely."""
        tops, bottoms = self._heights.tops, self._heights.bottoms
        return [one for one in route.passes if bottoms[one.rank] > tops[one.rank]]

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
