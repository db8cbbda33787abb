"""Text in a drawing: printable characters, their widths, and line breaks."""

from __future__ import annotations

import re

from perdure.graph.drawing.picture import Link, Picture, Shape

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
        broken = [*broken[: lines - 1], _cut(broken[lines - 1], size, width)]
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


def _cut(line: str, size: float, width: float) -> str:
    return line[: _fitting_length(line, size, width - width_of(ELLIPSIS, size))].rstrip(" ") + ELLIPSIS


NAME_SIZE, LABEL_SIZE = 13.0, 11.0
NAME_LINE, LABEL_LINE = 16.0, 13.0
START_MARK = 16.0
"""Room for the mark of a start executor, left of its name."""

TITLE_HEIGHT, INSET = 30.0, 16.0
"""Space of a sub-workflow above and around its content."""

_NAME_WIDTH, _LABEL_WIDTH = 190.0, 150.0


def name_lines(shape: Shape) -> tuple[str, ...]:
    """The lines of text in a shape."""
    if shape.kind in ("join", "switch"):
        return ()
    if shape.kind == "selection":
        return tuple(wrap(shape.label, LABEL_SIZE, width=_LABEL_WIDTH, lines=2))
    return tuple(wrap(shape.label, NAME_SIZE, width=_NAME_WIDTH, lines=1 if shape.inside else 3))


def size_of(picture: Picture, number: int, lines: tuple[str, ...]) -> tuple[float, float]:
    """Width and height of a shape without an inner picture."""
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
    return () if link.label is None else tuple(wrap(link.label, LABEL_SIZE, width=_LABEL_WIDTH, lines=3))


def label_size(lines: tuple[str, ...]) -> tuple[float, float]:
    return _widest(lines, LABEL_SIZE) + 12, 6 + LABEL_LINE * len(lines)


def _widest(lines: tuple[str, ...], size: float) -> float:
    return max((width_of(line, size) for line in lines), default=0)
