"""The differences between two checkpoints: paths added, removed and changed.

The comparison uses trees, as stores keep them, so it handles undeclared types like any other. A path starts at the
checkpoint: `state['notes'][3].author` is `checkpoint.state['notes'][3].author`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import takewhile
from reprlib import Repr
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from perdure.checkpoints.delta.chunk_types import same_ends
from perdure.checkpoints.encode import tool_codec
from perdure.codec import Encoded, Tree
from perdure.codecs.builtin_types import Opaque
from perdure.codecs.json_codec import JsonCodec
from perdure.codecs.types import TypeRegistry
from perdure.codecs.walk import EncodeFn, Encoders, Refusal, encode_fields
from perdure.errors import UnreadableValue
from perdure.errors.wording import short_repr
from perdure.events import WorkflowEvent
from perdure.names import stable_name
from perdure.records import Counters, Record, SuspendedDelivery

if TYPE_CHECKING:
    from perdure.checkpoints.checkpoint import WorkflowCheckpoint

_MAX_MATCHED_ITEMS = 500
"""Longer differing parts of lists are compared item by item: a search for moved items would take too long."""


def decode_value(tree: Tree) -> Any:
    try:
        return tool_codec().decode(tree, "value")
    except UnreadableValue:  # another serializer wrote it, or its class has changed
        return tree


Kind = Literal["added", "removed", "changed"]


def compare(old: Tree, new: Tree, old_path: str, new_path: str) -> Iterator[Change]:
    """The differences, in the order of the paths.

    The changes make the new tree out of the old one in three rounds: delete the removed values, the last first; insert
    the added ones; replace the changed ones.
    """
    before, after = (None, None) if _kind(old) != _kind(new) else (_inside(old), _inside(new))
    if before is None or after is None:
        if _bytes(old) != _bytes(new):
            yield Change(new_path, "changed", old, new)
        return
    for step, item in before.named.items():
        if step in after.named:
            yield from compare(item, after.named[step], old_path + step, new_path + step)
        else:
            yield Change(old_path + step, "removed", item)
    for step, item in after.named.items():
        if step not in before.named:
            yield Change(new_path + step, "added", new_tree=item)
    yield from _compare_items(before.items, after.items, old_path, new_path)
    yield from _compare_members(before.members, after.members, old_path, new_path)


def _compare_items(old: Sequence[Tree], new: Sequence[Tree], old_path: str, new_path: str) -> Iterator[Change]:
    for old_first, old_end, new_first, new_end in _find_replaced([*map(_bytes, old)], [*map(_bytes, new)]):
        both = min(old_end - old_first, new_end - new_first)
        for at in range(both):
            before, after = f"{old_path}[{old_first + at}]", f"{new_path}[{new_first + at}]"
            yield from compare(old[old_first + at], new[new_first + at], before, after)
        for at in range(old_first + both, old_end):
            yield Change(f"{old_path}[{at}]", "removed", old[at])
        for at in range(new_first + both, new_end):
            yield Change(f"{new_path}[{at}]", "added", new_tree=new[at])


def _find_replaced(old: list[bytes], new: list[bytes]) -> Iterator[tuple[int, int, int, int]]:
    """Ranges of the old list and the ranges of the new list that replace them."""
    first, last = same_ends(old, new)
    old, new = old[first : len(old) - last], new[first : len(new) - last]
    if not old or not new or max(len(old), len(new)) > _MAX_MATCHED_ITEMS:
        yield first, first + len(old), first, first + len(new)
        return
    for kind, old_first, old_end, new_first, new_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            yield first + old_first, first + old_end, first + new_first, first + new_end


def _compare_members(old: Sequence[Tree], new: Sequence[Tree], old_path: str, new_path: str) -> Iterator[Change]:
    before, after = {_bytes(member): member for member in old}, {_bytes(member): member for member in new}
    for key, member in before.items():
        if key not in after:
            yield Change(f"{old_path}{{{_key(member)}}}", "removed", member)
    for key, member in after.items():
        if key not in before:
            yield Change(f"{new_path}{{{_key(member)}}}", "added", new_tree=member)


def _bytes(tree: Tree) -> bytes:
    """Equal for dicts whose keys differ in order only; different for 1 and 1.0."""
    return msgspec.json.encode(tree, order="deterministic")


@dataclass(frozen=True)
class _Inside:
    named: dict[str, Tree] = field(default_factory=dict)
    """By the next step of a path: `['notes']`, `.author`."""
    items: Sequence[Tree] = ()
    members: Sequence[Tree] = ()
    """Of a set."""


def _kind(tree: Tree) -> str:
    return str(tree.get("$type", "dict")) if type(tree) is dict else type(tree).__name__


def _inside(tree: Tree) -> _Inside | None:
    """None for a value that is compared as a whole."""
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
            named |= {f".{name}": attribute for name, attribute in item.items()}
        elif key not in ("$type", "$items"):
            named[f".{key}"] = item
    if "$items" not in tree:
        return _Inside(named)
    try:
        cls = TypeRegistry(lenient=True).resolve(tag)
    except Refusal:  # its module can no longer be imported
        cls = None
    if cls is None:  # `$items` may be pairs, items, or members
        return None
    if issubclass(cls, dict):
        return _Inside({**named, **_pairs(tree["$items"])})
    if issubclass(cls, set | frozenset):
        return _Inside(named, members=tree["$items"])
    return _Inside(named, items=tree["$items"])


def _pairs(pairs: Sequence[tuple[Tree, Tree]]) -> dict[str, Tree]:
    named: dict[str, Tree] = {}
    for key, item in pairs:
        step = f"[{_key(key)}]"
        named[step if step not in named else f"[{_bytes(key).decode()}]"] = item  # two keys may have the same repr
    return named


def _key(tree: Tree) -> str:
    try:
        return repr(decode_value(tree))
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
"""The meaningful fields of a checkpoint. Its ids, number, time, thread and run always differ."""

_MAX_SHOWN_CHARS = 80


@dataclass(frozen=True)
class Change:
    """One path that differs. The path of a removed value belongs to the old checkpoint, any other to the new one."""

    path: str
    kind: Kind
    old_tree: Tree = field(default=None, repr=False)
    """The old value as stores keep it; None for an added path."""
    new_tree: Tree = field(default=None, repr=False)

    @property
    def old(self) -> Any:
        """The old value; an Opaque if its type is undeclared."""
        return decode_value(self.old_tree)

    @property
    def new(self) -> Any:
        return decode_value(self.new_tree)

    def __str__(self) -> str:
        if self.kind == "added":
            return f"+ {self.path} = {_to_short_text(self.new)}"
        if self.kind == "removed":
            return f"- {self.path} = {_to_short_text(self.old)}"
        return f"~ {self.path}: {' -> '.join(_both(self.old, self.new))}"


@dataclass(frozen=True)
class CheckpointDiff:
    """The differences between two checkpoints. `str()` gives a line for each path."""

    before: str
    """The id of the old checkpoint."""
    after: str
    """The id of the new checkpoint."""
    changes: tuple[Change, ...]

    @property
    def is_empty(self) -> bool:
        return not self.changes

    @property
    def added(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.kind == "added")

    @property
    def removed(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.kind == "removed")

    @property
    def changed(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.kind == "changed")

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)

    def __str__(self) -> str:
        return "\n".join(map(str, self.changes)) or "no difference"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON, the values as stores keep them."""
        changes = []
        for change in self.changes:
            tree: dict[str, Any] = {"path": change.path, "kind": change.kind}
            if change.kind != "added":
                tree["old"] = change.old_tree
            if change.kind != "removed":
                tree["new"] = change.new_tree
            changes.append(tree)
        return {"before": self.before, "after": self.after, "changes": changes}


