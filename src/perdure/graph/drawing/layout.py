"""The layout of a picture: sizes of texts, layers, order, places, heights, lines.

A sub-workflow is laid out first, as one box.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise

from perdure.graph.drawing.layers import EdgeRoute, Extent, Spot, make_layers
from perdure.graph.drawing.lines import LOOP_WIDTH, Lines
from perdure.graph.drawing.picture import Box, Drawing, Picture, Rectangle, Shape, Stroke, Tag
from perdure.graph.drawing.placing import measure, order_layers, place

# Widths of a common sans-serif face in thousandths of the font size, for the printable characters from space to tilde.
# A table, not a font: a drawing must be the same on every machine.
_ASCII_WIDTHS = (
    "278 278 355 556 556 889 667 191 333 333 389 584 278 333 278 278 556 556 556 556 556 556 556 556 556 556 278 278 "
    "584 584 584 556 1015 667 667 722 722 667 611 778 722 278 500 667 556 833 722 778 667 778 722 667 611 722 667 944 "
    "667 667 611 278 278 278 469 556 333 556 556 500 556 556 278 556 556 222 222 500 222 833 556 556 556 556 333 500 "
    "278 556 500 722 500 500 500 334 260 334 584"
)
_WIDTHS = {chr(32 + number): int(width) for number, width in enumerate(_ASCII_WIDTHS.split())}
_OTHER_WIDTH, _WIDE_WIDTH = 600, 1000
_ROOM = 1.1
"""Extra width, so that text stays in its box with a font that is wider than the table."""

_WIDE = ((0x1100, 0x115F), (0x2E80, 0xA4CF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFE30, 0xFE6F), (0xFF00, 0xFF60),
         (0xFFE0, 0xFFE6), (0x1F300, 0x1FAFF), (0x20000, 0x3FFFD))  # fmt: skip

_WHITESPACE = re.compile("[\t\n\v\f\r\x85\u2028\u2029 ]+")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_PIECES = re.compile(r"[^ _./:-]*[ _./:-]?")

ELLIPSIS = "\u2026"


def to_line(text: str) -> str:
    """The text on one line, with a mark for each unprintable character."""
    return _UNPRINTABLE.sub("\ufffd", _WHITESPACE.sub(" ", text).strip(" ")) or "\u2423"


def width_of(text: str, size: float) -> float:
    """An estimate, in pixels."""
    return sum(map(_width_of_character, text)) * _ROOM * size / 1000


def _width_of_character(character: str) -> int:
    if character in _WIDTHS:
        return _WIDTHS[character]
    code = ord(character)
    if 0x300 <= code <= 0x36F or 0x200B <= code <= 0x200F:
        return 0
    return _WIDE_WIDTH if any(first <= code <= last for first, last in _WIDE) else _OTHER_WIDTH


def wrap(text: str, size: float, *, width: float, lines: int) -> list[str]:
    """At most `lines` lines of at most about `width` pixels, broken after separators; the rest is an ellipsis."""
    broken = [""]
    for piece in _pieces(to_line(text), size, width):
        if broken[-1] and width_of((broken[-1] + piece).rstrip(), size) > width:
            broken.append("")
        broken[-1] += piece
    broken = [line.strip(" ") for line in broken]
    if len(broken) > lines:
        last = broken[lines - 1]
        fitting = _fitting_length(last, size, width - width_of(ELLIPSIS, size))
        broken = [*broken[: lines - 1], last[:fitting].rstrip(" ") + ELLIPSIS]
    return broken


def _pieces(text: str, size: float, width: float) -> list[str]:
    """Parts that a line can be made of: up to the next separator, and none wider than a line."""
    pieces: list[str] = []
    for piece in _PIECES.findall(text):
        while width_of(piece, size) > width:
            fitting = _fitting_length(piece, size, width)
            pieces.append(piece[:fitting])
            piece = piece[fitting:]
        if piece:
            pieces.append(piece)
    return pieces


def _fitting_length(text: str, size: float, width: float) -> int:
    """How many characters fit; at least one, so that cutting makes progress."""
    length = len(text)
    while length > 1 and width_of(text[:length], size) > width:
        length -= 1
    return length


NAME_SIZE, LABEL_SIZE = 13.0, 11.0
NAME_LINE, LABEL_LINE = 16.0, 13.0
START_MARK = 16.0
"""Room for the mark of a start executor, left of its name."""

TITLE_HEIGHT, INSET = 30.0, 16.0
"""Space of a sub-workflow above and around its content."""

_NAME_WIDTH, _LABEL_WIDTH = 190.0, 150.0


def name_lines(shape: Shape) -> tuple[str, ...]:
    if shape.kind in ("join", "switch"):
        return ()
    if shape.kind == "selection":
        return tuple(wrap(shape.label, LABEL_SIZE, width=_LABEL_WIDTH, lines=2))
    return tuple(wrap(shape.label, NAME_SIZE, width=_NAME_WIDTH, lines=1 if shape.inside else 3))


def label_size(lines: tuple[str, ...]) -> tuple[float, float]:
    """0, 0 without a label."""
    return (_widest(lines, LABEL_SIZE) + 12, 6 + LABEL_LINE * len(lines)) if lines else (0, 0)


def _widest(lines: tuple[str, ...], size: float) -> float:
    return max((width_of(line, size) for line in lines), default=0)


def lay_out(picture: Picture) -> Drawing:
    """Every shape, label and line with its place, from 0, 0. Deterministic."""
    return _Layout(picture).drawing()


class _Layout:
    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        self._names = [name_lines(shape) for shape in picture.shapes]
        self._labels = [
            () if link.label is None else tuple(wrap(link.label, LABEL_SIZE, width=_LABEL_WIDTH, lines=3))
            for link in picture.links
        ]
        self._label_sizes = list(map(label_size, self._labels))
        self._inside = [None if shape.inside is None else lay_out(shape.inside) for shape in picture.shapes]
        self._sizes = [self._size(number) for number in range(len(picture.shapes))]

    def _size(self, number: int) -> tuple[float, float]:
        """Width and height of a shape."""
        shape, inside, lines = self._picture.shapes[number], self._inside[number], self._names[number]
        if shape.kind == "switch":
            return 16, 16
        if shape.kind == "join":
            arriving = sum(link.target == number for link in self._picture.links)
            return min(max(36.0, 14.0 * arriving), 140.0), 6
        if shape.kind == "selection":
            return _widest(lines, LABEL_SIZE) + 22, 8 + LABEL_LINE * len(lines)
        name = _widest(lines, NAME_SIZE) + (START_MARK if shape.is_start else 0)
        if inside is None:
            return max(72.0, name + 28), 20 + NAME_LINE * len(lines)
        return max(inside.width + 2 * INSET, name + 2 * INSET + 24), inside.height + TITLE_HEIGHT + INSET

    def drawing(self) -> Drawing:
        loops = {link.source: number for number, link in enumerate(self._picture.links) if link.source == link.target}
        extents = [self._extent(number, loops.get(number)) for number in range(len(self._sizes))]
        labels = [Extent(width / 2, width / 2, height) if width else None for width, height in self._label_sizes]
        layers, spots, routes = make_layers(self._picture, extents, labels)
        order_layers(layers, [[*route.turns, *route.passes] for route in routes if route.passes])
        place(layers)
        _choose_sides(layers, routes, {spots[number] for number in loops})
        heights = measure(layers, routes)
        areas = [_area(spot, size) for spot, size in zip(spots, self._sizes, strict=True)]
        strokes = list(Lines(self._picture, areas, routes, heights).strokes())
        boxes = list(map(Box, self._picture.shapes, areas, self._names))
        drawings = [
            inside.move(area.x + (area.width - inside.width) / 2, area.y + TITLE_HEIGHT)
            for inside, area in zip(self._inside, areas, strict=True)
            if inside is not None
        ]
        return _crop(boxes, self._tags(routes, areas), strokes, drawings)

    def _extent(self, number: int, loop: int | None) -> Extent:
        width, height = self._sizes[number]
        beside = 0.0 if loop is None else LOOP_WIDTH + self._label_sizes[loop][0]
        return Extent(width / 2, width / 2 + beside, height)

    def _tags(self, routes: Sequence[EdgeRoute], areas: Sequence[Rectangle]) -> list[Tag]:
        sizes, links, shapes = self._label_sizes, self._picture.links, self._picture.shapes
        places = {route.number: _area(route.label, sizes[route.number]) for route in routes if route.label is not None}
        for number, link in enumerate(links):
            if link.source == link.target and self._labels[number]:
                area, size = areas[link.source], sizes[number]
                places[number] = Rectangle(area.right + LOOP_WIDTH - 4, area.y + (area.height - size[1]) / 2, *size)
        return [
            Tag(shapes[links[number].source], shapes[links[number].target], area, self._labels[number])
            for number, area in places.items()
        ]


def _area(spot: Spot, size: tuple[float, float]) -> Rectangle:
    return Rectangle(spot.x - size[0] / 2, spot.top, *size)


def _choose_sides(layers: Sequence[Sequence[Spot]], routes: Sequence[EdgeRoute], looping: Collection[Spot]) -> None:
    """Links that lead upwards take the side of a box if their lane is its neighbour."""
    rows = ([spot for spot in layer if spot.kind != "turn"] for layer in layers)
    neighbours = {pair for row in rows for pair in pairwise(row)}

    def is_beside(box: Spot, lane: Spot) -> bool:
        """A loop takes the right side of its box."""
        return (lane, box) in neighbours or ((box, lane) in neighbours and box not in looping)

    for route in routes:
        for end in (route.source, route.target) if route.is_back else ():
            end.is_sideways = is_beside(end.shape, route.lane(end))


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
        tags=(*tags, *(replace(tag, is_inside=True) for drawing in inside for tag in drawing.tags)),
        strokes=(*strokes, *(stroke for drawing in inside for stroke in drawing.strokes)),
    )
    return whole.move(-left, -top)
