"""A finished graph: what `build` found to be sound. Frozen; it runs nothing and remembers nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from perdure.graph.edges import EdgeGroup
from perdure.graph.executor import Executor
from perdure.graph.policy import FailurePolicy, Reducer


@dataclass(frozen=True)
class Node:
    """An executor of the graph, and how to make another one for another thread."""

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
    """Of the executors that have one; failures of the others end the superstep."""
    fallbacks: Mapping[str, str] = field(default_factory=dict)
    """Executor -> the one that gets its message when it fails."""

    @cached_property
    def executors(self) -> dict[str, Executor]:
        return {executor_id: node.executor for executor_id, node in self.nodes.items()}

    @cached_property
    def output_types(self) -> tuple[Any, ...]:
        """What its results are declared to be."""
        yielding = (one for key, one in self.executors.items() if self.designation.event_type(key) == "output")
        return tuple(dict.fromkeys(kind for one in yielding for kind in one.workflow_output_types))

    @cached_property
    def annotations(self) -> tuple[Any, ...]:
        """Every type that its handlers name: what a checkpoint of it may hold."""
        found: dict[Any, None] = {}
        for executor in self.executors.values():
            for one in (*executor.table.handlers, *executor.table.responses):
                types = (one.message_type, one.request_type, *one.output_types, *one.workflow_output_types)
                found.update((annotation, None) for annotation in types if annotation is not None)
            found.update((annotation, None) for annotation in executor.value_types)
        return tuple(found)
