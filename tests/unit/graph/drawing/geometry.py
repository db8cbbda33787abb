"""Is a drawing clean? Boxes, labels and lines of a layout, or of a finished SVG, and what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise
from xml.etree import ElementTree

from perdure.graph.drawing.picture import Drawing, Point, Rectangle, Step

SVG = "{http://www.w3.org/2000/svg}"
TOLERANCE = 1.0
"""Pixels by which things may touch: lines end on outlines, and an SVG has rounded numbers."""


@dataclass(frozen=True)
class Placed:
    """A box or label. `path` is that of its executor; a label has that of the executor its link comes from."""

    path: str
    area: Rectangle
    is_cluster: bool = False

    def holds(self, path: str) -> bool:
        return self.is_cluster and path.startswith(f"{self.path}/")


@dataclass(frozen=True)
class Line:
    source: str
    target: str
    steps: tuple[Step, ...]

    def points(self) -> Iterator[Point]:
        """Along the line, never more than a few pixels apart."""
        at = self.steps[0][1][0]
        for _, points in self.steps:
            control = [at, *points]
            length = sum(abs(a - c) + abs(b - d) for (a, b), (c, d) in pairwise(control))
            count = int(length / 3) + 2
            for number in range(count + 1):
                yield _on_curve(control, number / count)
            at = points[-1]


@dataclass(frozen=True)
class Geometry:
    width: float
    height: float
    boxes: list[Placed]
    tags: list[tuple[Placed, str]]
    """With the path that the label's link leads to."""
    lines: list[Line]


def _on_curve(control: list[Point], part: float) -> Point:
    """De Casteljau: straight for two points, a curve for three or four."""
    while len(control) > 1:
        control = [(a + (c - a) * part, b + (d - b) * part) for (a, b), (c, d) in pairwise(control)]
    return control[0]


def of_drawing(drawing: Drawing) -> Geometry:
    return Geometry(
        drawing.width,
        drawing.height,
        [Placed(box.shape.path, box.area, box.shape.inside is not None) for box in drawing.boxes],
        [(Placed(tag.source.path, tag.area), tag.target.path) for tag in drawing.tags],
        [Line(stroke.source.path, stroke.target.path, stroke.steps) for stroke in drawing.strokes],
    )


def of_svg(source: str) -> Geometry:
    """Read back from the text, so that what is checked is what a reader sees."""
    root = ElementTree.fromstring(source)
    boxes, tags, lines = [], [], []
    for group in root.iter(f"{SVG}g"):
        classes = group.get("class", "").split()
        rectangle, path = group.find(f"{SVG}rect"), group.find(f"{SVG}path")
        if "pd-node" in classes and rectangle is not None:
            boxes.append(Placed(group.get("data-path", ""), _area(rectangle), "pd-workflow" in classes))
        elif "pd-tagged" in classes and rectangle is not None:
            tags.append((Placed(group.get("data-source", ""), _area(rectangle)), group.get("data-target", "")))
        elif path is not None and path.get("class") == "pd-link":
            ends = group.get("data-source", ""), group.get("data-target", "")
            lines.append(Line(*ends, tuple(_steps(path.get("d", "")))))
    return Geometry(float(root.get("width", 0)), float(root.get("height", 0)), boxes, tags, lines)


def _area(rectangle: ElementTree.Element) -> Rectangle:
    x, y, width, height = (float(rectangle.get(name, "nan")) for name in ("x", "y", "width", "height"))
    return Rectangle(x, y, width, height)


def _steps(line: str) -> Iterator[Step]:
    for name, numbers in re.findall(r"([MLQC])([^MLQC]+)", line):
        values = [float(number) for number in numbers.split()]
        yield name, tuple(zip(values[::2], values[1::2], strict=True))


# ---------------------------------------------------------------- what is wrong


def problems(drawn: Geometry) -> list[str]:
    """Empty for a clean drawing."""
    return [*_overlaps(drawn), *_crossed_boxes(drawn), *_crossed_tags(drawn), *_outside(drawn)]


def _overlaps(drawn: Geometry) -> Iterator[str]:
    for first, second in combinations([*drawn.boxes, *(tag for tag, _ in drawn.tags)], 2):
        if not first.holds(second.path) and not second.holds(first.path) and _overlap(first.area, second.area):
            yield f"{first} overlaps {second}"


def _crossed_boxes(drawn: Geometry) -> Iterator[str]:
    for line in drawn.lines:
        strangers = [box for box in drawn.boxes if not box.holds(line.source)]
        for point in line.points():
            for box in strangers:
                if _is_inside(point, box.area, TOLERANCE):
                    yield f"the line from {line.source!r} to {line.target!r} runs through {box} at {point}"
                    return


def _crossed_tags(drawn: Geometry) -> Iterator[str]:
    for line in drawn.lines:
        for tag, target in drawn.tags:
            is_own = (tag.path, target) == (line.source, line.target)
            if not is_own and any(_is_inside(point, tag.area, TOLERANCE) for point in line.points()):
                yield f"the line from {line.source!r} to {line.target!r} runs through the label {tag}"


def _outside(drawn: Geometry) -> Iterator[str]:
    """Everything is on the page, and everything of a sub-workflow inside its box."""
    page = Rectangle(0, 0, drawn.width, drawn.height)
    things = [(box.path, box.area) for box in drawn.boxes] + [(tag.path, tag.area) for tag, _ in drawn.tags]
    for line in drawn.lines:
        xs, ys = zip(*line.points(), strict=True)
        things.append((line.source, Rectangle(min(xs), min(ys), max(xs) - min(xs), max(ys) - min(ys))))
    for path, area in things:
        around = [page, *(box.area for box in drawn.boxes if box.holds(path))]
        if not all(_contains(outer, area) for outer in around):
            yield f"something of {path!r} at {area} is not inside what it belongs to"


def _overlap(first: Rectangle, second: Rectangle) -> bool:
    return (
        min(first.right, second.right) - max(first.x, second.x) > TOLERANCE
        and min(first.bottom, second.bottom) - max(first.y, second.y) > TOLERANCE
    )


def _is_inside(point: Point, area: Rectangle, margin: float) -> bool:
    x, y = point
    return area.x + margin < x < area.right - margin and area.y + margin < y < area.bottom - margin


def _contains(outer: Rectangle, inner: Rectangle) -> bool:
    return (
        inner.x >= outer.x - TOLERANCE
        and inner.y >= outer.y - TOLERANCE
        and inner.right <= outer.right + TOLERANCE
        and inner.bottom <= outer.bottom + TOLERANCE
    )
