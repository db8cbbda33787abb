"""Chunks: what later checkpoints share and what they write, and values that are easily mistaken for one another."""

from __future__ import annotations

from functools import cache
from math import log
from random import Random
from typing import Any

import pytest
from tests.property.changing_trees import PROSE
from tests.property.packed_threads import PackedThread, exact

from perdure.checkpoints.delta.chunks import LONG_TEXT, SMALL, SMALL_ROOT, WHOLE, Chunker, Packed
from perdure.names import digest_of


@cache
def megabyte() -> str:
    return "".join(Random(1).choices("abcdefghijklmnopqrstuvwxyz   .\n", k=1_000_000))


def kilobyte(seed: int) -> str:
    """Return a text of 1 KB that differs for each seed."""
    return f"{PROSE[seed % 50_000 :][:990]}{seed}"


def written(packed: Packed) -> int:
    """All bytes that the commit has for its checkpoint."""
    assert packed.root is not None
    return len(packed.root) + sum(map(len, packed.chunks.values())) + sum(map(len, packed.dropped))


def states(*values: Any) -> list[Packed]:
    """Pack each value as the whole state of a checkpoint, in order. The thread checks every invariant."""
    thread = PackedThread()
    return [thread.pack({"state": value}) for value in values]


# ---------------------------------------------------------------- what is written


@pytest.mark.parametrize("count", [10, 100, 1_000, 5_000])
def test_appending_1_kb_to_a_list_writes_it_and_one_small_node_per_level(count: int) -> None:
    items = [kilobyte(seed) for seed in range(count)]
    chunker = Chunker()
    chunker.pack(1, {"state": {"items": items}})
    over = 0
    for number in range(2, 22):
        added = kilobyte(10_000 + number)
        items = [*items, added]
        over += written(chunker.pack(number, {"state": {"items": items}})) - len(exact(added))
    levels = 2 + log(count, 4)
    assert over / 20 < 200 * levels


def test_appending_to_a_list_of_small_items_writes_a_few_hundred_bytes() -> None:
    items = [{"role": "user", "text": f"message {index}"} for index in range(10_000)]
    chunker = Chunker()
    chunker.pack(1, {"state": {"items": items}})
    packed = chunker.pack(2, {"state": {"items": [*items, {"role": "user", "text": "one more"}]}})
    assert written(packed) < 3_000


@pytest.mark.parametrize("at", [0, 1, 500_000, 999_999, 1_000_000])
def test_inserting_into_a_text_of_1_mb_writes_a_few_kb(at: int) -> None:
    text, chunker = megabyte(), Chunker()
    chunker.pack(1, {"state": {"text": text}})
    assert written(chunker.pack(2, {"state": {"text": f"{text[:at]}inserted{text[at:]}"}})) < 12_000


@pytest.mark.parametrize("at", [0, 25_000])
def test_inserting_into_a_list_of_50_000_ints_writes_a_few_kb(at: int) -> None:
    items = list(range(50_000))
    chunker = Chunker()
    chunker.pack(1, {"state": {"items": items}})
    assert written(chunker.pack(2, {"state": {"items": [*items[:at], -1, *items[at:]]}})) < 6_000


def test_sliding_window_writes_only_its_ends() -> None:
    items = [f"line {index}" for index in range(10_000)]
    chunker = Chunker()
    chunker.pack(1, {"state": {"items": items}})
    assert written(chunker.pack(2, {"state": {"items": [*items[1:], "new"]}})) < 6_000


def test_changing_one_key_of_a_large_dict_writes_a_few_kb() -> None:
    values = {f"key {index}": PROSE[index : index + 100] for index in range(3_000)}
    chunker = Chunker()
    chunker.pack(1, {"state": values})
    assert written(chunker.pack(2, {"state": {**values, "key 1500": "new"}})) < 6_000


def test_text_of_1_mb_in_several_places_is_stored_once() -> None:
    text, chunker = megabyte(), Chunker()
    first = chunker.pack(1, {"state": {"a": text, "b": text[:-1] + text[-1]}})
    assert 1_000_000 < written(first) < 1_100_000
    second = chunker.pack(2, {"state": {"b": text, "c": [text, {"inside": text[:-1] + text[-1]}], "d": 1}})
    assert written(second) < 1_000


@pytest.mark.parametrize("kind", [list, dict])
def test_large_list_or_dict_in_several_places_is_stored_once(kind: type) -> None:
    value: Any = {f"key {index}": PROSE[index : index + 50] for index in range(1_500)}
    value = value if kind is dict else list(value.values())
    first, second = states({"a": value, "b": kind(value)}, {"b": value, "c": [value, {"inside": kind(value)}], "d": 1})
    assert len(exact(value)) < written(first) < 1.25 * len(exact(value))
    assert written(second) < 1_000


def test_value_moved_to_another_key_or_to_the_events_is_not_written_again() -> None:
    thread, text, items = PackedThread(), PROSE[:50_000], [f"item {index}" for index in range(2_000)]
    thread.pack({"state": {"text": text, "items": items}})
    packed = thread.pack({"state": {"moved": items, "deeper": {"text": text}}, "outputs": [["output", "a", text]]})
    assert written(packed) < 1_000
    assert len(thread.pack_events([["output", "a", {"data": text}], ["output", "b", {"data": items}]])) < 1_000
    assert written(thread.pack({"state": {"moved": items, "deeper": {"text": text}}})) < 1_000


