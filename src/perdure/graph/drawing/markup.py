"""Pieces of SVG: numbers, points, rectangles and text, escaped as XML needs it."""

from __future__ import annotations

import re

from perdure.graph.drawing.figures import Point, Rectangle

_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}


def number(value: float) -> str:
    """With one decimal, and none where it is zero."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def point(place: Point) -> str:
    return f"{number(place[0])} {number(place[1])}"


def escaped(text: str) -> str:
    """For an attribute or between tags: exact, but for characters that XML cannot hold."""
    return "".join(_ESCAPES.get(one, one) for one in _NOT_IN_XML.sub("\ufffd", text))


def text_at(x: float, y: float, classes: str, text: str) -> str:
    return f'<text class="hf-text {classes}" x="{number(x)}" y="{number(y)}">{escaped(text)}</text>'


def rectangle(area: Rectangle, classes: str, radius: float) -> str:
    return (
        f'<rect class="{classes}" x="{number(area.x)}" y="{number(area.y)}" width="{number(area.width)}" '
        f'height="{number(area.height)}" rx="{number(radius)}"/>'
    )
