"""Effects: everything one delivery did, kept apart until its superstep is merged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.checkpoints.format import decode_request, encode_request
from holdfast.codec import Codec, Encoded, Tree
from holdfast.events import WorkflowEvent
from holdfast.graph.isolation import isolated

DELETED: Any = type("Deleted", (), {"__repr__": lambda self: "DELETED"})()
"""Written in place of a value: the key goes."""


class Effects:
    """What a delivery sent, yielded, asked and wrote. Nobody else sees any of it before the merge."""

    __slots__ = ("events", "outputs", "private", "requests", "saved", "sends", "writes")

    def __init__(self) -> None:
        self.sends: list[tuple[Any, str | None]] = []
        self.outputs: list[WorkflowEvent] = []
        self.requests: list[WorkflowEvent] = []
        self.writes: list[tuple[str, Any]] = []
        """(key, value or DELETED), in order; for a key with a reducer the value is a contribution."""
        self.events: list[WorkflowEvent] = []
        """All of its events, for the thread's log."""
        self.saved: Any = None
        """The executor's hook dict after this delivery, frozen; None where it has no hooks."""
        self.private: dict[str, Any] | None = None
        """The executor's private state after this delivery; None if it was not touched."""


class Frost:
    """Freezes values so that no live object can change them, and thaws a copy each time one is needed.

    With a storage they are frozen into trees, which the checkpoint needs anyway; without one they are copied.
    """

    __slots__ = ("freeze", "thaw")

    def __init__(self, codec: Codec | None) -> None:
        self.freeze: Callable[[Any, str], Any]
        self.thaw: Callable[[Any, str], Any]
        if codec is not None:
            self.freeze = lambda value, path: Encoded(codec.encode(value, path))
            self.thaw = lambda frozen, path: codec.decode(frozen.tree, path)
        else:
            self.freeze = self.thaw = lambda value, path: isolated(value)


def encode_effects(effects: Effects, executor_id: str, codec: Codec) -> Tree:
    """For the journal. Raises UnsavableValue with the path of what cannot be stored."""
    path = f"effects of {executor_id!r}"
    tree: dict[str, Tree] = {
        "sends": [[codec.encode(data, f"{path}.sends"), target] for data, target in effects.sends],
        "outputs": [[event.type, codec.encode(event.data, f"{path}.outputs")] for event in effects.outputs],
        "requests": [encode_request(event, codec) for event in effects.requests],
        "writes": [
            [key] if value is DELETED else [key, codec.encode(value, f"state[{key!r}]")]
            for key, value in effects.writes
        ],
        "saved": None if effects.saved is None else effects.saved.tree,
    }
    if effects.private is not None:
        tree["private"] = codec.encode(effects.private, f"private state of {executor_id!r}")
    return tree


def decode_effects(tree: Tree, executor_id: str, codec: Codec) -> Effects:
    path = f"journal of {executor_id!r}"
    effects = Effects()
    effects.sends = [(codec.decode(data, path), target) for data, target in tree["sends"]]
    effects.outputs = [
        WorkflowEvent(kind, codec.decode(data, path), executor_id=executor_id) for kind, data in tree["outputs"]
    ]
    effects.requests = [decode_request(one, codec) for one in tree["requests"]]
    effects.writes = [(one[0], codec.decode(one[1], path) if len(one) == 2 else DELETED) for one in tree["writes"]]
    effects.saved = None if tree["saved"] is None else Encoded(tree["saved"])
    if "private" in tree:
        effects.private = codec.decode(tree["private"], path)
    return effects
