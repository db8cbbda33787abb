"""A graph as an SVG picture, drawn without any outside program. The same graph gives the same bytes everywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perdure.graph.drawing.figures import Box, Drawing, Point, Rectangle, Stroke, Tag
from perdure.graph.drawing.layout import lay_out
from perdure.graph.drawing.look import style_sheet
from perdure.graph.drawing.marks import badge, legend_of
from perdure.graph.drawing.markup import escaped, number, point, rectangle, text_at
from perdure.graph.drawing.outcomes import OUTCOMES
from perdure.graph.drawing.pen import ARROW
from perdure.graph.drawing.picture import Shape, picture_of
from perdure.graph.drawing.sizes import (
    INSET,
    LABEL_LINE,
    LABEL_SIZE,
    NAME_LINE,
    NAME_SIZE,
    START_MARK,
    TITLE_HEIGHT,
)
from perdure.graph.drawing.text import shown
from perdure.graph.graph import Graph

_MARGIN = 20.0


def to_svg(graph: Graph, *, outcomes: Mapping[str, str] | None = None, include_internal_executors: bool = False) -> str:
    """The picture's source. `outcomes` says by path what happened to executors, as `outcomes_of` tells it.

    Raises ValueError for an outcome that there is not. Paths that the graph does not have are ignored.
    """
    for path, outcome in (outcomes or {}).items():
        if outcome not in OUTCOMES:
            raise ValueError(f"The outcome of {path!r}: expected one of {', '.join(OUTCOMES)}, got {outcome!r}.")
    picture = picture_of(graph, with_hubs=True, include_internal_executors=include_internal_executors)
    return _Page(graph.name, lay_out(picture), outcomes or {}).source()


class _Page:
    def __init__(self, name: str, drawing: Drawing, outcomes: Mapping[str, str]) -> None:
        self._name = name
        self._drawing = drawing.moved(_MARGIN, _MARGIN)
        paths = [box.shape.path for box in drawing.boxes if not box.shape.is_hub]
        self._outcomes = {path: outcomes[path] for path in paths if path in outcomes}
        occurring = [one for one in OUTCOMES if one in self._outcomes.values()]
        self._legend = legend_of(occurring, drawing.width)

    def source(self) -> str:
        drawing, legend = self._drawing, self._legend
        page = Rectangle(0, 0, max(drawing.width, legend.width) + 2 * _MARGIN, drawing.height + 2 * _MARGIN)
        width, height = number(page.width), number(page.height + legend.height)
        size = f'width="{width}" height="{height}"'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size} viewBox="0 0 {width} {height}">',
            f"<title>{escaped(shown(self._name))}</title>",
            f"<desc>{escaped(self._description())}</desc>",
            f"<style>{style_sheet()}</style>",
            f'<rect class="hf-page" {size} rx="8"/>',
            *self._body(),
            *legend.source(_MARGIN, drawing.height + 1.5 * _MARGIN),
            "</svg>",
        ]
        return "\n".join(lines) + "\n"

    def _body(self) -> Iterator[str]:
        """Sub-workflows at the back, then lines, and boxes over them."""
        boxes = self._drawing.boxes
        yield from (self._box(box) for box in boxes if box.shape.inside is not None)
        yield from (_stroke(one) for one in self._drawing.strokes)
        yield from (_tag(one) for one in self._drawing.tags)
        yield from (self._box(box) for box in boxes if box.shape.inside is None)

    def _description(self) -> str:
        """For those who hear the drawing."""
        shapes = [box.shape for box in self._drawing.boxes]
        count = sum(one.kind in ("executor", "workflow") for one in shapes)
        start = next(one.path for one in shapes if one.is_start)
        said = [f"A workflow of {count} executor{'' if count == 1 else 's'}. It starts at {shown(start)}."]
        for outcome, *_ in self._legend.entries:
            paths = ", ".join(shown(path) for path, one in self._outcomes.items() if one == outcome)
            said.append(f"{outcome.capitalize()}: {paths}.")
        return " ".join(said)

    def _box(self, box: Box) -> str:
        if box.shape.is_hub:
            return _hub(box)
        outcome = self._outcomes.get(box.shape.path)
        start, happened = "hf-start" if box.shape.is_start else "", f"hf-{outcome}" if outcome else ""
        classes = " ".join(one for one in ("hf-node", f"hf-{box.shape.kind}", start, happened) if one)
        path = escaped(box.shape.path)
        tooltip = f"{path}: {outcome}" if outcome else path
        drawn = _cluster(box) if box.shape.inside is not None else _executor(box)
        mark = "" if outcome is None else badge(outcome, box.area.right - 5, box.area.y + 5)
        return f'<g class="{classes}" data-path="{path}"><title>{tooltip}</title>{drawn}{mark}</g>'


# ---------------------------------------------------------------- boxes


def _executor(box: Box) -> str:
    area = box.area
    outline = rectangle(area, "hf-box", area.height / 2 if box.shape.kind == "entry" else 7)
    x = area.x + area.width / 2 + (START_MARK / 2 if box.shape.is_start else 0)
    y = area.y + area.height / 2 - (len(box.lines) - 1) * NAME_LINE / 2 + NAME_SIZE * 0.35
    text = [text_at(x, y + place * NAME_LINE, "hf-name", line) for place, line in enumerate(box.lines)]
    sign = _start_sign(area.x + 11, area.y + area.height / 2) if box.shape.is_start else ""
    return outline + sign + "".join(text)


def _cluster(box: Box) -> str:
    area, middle = box.area, box.area.y + TITLE_HEIGHT / 2
    sign = _start_sign(area.x + INSET, middle) if box.shape.is_start else ""
    left = area.x + INSET + (START_MARK if box.shape.is_start else 0)
    title = text_at(left, middle + NAME_SIZE * 0.35, "hf-name hf-title", box.lines[0])
    return rectangle(area, "hf-box hf-cluster", 10) + sign + title


def _start_sign(x: float, y: float) -> str:
    return f'<path class="hf-sign" d="M{number(x)} {number(y - 5)} l8 5 l-8 5 z"/>'


def _hub(box: Box) -> str:
    area, kind = box.area, box.shape.kind
    if kind == "join":
        return rectangle(area, "hf-hub hf-join", 3)
    if kind == "switch":
        return f'<path class="hf-hub hf-switch" d="M{point((area.x + 8, area.y))} l8 8 l-8 8 l-8 -8 z"/>'
    label = _label(box.lines, area.x + area.width / 2, area.y + 4)
    return f'<g class="hf-selection">{rectangle(area, "hf-box", area.height / 2)}{label}</g>'


# ---------------------------------------------------------------- links


def _stroke(stroke: Stroke) -> str:
    line = "".join(name + " ".join(point(place) for place in places) for name, places in stroke.steps)
    head = "" if stroke.tip is None else f'<path class="hf-head" d="{_head(*stroke.tip)}"/>'
    ends = _ends(stroke.source, stroke.target)
    return f'<g class="hf-{stroke.link.kind}"{ends}><path class="hf-link" d="{line}"/>{head}</g>'


def _ends(source: Shape, target: Shape) -> str:
    """Which executors a link leads from and to, for scripts that work on the drawing."""
    return f' data-source="{escaped(source.path)}" data-target="{escaped(target.path)}"'


def _head(tip: Point, way: Point) -> str:
    (x, y), (dx, dy) = tip, way
    back = x - dx * (ARROW + 1), y - dy * (ARROW + 1)
    wings = (back[0] - dy * 4, back[1] + dx * 4), (back[0] + dy * 4, back[1] - dx * 4)
    return f"M{point(tip)}L{point(wings[0])} {point(wings[1])}Z"


def _tag(tag: Tag) -> str:
    back = rectangle(tag.area, "hf-tag hf-inside" if tag.depth else "hf-tag", 4)
    label = _label(tag.lines, tag.area.x + tag.area.width / 2, tag.area.y + 3)
    return f'<g class="hf-tagged"{_ends(tag.source, tag.target)}>{back}{label}</g>'


def _label(lines: tuple[str, ...], middle: float, top: float) -> str:
    y = top + LABEL_LINE / 2 + LABEL_SIZE * 0.35
    return "".join(text_at(middle, y + place * LABEL_LINE, "hf-label", line) for place, line in enumerate(lines))
