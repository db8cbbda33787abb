"""Effects: everything one delivery did, kept apart until its superstep is merged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perdure.checkpoints.encoding.parts import decode_request, encode_request
from perdure.codec import Codec, Encoded, Tree
from perdure.events import WorkflowEvent
from perdure.graph.sub_workflow import SubWorkflowResponseMessage
from perdure.records import SuspendedDelivery, WorkflowMessage

DELETED: Any = type("Deleted", (), {"__repr__": lambda self: "DELETED"})()
"""Written in place of a value: the key goes."""


class Replaced:
    """Written in place of a value that was changed where it stood: it replaces what was there, reducer or not."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Effects:
    """What a delivery sent, yielded, asked and wrote. Nobody else sees any of it before the merge.

    One is made for every delivery: what few of them have stands in the class, not in each instance.
    """

    saved: Any = None
    """The executor's hook dict after this delivery, frozen; None where it has no hooks."""
    private: dict[str, Any] | None = None
    """The executor's private state after this delivery; None if it was not touched."""
    is_settled = False
    """Whether what was changed in place has been added to the writes."""
    is_undone = False
    """Whether what the handler did is not to count: it failed, or has to wait."""

    is_plain = True
    """Whether it did nothing of what follows, as almost always. Set by `also` alone."""
    message: WorkflowMessage | None = None
    """The delivery itself, where it is needed again."""
    suspended: SuspendedDelivery | None = None
    """Set if the delivery waits: then it did nothing yet but ask, and runs again later."""
    withdrawn: tuple[str, ...] = ()
    """Requests that it had asked and does not wait for any more."""
    is_start = False
    """Whether the message starts a sub-workflow."""
    answers: tuple[SubWorkflowResponseMessage, ...] = ()
    """For sub-workflows that were started earlier."""
    is_isolated = False
    """It failed, and fan-ins go on without it."""
    sent_as: str | None = None
    """The executor that it stands in for, whose edges its messages follow."""
    forwarded_to: str | None = None
    """It failed, and this executor gets its message."""

    usage: Mapping[str, int] | None = None
    """What it adds to the counts of the thread."""
    requests: Sequence[WorkflowEvent] = ()
    writes: Sequence[tuple[str, Any]] = ()
    """(key, value, DELETED or Replaced), in order; for a key with a reducer a value is a contribution."""

    def __init__(self) -> None:
        self.sends: list[tuple[Any, str | None]] = []
        self.outputs: list[WorkflowEvent] = []
        self.events: list[WorkflowEvent] = []
        """All of its events, for the thread's log."""

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
        """Set what few deliveries do: nothing of it is looked at in those that are plain."""
        for name, value in special.items():
            if name not in _SPECIAL:
                raise AttributeError(f"{name!r} is nothing special")
            setattr(self, name, value)
        self.is_plain = self.is_plain and not any(special.values())


def add_counts(counts: Mapping[str, int] | None, more: Mapping[str, int]) -> dict[str, int]:
    """The sum, name by name."""
    total = dict(counts or {})
    for name, count in more.items():
        total[name] = total.get(name, 0) + count
    return total


_SPECIAL = ("message", "suspended", "withdrawn", "is_start", "answers", "is_isolated", "forwarded_to")


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
    if effects.usage:
        tree["usage"] = dict(effects.usage)
    if effects.answers:
        tree["answers"] = [
            [codec.encode(one.data, f"{path}.answers"), encode_request(one.source_event, codec)]
            for one in effects.answers
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
    """`message` is the delivery whose effects they are, which the journal does not repeat."""
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
