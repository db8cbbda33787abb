"""What a chunker remembers of a large dict: nothing for values that are cheaper to make again than to remember."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from perdure.checkpoints.delta.chunk_types import Memo
from perdure.checkpoints.delta.chunks import LONG_TEXT, Chunker

KEYS = 3000
SMALL_VALUES: dict[str, Any] = {
    "ints": 12345,
    "floats": 1.5,
    "bools": True,
    "nothing": None,
    "short texts": "short",
    "texts": "x" * LONG_TEXT,
}


def memos() -> int:
    gc.collect()
    return sum(type(item) is Memo for item in gc.get_objects())


def tree(value: Any) -> dict[str, Any]:
    return {"state": {"large": {f"key-{number}": value for number in range(KEYS)}}}


@pytest.mark.parametrize("value", SMALL_VALUES.values(), ids=SMALL_VALUES)
def test_a_key_with_a_small_value_is_not_remembered_by_itself(value: Any) -> None:
    chunker, before = Chunker(), memos()
    for number in (1, 2):
        chunker.pack(number, tree(value))
    assert memos() - before < 20


def test_a_key_that_becomes_small_is_forgotten() -> None:
    chunker, before = Chunker(), memos()
    chunker.pack(1, tree([1, 2, 3]))
    assert memos() - before > KEYS
    chunker.pack(2, tree(7))
    assert memos() - before < 20
