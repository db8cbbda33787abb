"""What need not be encoded again: long lists to which something was added, the rest of which cannot have changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import is_
from typing import Any

from perdure.codec import Codec, Tree
from perdure.errors import UnsavableValue

LONG = 16
"""Items of a list that is worth remembering."""


class _Encoded:
    __slots__ = ("checked", "items", "tree")

    def __init__(self, items: list[Any], tree: list[Tree], checked: int) -> None:
        self.items = items
        self.tree = tree
        self.checked = checked
        """How many of the items are known not to change."""


class IncrementalEncoder:
    """Encodes a dict again and again. Items of its lists that are the same objects as before, and that `cannot_change`
    accepts, keep the trees they had; everything else is encoded each time, since user code may have changed it."""

    def __init__(self, cannot_change: Callable[[Any], bool]) -> None:
        self._cannot_change = cannot_change
        self._encoded: dict[str, _Encoded] = {}

    def encode(self, values: Mapping[str, Any], path: str, codec: Codec) -> Tree:
        """Raises UnsavableValue."""
        is_plain = all(type(key) is str and not key.startswith("$") for key in values)  # others need tags
        if not is_plain or not any(type(value) is list and len(value) > LONG for value in values.values()):
            self._encoded = {}
            return codec.encode(values, path)
        tree: dict[str, Tree] = {}
        before, self._encoded = self._encoded, {}
        for key, value in values.items():
            place = f"{path}[{key!r}]"
            if type(value) is list and len(value) > LONG:
                encoded = self._encode_list(value, before.get(key), place, codec)
                tree[key] = encoded.tree
                self._encoded[key] = encoded
            else:
                tree[key] = codec.encode(value, place)
        return tree

    def _encode_list(self, value: list[Any], before: _Encoded | None, path: str, codec: Codec) -> _Encoded:
        if before is not None and self._continues(before, value):
            same = len(before.items)
            try:
                added = codec.encode(value[same:], path) if same < len(value) else []
            except UnsavableValue:
                codec.encode(value, path)  # raises it again, with the item's place in the whole list
                raise
            return _Encoded(list(value), before.tree + added, before.checked)
        return _Encoded(list(value), codec.encode(value, path), 0)

    def _continues(self, before: _Encoded, value: list[Any]) -> bool:
        items = before.items
        if len(items) > len(value) or not all(map(is_, items, value)):
            return False
        while before.checked < len(items):
            if not self._cannot_change(items[before.checked]):
                return False
            before.checked += 1
        return True
