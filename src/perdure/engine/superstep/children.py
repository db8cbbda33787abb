"""Sub-workflows: started by a delivery, asked and answered through their parent, ended when nothing is left."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from perdure.engine.effects import Effects
from perdure.engine.superstep.level import Level
from perdure.engine.superstep.position import Child, Position
from perdure.events import WorkflowEvent
from perdure.graph.graph import Graph
from perdure.graph.sub_workflow import SubWorkflowRequestMessage, WorkflowExecutor
from perdure.isolation import isolate
from perdure.records import WorkflowMessage


def start_child(graph: Graph, executor_id: str, message: WorkflowMessage, delivery_id: int) -> Child:
    """A child in which the message is due to its start executor."""
    position = Position()
    start_id = graph.start_executor_id
    due = WorkflowMessage(isolate(message.data), f"internal:{start_id}", start_id, delivery_id=delivery_id)
    position.mailbox = [due]
    return Child(executor_id, message, position)


def outputs_for_parent(level: Level, outputs: list[WorkflowEvent], requests: list[WorkflowEvent]) -> Effects:
    """What a child yielded and asked in a superstep, as effects of the executor that started it."""
    executor = level.executor
    effects = Effects()
    for event in outputs:
        if event.type == "intermediate":
            effects.outputs.append(msgspec.structs.replace(event, executor_id=f"{executor.id}/{event.executor_id}"))
        elif executor.allow_direct_output:
            effects.outputs.append(msgspec.structs.replace(event, executor_id=executor.id))
        else:
            effects.sends.append((event.data, None))
    for request in requests:
        above = request_in_parent(request, executor.id, level.child_id)
        if executor.propagate_request:
            effects.ask([above])
        else:
            effects.sends.append((SubWorkflowRequestMessage(above, executor.id), None))
    return effects


def designated_outputs(graph: Graph, executor_id: str, outputs: list[WorkflowEvent]) -> list[WorkflowEvent]:
    """What a parent makes of outputs that its sub-workflow yields directly: results, intermediate, or hidden."""
    kind = graph.designation.event_type(executor_id)
    found = []
    for event in outputs:
        if event.type == "intermediate":
            found.append(event)
        elif kind is not None:
            found.append(msgspec.structs.replace(event, type=kind))
    return found


def request_in_parent(request: WorkflowEvent, executor_id: str, child_id: int | None) -> WorkflowEvent:
    path = f"{executor_id}/{request.source_executor_id}"
    asked_in = child_id if request.child_id is None else request.child_id
    return msgspec.structs.replace(request, executor_id=path, source_executor_id=path, child_id=asked_in)


def change_child(position: Position, child_id: int, change: Callable[[Position], Position]) -> Position | None:
    """The position with one child, at any depth, changed; None if there is no such child. The one given is left."""
    for key, child in position.children.items():
        changed = change(child.position) if key == child_id else change_child(child.position, child_id, change)
        if changed is not None:
            after = position.successor()
            after.children = {**position.children, key: child.at(changed)}
            return after
    return None


def find_asking_level(graph: Graph, position: Position, request: WorkflowEvent) -> tuple[Graph, Position, str] | None:
    """Where a request was asked: the graph, where it stands, and the asker's id in it. None if it is gone."""
    for key, child in position.children.items() if request.child_id is not None else ():
        executor = graph.executors.get(child.executor_id)
        inner = request_in_child(request, child, key)
        if isinstance(executor, WorkflowExecutor) and inner is not None:
            return find_asking_level(executor.graph, child.position, inner)
    return (graph, position, str(request.source_executor_id)) if request.child_id is None else None


def find_asking_child(position: Position, executor_id: str, request: WorkflowEvent) -> int | None:
    """The child of this executor that waits for the answer. Children may have chosen the same request id."""
    for key, child in position.children.items():
        is_its = key == request.child_id or _has_child(child.position, request.child_id)
        if child.executor_id == executor_id and is_its and request.request_id in child.position.requests:
            return key
    return None


def request_at_source(position: Position, request: WorkflowEvent) -> WorkflowEvent | None:
    """The request as the sub-workflow that asked it knows it. None if that is gone."""
    for key, child in position.children.items() if request.child_id is not None else ():
        inner = request_in_child(request, child, key)
        if inner is not None:
            return request_at_source(child.position, inner)
    return request if request.child_id is None else None


def request_in_child(request: WorkflowEvent, child: Child, child_id: int) -> WorkflowEvent | None:
    """The request as this child knows it; None if it was asked in another one."""
    if request.child_id != child_id and not _has_child(child.position, request.child_id):
        return None
    path = str(request.source_executor_id).removeprefix(f"{child.executor_id}/")
    asked_in = None if request.child_id == child_id else request.child_id
    return msgspec.structs.replace(request, executor_id=path, source_executor_id=path, child_id=asked_in)


def _has_child(position: Position, child_id: int | None) -> bool:
    return any(key == child_id or _has_child(child.position, child_id) for key, child in position.children.items())
