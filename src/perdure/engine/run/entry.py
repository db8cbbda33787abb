"""What comes in with a run: checked first, then made due. Nothing is written here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from perdure.engine.delivery.event_emitter import own_event
from perdure.engine.run.arguments import arrange_arguments
from perdure.engine.run.live_threads import LiveThread
from perdure.engine.run.options import RunRequest
from perdure.engine.run.requests import check_answers, deliver_answers, pass_deadlines
from perdure.engine.superstep.position import Position, every_level
from perdure.errors import InvalidRun, ThreadNotFound, ThreadNotIdle, WrongInputType, type_name
from perdure.events import WorkflowEvent
from perdure.graph.graph import Graph
from perdure.isolation import isolate
from perdure.records import Record, SuspendedDelivery, WorkflowMessage

# ---------------------------------------------------------------- recorded


def add_records(position: Position, records: Mapping[int, list[Record]]) -> Position:
    """The position in which what deliveries have recorded so far is part of them. The one given is left as it is."""
    after = hold_back(position, records)
    running = {
        message.delivery_id: SuspendedDelivery(message, records=tuple(records[message.delivery_id]), is_ready=True)
        for message in after.mailbox
        if message.delivery_id in records
    }
    after.mailbox = [message for message in after.mailbox if message.delivery_id not in running]
    after.suspended = {**after.suspended, **running}
    after.children = {key: child.at(add_records(child.position, records)) for key, child in position.children.items()}
    return after


def hold_back(position: Position, records: Mapping[int, list[Record]]) -> Position:
    """The position in which deliveries whose next attempt is not due yet wait for it, as when their last one failed,
    and in which those that wait have all that they recorded."""
    waiting = {
        key: msgspec.structs.replace(one, records=tuple(records[key])) if key in records else one
        for key, one in position.suspended.items()
    }
    for message in position.mailbox:
        recorded = records.get(message.delivery_id, ())
        own = [one for one in recorded if one.kind == "attempt" and not one.key]
        if own:
            waiting[message.delivery_id] = SuspendedDelivery(message, own[-1].until, records=tuple(recorded))
    after = position.successor()
    after.mailbox = [message for message in position.mailbox if message.delivery_id not in waiting]
    after.suspended = waiting
    after.children = {key: child.at(hold_back(child.position, records)) for key, child in position.children.items()}
    return after


def absorb_records(thread: LiveThread) -> None:
    """Let what waits have all that it recorded, before anything comes in: an answer is recorded after it."""
    if thread.records:
        thread.position = hold_back(thread.position, thread.records)
        waiting = {key for level in every_level(thread.position) for key in level.suspended}
        thread.records = {key: one for key, one in thread.records.items() if key not in waiting}


@dataclass(frozen=True)
class Entry:
    """How a run begins."""

    position: Position | None
    """To be committed first; None to go on from where the thread stands."""
    replayed_events: tuple[WorkflowEvent, ...] = ()
    """Outputs and pending requests from before this run, for its consumer."""
    warnings: tuple[WorkflowEvent, ...] = ()
    consumed: tuple[str, ...] = ()
    """Inbox items that the position takes in."""


def enter(
    graph: Graph, thread: LiveThread, standing: Position, request: RunRequest, now: datetime, *, is_restored: bool
) -> Entry:
    """Make what the caller sent due, in a thread that stands or is to stand at `standing`.

    Raises, with the thread as it was, if it cannot be accepted.
    """
    position, expired = pass_deadlines(standing, now)
    has_passed = position is not standing
    is_resume = is_restored or has_passed
    if request.message is not None:
        check_message(graph, request.message)
    if request.message is not None and standing.is_interrupted and request.on_busy == "reject":
        raise ThreadNotIdle(thread.thread_id, sum(_unfinished(one) for one in every_level(standing)))
    is_unknown = standing.next_delivery_id == 1 and not thread.inbox
    if request.responses is not None and request.thread_id is not None and is_unknown:
        raise ThreadNotFound(request.thread_id)
    entry = _accepted(graph, thread.thread_id, position, request, now, is_resume=is_resume, inbox=thread.inbox)
    after = position if entry.position is None and has_passed else entry.position
    if request.change_state is not None and after is not None:
        after.state = request.change_state(isolate(after.state))
    return Entry(after, entry.replayed_events, (*expired, *entry.warnings), entry.consumed)


def _accepted(
    graph: Graph,
    thread_id: str,
    position: Position,
    request: RunRequest,
    now: datetime,
    *,
    is_resume: bool,
    inbox: Mapping[str, Any],
) -> Entry:
    if request.responses is not None:
        answers = check_answers(graph, thread_id, position, request.responses)
        after = deliver_answers(position, answers, now, answered_by=request.answered_by)
        after.outputs = []
        after.since_input = 0
        return Entry(_with_arguments(graph, after, request), _replayed(after.requests.values()))
    if request.message is not None:
        return _message(graph, position, request, inbox)
    has_run = request.thread_id is not None and position.next_delivery_id > 1
    if inbox and not position.is_interrupted:
        return Entry(None)  # what is in the inbox is the input of this run
    if is_resume or position.is_busy or position.requests or has_run:
        replayed_events = _replayed((*position.outputs, *position.requests.values()))
        given = request.function_invocation_kwargs is not None or request.client_kwargs is not None
        return Entry(_with_arguments(graph, position.successor(), request) if given else None, replayed_events)
    if accepts(graph, None):
        return _message(graph, position, request, inbox)
    if request.thread_id is not None:
        raise ThreadNotFound(request.thread_id)
    raise InvalidRun(
        "run() needs a message, responses or a checkpoint_id: there is nothing to resume, and the start executor "
        f"{graph.start_executor_id!r} does not accept None."
    )


def _message(graph: Graph, position: Position, request: RunRequest, inbox: Mapping[str, Any]) -> Entry:
    check_message(graph, request.message)
    warnings: tuple[WorkflowEvent, ...] = ()
    if position.requests:
        waiting = ", ".join(map(repr, position.requests))
        text = f"A new message was sent while requests are pending ({waiting}); they stay pending."
        warnings = (WorkflowEvent("warning", text),)
    waiting_before, undeliverable = take_inbox(graph, position, inbox)  # sent earlier: it is not overtaken
    after = add_message(graph, waiting_before, request.message)
    after.run_kwargs = {}
    return Entry(_with_arguments(graph, after, request), (), (*warnings, *undeliverable), tuple(inbox))


def _unfinished(position: Position) -> int:
    return len(position.mailbox) + len(position.suspended)


def accepts(graph: Graph, message: Any) -> bool:
    return graph.executors[graph.start_executor_id].table.find(message) is not None


def check_message(graph: Graph, message: Any) -> None:
    """Raises WrongInputType if the start executor has no handler for it."""
    if not accepts(graph, message):
        start = graph.executors[graph.start_executor_id]
        raise WrongInputType(start.id, message, start.input_types)


def take_inbox(
    graph: Graph, position: Position, inbox: Mapping[str, Any]
) -> tuple[Position, tuple[WorkflowEvent, ...]]:
    """The position in which everything in the inbox is due, and a warning for what nobody takes any more."""
    warnings = []
    for message in inbox.values():
        if accepts(graph, message):
            position = add_message(graph, position, message)
        else:
            kind = type_name(type(message))
            text = f"A message of type {kind} that was sent to the thread was dropped: {graph.start_executor_id!r}"
            warnings.append(WorkflowEvent("warning", f"{text} has no handler for it any more."))
    return position, tuple(warnings)


def add_message(graph: Graph, position: Position, message: Any) -> Position:
    """The position in which the message is due to the start executor. The position given is left as it is."""
    start_id = graph.start_executor_id
    after = position.successor()
    due = WorkflowMessage(isolate(message), f"internal:{start_id}", start_id, delivery_id=position.next_delivery_id)
    after.mailbox = [*position.mailbox, due]
    after.next_delivery_id += 1
    after.outputs = []
    after.iteration = 0
    after.since_input = 0
    return after


def _with_arguments(graph: Graph, after: Position, request: RunRequest) -> Position:
    """A continuation keeps the run arguments there are, unless it brings some."""
    kept = dict(after.run_kwargs)
    for parameter in ("function_invocation_kwargs", "client_kwargs"):
        given = getattr(request, parameter)
        if given is not None:
            kept[parameter] = arrange_arguments(given, graph.nodes, parameter)
    after.run_kwargs = kept
    return after


def _replayed(events: Iterable[WorkflowEvent]) -> tuple[WorkflowEvent, ...]:
    return tuple(own_event(event, replayed=True) for event in events)
