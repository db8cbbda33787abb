from __future__ import annotations

import pytest

from perdure.codecs import from_bytes, to_bytes
from perdure.errors import UnreadableValue


def test_a_tree_comes_back_from_its_bytes() -> None:
    tree = {"a": [1, 2.5, "é", None, True, {}], "b": -0.0}
    assert from_bytes(to_bytes(tree), "state") == tree


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[1,]",
        b"NaN",
        b"1 2",
        b'"\\ud800"',
        b"\xff",
        b'"\xed\xa0\x80"',
        b"[" * 100_000,
        b"1" * 5_000,
        b"1e999",
    ],
    ids=lambda data: repr(data[:12]),
)
def test_bytes_that_are_not_json_are_unreadable(data: bytes) -> None:
    with pytest.raises(UnreadableValue, match=r"Cannot read state\['x'\]: it is not valid JSON"):
        from_bytes(data, "state['x']")
