"""Edges: which messages an executor's neighbours get. Described here, followed in engine/routing.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

EdgeCondition: TypeAlias = Callable[[Any], bool | Awaitable[bool]]
SelectionFunction: TypeAlias = Callable[[Any, list[str]], list[str]]


def function_name(function: Callable[..., Any] | None) -> str | None:
    """How a condition is called in a signature and in a drawing: `<lambda>` for a lambda."""
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
    """Edges that are decided on together. Its `id` says which they are, so it is the same in every process."""

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
    """Where a message goes that no Case took."""

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
