"""A graph as shapes and links, for all drawing formats; these with their places; and the outcome of each executor.

Sub-workflows are pictures inside shapes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from perdure.events import WorkflowEvent
from perdure.graph.edges import EdgeGroup, FanInEdgeGroup, FanOutEdgeGroup, SwitchCaseEdgeGroup
from perdure.graph.executor import Executor
from perdure.graph.graph import Graph, WorkflowExecutor


class UniqueNames(set[str]):
    def claim(self, wanted: str) -> str:
        """`name`, or the first free of `name_2`, `name_3`, ..."""
        name, number = wanted, 1
        while name in self:
            number += 1
            name = f"{wanted}_{number}"
        self.add(name)
        return name


ShapeKind: TypeAlias = Literal["executor", "workflow", "entry", "join", "switch", "selection"]
LinkKind: TypeAlias = Literal["plain", "conditional", "fallback"]

ON_ERROR = "on error"


@dataclass(frozen=True)
class Shape:
    kind: ShapeKind
    label: str
    path: str
    """Names an executor in the whole drawing: `sub/inner`. Hubs (join, switch, selection) have that of their owner."""
    is_start: bool = False
    inside: Picture | None = None
    """The graph of a sub-workflow."""

    @property
    def is_hub(self) -> bool:
        """Whether it represents an edge group rather than an executor."""
        return self.kind in ("join", "switch", "selection")


@dataclass(frozen=True)
class Link:
    """From one shape to another, both by their index in the picture."""

    source: int
    target: int
    kind: LinkKind = "plain"
    label: str | None = None
    bundle: int = 0
    """The edge group of the link: its links are routed together."""


@dataclass(frozen=True)
class Picture:
    shapes: tuple[Shape, ...]
    links: tuple[Link, ...]


def picture_of(
    graph: Graph, *, with_hubs: bool = False, include_internal_executors: bool = False, with_names: bool = True
) -> Picture:
    """The whole graph, sub-workflows included, in the order of declaration.

    A fan-in always has a shape of its own. With hubs, so have a switch and a selection function: their links start
    there, and the name of a selection appears once instead of on each link. Without names, an edge with a condition is
    "conditional", and those of a switch or selection are plain.
    """
    return _Painter(graph, "", with_hubs, include_internal_executors, with_names).picture()


class _Painter:
    def __init__(self, graph: Graph, prefix: str, *how: bool) -> None:
        self._graph = graph
        self._prefix = prefix
        self._how = how
        self._with_hubs, self._with_entry, self._with_names = how
        self._shapes: list[Shape] = []
        self._links: list[Link] = []
        self._index: dict[str, int] = {}

    def picture(self) -> Picture:
        for executor_id, executor in self._graph.executors.items():
            self._index[executor_id] = self._add_executor(executor_id, executor)
        for executor_id in self._graph.executors if self._with_entry else ():
            entry = self._add("entry", f"internal:{executor_id}", f"internal:{executor_id}")
            self._links.append(Link(entry, self._index[executor_id], bundle=-1))
        for number, group in enumerate(self._graph.edge_groups):
            self._draw_group(group, number)
        for source_id, target_id in self._graph.fallbacks.items():
            self._links.append(Link(self._index[source_id], self._index[target_id], "fallback", ON_ERROR, -2))
        return Picture(tuple(self._shapes), tuple(self._links))

    def _add(
        self, kind: ShapeKind, label: str, path: str, is_start: bool = False, inside: Picture | None = None
    ) -> int:
        self._shapes.append(Shape(kind, label, f"{self._prefix}{path}", is_start, inside))
        return len(self._shapes) - 1

    def _add_executor(self, executor_id: str, executor: Executor) -> int:
        is_start = executor_id == self._graph.start_executor_id
        if not isinstance(executor, WorkflowExecutor):
            return self._add("executor", executor_id, executor_id, is_start)
        prefix = f"{self._prefix}{executor_id}/"
        inside = _Painter(executor.graph, prefix, *self._how).picture()
        return self._add("workflow", executor_id, executor_id, is_start, inside)

    def _draw_group(self, group: EdgeGroup, number: int) -> None:
        if isinstance(group, FanInEdgeGroup):
            target_id = group.edges[0].target_id
            join = self._add("join", "fan-in", target_id)
            self._links += [Link(self._index[edge.source_id], join, bundle=number) for edge in group.edges]
            self._links.append(Link(join, self._index[target_id], bundle=number))
            return
        selection = getattr(group, "selection_func_name", None) if self._with_names else None
        hub = self._hub_of(group, number)
        for edge, name in zip(group.edges, group.condition_names, strict=True):
            shown = name if self._with_names and name != "<lambda>" else name and edge.has_condition and "conditional"
            label = selection or shown or ("conditional" if edge.has_condition else None)
            source = self._index[edge.source_id] if hub is None else hub
            text = None if hub is not None and selection is not None else label
            kind: LinkKind = "plain" if label is None else "conditional"
            self._links.append(Link(source, self._index[edge.target_id], kind, text, number))

    def _hub_of(self, group: EdgeGroup, number: int) -> int | None:
        """The shape from which the links of a switch or selection start; None for other groups."""
        if not self._with_hubs:
            return None
        source_id = group.edges[0].source_id
        if isinstance(group, SwitchCaseEdgeGroup):
            hub = self._add("switch", "switch", source_id)
        elif isinstance(group, FanOutEdgeGroup) and group.selection_func is not None:
            hub = self._add("selection", group.selection_func_name or "selection", source_id)
        else:
            return None
        self._links.append(Link(self._index[source_id], hub, bundle=number))
        return hub


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
    shape: Shape
    area: Rectangle
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Tag:
    """The label of a link."""

    source: Shape
    target: Shape
    area: Rectangle
    lines: tuple[str, ...]
    is_inside: bool = False
    """Whether it is in a sub-workflow."""


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


def _move_stroke(stroke: Stroke, dx: float, dy: float) -> Stroke:
    steps = tuple((name, tuple((x + dx, y + dy) for x, y in points)) for name, points in stroke.steps)
    tip = None if stroke.tip is None else ((stroke.tip[0][0] + dx, stroke.tip[0][1] + dy), stroke.tip[1])
    return replace(stroke, steps=steps, tip=tip)


COMPLETED, RUNNING, FAILED, SKIPPED, WAITING, DUE = "completed", "running", "failed", "skipped", "waiting", "due"

OUTCOMES: Final = (COMPLETED, RUNNING, WAITING, DUE, SKIPPED, FAILED)
"""Every outcome, in the order of a legend."""

_STATES = {
    "executor_invoked": RUNNING,
    "executor_retrying": RUNNING,
    "executor_completed": COMPLETED,
    "executor_bypassed": COMPLETED,
    "executor_failed": FAILED,
    "executor_skipped": SKIPPED,
}

_OF_A_WHOLE = (FAILED, RUNNING, WAITING, DUE, COMPLETED, SKIPPED)
"""Precedence of outcomes inside a sub-workflow: the first that occurs is that of the whole."""


def outcomes_of(events: Iterable[WorkflowEvent]) -> dict[str, str]:
    """The last outcome of each executor, by path (`sub/inner`). Executors without events are left out.

    An executor waits while a request of its own is unanswered; called again, it is taken to have got an answer. What
    ran in a superstep that was discarded is due again, except for what failed. A sub-workflow has the outcome of what
    is inside it, unless it failed or was skipped itself.
    """
    states: dict[str, str] = {}
    asked: dict[str, list[str]] = {}
    """Open requests of each executor, the oldest first."""
    touched: dict[str, list[str]] = {}
    """Executors of this superstep, with the requests that they had open before it."""
    for event in events:
        path = event.executor_id or getattr(event, "source_executor_id", None)
        if event.type == "superstep_started":
            touched = {}
        elif event.type == "superstep_discarded":
            asked |= touched
            states |= {path: DUE for path in touched if states.get(path) != FAILED}
            touched = {}
        elif event.type == "failed" and event.details is not None and event.details.executor_id is not None:
            states[event.details.executor_id] = FAILED
        elif path is not None:
            requests = asked.setdefault(path, [])
            if event.type in _STATES or event.type == "request_info":
                touched.setdefault(path, list(requests))
            if event.type == "request_info":
                if event.request_id not in requests:
                    requests.append(str(event.request_id))
                states.setdefault(path, COMPLETED)  # a replayed event: the run did not call the executor
            elif event.type == "executor_invoked":
                del requests[:1]
            elif event.type == "error":  # an expired request
                expired = getattr(event.data, "request_id", None)
                asked[path] = [request for request in requests if request != expired]
            if event.type in _STATES:
                states[path] = _STATES[event.type]
    waiting = {path: WAITING for path, state in states.items() if state == COMPLETED and asked.get(path)}
    return _with_enclosing({**states, **waiting})


def _with_enclosing(outcomes: dict[str, str]) -> dict[str, str]:
    inside: dict[str, set[str]] = {}
    for path, outcome in outcomes.items():
        for end, character in enumerate(path):
            if character == "/":
                inside.setdefault(path[:end], set()).add(outcome)
    whole = {path: next(state for state in _OF_A_WHOLE if state in states) for path, states in inside.items()}
    own = {path: outcome for path, outcome in outcomes.items() if path in inside and outcome in (FAILED, SKIPPED)}
    return {**outcomes, **whole, **own}
