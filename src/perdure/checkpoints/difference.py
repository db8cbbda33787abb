"""What differs between two checkpoints: paths added, removed and changed.

Checkpoints are compared as trees, as they are stored, so types that nobody declared here are compared like any other. A
path is read from the checkpoint: `state['notes'][3].author` is `checkpoint.state['notes'][3].author`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from reprlib import Repr
from typing import Any

import msgspec

from perdure.checkpoints.checkpoint import Counters, WorkflowCheckpoint
from perdure.checkpoints.comparing import Kind, compare, value_of
from perdure.codec import Encoded, Tree
from perdure.codecs.annotations import annotation_encoder, is_annotation_type
from perdure.codecs.json_codec import BUILTIN_ENCODERS, class_coder, registered_coder
from perdure.codecs.opaque import Opaque, opaque_tree
from perdure.codecs.refusal import Refusal
from perdure.codecs.types import TypeRegistry, registered
from perdure.codecs.walk import EncodeFn, Encoders, encode_fields
from perdure.errors import UnsavableValue
from perdure.events import WorkflowEvent
from perdure.names import stable_name
from perdure.records import Record, SuspendedDelivery

_COMPARED = (
    "workflow_name",
    "status",
    "iteration_count",
    "state",
    "messages",
    "pending_request_info_events",
    "outputs",
    "executors",
    "buffers",
    "answered",
    "suspended",
    "children",
    "counters",
    "run_kwargs",
    "metadata",
    "graph_signature",
    "migrations",
)
"""All that a checkpoint means. Its ids, number, time, thread and run always differ, and say nothing."""

_SHOWN = 80


@dataclass(frozen=True)
class Change:
    """One path that differs. That of a removed value is read from the old checkpoint, any other from the new one."""

    path: str
    kind: Kind
    old_tree: Tree = field(default=None, repr=False)
    """The old value as it is stored; None where it was added."""
    new_tree: Tree = field(default=None, repr=False)

    @property
    def old(self) -> Any:
        """The old value; of a type that nobody declared, an Opaque."""
        return value_of(self.old_tree)

    @property
    def new(self) -> Any:
        return value_of(self.new_tree)

    def __str__(self) -> str:
        if self.kind == "added":
            return f"+ {self.path} = {_shown(self.new)}"
        if self.kind == "removed":
            return f"- {self.path} = {_shown(self.old)}"
        return f"~ {self.path}: {' -> '.join(_both(self.old, self.new))}"


@dataclass(frozen=True)
class CheckpointDiff:
    """What differs between two checkpoints. As text: a line for each path."""

    before: str
    """The id of the checkpoint that was compared."""
    after: str
    """The one it was compared with."""
    changes: tuple[Change, ...]

    @property
    def is_empty(self) -> bool:
        return not self.changes

    @property
    def added(self) -> tuple[Change, ...]:
        return tuple(one for one in self.changes if one.kind == "added")

    @property
    def removed(self) -> tuple[Change, ...]:
        return tuple(one for one in self.changes if one.kind == "removed")

    @property
    def changed(self) -> tuple[Change, ...]:
        return tuple(one for one in self.changes if one.kind == "changed")

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)

    def __str__(self) -> str:
        return "\n".join(map(str, self.changes)) or "no difference"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON, the values as they are stored."""
        changes = []
        for one in self.changes:
            tree: dict[str, Any] = {"path": one.path, "kind": one.kind}
            if one.kind != "added":
                tree["old"] = one.old_tree
            if one.kind != "removed":
                tree["new"] = one.new_tree
            changes.append(tree)
        return {"before": self.before, "after": self.after, "changes": changes}


def difference(before: WorkflowCheckpoint, after: WorkflowCheckpoint) -> CheckpointDiff:
    """Raises UnsavableValue for a value that contains itself."""
    for one in (before, after):
        if not isinstance(one, WorkflowCheckpoint):
            raise TypeError(f"diff expects a WorkflowCheckpoint, got {one!r}. Load it first: await storage.load(id).")
    names = [*_COMPARED]
    if not (before.graph_signature and after.graph_signature):  # it is all that tells them apart then
        names.append("graph_signature_hash")
    changes: list[Change] = []

    def tell(path: str, kind: Kind, old: Tree, new: Tree) -> None:
        changes.append(Change(path, kind, old, new))

    walk = _encoders()
    for name in names:
        old, new = (_tree(getattr(one, name), name, walk) for one in (before, after))
        compare(old, new, name, name, tell)
    return CheckpointDiff(before.checkpoint_id, after.checkpoint_id, tuple(changes))


# ---------------------------------------------------------------- as trees


def _tree(value: object, path: str, walk: Encoders) -> Tree:
    try:
        return walk[type(value)](value, walk, 0)
    except Refusal as refusal:
        raise UnsavableValue(refusal.path(path), refusal.reason, refusal.remedy) from refusal.__cause__


def _encoders() -> Encoders:
    """As those of the lenient codec. What only another serializer can store is compared by how it shows itself."""
    encode_annotation = annotation_encoder(TypeRegistry(lenient=True))

    def encoder_of(cls: type) -> EncodeFn:
        known = registered(cls)
        if known is not None:
            return registered_coder(known).encode
        if is_annotation_type(cls):
            return encode_annotation
        try:
            return class_coder(cls).encode
        except Refusal:
            return lambda value, walk, depth: {"$type": stable_name(cls), "$value": _repr(value)}

    own: dict[type, EncodeFn] = {
        Opaque: lambda value, walk, depth: opaque_tree(value),
        Encoded: lambda value, walk, depth: value.tree,
        Counters: _fields(Counters, "epoch"),
        Record: _fields(Record, "run_id"),
        SuspendedDelivery: _fields(SuspendedDelivery, "run_id"),
        WorkflowEvent: _fields(WorkflowEvent, "request_type", "replayed", "seq", "timestamp", "thread_id", "run_id"),
    }
    return Encoders({**BUILTIN_ENCODERS, **own}, encoder_of)


def _fields(cls: type[msgspec.Struct], *left_out: str) -> EncodeFn:
    """One of the engine's own: without what differs from run to run, or follows from the rest."""
    names = [name for name in cls.__struct_fields__ if name not in left_out]
    tag = stable_name(cls)

    def encode(value: Any, walk: Encoders, depth: int) -> Tree:
        pairs = [(name, getattr(value, name)) for name in names]
        return encode_fields(pairs, {"$type": tag}, value, walk, depth)

    return encode


# ---------------------------------------------------------------- as text


class _Short(Repr):
    """Knows values of types that nobody declared, too."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = _SHOWN

    def repr_Opaque(self, value: Opaque, level: int) -> str:
        fields = ", ".join(f"{key}={self.repr1(one, level - 1)}" for key, one in value.data.items())
        return f"{value.type.rpartition(':')[2]}({fields})"


def _shown(value: object) -> str:
    text = _repr(value, _Short().repr)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _repr(value: object, show: Callable[[object], str] = repr) -> str:
    try:
        return show(value)
    except Exception:  # noqa: BLE001  # a user's __repr__ may raise anything
        return f"<{type(value).__qualname__}>"


def _both(old: Any, new: Any) -> tuple[str, str]:
    """Of long texts that begin alike, what follows."""
    if isinstance(old, str) and isinstance(new, str):
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
        if same > _SHOWN // 2:
            return f"...{_shown(old[same - 10 :])}", f"...{_shown(new[same - 10 :])}"
    return _shown(old), _shown(new)
