"""A level of the nesting in one superstep: the thread's own workflow or a sub-workflow. And the run's arguments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from perdure.engine.thread.compiled import Compiled
from perdure.engine.thread.live_threads import Instances, LiveThread
from perdure.engine.thread.position import Child, Effects, Position
from perdure.errors import InvalidRun, MissingSecret, UnknownExecutor
from perdure.events import WorkflowEvent
from perdure.graph.executor import Executor, own_containers
from perdure.graph.graph import Graph, SubWorkflowRequestMessage, WorkflowExecutor
from perdure.graph.policy import DEFAULT, FailurePolicy
from perdure.isolation import isolate
from perdure.records import WorkflowMessage

if TYPE_CHECKING:
    from perdure.engine.delivery.lane import Lane


class Level(msgspec.Struct, eq=False):
    compiled: Compiled
    position: Position
    executors: dict[str, Executor]
    parent: Level | None = None
    child: Child | None = None
    """The sub-workflow that it is; None for the thread's own workflow."""
    levels: Sequence[Level] = ()
    """Sub-workflows that have work in this superstep."""
    lanes: Sequence[Lane] = ()
    woken: Sequence[int] = ()
    """Suspended deliveries that run in this superstep."""
    failure: Exception | None = None
    """Of a sub-workflow: the error that ended it in this superstep."""
    deadline: datetime | None = None
    """Of a sub-workflow: when it times out, if its executor has a timeout."""
    ended_at: datetime | None = None
    """When the last of its lanes ended in this superstep."""
    child_id: int | None = None
    """Of a sub-workflow: the delivery that started it."""
    path: str = ""
    """Prefix of the ids of its executors in events."""
    running: dict[Lane, asyncio.Task[Any] | None] = {}
    """Of a sub-workflow: its running lanes, those of inner levels included."""

    @property
    def full_id(self) -> str:
        """Of a sub-workflow: the id in events of the executor that runs it."""
        return self.path.removesuffix("/")

    @property
    def policy(self) -> FailurePolicy:
        """The policy of the executor that started it."""
        if self.parent is None or self.child is None:
            return DEFAULT
        return self.parent.compiled.graph.policies.get(self.child.executor_id, DEFAULT)

    @property
    def executor(self) -> WorkflowExecutor:
        """The executor of the parent that started it."""
        assert self.parent is not None and self.child is not None  # noqa: S101, PT018  # asked of children only
        executor = self.parent.compiled.graph.executors[self.child.executor_id]
        assert isinstance(executor, WorkflowExecutor)  # noqa: S101  # `Compiled` has children for no others
        return executor

    def public_output(self, executor_id: str, kind: str) -> tuple[str, str]:
        """Type and executor id of an output in events.

        An output that becomes a message of the parent is only progress for a consumer: `data`, not `output`.
        """
        if self.parent is None or kind == "intermediate":
            return kind, self.path + executor_id
        outer, kinds = self.executor, self.parent.compiled.graph.output_kinds
        if not outer.allow_direct_output or outer.id not in kinds:
            return "data", self.path + executor_id
        return self.parent.public_output(outer.id, kinds[outer.id])

    @property
    def is_asked_outside(self) -> bool:
        """Whether its requests go to the caller of the workflow, rather than to an executor of a parent."""
        return self.parent is None or (self.executor.propagate_request and self.parent.is_asked_outside)

    def to_public(self, event: WorkflowEvent, executor_id: str) -> WorkflowEvent:
        """An output or a request inside a sub-workflow, as the run's consumer receives it."""
        path = self.path + executor_id
        if event.type == "request_info" and not self.is_asked_outside:
            # An executor of the parent answers it: for a consumer it is only progress.
            return WorkflowEvent("data", event.data, executor_id=path)
        if event.type == "request_info":
            return msgspec.structs.replace(event, executor_id=path, source_executor_id=path)
        kind, full_id = self.public_output(executor_id, event.type)
        return msgspec.structs.replace(event, type=kind, executor_id=full_id)

    def stands_in_for(self, message: WorkflowMessage) -> str | None:
        """The executor whose edges replace the receiver's: the one that failed at the message, unless the receiver has
        edges of its own."""
        if message.in_place_of is None or self.compiled.routes.has_edges(str(message.target_id)):
            return None
        return message.in_place_of

    def arguments(self, parameter: str, executor_id: str) -> RunArguments:
        """Run arguments for one executor. A WorkflowExecutor passes its own to its sub-workflow."""
        if self.parent is None or self.child is None:
            arranged = self.position.run_kwargs.get(parameter) or {}
        else:
            passed = self.parent.arguments(parameter, self.child.executor_id).as_given
            arranged = arrange_arguments(passed, self.compiled.graph.nodes, parameter)
        return RunArguments({**arranged.get(GLOBAL, {}), **arranged.get(executor_id, {})})


