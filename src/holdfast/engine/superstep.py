"""One superstep as pure functions: which lanes to run, and what their effects make of the position."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from holdfast.codec import Codec
from holdfast.engine.effects import Effects
from holdfast.engine.lane import Lane
from holdfast.engine.position import Position
from holdfast.engine.routing import Routes, Sorter
from holdfast.engine.state import merge_state
from holdfast.errors import DuplicateRequest
from holdfast.events import WorkflowEvent
from holdfast.graph.isolation import isolated
from holdfast.graph.reducers import Reducer


def plan(position: Position, open_lane: Callable[[str], Lane]) -> list[Lane]:
    """A lane for each executor that has something to do, in the order of their first deliveries."""
    mailbox = position.mailbox
    if len(mailbox) == 1:
        lane = open_lane(str(mailbox[0].target_id))
        lane.messages.append(mailbox[0])
        return [lane]
    lanes: dict[str, Lane] = {}
    for message in mailbox:
        target_id = str(message.target_id)
        lane = lanes.get(target_id) or lanes.setdefault(target_id, open_lane(target_id))
        lane.messages.append(message)
    return list(lanes.values())


async def apply(
    position: Position,
    lanes: list[Lane],
    done: list[tuple[str, Effects]],
    routes: Routes,
    reducers: Mapping[str, Reducer],
    codec: Codec | None,
) -> tuple[Position, list[WorkflowEvent]]:
    """The next position, and warnings about messages that go nowhere.

    The position given is left as it is. Effects (`done`, in the order of the deliveries) are folded in this order, then
    in that of the sends, so the outcome does not depend on which lane ended first. Only a condition of an edge may
    await. Raises StateConflict.
    """
    after = position.successor()
    sorter = Sorter(position.buffers, position.next_delivery_id)
    for executor_id, effects in done:
        for data, target_id in effects.sends:
            if not routes.send_now(sorter, executor_id, data, target_id):
                await routes.send(sorter, executor_id, data, target_id)
        if effects.outputs:
            after.outputs = [*after.outputs, *effects.outputs]
        if effects.requests:
            after.requests = _with_requests(after.requests, effects.requests)
    after.mailbox = sorter.mailbox
    after.buffers = sorter.buffers
    after.next_delivery_id = sorter.next_delivery_id
    after.iteration += 1
    after.since_input += 1
    touched = [(lane.executor_id, lane.touched_state) for lane in lanes if lane.touched_state is not None]
    if touched:
        after.state = merge_state(position.state, touched, reducers, codec)
    for lane in lanes:
        if lane.touched_private is not None:
            after.private = {**after.private, lane.executor_id: isolated(lane.touched_private)}
    return after, sorter.warnings


def in_delivery_order(lanes: list[Lane]) -> list[tuple[str, Effects]]:
    """What each delivery did, whichever lane was quicker."""
    if len(lanes) == 1:
        return [(lanes[0].executor_id, effects) for effects in lanes[0].results]
    if all(len(lane.messages) == 1 for lane in lanes):
        return [(lane.executor_id, lane.results[0]) for lane in lanes]
    done = [
        (message.delivery_id, lane.executor_id, effects)
        for lane in lanes
        for message, effects in zip(lane.messages, lane.results, strict=True)
    ]
    done.sort(key=lambda one: one[0])
    return [(executor_id, effects) for _, executor_id, effects in done]


def _with_requests(pending: dict[str, WorkflowEvent], asked: list[WorkflowEvent]) -> dict[str, WorkflowEvent]:
    after = dict(pending)
    for event in asked:
        request_id = str(event.request_id)
        if request_id in after:
            raise DuplicateRequest(request_id, str(after[request_id].executor_id), str(event.executor_id))
        after[request_id] = event
    return after
