"""A graph as an SVG picture, drawn without any outside program. The same graph gives the same bytes everywhere."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from perdure.graph.drawing.layout import (
    INSET,
    LABEL_LINE,
    LABEL_SIZE,
    NAME_LINE,
    NAME_SIZE,
    START_MARK,
    TITLE_HEIGHT,
    lay_out,
    to_line,
    width_of,
)
from perdure.graph.drawing.lines import ARROW
from perdure.graph.drawing.picture import OUTCOMES, Box, Drawing, Point, Rectangle, Shape, Stroke, Tag, picture_of
from perdure.graph.graph import Graph

FONT = "ui-sans-serif, system-ui, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"


@dataclass(frozen=True)
class _Palette:
    page: str
    inside: str
    """Of a sub-workflow."""
    box: str
    line: str
    text: str
    faint: str
    inverse: str
    """On top of `line` and the strong colours."""


_LIGHT = _Palette("#ffffff", "#f7f9fc", "#eef1f7", "#5a6473", "#1c2330", "#4a5462", "#ffffff")
_DARK = _Palette("#10141b", "#151a23", "#1b222d", "#8d98a8", "#e7ebf1", "#b3bcc9", "#10141b")


class _Look(NamedTuple):
    """How an outcome is drawn."""

    mark: str
    """In a small disc: tick, triangle, pause, clock hands, dash, cross."""
    rule: str
    """Of the outline."""
    light: tuple[str, str]
    """Fill and outline."""
    dark: tuple[str, str]


_LOOKS = {
    "completed": _Look("M-3.4 .2 L-1 2.8 L3.6 -2.6", "", ("#dcf3e4", "#1b7a45"), ("#143324", "#4cc17f")),
    "running": _Look(
        "M-1.8 -3.2 L3.2 0 L-1.8 3.2 Z", "stroke-dasharray:10 3;", ("#dcebfd", "#1c62c4"), ("#14294a", "#6aa9f7")
    ),
    "waiting": _Look(
        "M-2 -3.4 V3.4 M2 -3.4 V3.4", "stroke-dasharray:6 4;", ("#fdf1cf", "#8f6400"), ("#3a2f10", "#dfae3b")
    ),
    "due": _Look("M0 -3.6 V.4 L2.6 2", "stroke-dasharray:3 3;", ("#ece6fb", "#6b46c1"), ("#2a2145", "#ad8cf2")),
    "skipped": _Look(
        "M-3.2 0 H3.2", "stroke-dasharray:1 4;stroke-linecap:round;", ("#ebedf0", "#6a7380"), ("#262c35", "#929cab")
    ),
    "failed": _Look(
        "M-2.7 -2.7 L2.7 2.7 M2.7 -2.7 L-2.7 2.7", "stroke-width:2.4;", ("#fde3e1", "#c02a2f"), ("#44191c", "#f2736f")
    ),
}


def style_sheet() -> str:
    """The style sheet. Class names have a prefix, because a page that inlines the drawing shares them."""
    light = _palette_style(_LIGHT, {name: look.light for name, look in _LOOKS.items()})
    dark = _palette_style(_DARK, {name: look.dark for name, look in _LOOKS.items()})
    outlines = "".join(f".pd-{name}>.pd-box{{{look.rule}}}" for name, look in _LOOKS.items() if look.rule)
    return (
        f".pd-text{{font-family:{FONT};text-anchor:middle;stroke:none}}"
        ".pd-name{font-size:13px}.pd-label{font-size:11px}.pd-title{text-anchor:start;font-weight:600}"
        ".pd-legend{text-anchor:start}"
        ".pd-box{stroke-width:1.3}.pd-start>.pd-box{stroke-width:2.2}.pd-entry .pd-box{stroke-dasharray:4 3}"
        ".pd-link{fill:none;stroke-width:1.4}.pd-conditional .pd-link{stroke-dasharray:6 4}"
        ".pd-fallback .pd-link{stroke-dasharray:1 4;stroke-width:1.8;stroke-linecap:round}"
        ".pd-mark{fill:none;stroke-width:1.7;stroke-linecap:round;stroke-linejoin:round}"
        f"{outlines}{light}@media(prefers-color-scheme:dark){{{dark}}}"
    )


def _palette_style(palette: _Palette, colours: Mapping[str, tuple[str, str]]) -> str:
    outcomes = "".join(
        f".pd-{name}>.pd-box{{fill:{fill};stroke:{line}}}.pd-{name}>.pd-disc{{fill:{line}}}"
        for name, (fill, line) in colours.items()
    )
    return (
        f".pd-page{{fill:{palette.page}}}.pd-box{{fill:{palette.box};stroke:{palette.line}}}"
        f".pd-start>.pd-box{{stroke:{palette.text}}}"
        f".pd-text{{fill:{palette.text}}}.pd-label{{fill:{palette.faint}}}"
        f".pd-link{{stroke:{palette.line}}}.pd-head,.pd-hub,.pd-start>.pd-sign{{fill:{palette.line}}}"
        f".pd-start>.pd-sign{{fill:{palette.text}}}"
        f".pd-tag{{fill:{palette.page}}}.pd-inside{{fill:{palette.inside}}}.pd-mark{{stroke:{palette.inverse}}}"
        f"{outcomes}.pd-node>.pd-cluster{{fill:{palette.inside}}}"
    )


_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}


def number(value: float) -> str:
    """The number with one decimal, without a zero decimal."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def point(place: Point) -> str:
    return f"{number(place[0])} {number(place[1])}"


