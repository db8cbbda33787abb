"""The figures of a layout: boxes, tags and strokes with their places, for any format."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from perdure.graph.drawing.picture import Link, Shape

Point: TypeAlias = tuple[float, float]

Step: TypeAlias = tuple[str, tuple[Point, ...]]
"""A piece of a path, as SVG has them: `M` and `L` with one point, `Q` with two, `C` with three."""


@dataclass(frozen=True)
class Rectangle:
    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height

    def move(self, dx: float, dy: float) -> Rectangle:
        return replace(self, x=self.x + dx, y=self.y + dy)


@dataclass(frozen=True)
class Box:
    """A shape and its area."""

    shape: Shape
    area: Rectangle
    lines: tuple[str, ...]
    depth: int = 0
    """How many sub-workflows it is inside of."""


@dataclass(frozen=True)
class Tag:
    """The label of a link."""

    link: Link
    source: Shape
    target: Shape
    area: Rectangle
    lines: tuple[str, ...]
    depth: int = 0


@dataclass(frozen=True)
class Stroke:
    """The line of a link, and the point of its arrow: where, and which way. Links into a hub have none."""

    link: Link
    source: Shape
    target: Shape
    steps: tuple[Step, ...]
    tip: tuple[Point, Point] | None


@dataclass(frozen=True)
class Drawing:
    width: float
    height: float
    boxes: tuple[Box, ...]
    tags: tuple[Tag, ...]
    strokes: tuple[Stroke, ...]

    def move(self, dx: float, dy: float) -> Drawing:
        return replace(
            self,
            boxes=tuple(replace(box, area=box.area.move(dx, dy)) for box in self.boxes),
            tags=tuple(replace(tag, area=tag.area.move(dx, dy)) for tag in self.tags),
            strokes=tuple(_move_stroke(stroke, dx, dy) for stroke in self.strokes),
        )

    def place_inside(self, dx: float, dy: float) -> Drawing:
        """The same inside another: moved, and one level deeper."""
        drawing = self.move(dx, dy)
        return replace(
            drawing,
            boxes=tuple(replace(box, depth=box.depth + 1) for box in drawing.boxes),
            tags=tuple(replace(tag, depth=tag.depth + 1) for tag in drawing.tags),
        )


def _move_stroke(stroke: Stroke, dx: float, dy: float) -> Stroke:
    steps = tuple((name, tuple((x + dx, y + dy) for x, y in points)) for name, points in stroke.steps)
    tip = None if stroke.tip is None else ((stroke.tip[0][0] + dx, stroke.tip[0][1] + dy), stroke.tip[1])
    return replace(stroke, steps=steps, tip=tip)
