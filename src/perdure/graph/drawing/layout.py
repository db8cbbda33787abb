"""The layout of a picture: layers, order, places, heights, lines. A sub-workflow is laid out first, as one box."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

from perdure.graph.drawing.layers import EdgeRoute, Extent, Layered, Spot, make_layers
from perdure.graph.drawing.lines import LOOP_WIDTH, Lines, Sides
from perdure.graph.drawing.picture import Box, Drawing, Picture, Rectangle, Stroke, Tag
from perdure.graph.drawing.placing import measure, order_layers, place
from perdure.graph.drawing.text import INSET, TITLE_HEIGHT, label_lines, label_size, name_lines, size_of, title_width


def lay_out(picture: Picture) -> Drawing:
    """Every shape, label and line with its place, from 0, 0. Deterministic."""
    return _Layout(picture).drawing()


class _Layout:
    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        self._names = [name_lines(shape) for shape in picture.shapes]
        self._labels = [label_lines(link) for link in picture.links]
        self._inside = [None if shape.inside is None else lay_out(shape.inside) for shape in picture.shapes]
        self._sizes = [self._size(number) for number in range(len(picture.shapes))]

    def _size(self, number: int) -> tuple[float, float]:
        shape, inside = self._picture.shapes[number], self._inside[number]
        if inside is None:
            return size_of(self._picture, number, self._names[number])
        width = max(inside.width + 2 * INSET, title_width(shape, self._names[number]))
        return width, inside.height + TITLE_HEIGHT + INSET

    def drawing(self) -> Drawing:
        loops = {link.source: number for number, link in enumerate(self._picture.links) if link.source == link.target}
        extents = [self._extent(number, loops.get(number)) for number in range(len(self._sizes))]
        layers = make_layers(self._picture, extents, [_label_extent(lines) for lines in self._labels])
        order_layers(layers.layers, [[*route.turns, *route.passes] for route in layers.routes if route.passes])
        place(layers.layers)
        sides = _sides(layers, loops)
        heights = measure(
            layers.layers,
            layers.routes,
            _turning_routes(layers, sides.arriving),
            _turning_routes(layers, sides.leaving),
        )
        areas = [_area(spot, size) for spot, size in zip(layers.shapes, self._sizes, strict=True)]
        strokes = list(Lines(self._picture, areas, layers.routes, heights, sides).strokes())
        return _crop(self._boxes(areas), self._tags(layers.routes, areas), strokes, self._place_drawings(areas))

    def _extent(self, number: int, loop: int | None) -> Extent:
        width, height = self._sizes[number]
        beside = 0.0
        if loop is not None:
            beside = LOOP_WIDTH + (label_size(self._labels[loop])[0] if self._labels[loop] else 0)
        return Extent(width / 2, width / 2 + beside, height)

    def _boxes(self, areas: Sequence[Rectangle]) -> list[Box]:
        shapes = self._picture.shapes
        return [Box(shape, area, lines) for shape, lines, area in zip(shapes, self._names, areas, strict=True)]

    def _tags(self, routes: Sequence[EdgeRoute], areas: Sequence[Rectangle]) -> list[Tag]:
        labelled = [(route.number, _area(route.label, label_size(self._labels[route.number])))
                    for route in routes if route.label is not None]  # fmt: skip
        for number, link in enumerate(self._picture.links):
            if link.source == link.target and self._labels[number]:
                labelled.append((number, _beside(areas[link.source], label_size(self._labels[number]))))
        return [self._tag(number, area) for number, area in labelled]

    def _tag(self, number: int, area: Rectangle) -> Tag:
        link, shapes = self._picture.links[number], self._picture.shapes
        return Tag(link, shapes[link.source], shapes[link.target], area, self._labels[number])

    def _place_drawings(self, areas: Sequence[Rectangle]) -> list[Drawing]:
        """The drawings of sub-workflows, at their places."""
        drawings = []
        for inside, area in zip(self._inside, areas, strict=True):
            if inside is not None:
                drawings.append(inside.place_inside(area.x + (area.width - inside.width) / 2, area.y + TITLE_HEIGHT))
        return drawings


def _label_extent(lines: tuple[str, ...]) -> Extent | None:
    if not lines:
        return None
    width, height = label_size(lines)
    return Extent(width / 2, width / 2, height)


def _area(spot: Spot, size: tuple[float, float]) -> Rectangle:
    return Rectangle(spot.x - size[0] / 2, spot.top, *size)


def _beside(area: Rectangle, size: tuple[float, float]) -> Rectangle:
    """The label of a shape's link to itself."""
    return Rectangle(area.right + LOOP_WIDTH - 4, area.y + (area.height - size[1]) / 2, *size)


def _sides(layers: Layered, loops: Mapping[int, int]) -> Sides:
    """Links that lead upwards and whose lane is the neighbour of the box where they leave, or arrive."""
    neighbours: set[tuple[Spot, Spot]] = set()
    for layer in layers.layers:
        neighbours.update(pairwise(spot for spot in layer if spot.kind != "turn"))
    looping = {layers.shapes[number] for number in loops}

    def is_beside(box: Spot, lane: Spot) -> bool:
        """A loop takes the right side of its box."""
        return (lane, box) in neighbours or ((box, lane) in neighbours and box not in looping)

    back = [route for route in layers.routes if route.is_back]
    return Sides(
        frozenset(route for route in back if is_beside(route.source, route.passes[-1])),
        frozenset(route for route in back if is_beside(route.target, route.passes[0])),
    )


def _turning_routes(layers: Layered, at_sides: Collection[EdgeRoute]) -> list[EdgeRoute]:
    return [route for route in layers.routes if route.is_back and route not in at_sides]


def _crop(boxes: list[Box], tags: list[Tag], strokes: list[Stroke], inside: list[Drawing]) -> Drawing:
    """The drawing, moved to start at 0, 0."""
    areas = [*(box.area for box in boxes), *(tag.area for tag in tags)]
    points = [point for stroke in strokes for _, points in stroke.steps for point in points]
    left = min([*(area.x for area in areas), *(x for x, _ in points)])
    top = min([*(area.y for area in areas), *(y for _, y in points)])
    right = max([*(area.right for area in areas), *(x for x, _ in points)])
    bottom = max([*(area.bottom for area in areas), *(y for _, y in points)])
    # Outer boxes come first, so that inner ones are drawn over them.
    whole = Drawing(
        width=right - left,
        height=bottom - top,
        boxes=(*boxes, *(box for drawing in inside for box in drawing.boxes)),
        tags=(*tags, *(tag for drawing in inside for tag in drawing.tags)),
        strokes=(*strokes, *(stroke for drawing in inside for stroke in drawing.strokes)),
    )
    return whole.move(-left, -top)
