"""Two trees compared: which paths were added, removed and changed. Lists are matched, so that an item that was put in
moves the others and changes none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, Literal

import msgspec

from perdure.checkpoints.format import tool_codec
from perdure.codec import Tree
from perdure.codecs.refusal import Refusal
from perdure.codecs.types import TypeRegistry
from perdure.errors import UnreadableValue

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
