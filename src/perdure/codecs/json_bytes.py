"""Trees to bytes and back."""

from __future__ import annotations

import msgspec

from perdure.codec import Tree
from perdure.errors import UnreadableValue


def to_bytes(tree: Tree) -> bytes:
    return msgspec.json.encode(tree)


def from_bytes(data: bytes | bytearray | memoryview | str, path: str) -> Tree:
    """Raises UnreadableValue, and nothing else, for anything that is not JSON: cut off, too deep, a huge number."""
    try:
        return msgspec.json.decode(data)
    except Exception as error:
        raise UnreadableValue(path, f"it is not valid JSON: {error}") from error
