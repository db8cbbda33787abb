"""Edges: which executor gets the messages of which. Edges that are routed together form a group."""

from __future__ import annotations

import json
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Never, TypeAlias

EdgeCondition: TypeAlias = Callable[[Any], bool | Awaitable[bool]]
SelectionFunction: TypeAlias = Callable[[Any, list[str]], list[str]]


def function_name(function: Callable[..., Any] | None) -> str | None:
    """The name of a condition in a signature and in a drawing: `<lambda>` for a lambda."""
    if function is None:
        return None
    return getattr(function, "__name__", None) or type(function).__name__


def _raise_unavailable(name: str, *_: Any) -> Never:
    raise RuntimeError(f"Callable {name!r} is unavailable after serialization: to_dict() keeps its name only.")


def _to_json(part: Any) -> str:
    """The `to_dict` of a part of a graph, as JSON."""
    return json.dumps(part.to_dict())


def _from_json(kind: Any, raw: str) -> Any:
    return kind.from_dict(json.loads(raw))


@dataclass(frozen=True)
class Edge:
    ID_SEPARATOR: ClassVar[str] = "->"

    source_id: str
    target_id: str
    condition: EdgeCondition | None = field(default=None, repr=False, compare=False)
    condition_name: str | None = None

    def __post_init__(self) -> None:
        for end, executor_id in (("source_id", self.source_id), ("target_id", self.target_id)):
            if not executor_id:
                raise ValueError(
                    f"Edge {end} must be a non-empty string, got {self.source_id!r} -> {self.target_id!r}."
                )
        if self.condition is not None and self.condition_name is None:
            object.__setattr__(self, "condition_name", function_name(self.condition))

    @property
    def id(self) -> str:
        return f"{self.source_id}{self.ID_SEPARATOR}{self.target_id}"

    @property
    def has_condition(self) -> bool:
        return self.condition is not None

    async def should_route(self, data: Any) -> bool:
        if self.condition is None:
            return True
        answer = self.condition(data)
        return bool(await answer if isinstance(answer, Awaitable) else answer)

    def to_dict(self) -> dict[str, Any]:
        name = {} if self.condition_name is None else {"condition_name": self.condition_name}
        return {"source_id": self.source_id, "target_id": self.target_id, **name}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Edge:
        """The edge without its condition, which `to_dict` keeps only by name."""
        return cls(data["source_id"], data["target_id"], None, data.get("condition_name"))

    to_json, from_json = _to_json, classmethod(_from_json)


class EdgeGroup:
    """Edges that are routed together. Its default `id` is derived from them, so it is the same in every process."""

    _kinds: ClassVar[dict[str, type[EdgeGroup]]] = {}

    def __init_subclass__(cls) -> None:
        EdgeGroup._kinds[cls.__name__] = cls

    def __init__(self, edges: Iterable[Edge] = (), *, id: str | None = None, type: str | None = None) -> None:
        self.edges = list(edges)
        self.type = type or self.__class__.__name__
        sources, targets = ",".join(self.source_executor_ids), ",".join(self.target_executor_ids)
        self.id = id or f"{self.type}/{sources}->{targets}"

    @property
    def source_executor_ids(self) -> list[str]:
        return list(dict.fromkeys(edge.source_id for edge in self.edges))

    @property
    def target_executor_ids(self) -> list[str]:
        return list(dict.fromkeys(edge.target_id for edge in self.edges))

    @property
    def condition_names(self) -> list[str | None]:
        """What decides about each edge."""
        return [edge.condition_name for edge in self.edges]

    def to_dict(self) -> dict[str, Any]:
        return {"id": self.id, "type": self.type, "edges": [edge.to_dict() for edge in self.edges]}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> EdgeGroup:
        """A group to look at: its functions are names, and raise RuntimeError when they are called."""
        kind = EdgeGroup._kinds.get(data.get("type", ""), EdgeGroup)
        group = kind.__new__(kind)
        EdgeGroup.__init__(group, map(Edge.from_dict, data.get("edges", ())), id=data.get("id"), type=data.get("type"))
        if isinstance(group, SwitchCaseEdgeGroup):
            group.cases = [_case_from_dict(case) for case in data.get("cases", ())]
        elif isinstance(group, FanOutEdgeGroup):
            name = group.selection_func_name = data.get("selection_func_name")
            group.selection_func = None if name is None else partial(_raise_unavailable, name)
        return group

    to_json, from_json = _to_json, classmethod(_from_json)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    __hash__ = None  # type: ignore[assignment]  # it has lists

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(edge.id for edge in self.edges)})"


class SingleEdgeGroup(EdgeGroup):
    """One edge, with or without a condition."""

    def __init__(
        self, source_id: str, target_id: str, condition: EdgeCondition | None = None, *, id: str | None = None
    ) -> None:
        super().__init__([Edge(source_id, target_id, condition)], id=id)


class InternalEdgeGroup(EdgeGroup):
    """The way of inputs and answers into an executor. Every executor has one."""

    def __init__(self, executor_id: str) -> None:
        super().__init__([Edge(f"internal:{executor_id}", executor_id)])


