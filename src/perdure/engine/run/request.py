"""The request for a run: its options, checked, and its input, made due. Nothing is written here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypedDict

import msgspec

from perdure.engine.thread.inputs import cancel_requests, check_answers, deliver_answers, pass_deadlines
from perdure.engine.thread.level import WorkflowInvocationKwargs, arrange_arguments, request_in_child
from perdure.engine.thread.live_threads import LiveThread
from perdure.engine.thread.position import Position, every_level, own_event
from perdure.errors import InvalidRun, NoStorage, ThreadNotFound, ThreadNotIdle, WrongInputType, type_name
from perdure.events import WorkflowEvent
from perdure.graph.graph import Graph
from perdure.isolation import isolate
from perdure.names import OnBusy, check_choice, check_identifier, check_options, checkpoint_id_of
from perdure.records import CheckpointInfo, WorkflowMessage

OnUnfinished = Literal["resume", "discard", "reject"]
Durability = Literal["sync", "async", "exit"]


class RunOptions(TypedDict, total=False):
    """The keyword arguments of `run`, beside `stream`."""

    responses: Mapping[Any, Any] | None
    """Answers to pending requests, by request id. (Any: `event.request_id` may be None for a checker, not here.)"""
    answered_by: str | None
    """Who gave the responses; stored with each answer."""
    checkpoint_id: str | CheckpointInfo | None
    """Rewind to this checkpoint first."""
    checkpoint_storage: Any
    """Used for this run in place of the workflow's own."""
    thread_id: str | None
    """The thread to run; default: the workflow's default thread."""
    run_id: str | None
    durability: Durability
    """When to save: after every superstep, before the next one starts (`sync`) or while it runs (`async`); or only when
    the run ends (`exit`)."""
    max_lag: int
    """With `async`: how many supersteps may be unsaved."""
    on_busy: OnBusy
    """The behaviour when another run owns the thread."""
    on_unfinished: OnUnfinished | None
    """What a message does if the thread's last run did not finish its work: it waits until the work is done (`resume`),
    sets the work aside in the thread's history (`discard`), or raises ThreadNotIdle (`reject`). Default: `reject` for a
    named thread; in the workflow's default thread `discard` for a run that failed or was cancelled."""
    takeover: bool
    """Take the thread from its present owner."""
    fork: bool
    """Make a new thread from `checkpoint_id`."""
    force: bool
    """Continue although the workflow has changed since the checkpoint was made."""
    change_state: Callable[[dict[str, Any]], dict[str, Any]] | None
    """Changes the state in the commit of the input. An error that it raises rejects the run."""
    max_iterations: int | None
    """Limit of supersteps since the last input. The workflow's own limit applies if it is lower."""
    include_status_events: bool
    """Keep `status` events in the result."""
    function_invocation_kwargs: Mapping[str, Any] | WorkflowInvocationKwargs | None
    client_kwargs: Mapping[str, Any] | WorkflowInvocationKwargs | None
    tools: Any
    """Tools for the agents, beside their own: one, or several. They are not stored: a resumed run needs them again."""


@dataclass(frozen=True)
class RunRequest:
    """The checked options of a call of `run`."""

    message: Any = None
    responses: Mapping[str, Any] | None = None
    answered_by: str | None = None
    checkpoint_id: str | None = None
    storage: Any = None
    thread_id: str | None = None
    run_id: str | None = None
    durability: str = "sync"
    max_lag: int = 8
    on_busy: str = "reject"
    on_unfinished: str | None = None
    takeover: bool = False
    fork: bool = False
    force: bool = False
    max_iterations: int | None = None
    change_state: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    include_status_events: bool = False
    function_invocation_kwargs: Mapping[str, Any] | WorkflowInvocationKwargs | None = None
    client_kwargs: Mapping[str, Any] | WorkflowInvocationKwargs | None = None
    tools: Any = None
    cancelled: frozenset[str] = frozenset()
    """Requests to cancel, by id."""


def check_durability(durability: Any) -> None:
    """Raises InvalidRun."""
    check_choice("durability", durability, Durability)


