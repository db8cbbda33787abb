"""The options of `run`, and checks of their combinations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, get_args

from perdure.errors import InvalidRun, NoStorage, did_you_mean
from perdure.names import check_identifier, checkpoint_id_of
from perdure.records import CheckpointInfo

OnBusy = Literal["reject", "enqueue", "interrupt"]
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
    """What to do if the thread is being run."""
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
    function_invocation_kwargs: Mapping[str, Any] | None
    client_kwargs: Mapping[str, Any] | None


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
    takeover: bool = False
    fork: bool = False
    force: bool = False
    max_iterations: int | None = None
    change_state: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """Changes the state in the commit of the input. An error that it raises rejects the run."""
    include_status_events: bool = False
    function_invocation_kwargs: Mapping[str, Any] | None = None
    client_kwargs: Mapping[str, Any] | None = None


def check_durability(durability: Any) -> None:
    """Raises InvalidRun."""
    _one_of("durability", durability, Durability)


def make_request(message: Any, own_storage: Any, options: RunOptions) -> RunRequest:
    """Raises InvalidRun for a call without meaning, and TypeError for an unknown option."""
    arguments: dict[str, Any] = dict(options)
    for name in arguments.keys() - RunOptions.__annotations__.keys():
        hint = did_you_mean(name, RunOptions.__annotations__)
        raise TypeError(f"run() got an unexpected keyword argument {name!r}{hint}")
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
            raise NoStorage("Running from a checkpoint")
        arguments["checkpoint_id"] = checkpoint_id_of(checkpoint_id)
    if responses is not None:
        arguments["responses"] = dict(responses)
    return RunRequest(message=message, storage=storage, **arguments)


def _refuse_meaningless(message: Any, responses: Any, checkpoint_id: Any, fork: bool) -> None:
    if message is not None and responses is not None:
        raise InvalidRun("run() takes a message or responses, not both: answer first, then send the message.")
    if message is not None and checkpoint_id is not None:
        raise InvalidRun("run() takes a message or a checkpoint_id, not both: restore first, then send the message.")
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


def _one_of(parameter: str, value: Any, choices: Any) -> None:
    allowed = get_args(choices)
    if value not in allowed:
        raise InvalidRun(
            f"{parameter} must be one of {', '.join(map(repr, allowed))}, got {value!r}"
            f"{did_you_mean(str(value), allowed)}."
        )


def _positive(parameter: str, value: Any) -> None:
    if type(value) is not int or value < 1:
        raise InvalidRun(f"{parameter} must be a positive integer, got {value!r}.")


_CHECKS: dict[str, Callable[[str, Any], None]] = {
    "answered_by": check_identifier,
    "durability": lambda _, value: check_durability(value),
    "on_busy": lambda name, value: _one_of(name, value, OnBusy),
    "max_lag": _positive,
    "max_iterations": lambda name, value: None if value is None else _positive(name, value),
    "thread_id": check_identifier,
    "run_id": check_identifier,
    "checkpoint_storage": lambda _, value: None if value is None else check_storage(value),
}
"""By option: its check, which raises InvalidRun."""
