"""Effects: everything one delivery did, kept apart until its superstep is merged."""

from __future__ import annotations

from typing import Any

from holdfast.checkpoints.format import decode_request, encode_request
from holdfast.codec import Codec, Encoded, Tree
from holdfast.events import WorkflowEvent

DELETED: Any = type("Deleted", (), {"__repr__": lambda self: "DELETED"})()
"""Written in place of a value: the key goes."""


class Replaced:
    """Written in place of a value that was changed where it stood: it replaces what was there, reducer or not."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Effects:
    """What a delivery sent, yielded, asked and wrote. Nobody else sees any of it before the merge."""

    __slots__ = ("events", "outputs", "private", "requests", "saved", "sends", "writes")

    def __init__(self) -> None:
        self.sends: list[tuple[Any, str | None]] = []
        self.outputs: list[WorkflowEvent] = []
        self.requests: list[WorkflowEvent] = []
        self.writes: list[tuple[str, Any]] = []
        """(key, value, DELETED or Replaced), in order; for a key with a reducer a value is a contribution."""
        self.events: list[WorkflowEvent] = []
        """All of its events, for the thread's log."""
        self.saved: Any = None
        """The executor's hook dict after this delivery, frozen; None where it has no hooks."""
        self.private: dict[str, Any] | None = None
        """The executor's private state after this delivery; None if it was not touched."""


def encode_effects(effects: Effects, executor_id: str, codec: Codec) -> Tree:
    """For the journal. Raises UnsavableValue with the path of what cannot be stored."""
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


def decode_effects(tree: Tree, executor_id: str, codec: Codec) -> Effects:
    path = f"journal of {executor_id!r}"
    effects = Effects()
    effects.sends = [(codec.decode(data, path), target) for data, target in tree["sends"]]
    effects.outputs = [
        WorkflowEvent(kind, codec.decode(data, path), executor_id=executor_id) for kind, data in tree["outputs"]
    ]
    effects.requests = [decode_request(one, codec) for one in tree["requests"]]
    effects.writes = [_decode_write(*one, path=path, codec=codec) for one in tree["writes"]]
    effects.saved = None if tree["saved"] is None else Encoded(tree["saved"], codec)
    if "private" in tree:
        effects.private = codec.decode(tree["private"], path)
    return effects
