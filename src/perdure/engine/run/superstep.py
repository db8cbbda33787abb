"""One superstep: `plan` makes its lanes, `apply` folds their effects into the next position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from perdure.codec import Codec
from perdure.engine.delivery.lane import Lane, make_lane
from perdure.engine.delivery.scope import RunScope
from perdure.engine.run.lanes import apply_child_policy, find_policy_level
from perdure.engine.thread.compiled import Sorter
from perdure.engine.thread.inputs import deliver_answers
from perdure.engine.thread.level import Level, find_asking_child, outputs_for_parent, start_child
from perdure.engine.thread.position import Child, Effects, Position, add_counts, is_awake
from perdure.engine.thread.state import merge_state
from perdure.errors import DuplicateRequest
from perdure.events import WorkflowEvent
from perdure.graph.graph import SubWorkflowResponseMessage
from perdure.isolation import isolate
from perdure.records import Answer


def plan(level: Level, scope: RunScope, open_child: Callable[[Level, Child], Level | None]) -> Sequence[Lane]:
    """A lane for each executor with due deliveries, in the order of the first deliveries, then those of sub-workflows.
    `open_child` returns None for a child that waits. Reads the clock only if deliveries may be asleep."""
    position = level.position
    mailbox = position.mailbox
    if position.suspended:
        now = scope.clock.now()
        awake = [delivery.message for delivery in position.suspended.values() if is_awake(delivery, now)]
        level.woken = [message.delivery_id for message in awake]
        mailbox = sorted([*awake, *mailbox], key=lambda message: message.delivery_id)
    if len(mailbox) == 1:
        lane = make_lane(scope, level, str(mailbox[0].target_id))
        lane.messages.append(mailbox[0])
        level.lanes = [lane]
    else:
        lanes: dict[str, Lane] = {}
        for message in mailbox:
            target_id = str(message.target_id)
            lane = lanes.get(target_id) or lanes.setdefault(target_id, make_lane(scope, level, target_id))
            lane.messages.append(message)
        level.lanes = list(lanes.values())
    if not position.children:
        return level.lanes
    opened = (open_child(level, child) for child in position.children.values())
    level.levels = [child for child in opened if child is not None]
    inner = (plan(child, scope, open_child) for child in level.levels if child.failure is None)
    return [*level.lanes, *(lane for lanes in inner for lane in lanes)]


async def apply(
    level: Level, codec: Codec | None, now: Callable[[], datetime]
) -> tuple[Position, list[WorkflowEvent], list[Effects]]:
    """Merge the effects of all lanes into the next position. The present position does not change. Returns the next
    one, events to emit (warnings, sub-workflows that ended), and all effects.

    Effects are folded in the order of the deliveries, then of the sends, so the outcome does not depend on which lane
    ended first. Only a condition of an edge may await. Raises StateConflict or DuplicateRequest.
    """
    merge = _start_merge(level, level.position.next_delivery_id, now)
    after = await merge.merge(codec)
    if merge.outputs:
        after.outputs = [*after.outputs, *merge.outputs]
    if merge.requests:
        after.requests = _with_requests(after.requests, merge.requests)
    for effects in merge.effects:
        if effects.usage is not None:
            after.usage = add_counts(after.usage, effects.usage)
    after.iteration += 1
    return after, merge.notices, merge.effects


def _start_merge(level: Level, next_delivery_id: int, now: Callable[[], datetime]) -> _Merge:
    after = level.position.successor()
    after.mailbox = []
    after.next_delivery_id = next_delivery_id
    return _Merge(level, now, after, Sorter(after))


class _Merge(msgspec.Struct, eq=False):
    """Folds the effects of one level, those of its sub-workflows included, into its next position."""

    _level: Level
    _now: Callable[[], datetime]
    _after: Position
    _sorter: Sorter
    outputs: list[WorkflowEvent] = []
    requests: list[WorkflowEvent] = []
    notices: list[WorkflowEvent] = []
    effects: list[Effects] = []
    """All effects, for the thread's log."""
    withdrawn: tuple[str, ...] = ()
    """Requests to outer levels whose answers are no longer awaited."""

    async def merge(self, codec: Codec | None) -> Position:
        level, after, sorter = self._level, self._after, self._sorter
        done = in_delivery_order(level.lanes)
        for _, effects in done:
            self.effects.append(effects)
        if level.levels:
            done = [*await self._children(codec), *done]
        if level.woken:
            after.suspended = {key: delivery for key, delivery in after.suspended.items() if key not in level.woken}
        routes = level.compiled.routes
        for executor_id, effects in done:
            source_id = effects.sent_as or executor_id
            for data, target_id in effects.sends:
                pending = routes.send(sorter, source_id, data, target_id)
                if pending is not None:
                    await pending
            if effects.outputs:
                self.outputs += effects.outputs
            if effects.requests:
                self.requests += effects.requests
            if not effects.is_plain:
                self._fold_rest(executor_id, effects)
        sorter.close()
        if sorter.warnings:
            self.notices += sorter.warnings if level.parent is None else map(self._in_child, sorter.warnings)
        # Supersteps that only wake sleepers do not count. Sub-workflows have limits of their own.
        if level.position.mailbox:
            after.since_input += 1
        for lane in level.lanes:
            if lane.has_touched:
                self._merge_state(codec)
                break
        return after

    def _in_child(self, warning: WorkflowEvent) -> WorkflowEvent:
        level = self._level
        text = f"In sub-workflow {level.full_id!r}: {warning.data}"
        path = f"{level.path}{warning.executor_id}"
        return msgspec.structs.replace(warning, data=text, executor_id=path, child_id=level.child_id)

    def _merge_state(self, codec: Codec | None) -> None:
        after = self._after
        lanes = [lane for lane in self._level.lanes if lane.has_touched]
        touched = [(lane.executor_id, lane.touched_state) for lane in lanes if lane.touched_state is not None]
        if touched:
            after.state = merge_state(after.state, touched, self._level.compiled.graph.reducers, codec)
        for lane in lanes:
            if lane.touched_private is not None:
                after.private = {**after.private, lane.executor_id: isolate(lane.touched_private)}

    def _fold_rest(self, executor_id: str, effects: Effects) -> None:
        level, after, sorter, message = self._level, self._after, self._sorter, effects.message
        if effects.suspended is not None:
            suspended = effects.suspended
            after.suspended = {**after.suspended, suspended.message.delivery_id: suspended}
        source_id = effects.sent_as or executor_id
        if effects.is_isolated:
            level.compiled.routes.go_without(sorter, source_id)
        if effects.forwarded_to is not None and message is not None:
            sorter.pass_on(message, effects.forwarded_to, source_id)
        if effects.is_start and message is not None:
            graph = level.compiled.children[executor_id].graph
            child = start_child(graph, executor_id, message, after.next_delivery_id)
            after.next_delivery_id += 1
            after.children = {**after.children, message.delivery_id: child}
        for request_id in effects.withdrawn:
            self._withdraw(request_id)
        for answer in effects.answers:
            self._answer(executor_id, answer)

    def _withdraw(self, request_id: str) -> None:
        """Settle a request whose answer is no longer awaited."""
        after = self._after
        after.asked -= {request_id}
        if request_id not in after.requests:
            self.withdrawn += (request_id,)
        else:
            after.requests = {key: request for key, request in after.requests.items() if key != request_id}
            after.answered = {**after.answered, request_id: Answer(self._now(), is_withdrawn=True)}

    def _answer(self, executor_id: str, answer: SubWorkflowResponseMessage) -> None:
        after, request_id = self._after, str(answer.source_event.request_id)
        child_id = find_asking_child(after, executor_id, answer.source_event)
        if child_id is not None:
            child, answers = after.children[child_id], {request_id: answer.data}
            answered = deliver_answers(child.position, answers, self._now(), after.next_delivery_id)
            after.next_delivery_id = answered.next_delivery_id
            answered.since_input = 0
            after.children = {**after.children, child_id: child.at(answered)}
            return
        text = f"The answer to request {request_id!r} was dropped: the request has an answer already."
        self._sorter.warnings.append(WorkflowEvent("warning", text, executor_id=executor_id))

    async def _children(self, codec: Codec | None) -> list[tuple[str, Effects]]:
        """Advance the sub-workflows that had work. Their outputs and requests become effects at this level."""
        done = []
        after = self._after
        children = dict(after.children)
        for level in self._level.levels:
            assert level.child is not None and level.child_id is not None  # noqa: S101, PT018  # a child's level
            child, effects = await self._advance(level, codec)
            effects.sent_as = self._level.stands_in_for(level.child.message)
            if child is None:
                del children[level.child_id]
            else:
                children[level.child_id] = child
            done.append((level.child.executor_id, effects))
        after.children = children
        return done

    async def _advance(self, level: Level, codec: Codec | None) -> tuple[Child | None, Effects]:
        """One sub-workflow after the superstep, None if it has ended, and the effects of its executor."""
        if level.failure is None:
            try:
                return await self._merged_child(level, codec)
            except Exception as error:
                level.failure = error
                if find_policy_level(level, error) is not level:
                    raise
        self.effects.append(_events_of(level))
        child, effects, notices = apply_child_policy(level, self._now(), self._after.next_delivery_id)
        self._after.next_delivery_id += 1
        self.notices += notices
        return child, effects

    async def _merged_child(self, level: Level, codec: Codec | None) -> tuple[Child | None, Effects]:
        assert level.child is not None  # noqa: S101  # a child's level
        merge = _start_merge(level, self._after.next_delivery_id, self._now)
        position = await merge.merge(codec)
        effects = outputs_for_parent(level, merge.outputs, merge.requests)
        effects.also(withdrawn=merge.withdrawn)
        if level.executor.propagate_request:
            position.asked |= {str(request.request_id) for request in merge.requests if request.child_id is None}
        elif merge.requests:
            position.requests = _with_requests(position.requests, merge.requests)
        self._after.next_delivery_id = position.next_delivery_id
        self.notices += merge.notices
        self.effects += merge.effects
        if not position.has_ended:
            return msgspec.structs.replace(level.child, position=position, due_at=None), effects
        ended = WorkflowEvent("executor_completed", executor_id=level.full_id, child_id=self._level.child_id)
        self.notices.append(ended)
        return None, effects