class FanOutEdgeGroup(EdgeGroup):
    """One source, several targets: all of them, or those that `selection_func` names."""

    def __init__(
        self,
        source_id: str,
        target_ids: Sequence[str],
        selection_func: SelectionFunction | None = None,
        *,
        selection_func_name: str | None = None,
        id: str | None = None,
    ) -> None:
        _check_two(self, target_ids, "targets")
        super().__init__((Edge(source_id, target_id) for target_id in target_ids), id=id)
        self.selection_func = selection_func
        self.selection_func_name = function_name(selection_func) or selection_func_name

    @property
    def target_ids(self) -> list[str]:
        return self.target_executor_ids

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "selection_func_name": self.selection_func_name}


class FanInEdgeGroup(EdgeGroup):
    """Several sources, one target: it gets the list of their messages once each has sent one."""

    def __init__(self, source_ids: Sequence[str], target_id: str, *, id: str | None = None) -> None:
        _check_two(self, source_ids, "sources")
        super().__init__((Edge(source_id, target_id) for source_id in source_ids), id=id)


@dataclass
class Case:
    """`condition(message)` true: the message goes to `target`."""

    condition: Callable[[Any], bool]
    target: Any


@dataclass
class Default:
    """The target of messages that no Case takes."""

    target: Any


@dataclass(frozen=True)
class SwitchCaseEdgeGroupCase:
    condition: Any = field(repr=False, compare=False)
    """A function of the message. In place of None, one that raises RuntimeError."""
    target_id: str
    condition_name: str | None = None
    type: str = field(default="Case", init=False)

    def __post_init__(self) -> None:
        _check_target(self)
        if self.condition_name is None:
            object.__setattr__(self, "condition_name", function_name(self.condition))
        if self.condition is None:
            missing = partial(_raise_unavailable, self.condition_name or "<missing_condition>")
            object.__setattr__(self, "condition", missing)

    def to_dict(self) -> dict[str, Any]:
        name = {} if self.condition_name is None else {"condition_name": self.condition_name}
        return {"target_id": self.target_id, "type": self.type, **name}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SwitchCaseEdgeGroupCase:
        """The case without its condition, which `to_dict` keeps only by name."""
        return cls(None, data["target_id"], data.get("condition_name"))

    to_json, from_json = _to_json, classmethod(_from_json)


@dataclass(frozen=True)
class SwitchCaseEdgeGroupDefault:
    target_id: str
    type: str = field(default="Default", init=False)

    def __post_init__(self) -> None:
        _check_target(self)

    def to_dict(self) -> dict[str, Any]:
        return {"target_id": self.target_id, "type": self.type}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SwitchCaseEdgeGroupDefault:
        return cls(data["target_id"])

    to_json, from_json = _to_json, classmethod(_from_json)


AnyCase: TypeAlias = SwitchCaseEdgeGroupCase | SwitchCaseEdgeGroupDefault


class SwitchCaseEdgeGroup(FanOutEdgeGroup):
    """Cases tried in order, the first true one wins, otherwise the default, wherever it stands."""

    def __init__(self, source_id: str, cases: Sequence[AnyCase], *, id: str | None = None) -> None:
        _check_two(self, cases, "cases (including the default case)")
        defaults = [case for case in cases if isinstance(case, SwitchCaseEdgeGroupDefault)]
        if len(defaults) != 1:
            raise ValueError(f"SwitchCaseEdgeGroup must contain exactly one default case, got {len(defaults)}.")
        if not isinstance(cases[-1], SwitchCaseEdgeGroupDefault):
            warnings.warn("The Default of a switch is not its last case; it is still tried last.", stacklevel=3)
        self.cases = sorted(cases, key=lambda case: isinstance(case, SwitchCaseEdgeGroupDefault))
        EdgeGroup.__init__(self, (Edge(source_id, case.target_id) for case in self.cases), id=id)

    selection_func_name = None

    @property
    def condition_names(self) -> list[str | None]:
        return [getattr(case, "condition_name", "default") for case in self.cases]

    def selection_func(self, message: Any, target_ids: list[str]) -> list[str]:
        """The target of a message. The engine tries the cases itself, and warns of one that fails."""
        is_default = SwitchCaseEdgeGroupDefault
        return [next(each.target_id for each in self.cases if isinstance(each, is_default) or each.condition(message))]

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "cases": [case.to_dict() for case in self.cases]}


def _case_from_dict(data: Mapping[str, Any]) -> AnyCase:
    kind = SwitchCaseEdgeGroupDefault if data.get("type") == "Default" else SwitchCaseEdgeGroupCase
    return kind.from_dict(data)


def _check_two(group: EdgeGroup, things: Sequence[Any], what: str) -> None:
    if len(things) < 2:
        raise ValueError(f"{type(group).__name__} must contain at least two {what}, got {len(things)}.")


def _check_target(case: AnyCase) -> None:
    if not case.target_id:
        raise ValueError(f"{type(case).__name__} requires a target_id, got {case.target_id!r}.")
