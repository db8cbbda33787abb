"""Incremental encoding: of a long list that grew, only the new items are encoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import is_
from typing import Any

from perdure.codec import Codec, Tree
from perdure.errors import UnsavableValue

MIN_ITEMS = 16
"""Only lists with more items are worth the bookkeeping."""


class _EncodedList:
    __slots__ = ("checked", "items", "tree")

    def __init__(self, items: list[Any], tree: list[Tree], checked: int) -> None:
        self.items = items
        self.tree = tree
        self.checked = checked
        """How many of the items are known to be immutable."""


class IncrementalEncoder:
    """Encodes a dict in every commit. Items of its lists that are the same objects as before, and that `is_immutable`
    accepts, keep their trees; everything else is encoded each time, since user code may have changed it."""

    def __init__(self, is_immutable: Callable[[Any], bool]) -> None:
        self._is_immutable = is_immutable
        self._encoded: dict[str, _EncodedList] = {}

    def encode(self, values: Mapping[str, Any], path: str, codec: Codec) -> Tree:
        """Raises UnsavableValue."""
        is_plain = all(type(key) is str and not key.startswith("$") for key in values)  # other keys need tags
        if not is_plain or not any(type(value) is list and len(value) > MIN_ITEMS for value in values.values()):
            self._encoded = {}
            return codec.encode(values, path)
        tree: dict[str, Tree] = {}
        before, self._encoded = self._encoded, {}
        for key, value in values.items():
            item_path = f"{path}[{key!r}]"
            if type(value) is list and len(value) > MIN_ITEMS:
                encoded = self._encode_list(value, before.get(key), item_path, codec)
                tree[key] = encoded.tree
                self._encoded[key] = encoded
            else:
                tree[key] = codec.encode(value, item_path)
        return tree

    def _encode_list(self, value: list[Any], before: _EncodedList | None, path: str, codec: Codec) -> _EncodedList:
        if before is not None and self._continues(before, value):
            same = len(before.items)
            try:
                added = codec.encode(value[same:], path) if same < len(value) else []
            except UnsavableValue:
                codec.encode(value, path)  # raises it again, with the item's index in the whole list
                raise
            return _EncodedList(list(value), before.tree + added, before.checked)
        return _EncodedList(list(value), codec.encode(value, path), 0)

    def _continues(self, before: _EncodedList, value: list[Any]) -> bool:
        items = before.items
        if len(items) > len(value) or not all(map(is_, items, value)):
            return False
        while before.checked < len(items):
            if not self._is_immutable(items[before.checked]):
                return False
            before.checked += 1
        return True
