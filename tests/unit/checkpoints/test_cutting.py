"""Cutting by content: texts and lists are cut at the same places, for any content before them."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest
from tests.property.changing_trees import PROSE

from perdure.checkpoints.delta.chunk_types import (
    MAX_NODE,
    MAX_TEXT,
    MIN_NODE,
    MIN_TEXT,
    Chunk,
    Layers,
    Piece,
    cut_text,
    find_cuts,
)
from perdure.names import digest_of


def make_chunk(data: bytes, kids: tuple[Chunk, ...]) -> Chunk:
    return Chunk(digest_of(data), 1, len(data), kids)


def elements(*texts: bytes) -> list[Piece]:
    return [(text, ()) for text in texts]


def numbers(count: int) -> list[Piece]:
    return elements(*[b"%d" % (index * 7919) for index in range(count)])


# ---------------------------------------------------------------- texts


@pytest.mark.parametrize("size", [0, 1, MIN_TEXT, MIN_TEXT + 1, MAX_TEXT, MAX_TEXT + 1, 50_000])
def test_the_parts_of_a_text_are_the_text(size: int) -> None:
    for text in (PROSE[:size], "x" * size, "\n" * size, "é" * size):
        parts = cut_text(text, 0)
        assert "".join(parts) == text
        assert len(parts) == 1 or all(parts)


@pytest.mark.parametrize(
    "text", [PROSE, "x" * 60_000, "\n" * 60_000, "abc. " * 9_000], ids=["prose", "x", "lines", "."]
)
def test_parts_are_neither_tiny_nor_huge(text: str) -> None:
    parts = cut_text(text, 0)
    assert all(MIN_TEXT <= len(part) <= MAX_TEXT for part in parts[:-1])
    assert len(parts[-1]) <= MAX_TEXT


def test_a_text_that_grows_is_cut_as_before_up_to_its_last_part() -> None:
    random = Random(5)
    text = PROSE[:3_000]
    while len(text) < 50_000:
        before = cut_text(text, 0)
        text += PROSE[: random.choice((1, 2, 3, 900, 4_000))] + random.choice(("", "\n", "abc", "abc.", "abc. "))
        assert cut_text(text, 0)[: len(before) - 1] == before[:-1]
        assert cut_text(text, len("".join(before[:-1]))) == cut_text(text, 0)[len(before) - 1 :]


def characters(alphabet: str, size: int = 150_000) -> str:
    return "".join(Random(3).choices(alphabet, k=size))


def one_line_json() -> str:
    random = Random(4)
    letters = characters("abcdefghijklmnopqrstuvwxyz", 9_000)
    words = [letters[at : at + random.randint(2, 9)] for at in range(0, 8_000, 9)]
    rows = [{random.choice(words): random.choice(words), "count": random.randrange(1_000)} for _ in range(4_000)]
    return json.dumps(rows)


TEXTS: dict[str, Callable[[], str]] = {
    "prose": lambda: characters("abcdefghijklmnopqrstuvwxyz   .\n"),
    "base64": lambda: characters("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"),
    "hex": lambda: characters("0123456789abcdef"),
    "digits": lambda: characters("0123456789"),
    "one line of JSON": one_line_json,
    "Russian": lambda: characters("абвгдеёжзийклмнопрстуфхцчшщъыьэюя     ,."),
    "Chinese": lambda: characters("".join(map(chr, range(0x4E00, 0x5600))) + "，。" * 60),
    "emoji": lambda: characters("".join(map(chr, range(0x1F300, 0x1F600)))),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_an_insertion_changes_a_few_parts_of_a_text_of_any_kind(kind: str) -> None:
    text = TEXTS[kind]()
    before = set(cut_text(text, 0))
    for at in (0, len(text) // 2):
        after = cut_text(f"{text[:at]}x{text[at:]}", 0)
        assert sum(len(part) for part in after if part not in before) < 6 * MAX_TEXT


# ---------------------------------------------------------------- lists


def test_nodes_end_at_content_cuts_and_are_neither_tiny_nor_huge() -> None:
    items = numbers(5_000)
    ends = [*find_cuts(items, 0)]
    sizes = [sum(len(inline) + 1 for inline, _ in items[start:end]) for start, end in pairwise([0, *ends])]
    longest = max(len(inline) + 1 for inline, _ in items)
    assert ends[-1] == len(items)
    assert all(MIN_NODE <= size < MAX_NODE + longest for size in sizes[:-1])


def test_a_list_is_cut_the_same_from_any_of_its_cuts_on() -> None:
    items = numbers(2_000)
    ends = [*find_cuts(items, 0)]
    for start in ends[:-1:17]:
        assert [*find_cuts(items, start)] == [end for end in ends if end > start]


def test_identical_elements_are_cut() -> None:
    ends = [*find_cuts(elements(*[b"null"] * 10_000), 0)]
    assert max(end - start for start, end in pairwise(ends)) <= MAX_NODE // 5 + 1


def test_element_larger_than_a_node_is_a_node_alone() -> None:
    assert [*find_cuts(elements(b"x" * MAX_NODE, b"y" * MAX_NODE), 0)] == [1, 2]
    assert [*find_cuts(elements(b"x"), 0)] == [1]


def build_new(items: list[Piece]) -> tuple[str, int]:
    top, height = Layers().update(items, (0, 0), b"[%b]", make_chunk)
    return top.digest, height


@pytest.mark.parametrize("place", ["end", "beginning", "middle"])
def test_updated_tree_equals_a_newly_built_tree(place: str) -> None:
    random = Random(place)
    items, continued, same = numbers(3), Layers(), (0, 0)
    for _ in range(100):
        top, height = continued.update(items, same, b"[%b]", make_chunk)
        assert (top.digest, height) == build_new(items)
        first, last = sorted((random.randint(0, len(items)), random.randint(0, len(items))))
        first = 0 if place == "beginning" else first
        last = len(items) if place == "end" else last
        count = random.choice((0, 1, 1, 2, 300)) if len(items) < 3_000 else 0
        more = elements(*[b"%d" % random.randrange(10**6) for _ in range(count)])
        same = (first, len(items) - last)
        items = (items[:first] + more + items[last:]) or numbers(3)
        same = same if sum(same) <= len(items) else (0, 0)


def test_only_the_nodes_around_a_change_are_made() -> None:
    items, made = numbers(20_000), list[bytes]()

    def make(data: bytes, kids: tuple[Chunk, ...]) -> Chunk:
        made.append(data)
        return make_chunk(data, kids)

    layers = Layers()
    layers.update(items, (0, 0), b"[%b]", make)
    for first, more, last in ((20_000, 1, 0), (10_000, 1, 10_001), (0, 0, 19_999), (0, 1, 20_000)):
        made.clear()
        items = items[:first] + elements(*[b"-1"] * more) + items[len(items) - last :]
        layers.update(items, (first, last), b"[%b]", make)
        assert len(made) < 40