def escape(text: str) -> str:
    """The text for an attribute or between tags. Replaces characters that XML does not allow."""
    return "".join(_ESCAPES.get(char, char) for char in _NOT_IN_XML.sub("\ufffd", text))


def text_at(x: float, y: float, classes: str, text: str) -> str:
    return f'<text class="pd-text {classes}" x="{number(x)}" y="{number(y)}">{escape(text)}</text>'


def rectangle(area: Rectangle, classes: str, radius: float) -> str:
    return (
        f'<rect class="{classes}" x="{number(area.x)}" y="{number(area.y)}" width="{number(area.width)}" '
        f'height="{number(area.height)}" rx="{number(radius)}"/>'
    )


_LINE, _DISC = 24.0, 36.0
_NARROWEST = 180.0


def _legend(outcomes: Sequence[str], left: float, top: float, width: float) -> tuple[list[str], float, float]:
    """The legend, with its width and height: as wide as the drawing, in several lines if that is narrow."""
    entries, x, y, widest = list[str](), 0.0, 0.0, 0.0
    for outcome in outcomes:
        needed = width_of(outcome, NAME_SIZE) + _DISC
        if x and x + needed > max(width, _NARROWEST):
            x, y = 0.0, y + _LINE
        middle = top + y + _LINE / 2
        text = text_at(left + x + 22, middle + NAME_SIZE * 0.35, "pd-name pd-legend", outcome)
        entries.append(f'<g class="pd-{outcome}">{badge(outcome, left + x + 9, middle)}{text}</g>')
        x += needed
        widest = max(widest, x)
    return entries, widest, y + _LINE if entries else 0


def badge(outcome: str, x: float, y: float) -> str:
    disc = f'<circle class="pd-disc" cx="{number(x)}" cy="{number(y)}" r="8"/>'
    return f'{disc}<path class="pd-mark" transform="translate({number(x)} {number(y)})" d="{_LOOKS[outcome].mark}"/>'


_MARGIN = 20.0


def to_svg(graph: Graph, *, outcomes: Mapping[str, str] | None = None, include_internal_executors: bool = False) -> str:
    """The picture's source. `outcomes`: outcomes of executors by path, as `outcomes_of` returns them.

    Raises ValueError for an outcome that there is not. Paths that the graph does not have are ignored.
    """
    for path, outcome in (outcomes or {}).items():
        if outcome not in OUTCOMES:
            raise ValueError(f"The outcome of {path!r}: expected one of {', '.join(OUTCOMES)}, got {outcome!r}.")
    picture = picture_of(graph, with_hubs=True, include_internal_executors=include_internal_executors)
    drawing = lay_out(picture).move(_MARGIN, _MARGIN)
    paths = [box.shape.path for box in drawing.boxes if not box.shape.is_hub]
    shown = {path: outcomes[path] for path in paths if outcomes and path in outcomes}
    occurring = [outcome for outcome in OUTCOMES if outcome in shown.values()]
    legend, legend_width, legend_height = _legend(occurring, _MARGIN, drawing.height + 1.5 * _MARGIN, drawing.width)
    width = number(max(drawing.width, legend_width) + 2 * _MARGIN)
    height = number(drawing.height + 2 * _MARGIN + legend_height)
    size = f'width="{width}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size} viewBox="0 0 {width} {height}">',
        f"<title>{escape(to_line(graph.name))}</title>",
        f"<desc>{escape(_description(drawing, shown, occurring))}</desc>",
        f"<style>{style_sheet()}</style>",
        f'<rect class="pd-page" {size} rx="8"/>',
        # Sub-workflows at the back, then lines, and boxes over them.
        *(_box(box, shown.get(box.shape.path)) for box in drawing.boxes if box.shape.inside is not None),
        *map(_stroke, drawing.strokes),
        *map(_tag, drawing.tags),
        *(_box(box, shown.get(box.shape.path)) for box in drawing.boxes if box.shape.inside is None),
        *legend,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _description(drawing: Drawing, outcomes: Mapping[str, str], occurring: Sequence[str]) -> str:
    """The description for screen readers."""
    shapes = [box.shape for box in drawing.boxes]
    count = sum(shape.kind in ("executor", "workflow") for shape in shapes)
    start = next(shape.path for shape in shapes if shape.is_start)
    sentences = [f"A workflow of {count} executor{'' if count == 1 else 's'}. It starts at {to_line(start)}."]
    for outcome in occurring:
        paths = ", ".join(to_line(path) for path, state in outcomes.items() if state == outcome)
        sentences.append(f"{outcome.capitalize()}: {paths}.")
    return " ".join(sentences)