def make_request(message: Any, own_storage: Any, options: RunOptions) -> RunRequest:
    """Raises InvalidRun for a call without meaning, and TypeError for an unknown option."""
    arguments: dict[str, Any] = dict(options)
    if arguments.keys() - RunOptions.__annotations__.keys():
        check_options("run", arguments, RunOptions.__annotations__)
    responses, checkpoint_id = arguments.get("responses"), arguments.get("checkpoint_id")
    if responses is not None or checkpoint_id is not None or arguments.get("fork"):
        _refuse_meaningless(message, responses, checkpoint_id, arguments.get("fork", False))
    if arguments.get("answered_by") is not None and responses is None:
        raise InvalidRun("run(answered_by=...) needs responses=...: it names who gave them.")
    for name, check in _CHECKS.items():
        if name in arguments:
            check(name, arguments[name])
    storage = arguments.pop("checkpoint_storage", None)
    if storage is None:
        storage = own_storage
    if checkpoint_id is not None:
        if storage is None:
            raise NoStorage("Cannot restore from checkpoint: Running from a checkpoint")
        arguments["checkpoint_id"] = checkpoint_id_of(checkpoint_id)
    if responses is not None:
        arguments["responses"] = dict(responses)
    content = message.data if isinstance(message, WorkflowMessage) else message
    return RunRequest(message=content, storage=storage, **arguments)


def _refuse_meaningless(message: Any, responses: Any, checkpoint_id: Any, fork: bool) -> None:
    if message is not None and responses is not None:
        raise InvalidRun(
            "Cannot provide both 'message' and 'responses'. Use one or the other: answer first, then send the message."
        )
    if message is not None and checkpoint_id is not None:
        raise InvalidRun(
            "Cannot provide both 'message' and 'checkpoint_id'. Use one or the other: restore first, then send the "
            "message."
        )
    if fork and checkpoint_id is None:
        raise InvalidRun("run(fork=True) needs the checkpoint_id to fork from.")
    if responses is not None and not isinstance(responses, Mapping):
        raise InvalidRun(f"responses must map request ids to answers, got {type(responses).__name__}.")
    for request_id in responses or ():
        if not isinstance(request_id, str):
            raise InvalidRun(f"responses must map request ids to answers, got {request_id!r} as an id.")
    if responses is not None and not responses:
        raise InvalidRun("responses is empty: give at least one answer, or leave it out to resume.")


_STORAGE_METHODS = ("save", "load", "list_checkpoints", "delete", "get_latest", "list_checkpoint_ids")


def check_storage(storage: Any) -> None:
    """Raises InvalidRun for an object that is not a checkpoint storage."""
    missing = [method for method in _STORAGE_METHODS if not callable(getattr(storage, method, None))]
    if missing:
        raise InvalidRun(
            f"{storage!r} is not a checkpoint storage: it has no {', '.join(missing)}. Use one of perdure's, such as "
            "InMemoryCheckpointStorage(), or a class with these methods."
        )


def _positive(parameter: str, value: Any) -> None:
    if type(value) is not int or value < 1:
        raise InvalidRun(f"{parameter} must be a positive integer, got {value!r}.")


_CHECKS: dict[str, Callable[[str, Any], None]] = {
    "answered_by": check_identifier,
    "durability": lambda _, value: check_durability(value),
    "on_busy": lambda name, value: check_choice(name, value, OnBusy),
    "on_unfinished": lambda name, value: None if value is None else check_choice(name, value, OnUnfinished),
    "max_lag": _positive,
    "max_iterations": lambda name, value: None if value is None else _positive(name, value),
    "thread_id": check_identifier,
    "run_id": check_identifier,
    "checkpoint_storage": lambda _, value: None if value is None else check_storage(value),
}
"""By option: its check, which raises InvalidRun."""


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
    """A position in which all inbox items are due, and warnings for items without a handler."""
    warnings = []
    for message in inbox.values():
        if accepts(graph, message):
            position = add_message(graph, position, message)
        else:
            kind = type_name(type(message))
            text = f"A message of type {kind} that was sent to the thread was dropped: {graph.start_executor_id!r}"
            warnings.append(WorkflowEvent("warning", f"{text} no longer has a handler for it."))
    return position, tuple(warnings)


def add_message(graph: Graph, position: Position, message: Any) -> Position:
    """A position in which the message is due to the start executor. `position` is not changed."""
    start_id = graph.start_executor_id
    after = position.successor()
    due = WorkflowMessage(isolate(message), f"internal:{start_id}", start_id, delivery_id=position.next_delivery_id)
    after.mailbox = [*position.mailbox, due]
    after.next_delivery_id += 1
    after.outputs = []
    after.iteration = 0
    after.since_input = 0
    return after


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
    set_aside: int = 0
    """How many unfinished deliveries of earlier runs the position leaves out."""


