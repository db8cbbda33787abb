"""Requests as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, TypedDict, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import UNSET, UnsetType

from perdure.client import models
from perdure.names import new_run_id, new_thread_id

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


# ---------------------------------------------------------------- requests of more than one method


def stream(turn: TurnCall, seconds: float | None) -> HttpCall[None]:
    return HttpCall(
        method="POST", path=build_path("graph", "stream"), kind=None, body=encode_turn(turn), seconds=seconds
    )


def events(
    thread_id: str, after: int | None, *, seconds: float, live: bool = True, chunks: bool = False
) -> HttpCall[None]:
    query = {"live": "true" if live else "false", **omit_none(after=after, chunks="true" if chunks else None)}
    return HttpCall(
        method="GET", path=build_path("threads", thread_id, "events"), kind=None, query=query, seconds=seconds
    )


def get_run(thread_id: str, run_id: str) -> HttpCall[models.Run]:
    return HttpCall(method="GET", path=build_path("threads", thread_id, "runs", run_id), kind=models.Run, under="run")


def requests(thread_id: str | None = None, limit: int = PAGE) -> HttpCall[list[models.Request]]:
    query = {"limit": limit, **omit_none(thread_id=thread_id)}
    return HttpCall(method="GET", path=build_path("requests"), kind=list[models.Request], under="requests", query=query)


def thread(thread_id: str) -> HttpCall[models.Thread]:
    return HttpCall(method="GET", path=build_path("threads", thread_id), kind=models.Thread, under="thread")


def state(thread_id: str) -> HttpCall[dict[str, Any]]:
    return HttpCall(method="GET", path=build_path("threads", thread_id, "state"), kind=dict[str, Any], under="state")