def compare_checkpoints(before: WorkflowCheckpoint, after: WorkflowCheckpoint) -> CheckpointDiff:
    """Raises UnsavableValue for a value that contains itself."""
    names = [*_COMPARED]
    if not (before.graph_signature and after.graph_signature):  # then only the hash can differ
        names.append("graph_signature_hash")
    changes: list[Change] = []
    codec = _ComparingCodec()
    for name in names:
        old, new = (codec.encode(getattr(checkpoint, name), name) for checkpoint in (before, after))
        changes += compare(old, new, name, name)
    return CheckpointDiff(before.checkpoint_id, after.checkpoint_id, tuple(changes))


class _ComparingCodec(JsonCodec):
    """The lenient codec. A value that only another serializer can store is compared by its repr."""

    def __init__(self) -> None:
        super().__init__(lenient=True)
        self._encoders |= {
            Encoded: lambda value, walk, depth: value.tree,
            Counters: _fields(Counters, "epoch"),
            Record: _fields(Record, "run_id"),
            SuspendedDelivery: _fields(SuspendedDelivery, "run_id"),
            WorkflowEvent: _fields(
                WorkflowEvent, "request_type", "replayed", "seq", "timestamp", "thread_id", "run_id"
            ),
        }

    def encoder_of(self, cls: type) -> EncodeFn:
        try:
            return super().encoder_of(cls)
        except Refusal:
            return lambda value, walk, depth: {"$type": stable_name(cls), "$value": short_repr(value, sys.maxsize)}


def _fields(cls: type[msgspec.Struct], *ignored: str) -> EncodeFn:
    """The encoder of one of the engine's records, without fields that differ from run to run or follow from others."""
    names = [name for name in cls.__struct_fields__ if name not in ignored]
    tag = stable_name(cls)

    def encode(value: Any, walk: Encoders, depth: int) -> Tree:
        pairs = [(name, getattr(value, name, None)) for name in names]
        return encode_fields(pairs, {"$type": tag}, value, walk, depth)

    return encode


class _Short(Repr):
    """Also shows values of undeclared types."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = _MAX_SHOWN_CHARS

    def repr_Opaque(self, value: Opaque, level: int) -> str:
        fields = ", ".join(f"{key}={self.repr1(field_value, level - 1)}" for key, field_value in value.data.items())
        return f"{value.type.rpartition(':')[2]}({fields})"


def _to_short_text(value: object) -> str:
    return short_repr(value, _MAX_SHOWN_CHARS, _Short().repr)


def _both(old: Any, new: Any) -> tuple[str, str]:
    """The old and the new value as texts, without the common beginning of long texts."""
    if isinstance(old, str) and isinstance(new, str):
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
        if same > _MAX_SHOWN_CHARS // 2:
            return f"...{_to_short_text(old[same - 10 :])}", f"...{_to_short_text(new[same - 10 :])}"
    return _to_short_text(old), _to_short_text(new)
