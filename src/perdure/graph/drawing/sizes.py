"""How big things are: the text in a shape or label, and the box around it."""

from __future__ import annotations

from perdure.graph.drawing.picture import Link, Picture, Shape
from perdure.graph.drawing.text import width_of, wrapped

NAME_SIZE, LABEL_SIZE = 13.0, 11.0
NAME_LINE, LABEL_LINE = 16.0, 13.0
START_MARK = 16.0
"""Room for the mark of a start executor, left of its name."""

TITLE_HEIGHT, INSET = 30.0, 16.0
"""Of a sub-workflow: above and around what is inside."""

_NAME_WIDTH, _LABEL_WIDTH = 190.0, 150.0


def name_lines(shape: Shape) -> tuple[str, ...]:
    """What is written into a shape."""
    if shape.kind in ("join", "switch"):
        return ()
    if shape.kind == "selection":
        return tuple(wrapped(shape.label, LABEL_SIZE, width=_LABEL_WIDTH, lines=2))
    return tuple(wrapped(shape.label, NAME_SIZE, width=_NAME_WIDTH, lines=1 if shape.inside else 3))


def size_of(picture: Picture, number: int, lines: tuple[str, ...]) -> tuple[float, float]:
    """Width and height of a shape that has nothing inside."""
    shape = picture.shapes[number]
    if shape.kind == "switch":
        return 16, 16
    if shape.kind == "join":
        arriving = sum(link.target == number for link in picture.links)
        return min(max(36.0, 14.0 * arriving), 140.0), 6
    if shape.kind == "selection":
        return _widest(lines, LABEL_SIZE) + 22, 8 + LABEL_LINE * len(lines)
    mark = START_MARK if shape.is_start else 0
    return max(72.0, _widest(lines, NAME_SIZE) + 28 + mark), 20 + NAME_LINE * len(lines)


def title_width(shape: Shape, lines: tuple[str, ...]) -> float:
    return _widest(lines, NAME_SIZE) + 2 * INSET + 24 + (START_MARK if shape.is_start else 0)


def label_lines(link: Link) -> tuple[str, ...]:
    return () if link.label is None else tuple(wrapped(link.label, LABEL_SIZE, width=_LABEL_WIDTH, lines=3))


def label_size(lines: tuple[str, ...]) -> tuple[float, float]:
    return _widest(lines, LABEL_SIZE) + 12, 6 + LABEL_LINE * len(lines)


def _widest(lines: tuple[str, ...], size: float) -> float:
    return max((width_of(line, size) for line in lines), default=0)