def instances_of(thread: LiveThread, child: Child, compiled: Compiled) -> Instances:
    """The executors of a child, created on first use. Each child has its own."""
    child_id = child.message.delivery_id
    instances = thread.children.get(child_id)
    if instances is None:
        instances = thread.children[child_id] = Instances(compiled.graph, is_own=thread.executors.is_own)
    return instances


def start_child(graph: Graph, executor_id: str, message: WorkflowMessage, delivery_id: int) -> Child:
    """A child in which the message is due to its start executor."""
    start_id = graph.start_executor_id
    due = WorkflowMessage(isolate(message.data), f"internal:{start_id}", start_id, delivery_id=delivery_id)
    return Child(executor_id, message, Position(mailbox=[due]))


def outputs_for_parent(level: Level, outputs: list[WorkflowEvent], requests: list[WorkflowEvent]) -> Effects:
    """Outputs and requests of a child in a superstep, as effects of the executor that started it. Its direct outputs
    are what the parent designates: results, intermediate, or hidden."""
    assert level.parent is not None  # noqa: S101  # a child's level
    executor, effects = level.executor, Effects()
    kind = level.parent.compiled.graph.output_kinds.get(executor.id)
    for event in outputs:
        if event.type == "intermediate":
            effects.outputs.append(msgspec.structs.replace(event, executor_id=f"{executor.id}/{event.executor_id}"))
        elif not executor.allow_direct_output:
            effects.sends.append((event.data, None))
        elif kind is not None:
            effects.outputs.append(msgspec.structs.replace(event, type=kind, executor_id=executor.id))
    for request in requests:
        path = f"{executor.id}/{request.source_executor_id}"
        asked_in = level.child_id if request.child_id is None else request.child_id
        above = msgspec.structs.replace(request, executor_id=path, source_executor_id=path, child_id=asked_in)
        if executor.propagate_request:
            effects.ask([above])
        else:
            effects.sends.append((SubWorkflowRequestMessage(above, executor.id), None))
    return effects


def change_asking_level(
    position: Position, request: WorkflowEvent, change: Callable[[Position, WorkflowEvent], Position]
) -> Position | None:
    """A position in which the level that made the request, at any depth, is changed; None if that has ended. `change`
    gets the level and the request as that has it. `position` is not changed."""
    if request.child_id is None:
        return change(position, request)
    for key, child in position.children.items():
        inner = request_in_child(request, child, key)
        changed = None if inner is None else change_asking_level(child.position, inner, change)
        if changed is not None:
            return msgspec.structs.replace(position, children={**position.children, key: child.at(changed)})
    return None


def find_asking_level(graph: Graph, position: Position, request: WorkflowEvent) -> tuple[Graph, Position, str] | None:
    """The level that made a request: its graph, its position, and the executor's id. None if it has ended."""
    for key, child in position.children.items() if request.child_id is not None else ():
        executor = graph.executors.get(child.executor_id)
        inner = request_in_child(request, child, key)
        if isinstance(executor, WorkflowExecutor) and inner is not None:
            return find_asking_level(executor.graph, child.position, inner)
    return (graph, position, str(request.source_executor_id)) if request.child_id is None else None


def find_asking_child(position: Position, executor_id: str, request: WorkflowEvent) -> int | None:
    """The child of this executor that waits for the answer. Children may use the same request id."""
    for key, child in position.children.items():
        is_its = key == request.child_id or _has_child(child.position, request.child_id)
        if child.executor_id == executor_id and is_its and request.request_id in child.position.requests:
            return key
    return None


