"""The input of a run: check it, then make it due. Nothing is written here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from perdure.engine.run.options import RunRequest
from perdure.engine.thread.arguments import arrange_arguments
from perdure.engine.thread.effects import own_event
from perdure.engine.thread.inputs import (
    accepts,
    add_message,
    check_answers,
    check_message,
    deliver_answers,
    pass_deadlines,
    take_inbox,
)
from perdure.engine.thread.live_threads import LiveThread
from perdure.engine.thread.position import Position, every_level
from perdure.errors import InvalidRun, ThreadNotFound, ThreadNotIdle
from perdure.events import WorkflowEvent
from perdure.graph.graph import Graph
from perdure.isolation import isolate


@dataclass(frozen=True)
class Entry:
    """The start of a run."""

    position: Position | None
    """Committed first; None to continue from the thread's present position."""
    replayed_events: tuple[WorkflowEvent, ...] = ()
    """Outputs and pending requests from before this run, for its consumer."""
    warnings: tuple[WorkflowEvent, ...] = ()
    consumed: tuple[str, ...] = ()
    """Inbox items that the position takes in."""


def enter(
    graph: Graph, thread: LiveThread, standing: Position, request: RunRequest, now: datetime, *, is_restored: bool
) -> Entry:
    """Make the caller's input due, in a thread that is or will be at `standing`.

    Raises, without changing the thread, if the input cannot be accepted.
    """
    position, expired = pass_deadlines(standing, now)
    has_passed = position is not standing
    is_resume = is_restored or has_passed
    if request.message is not None:
        check_message(graph, request.message)
        if request.on_busy == "reject" and standing.is_interrupted:
            levels = every_level(standing)
            raise ThreadNotIdle(thread.thread_id, sum(len(level.mailbox) + len(level.suspended) for level in levels))
    is_unknown = standing.next_delivery_id == 1 and not thread.inbox
    if request.responses is not None and request.thread_id is not None and is_unknown:
        raise ThreadNotFound(request.thread_id)
    entry = _accept(graph, thread.thread_id, position, request, now, is_resume=is_resume, inbox=thread.inbox)
    after = position if entry.position is None and has_passed else entry.position
    if request.change_state is not None and after is not None:
        after.state = request.change_state(isolate(after.state))
    return Entry(after, entry.replayed_events, (*expired, *entry.warnings), entry.consumed)


def _accept(
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
        return Entry(_with_arguments(graph, after, request), _mark_replayed(after.requests.values()))
    if request.message is not None:
        return _message(graph, position, request, inbox)
    has_run = request.thread_id is not None and position.next_delivery_id > 1
    if inbox and not position.is_interrupted:
        return Entry(None)  # the inbox items are the input of this run
    if is_resume or position.is_busy or position.requests or has_run:
        replayed_events = _mark_replayed((*position.outputs, *position.requests.values()))
        has_arguments = request.function_invocation_kwargs is not None or request.client_kwargs is not None
        return Entry(_with_arguments(graph, position.successor(), request) if has_arguments else None, replayed_events)
    if accepts(graph, None):  # nothing to resume: the message of a start without one
        return _message(graph, position, request, inbox)
    if request.thread_id is not None:
        raise ThreadNotFound(request.thread_id)
    raise InvalidRun(
        "run() needs a message, responses or a checkpoint_id: there is nothing to resume, and the start executor "
        f"{graph.start_executor_id!r} does not accept None."
    )


def _message(graph: Graph, position: Position, request: RunRequest, inbox: Mapping[str, Any]) -> Entry:
    warnings: tuple[WorkflowEvent, ...] = ()
    if position.requests:
        waiting = ", ".join(map(repr, position.requests))
        text = f"A new message was sent while requests are pending ({waiting}); they stay pending."
        warnings = (WorkflowEvent("warning", text),)
    if inbox:  # sent earlier, so delivered first
        position, undeliverable = take_inbox(graph, position, inbox)
        warnings = (*warnings, *undeliverable)
    after = add_message(graph, position, request.message)
    after.run_kwargs = {}
    return Entry(_with_arguments(graph, after, request), (), warnings, tuple(inbox))


def _with_arguments(graph: Graph, after: Position, request: RunRequest) -> Position:
    """A continuation keeps the earlier run arguments, unless the request has new ones."""
    run_kwargs = dict(after.run_kwargs)
    for parameter in ("function_invocation_kwargs", "client_kwargs"):
        arguments = getattr(request, parameter)
        if arguments is not None:
            run_kwargs[parameter] = arrange_arguments(arguments, graph.nodes, parameter)
    after.run_kwargs = run_kwargs
    return after


def _mark_replayed(events: Iterable[WorkflowEvent]) -> tuple[WorkflowEvent, ...]:
    return tuple(own_event(event, replayed=True) for event in events)
