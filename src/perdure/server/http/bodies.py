"""What clients send."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from perdure.server.agentflow.messages import MessageBody


class StopBody(msgspec.Struct, frozen=True):
    thread_id: str
    config: dict[str, Any] | None = None


class StateBody(msgspec.Struct, frozen=True):
    """Merged into the state: messages of `context` are added, None is passed over, `execution_meta` stays."""

    state: dict[str, Any]
    config: dict[str, Any] | None = None


class MessagesBody(msgspec.Struct, frozen=True):
    """Messages that are noted, and answered by nobody."""

    messages: list[MessageBody]
    metadata: dict[str, Any] | None = None
    config: dict[str, Any] | None = None


class RunBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new input, or answers to requests, or neither: then an interrupted thread goes on."""

    input: Any | UnsetType = UNSET
    responses: dict[str, Any] | None = None
    workflow: str | None = None
    """Of a new thread; the default where it is left out."""
    on_busy: Literal["reject", "enqueue"] = "reject"
    run_id: str | None = None
    """One that the client chose: by it, it finds out whether a request that broke has begun anything."""


class AnswerBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    value: Any
    run_id: str | None = None


class ForkBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    checkpoint_id: str | None = None
    """The head where it is left out."""
    thread_id: str | None = None
    """Of the new thread."""
    update_state: dict[str, Any] = {}
    remove_state: list[str] = []


class RewindBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    checkpoint_id: str


class PinBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    checkpoint_id: str | None = None
    """The head where it is left out."""
    is_pinned: bool = True


class PatchBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    update_state: dict[str, Any] = {}
    remove_state: list[str] = []
