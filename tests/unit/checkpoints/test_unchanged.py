"""IncrementalEncoder: it skips only values that cannot have changed, and its result stays the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from perdure import UnsavableValue
from perdure.checkpoints.delta.recent import MIN_ITEMS, IncrementalEncoder
from perdure.codec import Codec, DeclaredTypes, Tree, declare
from perdure.codecs import JsonCodec
from perdure.isolation import is_fully_copied, is_immutable


@dataclass(frozen=True)
class Message:
    role: str
    text: str


@dataclass
class Note:
    text: str
    tags: list[str] = field(default_factory=list)


@dataclass
class SharesItself:
    text: str

    def __deepcopy__(self, memo: dict[int, Any]) -> SharesItself:
        return self


class CountingCodec:
    """A JsonCodec that counts the list items it receives."""

    def __init__(self) -> None:
        self._codec = JsonCodec(declare(Message, Note, SharesItself))
        self.items = 0

    def encode(self, value: object, path: str) -> Tree:
        self.items += len(value) if isinstance(value, list) else 0
        return self._codec.encode(value, path)

    def decode(self, tree: Tree, path: str) -> Any:
        return self._codec.decode(tree, path)

    def for_types(self, declared: DeclaredTypes) -> Codec:
        return self


def messages(count: int) -> list[Any]:
    return [Message("user", f"text {index}") for index in range(count)]


class Encoding:
    """Encodes a dict repeatedly and returns how many items the codec received."""

    def __init__(self, unchanged: IncrementalEncoder) -> None:
        self._unchanged = unchanged
        self.codec = CountingCodec()

    def __call__(self, **values: Any) -> int:
        self.codec.items = 0
        tree = self._unchanged.encode(values, "state", self.codec)
        count = self.codec.items
        assert tree == self.codec.encode(values, "state")
        return count


@pytest.fixture(params=[is_immutable, is_fully_copied], ids=lambda function: function.__name__)
def encoding(request: pytest.FixtureRequest) -> Encoding:
    return Encoding(IncrementalEncoder(request.param))


def test_only_added_items_are_encoded(encoding: Encoding) -> None:
    items = messages(100)
    assert encoding(items=items, other="x") == 100
    assert encoding(items=[*items, Message("user", "new")], other="y") == 1
    assert encoding(items=[*items, Message("user", "newer")], other="y") == 101  # its last one is another
    assert encoding(items=items) == 100
    assert encoding(items=items) == 0


def test_unchanged_list_keeps_its_tree() -> None:
    encoder, codec, items = IncrementalEncoder(is_fully_copied), CountingCodec(), messages(50)
    before = encoder.encode({"items": items, "others": items}, "state", codec)
    after = encoder.encode({"items": list(items), "others": [*items, Message("user", "new")]}, "state", codec)
    assert after["items"] is before["items"] and after["others"] is not before["others"]
    assert len(before["others"]) == 50


def test_list_appended_in_place_encodes_only_the_added_items(encoding: Encoding) -> None:
    items = messages(50)
    encoding(items=items)
    items.append(Message("user", "new"))
    assert encoding(items=items) == 1
    items[0] = Message("user", "another")
    assert encoding(items=items) == 51
    del items[-1]
    assert encoding(items=items) == 50


def test_mutable_values_are_encoded_each_time() -> None:
    encoding = Encoding(IncrementalEncoder(is_immutable))
    notes = [Note(f"text {index}") for index in range(50)]
    assert encoding(notes=notes) == 50
    notes[0].text = "changed"
    assert encoding(notes=notes) == 50
    notes[49].tags.append("changed")
    assert encoding(notes=[*notes, Note("new")]) == 51


def test_list_with_one_mutable_item_is_encoded_each_time(encoding: Encoding) -> None:
    items = messages(50)
    items[30] = SharesItself("text")
    assert encoding(items=items) == 50
    items[30].text = "changed"
    assert encoding(items=items) == 50
    items = [*items, Message("user", "new")]
    assert encoding(items=items) == 51
    items[30].text = "changed again"
    assert encoding(items=items) == 51


def test_mutable_item_after_immutable_items_is_detected(encoding: Encoding) -> None:
    items = messages(50)
    encoding(items=items)
    encoding(items=items)
    added = SharesItself("text")
    items = [*items, added]
    assert encoding(items=items) == 1
    added.text = "changed"
    assert encoding(items=items) == 51


def test_tuple_with_a_mutable_item_is_encoded_each_time() -> None:
    encoding = Encoding(IncrementalEncoder(is_immutable))
    inside = ["text"]
    items = [("user", inside)] * 40
    encoding(items=items)
    inside.append("changed")
    assert encoding(items=items) == 40


def test_values_that_are_equal_but_not_the_same_are_encoded(encoding: Encoding) -> None:
    for item in (1, True, 1.0, "1", b"1", 0.0, -0.0, None):
        assert encoding(items=[item] * 40) == 40


def test_the_lists_of_two_keys_are_not_mixed_up(encoding: Encoding) -> None:
    first, second = messages(20), messages(30)
    encoding(first=first, second=second)
    assert encoding(first=second, second=first) == 50
    assert encoding(first=second, second=first) == 0
    assert encoding(second=first) == 0
    assert encoding(first=second, second=first) == 30  # what is not seen once is forgotten


@pytest.mark.parametrize("count", [0, 1, MIN_ITEMS, MIN_ITEMS + 1])
def test_short_and_shrinking_lists_are_encoded_correctly(encoding: Encoding, count: int) -> None:
    items = messages(count)
    for _ in range(3):
        encoding(items=items)
    encoding(items=[*items, Message("user", "new")])
    encoding(items=items)
    encoding()


@pytest.mark.parametrize("key", ["$type", "$ref", "$", 1, ("a",), b"x", None])
def test_keys_that_need_tags_are_encoded_correctly(key: Any) -> None:
    unchanged, codec = IncrementalEncoder(is_immutable), CountingCodec()
    items = messages(40)
    for values in ({key: 1, "items": items}, {"items": items}, {"items": items, key: items}):
        assert unchanged.encode(values, "state", codec) == codec.encode(values, "state")


class AList(list[Any]):
    pass


def test_subclasses_of_list_are_left_to_the_codec(encoding: Encoding) -> None:
    values = AList(messages(40))
    with pytest.raises(UnsavableValue):
        encoding(items=values)


@pytest.mark.parametrize("place", [0, 25, 40])
def test_unsavable_item_is_named_by_its_index_in_the_whole_list(encoding: Encoding, place: int) -> None:
    items = messages(40)
    encoding(items=items)
    bad = [*items[:place], {"inside": [object()]}, *items[place:]]
    with pytest.raises(UnsavableValue, match=rf"state\['items'\]\[{place}\]\['inside'\]\[0\]"):
        encoding(items=bad)
    assert encoding(items=[*items, Message("user", "new")]) in (1, 41)


def test_unsavable_value_beside_a_long_list_is_named(encoding: Encoding) -> None:
    with pytest.raises(UnsavableValue, match=r"state\['report'\]"):
        encoding(items=messages(40), report=object())


def test_returned_tree_does_not_grow() -> None:
    unchanged, codec = IncrementalEncoder(is_immutable), JsonCodec()
    items: list[Any] = [f"text {index}" for index in range(40)]
    first = unchanged.encode({"items": items}, "state", codec)
    unchanged.encode({"items": [*items, "new"]}, "state", codec)
    assert len(first["items"]) == 40