def request_in_child(request: WorkflowEvent, child: Child, child_id: int) -> WorkflowEvent | None:
    """The request as this child has it; None if another child made it."""
    if request.child_id != child_id and not _has_child(child.position, request.child_id):
        return None
    path = str(request.source_executor_id).removeprefix(f"{child.executor_id}/")
    asked_in = None if request.child_id == child_id else request.child_id
    return msgspec.structs.replace(request, executor_id=path, source_executor_id=path, child_id=asked_in)


def _has_child(position: Position, child_id: int | None) -> bool:
    return any(key == child_id or _has_child(child.position, child_id) for key, child in position.children.items())


# ---------------------------------------------------------------- run arguments


T = TypeVar("T")

GLOBAL = "__global__"
"""The key of arguments for all executors."""


class Secret(Generic[T]):
    """Marks a run argument that must not be stored: `client_kwargs={"api_key": Secret(key)}`.

    Handlers get the value itself. A run that resumes from a checkpoint needs it again.
    """

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "Secret(...)"


@dataclass(frozen=True)
class WithheldSecret:
    """Replaces a secret argument in a checkpoint."""

    name: str


class RunArguments(Mapping[str, Any]):
    """The arguments with opened secrets. Raises MissingSecret for a secret that was not passed again."""

    __slots__ = ("_seen", "as_given")

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.as_given = arguments
        """With closed secrets, for a sub-workflow."""
        self._seen: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        if key not in self._seen:
            self._seen[key] = _open(self.as_given[key])
        return self._seen[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.as_given)

    def __len__(self) -> int:
        return len(self.as_given)

    def __repr__(self) -> str:
        return f"RunArguments({self.as_given!r})"


@dataclass(frozen=True)
class WorkflowInvocationKwargs:
    """Run arguments for all executors, and for some of them, by executor id: these override the former."""

    global_kwargs: Mapping[str, Any] = field(default_factory=dict)
    executor_kwargs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def arrange_arguments(
    arguments: Mapping[str, Any] | WorkflowInvocationKwargs, executor_ids: Mapping[str, Any], parameter: str
) -> dict[str, Any]:
    """By executor if any key is an executor's id, otherwise for all of them."""
    if isinstance(arguments, WorkflowInvocationKwargs):
        for_all = {GLOBAL: own_containers(dict(arguments.global_kwargs))}
        return for_all | _arrange_by_executor(arguments.executor_kwargs, executor_ids, parameter)
    if not isinstance(arguments, Mapping):
        raise InvalidRun(f"{parameter} must be a mapping, got {type(arguments).__name__}.")
    if not any(key in executor_ids for key in arguments):
        return {GLOBAL: own_containers(dict(arguments))}
    return _arrange_by_executor(arguments, executor_ids, parameter)


def _arrange_by_executor(
    arguments: Mapping[str, Any], executor_ids: Mapping[str, Any], parameter: str
) -> dict[str, Any]:
    for key, value in arguments.items():
        if key not in executor_ids:
            raise UnknownExecutor(key, executor_ids, f"{parameter}, given by executor,")
        if not isinstance(value, Mapping):
            raise InvalidRun(
                f"{parameter} is given by executor (it has an executor's id as a key), so {key!r} must hold a mapping, "
                f"got {type(value).__name__}."
            )
    return {key: own_containers(dict(value)) for key, value in arguments.items()}


def _open(value: Any) -> Any:
    """The value with opened secrets, in new containers, so that handlers cannot change each other's."""
    if isinstance(value, WithheldSecret):
        raise MissingSecret(value.name)
    if isinstance(value, Secret):
        return value.value
    if type(value) is dict:
        return {key: _open(part) for key, part in value.items()}
    return type(value)(map(_open, value)) if type(value) in (list, tuple, set) else value


def without_secrets(value: Any, name: str = "") -> Any:
    """The value for a checkpoint: secrets in dicts, lists and tuples are replaced by WithheldSecret."""
    if isinstance(value, Secret):
        return WithheldSecret(name)
    if type(value) is dict:
        items = {key: without_secrets(part, str(key)) for key, part in value.items()}
        return items if any(items[key] is not part for key, part in value.items()) else value
    if type(value) in (list, tuple):
        parts = [without_secrets(part, name) for part in value]
        return type(value)(parts) if any(new is not old for new, old in zip(parts, value, strict=True)) else value
    return value
