"""Requests as data: one function for each route, shared by both clients."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, TypedDict, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import UNSET, UnsetType

from perdure.client import models as told
from perdure.names import checkpoint_id_of, new_run_id, new_thread_id

T = TypeVar("T")

Granularity: TypeAlias = Literal["full", "partial", "low"]
OnBusy: TypeAlias = Literal["reject", "enqueue"]
Said: TypeAlias = str | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A text of the user, one message, or several: `{"role": "user", "content": "Hello"}`."""
AnyCheckpoint: TypeAlias = str | told.Checkpoint

PAGE = 100


class HttpCall(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One request, and what its answer is."""

    method: str
    path: str
    kind: Any
    """The type that is answered: `T`."""
    under: str | None = None
    """The key of `data` that holds it; None: all of `data`."""
    query: Mapping[str, str | int | float] = {}
    body: Any = UNSET
    file: Path | None = None
    """Sent in place of a body."""
    headers: Mapping[str, str] = {}
    seconds: float | UnsetType | None = UNSET
    """To wait for an answer; None: for ever; unset: as long as the client waits for any."""
    also: frozenset[int] = frozenset()
    """Statuses beside success that come with such an answer."""

    @property
    def only_reads(self) -> bool:
        """Asking twice changes nothing."""
        return self.method == "GET"


def at(*parts: str) -> str:
    """A path below /v1. Parts are quoted; what cannot be one, such as an empty id, is refused here."""
    for part in parts:
        if part in ("", ".", "..") or "/" in part:
            raise ValueError(f"An id is text without slashes, other than '.' and '..', got {part!r}. Nothing was sent.")
    return "/".join(("/v1", *(quote(part, safe=":") for part in parts)))


def _chosen(**given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


# ---------------------------------------------------------------- the server and what it serves


def ping() -> HttpCall[str]:
    return HttpCall(method="GET", path="/ping", kind=str)


def ready() -> HttpCall[told.Ready]:
    return HttpCall(method="GET", path="/readyz", kind=told.Ready, also=frozenset({503}))


def workflows() -> HttpCall[list[told.Workflow]]:
    return HttpCall(method="GET", path=at("workflows"), kind=list[told.Workflow], under="workflows")


def workflow(name: str) -> HttpCall[told.Workflow]:
    return HttpCall(method="GET", path=at("workflows", name), kind=told.Workflow, under="workflow")


def graph() -> HttpCall[told.Graph]:
    return HttpCall(method="GET", path=at("graph"), kind=told.Graph)


def tools() -> HttpCall[list[told.NodeTools]]:
    return HttpCall(method="GET", path=at("graph", "tools"), kind=list[told.NodeTools], under="nodes")


def state_schema() -> HttpCall[dict[str, Any]]:
    return HttpCall(method="GET", path=at("graph:StateSchema"), kind=dict[str, Any])


# ---------------------------------------------------------------- turns


def said(given: Said) -> list[dict[str, Any]]:
    """Messages as they are sent."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if isinstance(given, Mapping):
        return [dict(given)]
    return [dict(one) for one in given]


class TurnArguments(TypedDict, total=False):
    """How a turn is asked for, beside what is said."""

    thread_id: str | None
    """None: a new one."""
    resume: Any
    """The answer to the one pending request, or answers by request id; in place of messages."""
    initial_state: Mapping[str, Any] | None
    """Merged into the shared state before the turn."""
    response_granularity: Granularity
    """`partial` also gives all that was said, `full` the state."""
    on_busy: OnBusy
    """What to do if the thread is being run: be refused, or wait for it."""
    config: Mapping[str, Any]
    """`thread_name`, `thread_meta`."""


class TurnCall(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that was asked for. Its ids are made here, so that it can be found again if the answer is lost."""

    messages: Said | None
    thread_id: str
    run_id: str
    resume: Any = UNSET
    initial_state: Mapping[str, Any] | None = None
    response_granularity: Granularity = "low"
    on_busy: OnBusy = "reject"
    config: Mapping[str, Any] = {}


def turn_of(messages: Said | None, options: TurnArguments) -> TurnCall:
    """Raises ValueError for what is no turn."""
    thread_id = options.get("thread_id")
    is_resumed = options.get("resume", UNSET) is not UNSET
    if (messages is None) != is_resumed:
        raise ValueError("Give messages, or resume: one of them. Nothing was sent.")
    if is_resumed and thread_id is None:
        raise ValueError("Say which thread_id goes on with resume. Nothing was sent.")
    more: dict[str, Any] = {name: value for name, value in options.items() if name != "thread_id"}
    return TurnCall(
        messages=messages,
        thread_id=new_thread_id() if thread_id is None else thread_id,
        run_id=new_run_id(),
        **more,
    )


def turn_body(turn: TurnCall) -> dict[str, Any]:
    own = {"thread_id": turn.thread_id, "run_id": turn.run_id, "on_busy": turn.on_busy}
    body: dict[str, Any] = {
        "config": {**turn.config, **own},
        "response_granularity": turn.response_granularity,
        **_chosen(initial_state=turn.initial_state),
    }
    if turn.messages is None:
        return {**body, "resume": turn.resume}
    return {**body, "messages": said(turn.messages)}


def invoke(turn: TurnCall) -> HttpCall[told.InvokeResult]:
    # The server says when it waited long enough: it knows its own limit.
    path = at("graph", "invoke")
    return HttpCall(method="POST", path=path, kind=told.InvokeResult, body=turn_body(turn), seconds=None)


def stream(turn: TurnCall, seconds: float | None) -> HttpCall[None]:
    return HttpCall(method="POST", path=at("graph", "stream"), kind=None, body=turn_body(turn), seconds=seconds)


def stop(thread_id: str) -> HttpCall[told.Stopped]:
    return HttpCall(method="POST", path=at("graph", "stop"), kind=told.Stopped, body={"thread_id": thread_id})


# ---------------------------------------------------------------- runs and requests


def run(
    thread_id: str,
    run_id: str,
    *,
    given: Any,
    responses: Mapping[str, Any] | None,
    workflow: str | None,
    on_busy: OnBusy,
    wait: float | None,
) -> HttpCall[told.Run]:
    if given is not UNSET and responses is not None:
        raise ValueError("Give input or responses, not both. Nothing was sent.")
    body = {"run_id": run_id, "on_busy": on_busy, **_chosen(responses=responses, workflow=workflow)}
    if given is not UNSET:
        body["input"] = given
    path = at("threads", thread_id, "runs")
    return HttpCall(method="POST", path=path, kind=told.Run, under="run", body=body, **_waiting(wait))


def _waiting(wait: float | None) -> dict[str, Any]:
    """A server that waits for a run answers later."""
    return {} if wait is None else {"query": {"wait": wait}, "seconds": wait + 30}


def get_run(thread_id: str, run_id: str) -> HttpCall[told.Run]:
    return HttpCall(method="GET", path=at("threads", thread_id, "runs", run_id), kind=told.Run, under="run")


def cancel(thread_id: str, run_id: str) -> HttpCall[told.Cancelled]:
    path = at("threads", thread_id, "runs", run_id, "cancel")
    return HttpCall(method="POST", path=path, kind=told.Cancelled)


def events(thread_id: str, after: int | None, *, live: bool, seconds: float) -> HttpCall[None]:
    query = {"live": "true" if live else "false", **_chosen(after=after)}
    return HttpCall(method="GET", path=at("threads", thread_id, "events"), kind=None, query=query, seconds=seconds)


def requests(thread_id: str | None = None, limit: int = PAGE) -> HttpCall[list[told.Request]]:
    query = {"limit": limit, **_chosen(thread_id=thread_id)}
    return HttpCall(method="GET", path=at("requests"), kind=list[told.Request], under="requests", query=query)


def answer(thread_id: str, request_id: str, value: Any, run_id: str, wait: float | None) -> HttpCall[told.Run]:
    path = at("threads", thread_id, "requests", request_id, "answer")
    body = {"value": value, "run_id": run_id}
    return HttpCall(method="POST", path=path, kind=told.Run, under="run", body=body, **_waiting(wait))


# ---------------------------------------------------------------- threads


def threads(search: str | None, offset: int, limit: int) -> HttpCall[list[told.Thread]]:
    query = {"offset": offset, "limit": limit, **_chosen(search=search)}
    return HttpCall(method="GET", path=at("threads"), kind=list[told.Thread], under="threads", query=query)


def thread(thread_id: str) -> HttpCall[told.Thread]:
    return HttpCall(method="GET", path=at("threads", thread_id), kind=told.Thread, under="thread")


def delete_thread(thread_id: str) -> HttpCall[told.Done]:
    return HttpCall(method="DELETE", path=at("threads", thread_id), kind=told.Done)


def state(thread_id: str) -> HttpCall[dict[str, Any]]:
    return HttpCall(method="GET", path=at("threads", thread_id, "state"), kind=dict[str, Any], under="state")


def update_state(thread_id: str, values: Mapping[str, Any]) -> HttpCall[dict[str, Any]]:
    path = at("threads", thread_id, "state")
    return HttpCall(method="PUT", path=path, kind=dict[str, Any], under="state", body={"state": values})


def clear_state(thread_id: str) -> HttpCall[told.Done]:
    return HttpCall(method="DELETE", path=at("threads", thread_id, "state"), kind=told.Done)


def patch_state(thread_id: str, update: Mapping[str, Any], remove: Iterable[str]) -> HttpCall[told.Checkpoint]:
    path = at("threads", thread_id, "state")
    body = {"update_state": update, "remove_state": list(remove)}
    return HttpCall(method="PATCH", path=path, kind=told.Checkpoint, under="checkpoint", body=body)


def messages(thread_id: str, search: str | None, offset: int, limit: int) -> HttpCall[list[told.Message]]:
    query = {"offset": offset, "limit": limit, **_chosen(search=search)}
    path = at("threads", thread_id, "messages")
    return HttpCall(method="GET", path=path, kind=list[told.Message], under="messages", query=query)


def add_messages(thread_id: str, given: Said) -> HttpCall[list[str]]:
    path = at("threads", thread_id, "messages")
    return HttpCall(method="POST", path=path, kind=list[str], under="data", body={"messages": said(given)})


def message(thread_id: str, message_id: str) -> HttpCall[told.Message]:
    path = at("threads", thread_id, "messages", message_id)
    return HttpCall(method="GET", path=path, kind=told.Message, under="message")


def delete_message(thread_id: str, message_id: str) -> HttpCall[told.Done]:
    return HttpCall(method="DELETE", path=at("threads", thread_id, "messages", message_id), kind=told.Done)


# ---------------------------------------------------------------- time travel


def checkpoints(thread_id: str, before: str | None, limit: int) -> HttpCall[list[told.Checkpoint]]:
    query = {"limit": limit, **_chosen(before=before)}
    path = at("threads", thread_id, "checkpoints")
    return HttpCall(method="GET", path=path, kind=list[told.Checkpoint], under="checkpoints", query=query)


def checkpoint(thread_id: str, which: AnyCheckpoint) -> HttpCall[told.CheckpointState]:
    path = at("threads", thread_id, "checkpoints", checkpoint_id_of(which))
    return HttpCall(method="GET", path=path, kind=told.CheckpointState, under="checkpoint")


def diff(thread_id: str, before: AnyCheckpoint, after: AnyCheckpoint) -> HttpCall[told.Diff]:
    path = at("threads", thread_id, "checkpoints", checkpoint_id_of(before), "diff", checkpoint_id_of(after))
    return HttpCall(method="GET", path=path, kind=told.Diff, under="diff")


def _made(thread_id: str, what: str, body: Mapping[str, Any]) -> HttpCall[told.Checkpoint]:
    path = at("threads", thread_id, what)
    return HttpCall(method="POST", path=path, kind=told.Checkpoint, under="checkpoint", body=body)


def fork(
    thread_id: str,
    which: AnyCheckpoint | None,
    *,
    to: str | None,
    update_state: Mapping[str, Any] | None,
    remove_state: Iterable[str],
) -> HttpCall[told.Checkpoint]:
    chosen = _chosen(checkpoint_id=id_of(which), thread_id=to, update_state=update_state)
    return _made(thread_id, "fork", {**chosen, "remove_state": list(remove_state)})


def rewind(thread_id: str, which: AnyCheckpoint) -> HttpCall[told.Checkpoint]:
    return _made(thread_id, "rewind", {"checkpoint_id": checkpoint_id_of(which)})


def pin(thread_id: str, which: AnyCheckpoint | None, *, is_pinned: bool) -> HttpCall[told.Checkpoint]:
    return _made(thread_id, "pin", {"is_pinned": is_pinned, **_chosen(checkpoint_id=id_of(which))})


def id_of(which: AnyCheckpoint | None) -> str | None:
    return None if which is None else checkpoint_id_of(which)


# ---------------------------------------------------------------- moving


def export_thread(thread_id: str) -> HttpCall[None]:
    return HttpCall(method="POST", path=at("threads", thread_id, "export"), kind=None)


def import_thread(path: str | os.PathLike[str], thread_id: str) -> HttpCall[told.Thread]:
    return HttpCall(
        method="POST",
        path=at("threads", "import"),
        kind=told.Thread,
        under="thread",
        query={"thread_id": thread_id},
        file=Path(path),
        headers={"Content-Type": "application/x-ndjson"},
        seconds=None,
    )
