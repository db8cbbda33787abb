"""Graph: nodes, edges and their conditions. The engine follows them (engine/thread/compiled.py)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from perdure.graph.executor import Executor
from perdure.graph.policy import FailurePolicy, Reducer

EdgeCondition: TypeAlias = Callable[[Any], bool | Awaitable[bool]]
SelectionFunction: TypeAlias = Callable[[Any, list[str]], list[str]]


def function_name(function: Callable[..., Any] | None) -> str | None:
    """The name of a condition in a signature and in a drawing: `<lambda>` for a lambda."""
    if function is None:
        return None
    return getattr(function, "__name__", None) or type(function).__name__


@dataclass(frozen=True)
class Edge:
    source_id: str
    target_id: str
    condition: EdgeCondition | None = None
    condition_name: str | None = None

    def __post_init__(self) -> None:
        if not self.source_id or not self.target_id:
            raise ValueError(f"An edge needs a source and a target, got {self.source_id!r} -> {self.target_id!r}.")
        if self.condition is not None and self.condition_name is None:
            object.__setattr__(self, "condition_name", function_name(self.condition))

    @property
    def id(self) -> str:
        return f"{self.source_id}->{self.target_id}"

    @property
    def has_condition(self) -> bool:
        return self.condition is not None

    async def should_route(self, data: Any) -> bool:
        if self.condition is None:
            return True
        answer = self.condition(data)
        return bool(await answer if isinstance(answer, Awaitable) else answer)

    def to_dict(self) -> dict[str, Any]:
        return {"source_id": self.source_id, "target_id": self.target_id, "condition_name": self.condition_name}


@dataclass(frozen=True)
class EdgeGroup:
    """Edges that are routed together. Its `id` is derived from them, so it is the same in every process."""

    edges: tuple[Edge, ...]

    @property
    def id(self) -> str:
        sources, targets = ",".join(self.source_executor_ids), ",".join(self.target_executor_ids)
        return f"{type(self).__name__}/{sources}->{targets}"

    @property
    def type(self) -> str:
        return type(self).__name__

    @property
    def source_executor_ids(self) -> list[str]:
        return list(dict.fromkeys(edge.source_id for edge in self.edges))

    @property
    def target_executor_ids(self) -> list[str]:
        return list(dict.fromkeys(edge.target_id for edge in self.edges))

    def to_dict(self) -> dict[str, Any]:
        return {"id": self.id, "type": self.type, "edges": [edge.to_dict() for edge in self.edges]}


@dataclass(frozen=True)
class SingleEdgeGroup(EdgeGroup):
    """One edge, with or without a condition."""


@dataclass(frozen=True)
class FanOutEdgeGroup(EdgeGroup):
    """One source, several targets: all of them, or those that `selection_func` names."""

    selection_func: SelectionFunction | None = None

    @property
    def selection_func_name(self) -> str | None:
        return function_name(self.selection_func)


@dataclass(frozen=True)
class FanInEdgeGroup(EdgeGroup):
    """Several sources, one target: it gets the list of their messages once each has sent one."""


@dataclass(frozen=True)
class Case:
    """`condition(message)` true: the message goes to `target`."""

    condition: Callable[[Any], bool]
    target: Any


@dataclass(frozen=True)
class Default:
    """The target of messages that no Case takes."""

    target: Any


@dataclass(frozen=True)
class SwitchCaseEdgeGroupCase:
    condition: Callable[[Any], bool]
    target_id: str

    @property
    def condition_name(self) -> str | None:
        return function_name(self.condition)


@dataclass(frozen=True)
class SwitchCaseEdgeGroupDefault:
    target_id: str


@dataclass(frozen=True)
class SwitchCaseEdgeGroup(EdgeGroup):
    """Cases tried in order, the first true one wins, otherwise the default."""

    cases: tuple[SwitchCaseEdgeGroupCase | SwitchCaseEdgeGroupDefault, ...] = field(default=())


@dataclass(frozen=True)
class Node:
    """An executor of the graph, and a factory of instances for other threads."""

    executor: Executor
    make: Callable[[], Executor]


@dataclass(frozen=True)
class OutputDesignation:
    """Which executors' outputs are results, which are intermediate. Both None: all of them are results."""

    output: frozenset[str] | None = None
    intermediate: frozenset[str] | None = None

    def event_type(self, executor_id: str) -> str | None:
        """`output`, `intermediate`, or None for an output that is hidden."""
        if self.output is None and self.intermediate is None:
            return "output"
        if self.output is not None and executor_id in self.output:
            return "output"
        if self.intermediate is not None and executor_id in self.intermediate:
            return "intermediate"
        return None


@dataclass(frozen=True)
class Graph:
    name: str
    description: str | None
    start_executor_id: str
    nodes: Mapping[str, Node]
    edge_groups: tuple[EdgeGroup, ...]
    max_iterations: int
    designation: OutputDesignation
    reducers: Mapping[str, Reducer]
    policies: Mapping[str, FailurePolicy] = field(default_factory=dict)
    """Failure policies by executor. A failure of any other executor ends the superstep."""
    fallbacks: Mapping[str, str] = field(default_factory=dict)
    """Executor -> the one that gets its message when it fails."""

    @cached_property
    def executors(self) -> dict[str, Executor]:
        return {executor_id: node.executor for executor_id, node in self.nodes.items()}

    @cached_property
    def output_types(self) -> tuple[Any, ...]:
        """The declared types of its results."""
        executors = (node for key, node in self.executors.items() if self.designation.event_type(key) == "output")
        return tuple(dict.fromkeys(kind for executor in executors for kind in executor.workflow_output_types))

    @cached_property
    def annotations(self) -> tuple[Any, ...]:
        """Every type that its handlers name, and so a checkpoint of it may contain."""
        annotations: dict[Any, None] = {}
        for executor in self.executors.values():
            for handler in (*executor.table.handlers, *executor.table.responses):
                types = (handler.message_type, handler.request_type)
                types += (*handler.output_types, *handler.workflow_output_types)
                annotations.update((annotation, None) for annotation in types if annotation is not None)
            annotations.update((annotation, None) for annotation in executor.value_types)
        return tuple(annotations)