def _events_of(level: Level) -> Effects:
    """The executor events of a failed sub-workflow, for the thread's log."""
    kept = Effects()
    for lane in level.lanes:
        events = [event for effects in lane.results for event in effects.events]
        kept.events += [event for event in events if event.type.startswith("executor_")]
        kept.events += lane.failure_events
    for inner in level.levels:
        kept.events += _events_of(inner).events
    return kept


def in_delivery_order(lanes: Sequence[Lane]) -> list[tuple[str, Effects]]:
    """Executor and effects of each delivery, in delivery order."""
    if len(lanes) == 1 and len(lanes[0].results) == 1:
        return [(lanes[0].executor_id, lanes[0].results[0])]
    if all(len(lane.messages) == 1 for lane in lanes):
        return [(lane.executor_id, lane.results[0]) for lane in lanes]
    done = [
        (message.delivery_id, lane.executor_id, effects)
        for lane in lanes
        for message, effects in zip(lane.messages, lane.results, strict=True)
    ]
    done.sort(key=lambda item: item[0])
    return [(executor_id, effects) for _, executor_id, effects in done]


def _with_requests(pending: dict[str, WorkflowEvent], asked: list[WorkflowEvent]) -> dict[str, WorkflowEvent]:
    after = dict(pending)
    for event in asked:
        request_id = str(event.request_id)
        if request_id in after:
            raise DuplicateRequest(request_id, str(after[request_id].executor_id), str(event.executor_id))
        after[request_id] = event
    return after
