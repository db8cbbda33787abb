"""Requests as data: one function per route, shared by both clients."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, TypedDict, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import UNSET, UnsetType

from perdure.client import models
from perdure.names import checkpoint_id_of, new_run_id, new_thread_id

T = TypeVar("T")

Granularity: TypeAlias = Literal["full", "partial", "low"]
OnBusy: TypeAlias = Literal["reject", "enqueue"]
MessagesIn: TypeAlias = str | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A text of the user, one message, or several: `{"role": "user", "content": "Hello"}`."""
AnyCheckpoint: TypeAlias = str | models.Checkpoint

PAGE = 100


class HttpCall(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One request, and the type of its answer."""

    method: str
    path: str
    kind: Any
    """The type of the answer: `T`."""
    under: str | None = None
    """The key of `data` that holds it; None: all of `data`."""
    query: Mapping[str, str | int | float] = {}
    body: Any = UNSET
    file: Path | None = None
    """Sent in place of a body."""
    headers: Mapping[str, str] = {}
    seconds: float | UnsetType | None = UNSET
    """The read timeout; None: no limit; unset: the client's."""
    also: frozenset[int] = frozenset()
    """Statuses beside success that carry such an answer."""

    @property
    def only_reads(self) -> bool:
        """Whether a repetition changes nothing."""
        return self.method == "GET"


def build_path(*parts: str) -> str:
    """A path below /v1, with quoted parts. Raises ValueError for a part that is not an id."""
    for part in parts:
        if part in ("", ".", "..") or "/" in part:
            raise ValueError(f"An id is text without slashes, other than '.' and '..', got {part!r}. Nothing was sent.")
    return "/".join(("/v1", *(quote(part, safe=":") for part in parts)))


def omit_none(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


# ---------------------------------------------------------------- the server and what it serves


def ping() -> HttpCall[str]:
    return HttpCall(method="GET", path="/ping", kind=str)


def ready() -> HttpCall[models.Ready]:
    return HttpCall(method="GET", path="/readyz", kind=models.Ready, also=frozenset({503}))


def workflows() -> HttpCall[list[models.Workflow]]:
    return HttpCall(method="GET", path=build_path("workflows"), kind=list[models.Workflow], under="workflows")


def workflow(name: str) -> HttpCall[models.Workflow]:
    return HttpCall(method="GET", path=build_path("workflows", name), kind=models.Workflow, under="workflow")


def graph() -> HttpCall[models.Graph]:
    return HttpCall(method="GET", path=build_path("graph"), kind=models.Graph)


def tools() -> HttpCall[list[models.NodeTools]]:
    return HttpCall(method="GET", path=build_path("graph", "tools"), kind=list[models.NodeTools], under="nodes")


def state_schema() -> HttpCall[dict[str, Any]]:
    return HttpCall(method="GET", path=build_path("graph:StateSchema"), kind=dict[str, Any])


# ---------------------------------------------------------------- turns


def to_messages(messages: MessagesIn) -> list[dict[str, Any]]:
    """Messages as they are sent."""
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    if isinstance(messages, Mapping):
        return [dict(messages)]
    return [dict(message) for message in messages]


class TurnArguments(TypedDict, total=False):
    """Options of a turn, beside its messages."""

    thread_id: str | None
    """None: a new one."""
    resume: Any
    """The answer to the one pending request, or answers by request id; in place of messages."""
    initial_state: Mapping[str, Any] | None
    """Merged into the shared state before the turn."""
    response_granularity: Granularity
    """`partial` also returns the conversation, `full` the state."""
    on_busy: OnBusy
    """For a thread that is busy: fail with Conflict, or wait."""
    config: Mapping[str, Any]
    """`thread_name`, `thread_meta`."""


class TurnCall(msgspec.Struct, frozen=True, kw_only=True):
    """A turn to send. The client chooses its ids, so that it can find the run if the answer is lost."""

    messages: MessagesIn | None
    thread_id: str
    run_id: str
    resume: Any = UNSET
    initial_state: Mapping[str, Any] | None = None
    response_granularity: Granularity = "low"
    on_busy: OnBusy = "reject"
    config: Mapping[str, Any] = {}


def new_turn(messages: MessagesIn | None, options: TurnArguments) -> TurnCall:
    """Raises ValueError if the arguments do not make a turn."""
    thread_id = options.get("thread_id")
    is_resumed = options.get("resume", UNSET) is not UNSET
    if (messages is None) != is_resumed:
        raise ValueError("Give messages, or resume: one of them. Nothing was sent.")
    if is_resumed and thread_id is None:
        raise ValueError("resume needs a thread_id. Nothing was sent.")
    more: dict[str, Any] = {name: value for name, value in options.items() if name != "thread_id"}
    return TurnCall(
        messages=messages,
        thread_id=new_thread_id() if thread_id is None else thread_id,
        run_id=new_run_id(),
        **more,
    )


def encode_turn(turn: TurnCall) -> dict[str, Any]:
    own = {"thread_id": turn.thread_id, "run_id": turn.run_id, "on_busy": turn.on_busy}
    body: dict[str, Any] = {
        "config": {**turn.config, **own},
        "response_granularity": turn.response_granularity,
        **omit_none(initial_state=turn.initial_state),
    }
    if turn.messages is None:
        return {**body, "resume": turn.resume}
    return {**body, "messages": to_messages(turn.messages)}


def invoke(turn: TurnCall) -> HttpCall[models.InvokeResult]:
    # No read timeout: the server answers when its own limit ends.
    path = build_path("graph", "invoke")
    return HttpCall(method="POST", path=path, kind=models.InvokeResult, body=encode_turn(turn), seconds=None)


def stream(turn: TurnCall, seconds: float | None) -> HttpCall[None]:
    return HttpCall(
        method="POST", path=build_path("graph", "stream"), kind=None, body=encode_turn(turn), seconds=seconds
    )


def stop(thread_id: str) -> HttpCall[models.Stopped]:
    return HttpCall(method="POST", path=build_path("graph", "stop"), kind=models.Stopped, body={"thread_id": thread_id})


# ---------------------------------------------------------------- runs and requests


def run(
    thread_id: str,
    run_id: str,
    *,
    input: Any,
    responses: Mapping[str, Any] | None,
    workflow: str | None,
    on_busy: OnBusy,
    wait: float | None,
) -> HttpCall[models.Run]:
    if input is not UNSET and responses is not None:
        raise ValueError("Give input or responses, not both. Nothing was sent.")
    body = {"run_id": run_id, "on_busy": on_busy, **omit_none(responses=responses, workflow=workflow)}
    if input is not UNSET:
        body["input"] = input
    path = build_path("threads", thread_id, "runs")
    return HttpCall(method="POST", path=path, kind=models.Run, under="run", body=body, **_wait_options(wait))


def _wait_options(wait: float | None) -> dict[str, Any]:
    """Query and read timeout: the server answers up to `wait` seconds later."""
    return {} if wait is None else {"query": {"wait": wait}, "seconds": wait + 30}


def get_run(thread_id: str, run_id: str) -> HttpCall[models.Run]:
    return HttpCall(method="GET", path=build_path("threads", thread_id, "runs", run_id), kind=models.Run, under="run")


def cancel(thread_id: str, run_id: str) -> HttpCall[models.Cancelled]:
    path = build_path("threads", thread_id, "runs", run_id, "cancel")
    return HttpCall(method="POST", path=path, kind=models.Cancelled)


def events(thread_id: str, after: int | None, *, live: bool, seconds: float) -> HttpCall[None]:
    query = {"live": "true" if live else "false", **omit_none(after=after)}
    return HttpCall(
        method="GET", path=build_path("threads", thread_id, "events"), kind=None, query=query, seconds=seconds
    )


def requests(thread_id: str | None = None, limit: int = PAGE) -> HttpCall[list[models.Request]]:
    query = {"limit": limit, **omit_none(thread_id=thread_id)}
    return HttpCall(method="GET", path=build_path("requests"), kind=list[models.Request], under="requests", query=query)


def answer(thread_id: str, request_id: str, value: Any, run_id: str, wait: float | None) -> HttpCall[models.Run]:
    path = build_path("threads", thread_id, "requests", request_id, "answer")
    body = {"value": value, "run_id": run_id}
    return HttpCall(method="POST", path=path, kind=models.Run, under="run", body=body, **_wait_options(wait))


# ---------------------------------------------------------------- threads


def threads(search: str | None, offset: int, limit: int) -> HttpCall[list[models.Thread]]:
    query = {"offset": offset, "limit": limit, **omit_none(search=search)}
    return HttpCall(method="GET", path=build_path("threads"), kind=list[models.Thread], under="threads", query=query)


def thread(thread_id: str) -> HttpCall[models.Thread]:
    return HttpCall(method="GET", path=build_path("threads", thread_id), kind=models.Thread, under="thread")


def delete_thread(thread_id: str) -> HttpCall[models.Done]:
    return HttpCall(method="DELETE", path=build_path("threads", thread_id), kind=models.Done)


def state(thread_id: str) -> HttpCall[dict[str, Any]]:
    return HttpCall(method="GET", path=build_path("threads", thread_id, "state"), kind=dict[str, Any], under="state")


def update_state(thread_id: str, values: Mapping[str, Any]) -> HttpCall[dict[str, Any]]:
    path = build_path("threads", thread_id, "state")
    return HttpCall(method="PUT", path=path, kind=dict[str, Any], under="state", body={"state": values})


def clear_state(thread_id: str) -> HttpCall[models.Done]:
    return HttpCall(method="DELETE", path=build_path("threads", thread_id, "state"), kind=models.Done)


def patch_state(thread_id: str, update: Mapping[str, Any], remove: Iterable[str]) -> HttpCall[models.Checkpoint]:
    path = build_path("threads", thread_id, "state")
    body = {"update_state": update, "remove_state": list(remove)}
    return HttpCall(method="PATCH", path=path, kind=models.Checkpoint, under="checkpoint", body=body)


def messages(thread_id: str, search: str | None, offset: int, limit: int) -> HttpCall[list[models.Message]]:
    query = {"offset": offset, "limit": limit, **omit_none(search=search)}
    path = build_path("threads", thread_id, "messages")
    return HttpCall(method="GET", path=path, kind=list[models.Message], under="messages", query=query)


def add_messages(thread_id: str, new_messages: MessagesIn) -> HttpCall[list[str]]:
    path = build_path("threads", thread_id, "messages")
    return HttpCall(
        method="POST", path=path, kind=list[str], under="data", body={"messages": to_messages(new_messages)}
    )


def message(thread_id: str, message_id: str) -> HttpCall[models.Message]:
    path = build_path("threads", thread_id, "messages", message_id)
    return HttpCall(method="GET", path=path, kind=models.Message, under="message")


def delete_message(thread_id: str, message_id: str) -> HttpCall[models.Done]:
    return HttpCall(method="DELETE", path=build_path("threads", thread_id, "messages", message_id), kind=models.Done)


# ---------------------------------------------------------------- time travel


def checkpoints(thread_id: str, before: str | None, limit: int) -> HttpCall[list[models.Checkpoint]]:
    query = {"limit": limit, **omit_none(before=before)}
    path = build_path("threads", thread_id, "checkpoints")
    return HttpCall(method="GET", path=path, kind=list[models.Checkpoint], under="checkpoints", query=query)


def checkpoint(thread_id: str, which: AnyCheckpoint) -> HttpCall[models.CheckpointState]:
    path = build_path("threads", thread_id, "checkpoints", checkpoint_id_of(which))
    return HttpCall(method="GET", path=path, kind=models.CheckpointState, under="checkpoint")


def diff(thread_id: str, before: AnyCheckpoint, after: AnyCheckpoint) -> HttpCall[models.Diff]:
    path = build_path("threads", thread_id, "checkpoints", checkpoint_id_of(before), "diff", checkpoint_id_of(after))
    return HttpCall(method="GET", path=path, kind=models.Diff, under="diff")


def _post_checkpoint_call(thread_id: str, what: str, body: Mapping[str, Any]) -> HttpCall[models.Checkpoint]:
    path = build_path("threads", thread_id, what)
    return HttpCall(method="POST", path=path, kind=models.Checkpoint, under="checkpoint", body=body)


def fork(
    thread_id: str,
    which: AnyCheckpoint | None,
    *,
    to: str | None,
    update_state: Mapping[str, Any] | None,
    remove_state: Iterable[str],
) -> HttpCall[models.Checkpoint]:
    chosen = omit_none(checkpoint_id=find_checkpoint_id(which), thread_id=to, update_state=update_state)
    return _post_checkpoint_call(thread_id, "fork", {**chosen, "remove_state": list(remove_state)})


def rewind(thread_id: str, which: AnyCheckpoint) -> HttpCall[models.Checkpoint]:
    return _post_checkpoint_call(thread_id, "rewind", {"checkpoint_id": checkpoint_id_of(which)})


def pin(thread_id: str, which: AnyCheckpoint | None, *, is_pinned: bool) -> HttpCall[models.Checkpoint]:
    return _post_checkpoint_call(
        thread_id, "pin", {"is_pinned": is_pinned, **omit_none(checkpoint_id=find_checkpoint_id(which))}
    )


def find_checkpoint_id(which: AnyCheckpoint | None) -> str | None:
    return None if which is None else checkpoint_id_of(which)


# ---------------------------------------------------------------- transfer


def export_thread(thread_id: str) -> HttpCall[None]:
    return HttpCall(method="POST", path=build_path("threads", thread_id, "export"), kind=None)


def import_thread(path: str | os.PathLike[str], thread_id: str) -> HttpCall[models.Thread]:
    return HttpCall(
        method="POST",
        path=build_path("threads", "import"),
        kind=models.Thread,
        under="thread",
        query={"thread_id": thread_id},
        file=Path(path),
        headers={"Content-Type": "application/x-ndjson"},
        seconds=None,
    )