def _box(box: Box, outcome: str | None) -> str:
    if box.shape.is_hub:
        return _hub(box)
    start, happened = "pd-start" if box.shape.is_start else "", f"pd-{outcome}" if outcome else ""
    classes = " ".join(filter(None, ("pd-node", f"pd-{box.shape.kind}", start, happened)))
    path = escape(box.shape.path)
    tooltip = f"{path}: {outcome}" if outcome else path
    drawn = _cluster(box) if box.shape.inside is not None else _executor(box)
    mark = "" if outcome is None else badge(outcome, box.area.right - 5, box.area.y + 5)
    return f'<g class="{classes}" data-path="{path}"><title>{tooltip}</title>{drawn}{mark}</g>'


def _executor(box: Box) -> str:
    area = box.area
    outline = rectangle(area, "pd-box", area.height / 2 if box.shape.kind == "entry" else 7)
    x = area.x + area.width / 2 + (START_MARK / 2 if box.shape.is_start else 0)
    y = area.y + area.height / 2 - (len(box.lines) - 1) * NAME_LINE / 2 + NAME_SIZE * 0.35
    text = [text_at(x, y + place * NAME_LINE, "pd-name", line) for place, line in enumerate(box.lines)]
    sign = _start_sign(area.x + 11, area.y + area.height / 2) if box.shape.is_start else ""
    return outline + sign + "".join(text)


def _cluster(box: Box) -> str:
    area, middle = box.area, box.area.y + TITLE_HEIGHT / 2
    sign = _start_sign(area.x + INSET, middle) if box.shape.is_start else ""
    left = area.x + INSET + (START_MARK if box.shape.is_start else 0)
    title = text_at(left, middle + NAME_SIZE * 0.35, "pd-name pd-title", box.lines[0])
    return rectangle(area, "pd-box pd-cluster", 10) + sign + title


def _start_sign(x: float, y: float) -> str:
    return f'<path class="pd-sign" d="M{number(x)} {number(y - 5)} l8 5 l-8 5 z"/>'


def _hub(box: Box) -> str:
    area, kind = box.area, box.shape.kind
    if kind == "join":
        return rectangle(area, "pd-hub pd-join", 3)
    if kind == "switch":
        return f'<path class="pd-hub pd-switch" d="M{point((area.x + 8, area.y))} l8 8 l-8 8 l-8 -8 z"/>'
    label = _label(box.lines, area.x + area.width / 2, area.y + 4)
    return f'<g class="pd-selection">{rectangle(area, "pd-box", area.height / 2)}{label}</g>'


def _stroke(stroke: Stroke) -> str:
    line = "".join(name + " ".join(point(place) for place in places) for name, places in stroke.steps)
    head = "" if stroke.tip is None else f'<path class="pd-head" d="{_head(*stroke.tip)}"/>'
    ends = _ends(stroke.source, stroke.target)
    return f'<g class="pd-{stroke.link.kind}"{ends}><path class="pd-link" d="{line}"/>{head}</g>'


def _ends(source: Shape, target: Shape) -> str:
    """The executors at both ends of a link, for scripts that use the drawing."""
    return f' data-source="{escape(source.path)}" data-target="{escape(target.path)}"'


def _head(tip: Point, way: Point) -> str:
    (x, y), (dx, dy) = tip, way
    back = x - dx * (ARROW + 1), y - dy * (ARROW + 1)
    wings = (back[0] - dy * 4, back[1] + dx * 4), (back[0] + dy * 4, back[1] - dx * 4)
    return f"M{point(tip)}L{point(wings[0])} {point(wings[1])}Z"


def _tag(tag: Tag) -> str:
    back = rectangle(tag.area, "pd-tag pd-inside" if tag.is_inside else "pd-tag", 4)
    label = _label(tag.lines, tag.area.x + tag.area.width / 2, tag.area.y + 3)
    return f'<g class="pd-tagged"{_ends(tag.source, tag.target)}>{back}{label}</g>'


def _label(lines: tuple[str, ...], middle: float, top: float) -> str:
    y = top + LABEL_LINE / 2 + LABEL_SIZE * 0.35
    return "".join(text_at(middle, y + place * LABEL_LINE, "pd-label", line) for place, line in enumerate(lines))
