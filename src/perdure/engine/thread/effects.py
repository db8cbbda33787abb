"""Effects: all results of one delivery, separate from others until its superstep is merged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from perdure.checkpoints.decode import decode_request
from perdure.checkpoints.encode import encode_request
from perdure.codec import Codec, Encoded, Tree
from perdure.events import WorkflowEvent
from perdure.graph.graph import SubWorkflowResponseMessage
from perdure.isolation import is_immutable, isolate
from perdure.records import SuspendedDelivery, WorkflowMessage

DELETED: Any = type("Deleted", (), {"__repr__": lambda self: "DELETED"})()
"""Written in place of a value: deletes the key."""


class Replaced:
    """Written for a value that was changed in place: replaces the old value, even if the key has a reducer."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Effects(msgspec.Struct, eq=False):
    """Messages, outputs, requests and writes of a delivery. No other delivery sees them before the merge."""

    sends: list[tuple[Any, str | None]] = []
    outputs: list[WorkflowEvent] = []
    events: list[WorkflowEvent] = []
    """All of its events, for the thread's log."""

    saved: Any = None
    """The executor's hook dict after this delivery, frozen; None where it has no hooks."""
    private: dict[str, Any] | None = None
    """The executor's private state after this delivery; None if it was not touched."""
    is_settled: bool = False
    """Whether in-place changes have been added to the writes."""
    is_undone: bool = False
    """Whether the handler's work is discarded: it failed or was suspended."""

    is_plain: bool = True
    """Whether none of the fields below is set, as in most deliveries. Only `also` changes it."""
    message: WorkflowMessage | None = None
    """The delivery itself, where the merge needs it."""
    suspended: SuspendedDelivery | None = None
    """Set if the delivery waits: it has only made requests so far, and runs again later."""
    withdrawn: tuple[str, ...] = ()
    """Requests whose answers it no longer awaits."""
    is_start: bool = False
    """Whether the message starts a sub-workflow."""
    answers: tuple[SubWorkflowResponseMessage, ...] = ()
    """For sub-workflows that were started earlier."""
    is_isolated: bool = False
    """It failed, and fan-ins join without it."""
    sent_as: str | None = None
    """The executor that it stands in for, whose edges its messages follow."""
    forwarded_to: str | None = None
    """It failed, and this executor gets its message."""

    usage: Mapping[str, int] | None = None
    """Counts that it adds to the usage of the thread."""
    requests: Sequence[WorkflowEvent] = ()
    writes: Sequence[tuple[str, Any]] = ()
    """(key, value, DELETED or Replaced), in order; for a key with a reducer a value is a contribution."""

    def ask(self, requests: Iterable[WorkflowEvent]) -> None:
        self.requests = [*self.requests, *requests]

    def use(self, usage: Mapping[str, int] | None) -> None:
        if usage:
            self.usage = add_counts(self.usage, usage)

    def write(self, writes: Iterable[tuple[str, Any]]) -> None:
        if isinstance(self.writes, list):
            self.writes.extend(writes)
        else:
            self.writes = list(writes)

    def also(self, **special: Any) -> None:
        """Set rare fields. The merge does not read them in plain effects."""
        for name, value in special.items():
            if name not in _SPECIAL:
                raise AttributeError(f"{name!r} is not one of {', '.join(_SPECIAL)}")
            setattr(self, name, value)
        self.is_plain = self.is_plain and not any(special.values())


def own_event(event: WorkflowEvent, *, replayed: bool | None = None) -> WorkflowEvent:
    """The event with a copy of its data: a consumer must not change stored data through it. The event itself if nothing
    in it is mutable."""
    if event.terms is not None and not is_immutable(event.terms.default):
        event = msgspec.structs.replace(
            event, terms=msgspec.structs.replace(event.terms, default=isolate(event.terms.default))
        )
    if replayed is not None and event.replayed is not replayed:
        return msgspec.structs.replace(event, data=isolate(event.data), replayed=replayed)
    if is_immutable(event.data):
        return event
    return msgspec.structs.replace(event, data=isolate(event.data))


def add_counts(counts: Mapping[str, int] | None, more: Mapping[str, int]) -> dict[str, int]:
    """The sum, name by name."""
    total = dict(counts or {})
    for name, count in more.items():
        total[name] = total.get(name, 0) + count
    return total


_SPECIAL = ("message", "suspended", "withdrawn", "is_start", "answers", "is_isolated", "forwarded_to")


def encode_effects(effects: Effects, executor_id: str, codec: Codec) -> Tree:
    """The effects as a journal entry. Raises UnsavableValue with the path of a value that cannot be stored."""
    path = f"effects of {executor_id!r}"
    tree: dict[str, Tree] = {
        "sends": [[codec.encode(data, f"{path}.sends"), target] for data, target in effects.sends],
        "outputs": [[event.type, codec.encode(event.data, f"{path}.outputs")] for event in effects.outputs],
        "requests": [encode_request(event, codec) for event in effects.requests],
        "writes": [_encode_write(key, value, codec) for key, value in effects.writes],
        "saved": None if effects.saved is None else effects.saved.tree,
    }
    if effects.private is not None:
        tree["private"] = codec.encode(effects.private, f"private state of {executor_id!r}")
    if effects.usage:
        tree["usage"] = dict(effects.usage)
    if effects.answers:
        tree["answers"] = [
            [codec.encode(answer.data, f"{path}.answers"), encode_request(answer.source_event, codec)]
            for answer in effects.answers
        ]
    for part in ("is_start", "is_isolated", "forwarded_to", "withdrawn"):
        if getattr(effects, part):
            tree[part] = getattr(effects, part)
    return tree


def _encode_write(key: str, value: Any, codec: Codec) -> Tree:
    if value is DELETED:
        return [key, "deleted"]
    if isinstance(value, Replaced):
        return [key, "replaced", codec.encode(value.value, f"state[{key!r}]")]
    return [key, "written", codec.encode(value, f"state[{key!r}]")]


def _decode_write(key: str, kind: str, tree: Tree = None, *, path: str, codec: Codec) -> tuple[str, Any]:
    if kind == "deleted":
        return key, DELETED
    value = codec.decode(tree, path)
    return key, Replaced(value) if kind == "replaced" else value


def decode_effects(tree: Tree, executor_id: str, codec: Codec, message: WorkflowMessage | None = None) -> Effects:
    """The effects of a journal entry. `message` is their delivery, which the entry does not contain."""
    path = f"journal of {executor_id!r}"
    effects = Effects()
    effects.sends = [(codec.decode(data, path), target) for data, target in tree["sends"]]
    effects.outputs = [
        WorkflowEvent(kind, codec.decode(data, path), executor_id=executor_id) for kind, data in tree["outputs"]
    ]
    effects.requests = [decode_request(request, codec) for request in tree["requests"]]
    effects.writes = [_decode_write(*write, path=path, codec=codec) for write in tree["writes"]]
    effects.saved = None if tree["saved"] is None else Encoded(tree["saved"], codec)
    if "private" in tree:
        effects.private = codec.decode(tree["private"], path)
    effects.use(tree.get("usage"))
    effects.is_settled = True
    answers = (
        SubWorkflowResponseMessage(codec.decode(data, path), decode_request(request, codec))
        for data, request in tree.get("answers", ())
    )
    effects.also(
        message=message,
        is_start=bool(tree.get("is_start")),
        answers=tuple(answers),
        is_isolated=bool(tree.get("is_isolated")),
        forwarded_to=tree.get("forwarded_to"),
        withdrawn=tuple(tree.get("withdrawn", ())),
    )
    return effects
