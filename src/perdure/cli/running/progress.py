"""A run as lines on the screen: what happens, where it rests, and the commands to go on with."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click
import msgspec

from perdure.agents.conversation.response import AgentResponseUpdate
from perdure.cli.options.store import StoreLocation
from perdure.cli.output.checkpoint import output_tree, question_tree, tell_request
from perdure.cli.output.values import in_lines, printable
from perdure.engine.run.result import WorkflowRunResult
from perdure.events import WorkflowEvent, WorkflowEventSource, WorkflowRunState
from perdure.graph.types.matching import flatten_union

# ---------------------------------------------------------------- samples


UNKNOWN = "JSON"
_PLAIN: dict[Any, Any] = {bool: True, int: 1, float: 1.5, str: "text", dict: {}, list: [], type(None): None}


def sample_answer(response_type: Any) -> str:
    """A VALUE for `perdure answer` that such a request would accept, or the word JSON where none is known."""
    if response_type is str:
        return "your answer"
    told = getattr(response_type, "sample_answer", None)
    if isinstance(told, str):
        return told
    try:
        return json.dumps(_sample(response_type))
    except (LookupError, TypeError, ValueError, NameError):  # a type whose JSON only its author knows
        return UNKNOWN


def _sample(annotation: Any) -> Any:
    [first, *_] = flatten_union(annotation)
    if first in _PLAIN:
        return _PLAIN[first]
    origin, arguments = get_origin(first), get_args(first)
    if origin is Literal:
        return arguments[0]
    if origin in (list, set, frozenset, tuple):
        return [_sample(one) for one in arguments if one is not ...]
    if origin is dict:
        return {}
    if isinstance(first, enum.EnumMeta):
        member: Any = next(iter(first))
        return member.value
    return {name: _sample(kind) for name, kind in _needed(first)}


def _needed(cls: Any) -> Iterator[tuple[str, Any]]:
    """Fields without a default, by the name that they have in JSON. Raises LookupError for what has no fields."""
    if isinstance(cls, type) and issubclass(cls, msgspec.Struct):
        yield from ((one.encode_name, one.type) for one in msgspec.structs.fields(cls) if one.required)
    elif dataclasses.is_dataclass(cls):
        hints = get_type_hints(cls)
        missing = dataclasses.MISSING
        fields = (one for one in dataclasses.fields(cls) if one.init)
        yield from ((one.name, hints[one.name]) for one in fields if one.default is one.default_factory is missing)
    elif hasattr(cls, "model_fields"):
        yield from ((name, one.annotation) for name, one in cls.model_fields.items() if one.is_required())
    else:
        raise LookupError(cls)


class Progress:
    """Tells the events of one run, each in a line or a few."""

    def __init__(self, place: StoreLocation, *, is_silent: bool = False) -> None:
        self._place = place
        self.is_silent = is_silent
        """Whether it only listens: what is printed is for machines."""
        self.has_begun = False
        self.failed_at: str | None = None
        """The executor that failed, once one has."""
        self._speech = Speech()

    def tell(self, event: WorkflowEvent) -> None:
        if not self.has_begun:
            self.has_begun = True
            self._begin()
        if event.type == "executor_failed":
            self.failed_at = self.failed_at or event.executor_id
        if self.is_silent:
            return
        if isinstance(event.data, AgentResponseUpdate):
            self._speech.say(str(event.executor_id), event.data)
            return
        self._speech.end()
        if event.origin is WorkflowEventSource.EXECUTOR:
            _told("progress" if event.type == "data" else event.type, event, dim=True)
        elif event.type in _TELL:
            _TELL[event.type](event)

    def _begin(self) -> None:
        if not self.is_silent:
            click.secho(f"thread: {printable(self._place.thread_id)}", bold=True)


class Speech:
    """What agents say, word by word: a line for each who speaks."""

    def __init__(self) -> None:
        self._speaker: str | None = None
        """Whose words stand in the line that is not ended yet."""

    def say(self, speaker: str, update: AgentResponseUpdate) -> None:
        said = printable(update.text)
        if said and self._speaker != speaker:
            self.end()
            click.secho(f"  {printable(speaker)}: ", dim=True, nl=False)
            self._speaker = speaker
        click.secho(said, dim=True, nl=False)

    def end(self) -> None:
        if self._speaker is not None:
            self._speaker = None
            click.echo()


def _superstep_started(event: WorkflowEvent) -> None:
    click.secho(f"superstep {event.iteration}", bold=True)


def _superstep_discarded(event: WorkflowEvent) -> None:
    click.echo(f"superstep {event.iteration} did not end; what had finished in it is recorded")


def _executor_retrying(event: WorkflowEvent) -> None:
    after = f" in {event.data['delay_seconds']:g} s" if isinstance(event.data, dict) else ""
    _line(event, f"failed, is tried again{after}: {_error(event)}", fg="yellow")


def _request_info(event: WorkflowEvent) -> None:
    if not event.replayed:  # `tell_rest` tells all that are pending
        _line(event, f"asks (request {event.request_id})", fg="magenta")


_TELL: dict[str, Callable[[WorkflowEvent], None]] = {
    "superstep_started": _superstep_started,
    "superstep_discarded": _superstep_discarded,
    "executor_invoked": lambda event: _line(event, "runs", dim=True),
    "executor_completed": lambda event: _line(event, "done", fg="green"),
    "executor_bypassed": lambda event: _line(event, "had finished before: not run again", fg="cyan"),
    "executor_failed": lambda event: _line(event, f"failed: {_error(event)}", fg="red"),
    "executor_retrying": _executor_retrying,
    "executor_skipped": lambda event: _line(event, f"failed, {event.data}: {_error(event)}", fg="yellow"),
    "output": lambda event: _told("output", event, fg="green"),
    "intermediate": lambda event: _told("intermediate", event),
    "data": lambda event: _told("data", event, dim=True),
    "request_info": _request_info,
    "warning": lambda event: click.secho(f"warning: {printable(str(event.data))}", fg="yellow"),
    "error": lambda event: _told("error", event, fg="red"),
}


def rest_tree(result: WorkflowRunResult) -> dict[str, Any]:
    """Where the thread stands when its run has ended, for machines."""
    return {
        "thread_id": result.thread_id,
        "run_id": result.run_id,
        "checkpoint_id": result.checkpoint_id,
        "status": result.get_final_state().value,
        "outputs": [output_tree(one) for one in result._outputs if one.type == "output"],
        "requests": [question_tree(one) for one in result.get_request_info_events()],
    }


def tell_rest(result: WorkflowRunResult, place: StoreLocation) -> None:
    """Where the thread stands when its run has ended: who is asked what, and how to answer."""
    pending = result.get_request_info_events()
    if not pending:
        state = result.get_final_state()
        word = "done" if state is WorkflowRunState.IDLE else state.value.lower()
        click.secho(f"{word}: nothing is pending" if word == "done" else word, bold=True)
        return
    count = "an answer" if len(pending) == 1 else f"{len(pending)} answers"
    click.secho(f"waiting for {count}", bold=True)
    for request in pending:
        tell_request(request)
        click.echo(f"  answer it: {place.answer(str(request.request_id), sample_answer(request.response_type))}")


def _line(event: WorkflowEvent, text: str, **style: Any) -> None:
    again = " (told again)" if event.replayed else ""
    click.secho(f"  {printable(str(event.executor_id))}: {printable(text)}{again}", **style)


def _told(what: str, event: WorkflowEvent, **style: Any) -> None:
    again = ", told again" if event.replayed else ""
    first, *more = in_lines(event.data)
    click.secho(f"{what} of {printable(str(event.executor_id))}{again}: {first}", **style)
    for line in more:
        click.secho(f"  {line}", **style)


def _error(event: WorkflowEvent) -> str:
    details = event.details
    return "" if details is None else f"{details.error_type}: {details.message}"