def test_graph_is_stored_once_and_again_when_it_changes() -> None:
    graph, other = b'{"graph_signature_hash":"a","nodes":[]}', b'{"graph_signature_hash":"b"}'
    thread = PackedThread()
    stored = [len(thread.pack({"version": "1"}, constant).chunks) for constant in (graph, graph, other, graph)]
    assert stored == [1, 0, 1, 1]


def test_a_commit_without_a_checkpoint_has_no_chunks_and_drops_none() -> None:
    chunker = Chunker()
    chunker.pack(1, {"state": {"text": PROSE[:9_000]}})
    assert chunker.pack(2, None) == Packed(None, {}, ())
    again = chunker.pack(3, {"state": {"text": PROSE[:9_000]}})
    assert (again.chunks, again.dropped) == ({}, ())


# ---------------------------------------------------------------- what must not be mistaken

LOOKALIKES = [1, True, 1.0, "1", 0, False, 0.0, -0.0, None, "", [], {}, [1], [True], [1.0], {"a": 1}, {"a": True}]


@pytest.mark.parametrize("count", [1, 40, 400])
def test_values_that_are_equal_in_python_but_not_in_json_are_kept_apart(count: int) -> None:
    states(*[{"items": [value] * count, "one": value, "in": {"a": value}} for value in LOOKALIKES])
    rest = [f"item {index}" for index in range(300)]
    states(*[{"items": [*rest, value]} for value in LOOKALIKES])
    states(*[{"items": [value, *rest]} for value in LOOKALIKES])


def test_text_that_replaces_another_text_is_continued_from_itself() -> None:
    first, short, other = PROSE[:20_000], PROSE[30_000:32_000], PROSE[35_000:55_000]
    states({"a": first}, {"a": short}, {"a": short + other})
    states({"a": first, "b": other}, {"a": other, "b": other}, {"a": other + short, "b": 1})
    states({"a": first}, {"a": "tiny"}, {"a": "tiny" + other})
    states({"a": first}, {"a": 1}, {"a": first + other})


@pytest.mark.parametrize("more", ["", PROSE[40_000:45_000]], ids=["as it was", "and more"])
def test_a_text_that_comes_back_is_stored_again(more: str) -> None:
    text = PROSE[30_000:50_000]
    others: list[Any] = ["tiny", PROSE[:2_000], PROSE[100:20_000], 1, [], {"a": 1}, None]
    for between in others:
        _, dropping, back = states({"a": text}, {"a": between}, {"a": text + more})
        assert dropping.dropped and back.chunks


@pytest.mark.parametrize("kind", [list, dict])
def test_a_list_or_dict_that_comes_back_is_stored_again(kind: type) -> None:
    value: Any = {f"key {index}": PROSE[index : index + 700] for index in range(40)}
    value = value if kind is dict else list(value.values())
    for between in ("tiny", [], {}, [1], {"a": 1}, {"$ref": 1}, 0, None):
        _, dropping, back = states({"a": value}, {"a": between}, {"a": value})
        assert dropping.dropped and back.chunks


@pytest.mark.parametrize("kind", [list, dict])
def test_truncated_list_or_dict_packs_like_a_new_value(kind: type) -> None:
    for end in range(120, 200):
        values: Any = {f"key {index}": index for index in range(200)}
        values = values if kind is dict else list(values)
        states({"a": values}, {"a": kind(list(values.items())[:end]) if kind is dict else values[:end]})


@pytest.mark.parametrize("edge", [SMALL, SMALL_ROOT, WHOLE, LONG_TEXT])
def test_values_that_cross_a_size_limit_come_back_unchanged(edge: int) -> None:
    sizes = [edge + by for by in (-60, -3, -2, -1, 0, 1, 2, 60)]
    sizes += sizes[::-1]
    states(*["x" * size for size in sizes])
    states(*["é" * (size // 2) for size in sizes])
    states(*[["x"] * (size // 4) for size in sizes])
    states(*[{f"{index:03}": index for index in range(size // 10)} for size in sizes])
    states(*[{"a": {"b": ["x" * size]}} for size in sizes])


@pytest.mark.parametrize("key", ["$ref", "$list", "$dict", "$text", "$of", "$plain", "depth"])
def test_user_value_that_looks_like_a_reference_stays_a_value(key: str) -> None:
    reference = f"{digest_of(b'x')}.1"
    for value in (reference, 1, [reference], {key: reference}, {key: {key: PROSE[:900]}}, PROSE[:900], PROSE[:9_000]):
        states({"a": {key: value, "depth": 0}}, {key: value}, [{key: value}] * 100, {"a": 1, key: value})
        states({**{f"key {index}": "x" * 100 for index in range(60)}, key: value, "b": PROSE[:900]})
        states({key: value, **{f"key {index}": "x" * 100 for index in range(60)}})
        PackedThread().pack({"version": "1"}, exact({"nodes": {key: value}}))
    for before in range(20, 50):  # the dict is cut somewhere, and a part of it may begin with the key
        many = {f"key {index}": "x" * 80 for index in range(50)}
        states({**dict(list(many.items())[:before]), key: "y" * 80, **many})


@pytest.mark.parametrize("depth", [10, 60, 150])
def test_deep_value_is_cut_like_a_shallow_value(depth: int) -> None:
    value: Any = PROSE[:2_000]
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    states({"deep": value}, {"deep": [value]})
