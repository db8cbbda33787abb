"""What differs between two checkpoints: paths added, removed and changed.

Checkpoints are compared as trees, as they are stored, so types that nobody declared here are compared like any other. A
path is read from the checkpoint: `state['notes'][3].author` is `checkpoint.state['notes'][3].author`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import takewhile
from reprlib import Repr
from typing import Any, Literal

import msgspec

from perdure.checkpoints.checkpoint import Counters, WorkflowCheckpoint
from perdure.checkpoints.encoding.checkpoint import tool_codec
from perdure.codec import Encoded, Tree
from perdure.codecs.json_codec import BUILTIN_ENCODERS, class_coder, registered_coder
from perdure.codecs.types import TypeRegistry, registered
from perdure.codecs.values.annotations import annotation_encoder, is_annotation_type
from perdure.codecs.values.containers import Opaque, opaque_tree
from perdure.codecs.walk import EncodeFn, Encoders, Refusal, encode_fields
from perdure.errors import UnreadableValue, UnsavableValue
from perdure.events import WorkflowEvent
from perdure.names import stable_name
from perdure.records import Record, SuspendedDelivery

# ---------------------------------------------------------------- comparing


_SIDE_BY_SIDE = 500
"""Lists whose parts that differ are longer are compared item by item, not for what moved: that would take too long."""


def value_of(tree: Tree) -> Any:
    try:
        return tool_codec().decode(tree, "value")
    except UnreadableValue:  # of another serializer, or its class has changed
        return tree


Kind = Literal["added", "removed", "changed"]
Tell = Callable[[str, Kind, Tree, Tree], None]
"""Told of one path: that of a removed value is of the old tree, any other of the new one; then the values."""


def compare(old: Tree, new: Tree, old_path: str, new_path: str, tell: Tell) -> None:
    """Tell what differs, in the order of the paths.

    Applied in three rounds it makes the new tree of the old one: what was removed goes, the last first; what was added
    is put in; what changed is replaced.
    """
    before, after = (None, None) if _kind(old) != _kind(new) else (_inside(old), _inside(new))
    if before is None or after is None:
        if _bytes(old) != _bytes(new):
            tell(new_path, "changed", old, new)
        return
    for step, item in before.named.items():
        if step in after.named:
            compare(item, after.named[step], old_path + step, new_path + step, tell)
        else:
            tell(old_path + step, "removed", item, None)
    for step, item in after.named.items():
        if step not in before.named:
            tell(new_path + step, "added", None, item)
    _compare_items(before.items, after.items, old_path, new_path, tell)
    _compare_members(before.members, after.members, old_path, new_path, tell)


def _compare_items(old: Sequence[Tree], new: Sequence[Tree], old_path: str, new_path: str, tell: Tell) -> None:
    for old_first, old_end, new_first, new_end in _replaced([*map(_bytes, old)], [*map(_bytes, new)]):
        both = min(old_end - old_first, new_end - new_first)
        for at in range(both):
            before, after = f"{old_path}[{old_first + at}]", f"{new_path}[{new_first + at}]"
            compare(old[old_first + at], new[new_first + at], before, after, tell)
        for at in range(old_first + both, old_end):
            tell(f"{old_path}[{at}]", "removed", old[at], None)
        for at in range(new_first + both, new_end):
            tell(f"{new_path}[{at}]", "added", None, new[at])


def _replaced(old: list[bytes], new: list[bytes]) -> Iterator[tuple[int, int, int, int]]:
    """Which parts of two lists stand in each other's place."""
    shorter = min(len(old), len(new))
    first = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    left = shorter - first
    last = next((at for at in range(left) if old[-1 - at] != new[-1 - at]), left)
    old, new = old[first : len(old) - last], new[first : len(new) - last]
    if not old or not new or max(len(old), len(new)) > _SIDE_BY_SIDE:
        yield first, first + len(old), first, first + len(new)
        return
    for kind, old_first, old_end, new_first, new_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            yield first + old_first, first + old_end, first + new_first, first + new_end


def _compare_members(old: Sequence[Tree], new: Sequence[Tree], old_path: str, new_path: str, tell: Tell) -> None:
    before, after = {_bytes(one): one for one in old}, {_bytes(one): one for one in new}
    for key, one in before.items():
        if key not in after:
            tell(f"{old_path}{{{_key(one)}}}", "removed", one, None)
    for key, one in after.items():
        if key not in before:
            tell(f"{new_path}{{{_key(one)}}}", "added", None, one)


def _bytes(tree: Tree) -> bytes:
    """The order of a dict's keys is no difference; whether a number is an int is one."""
    return msgspec.json.encode(tree, order="deterministic")


# ---------------------------------------------------------------- what a tree is made of


@dataclass(frozen=True)
class _Inside:
    named: dict[str, Tree] = field(default_factory=dict)
    """By what follows in a path: `['notes']`, `.author`."""
    items: Sequence[Tree] = ()
    members: Sequence[Tree] = ()
    """Of a set."""


def _kind(tree: Tree) -> str:
    if type(tree) is dict:
        return str(tree.get("$type", "dict"))
    return type(tree).__name__


def _inside(tree: Tree) -> _Inside | None:
    """None for what is compared as a whole."""
    if type(tree) is list:
        return _Inside(items=tree)
    if type(tree) is not dict:
        return None
    tag = tree.get("$type")
    if tag is None:
        return _Inside({f"[{key!r}]": item for key, item in tree.items()})
    if tag in ("tuple", "deque"):
        return _Inside(items=tree["items"])
    if tag in ("set", "frozenset"):
        return _Inside(members=tree["items"])
    if tag in ("dict", "defaultdict", "ordereddict", "counter"):
        return _Inside(_pairs(tree["items"] if "items" in tree else tree["$items"]))
    if ":" not in tag or "$value" in tree or tree.keys() == {"$type", "name"}:  # the last: an enum
        return None
    return _object(tag, tree)


def _object(tag: str, tree: dict[str, Tree]) -> _Inside | None:
    named: dict[str, Tree] = {}
    for key, item in tree.items():
        if key in ("$attributes", "$extra", "$private") and type(item) is dict:
            named |= {f".{name}": one for name, one in item.items()}
        elif key not in ("$type", "$items"):
            named[f".{key}"] = item
    if "$items" not in tree:
        return _Inside(named)
    cls = _class_of(tag)
    if cls is None:  # these may be pairs, items, or members
        return None
    if issubclass(cls, dict):
        return _Inside({**named, **_pairs(tree["$items"])})
    if issubclass(cls, set | frozenset):
        return _Inside(named, members=tree["$items"])
    return _Inside(named, items=tree["$items"])


def _class_of(tag: str) -> type | None:
    try:
        return TypeRegistry(lenient=True).resolve(tag)
    except Refusal:  # its module cannot be imported any more
        return None


def _pairs(pairs: Sequence[tuple[Tree, Tree]]) -> dict[str, Tree]:
    named: dict[str, Tree] = {}
    for key, item in pairs:
        step = f"[{_key(key)}]"
        named[step if step not in named else f"[{_bytes(key).decode()}]"] = item  # two keys may look alike
    return named


def _key(tree: Tree) -> str:
    try:
        return repr(value_of(tree))
    except Exception:  # noqa: BLE001  # a user's __repr__ may raise anything
        return _bytes(tree).decode()


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