def enter(
    graph: Graph, thread: LiveThread, standing: Position, request: RunRequest, now: Callable[[], datetime]
) -> Entry:
    """Make the caller's input due, in a thread that is or will be at `standing`.

    Raises, without changing the thread, if the input cannot be accepted.
    """
    may_expire = standing.requests or standing.children
    position, expired = pass_deadlines(standing, now()) if may_expire else (standing, [])
    has_passed = position is not standing
    is_resume = request.checkpoint_id is not None or has_passed
    unfinished = 0
    if request.message is not None:
        check_message(graph, request.message)
        choice = choose_for_unfinished(graph, standing, request)
        due = sum(len(level.mailbox) + len(level.suspended) for level in every_level(standing))
        if choice == "reject":
            raise ThreadNotIdle(thread.thread_id, due)
        if choice == "discard":
            position, unfinished = leave_out_unfinished(position), due
    is_unknown = standing.next_delivery_id == 1 and not thread.inbox
    if (request.responses is not None or request.cancelled) and request.thread_id is not None and is_unknown:
        raise ThreadNotFound(request.thread_id)
    entry = _accept(graph, thread, position, request, now, is_resume=is_resume)
    after = position if entry.position is None and has_passed else entry.position
    if request.change_state is not None and after is not None:
        after.state = request.change_state(isolate(after.state))
    return Entry(after, entry.replayed_events, (*expired, *entry.warnings), entry.consumed, unfinished)


def choose_for_unfinished(graph: Graph, position: Position, request: RunRequest) -> str | None:
    """What the request's message does with unfinished work at this position; None if it may join it."""
    if request.message is None or not position.is_interrupted:
        return None
    if request.on_unfinished is not None:
        return request.on_unfinished
    if request.on_busy != "reject":
        return "resume" if request.on_busy == "enqueue" else None
    # Work at the limit of supersteps did not fail: nothing has tried it.
    is_at_limit = position.since_input >= graph.max_iterations
    return "reject" if request.thread_id is not None or is_at_limit else "discard"


def leave_out_unfinished(position: Position) -> Position:
    """A position without deliveries that are due or asleep. Those that wait for an answer from outside stay, also in
    sub-workflows. `position` is not changed."""
    return msgspec.structs.replace(
        position,
        mailbox=[],
        suspended={
            key: delivery
            for key, delivery in position.suspended.items()
            if not delivery.is_ready and any(request_id in position.requests for request_id in delivery.waits)
        },
        children={
            key: child.at(leave_out_unfinished(child.position))
            for key, child in position.children.items()
            if any(request_in_child(request, child, key) is not None for request in position.requests.values())
        },
    )


def _accept(
    graph: Graph,
    thread: LiveThread,
    position: Position,
    request: RunRequest,
    now: Callable[[], datetime],
    *,
    is_resume: bool,
) -> Entry:
    inbox = thread.inbox
    if request.responses is not None or request.cancelled:
        if request.responses is None:
            after = cancel_requests(position, request.cancelled, now())
        else:
            answers = check_answers(graph, thread.thread_id, position, request.responses)
            after = deliver_answers(position, answers, now(), answered_by=request.answered_by)
        after.outputs = []
        after.since_input = 0
        return Entry(_with_arguments(graph, after, request), _mark_replayed(after.requests.values()))
    if request.message is not None:
        warnings: tuple[WorkflowEvent, ...] = ()
        if request.thread_id is None and graph.executors[graph.start_executor_id].is_function:
            position, warnings = _call_again(position)
        return _message(graph, position, request, inbox, warnings)
    has_run = request.thread_id is not None and position.next_delivery_id > 1
    if inbox and not position.is_interrupted:
        return Entry(None)  # the inbox items are the input of this run
    if has_run or is_resume or position.requests or position.is_busy:
        replayed_events = _mark_replayed((*position.outputs, *position.requests.values()))
        has_arguments = request.function_invocation_kwargs is not None or request.client_kwargs is not None
        return Entry(_with_arguments(graph, position.successor(), request) if has_arguments else None, replayed_events)
    if accepts(graph, None):  # nothing to resume: the message of a start without one
        return _message(graph, position, request, inbox)
    if request.thread_id is not None:
        raise ThreadNotFound(request.thread_id)
    raise InvalidRun(
        "Must provide at least one of: 'message' (new run), 'responses' (send responses), or 'checkpoint_id' (resume "
        f"from checkpoint). There is nothing to resume, and the start executor {graph.start_executor_id!r} does not "
        "accept None."
    )


def _call_again(position: Position) -> tuple[Position, tuple[WorkflowEvent, ...]]:
    """The position for a call of a function in its default thread: nothing of an earlier call, whose questions are
    withdrawn. And a warning if there were any."""
    after, pending = position.successor(), ", ".join(map(repr, position.requests))
    after.state, after.flat, after.requests, after.answered, after.suspended = {}, {}, {}, {}, {}
    text = f"A new message was sent while requests are pending ({pending}); they are withdrawn."
    return after, (WorkflowEvent("warning", text),) if pending else ()


def _message(
    graph: Graph,
    position: Position,
    request: RunRequest,
    inbox: Mapping[str, Any],
    warnings: tuple[WorkflowEvent, ...] = (),
) -> Entry:
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
    return tuple([own_event(event, replayed=True) for event in events])
