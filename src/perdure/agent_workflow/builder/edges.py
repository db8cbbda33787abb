"""Edges, said fluently: `.from_("review").to("publish").when_equals("verdict", "good")`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Self

import msgspec

from perdure.agent_workflow.builder.draft import Draft, EdgeDraft, NodeDraft
from perdure.agent_workflow.builder.node import AgentNodeOptions
from perdure.agent_workflow.builder.workflow import AgentWorkflow, Configure
from perdure.agent_workflow.definition import condition
from perdure.agent_workflow.definition.conditions import Condition
from perdure.agent_workflow.definition.config import EdgeConfig
from perdure.agent_workflow.definition.references import type_title
from perdure.graph.policy import in_seconds


class EdgeBuilder:
    """What comes after some nodes."""

    def __init__(self, draft: Draft, sources: Sequence[str]) -> None:
        if not sources:
            raise ValueError("from_() needs the id of a node.")
        self._draft = draft
        self._sources = tuple(sources)

    def to(self, *ids: str) -> EdgeTargetBuilder:
        """An edge from each source to each of these nodes. END stands for the end of the execution."""
        if not ids:
            raise ValueError("to() needs the id of a node.")
        made = [EdgeDraft(EdgeConfig(source=one, target=other)) for one in self._sources for other in ids]
        self._draft.edges += made
        return EdgeTargetBuilder(self._draft, made)

    def route_by_type(self) -> TypeRouteBuilder:
        """Of a node with `union_output`: `.when(Invoice, "billing").when(Complaint, "care").default("human")`."""
        return TypeRouteBuilder(self._draft, self._sources)


class EdgeTargetBuilder(AgentWorkflow):
    """The edges that were added last: under which condition they are taken. All else goes on as before."""

    def __init__(self, draft: Draft, edges: Sequence[EdgeDraft]) -> None:
        super().__init__(draft)
        self._edges = edges

    def when(self, test: Condition | Callable[[Mapping[str, Any]], bool]) -> Self:
        """A condition, or a function of the source's outputs. Several: all must hold."""
        for edge in self._edges:
            if isinstance(test, Condition):
                joined = test if edge.config.when is None else edge.config.when & test
                edge.config = msgspec.structs.replace(edge.config, when=joined)
            elif edge.predicate is not None:
                raise ValueError("An edge has one function as its condition: put both into one.")
            elif callable(test):
                edge.predicate = test
            else:
                raise TypeError(f"when expects a condition or a function of the outputs, got {test!r}.")
        return self

    def when_equals(self, field: str, value: Any) -> Self:
        return self.when(condition.equals(field, value))

    def when_not_equals(self, field: str, value: Any) -> Self:
        return self.when(condition.not_equals(field, value))

    def when_exists(self, field: str) -> Self:
        return self.when(condition.exists(field))

    def when_not_exists(self, field: str) -> Self:
        return self.when(condition.not_exists(field))

    def when_greater_than(self, field: str, value: Any) -> Self:
        return self.when(condition.greater_than(field, value))

    def when_less_than(self, field: str, value: Any) -> Self:
        return self.when(condition.less_than(field, value))

    def when_contains(self, field: str, value: Any) -> Self:
        return self.when(condition.contains(field, value))

    def when_starts_with(self, field: str, value: str) -> Self:
        return self.when(condition.starts_with(field, value))

    def when_ends_with(self, field: str, value: str) -> Self:
        return self.when(condition.ends_with(field, value))

    def when_matches_regex(self, field: str, pattern: str, *, ignore_case: bool = False) -> Self:
        return self.when(condition.matches_regex(field, pattern, ignore_case=ignore_case))

    def when_empty(self, field: str) -> Self:
        return self.when(condition.is_empty(field))

    def when_not_empty(self, field: str) -> Self:
        return self.when(condition.is_not_empty(field))

    def when_contains_any(self, field: str, values: Sequence[Any]) -> Self:
        return self.when(condition.contains_any(field, values))

    def when_contains_all(self, field: str, values: Sequence[Any]) -> Self:
        return self.when(condition.contains_all(field, values))

    def as_default(self) -> Self:
        """Taken if no other edge of its source is."""
        return self._set(is_default=True)

    def with_delay(self, delay: timedelta | float) -> Self:
        """The target waits this long, across restarts, before it runs."""
        return self._set(delay=in_seconds("with_delay", delay))

    def _set(self, **changes: Any) -> Self:
        for edge in self._edges:
            edge.config = msgspec.structs.replace(edge.config, **changes)
        return self


class TypeRouteBuilder(AgentWorkflow):
    """Which node is next, by the type of a union output."""

    def __init__(self, draft: Draft, sources: Sequence[str]) -> None:
        super().__init__(draft)
        self._sources = sources

    def when(self, kind: type, target: str) -> Self:
        return self._add(target, matched_type=type_title(kind))

    def default(self, target: str) -> Self:
        return self._add(target, is_default=True)

    def _add(self, target: str, **what: Any) -> Self:
        self._draft.edges += [EdgeDraft(EdgeConfig(source=one, target=target, **what)) for one in self._sources]
        return self


# ---------------------------------------------------------------- router builder


class RouterAgentBuilder(AgentWorkflow):
    """Of the router that was added last. All else goes on as before."""

    def __init__(self, draft: Draft, node: NodeDraft) -> None:
        super().__init__(draft)
        self._options = AgentNodeOptions(node)

    def with_handoff(self, target: str, description: str | None = None) -> Self:
        """The agent may hand off to this node: the description is what its model is told."""
        self._options.with_handoff(target, description)
        return self

    def with_default_handoff(self, target: str) -> Self:
        """Where it goes if the agent chose nobody."""
        self._options.with_default_handoff(target)
        return self

    def configure(self, configure: Configure) -> Self:
        configure(self._options)
        return self
