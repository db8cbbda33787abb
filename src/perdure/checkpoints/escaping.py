"""Objects of users' own that look like references to chunks, and are not."""

from __future__ import annotations

import re

from perdure.codec import Tree

RESERVED = frozenset({"$ref", "$list", "$dict", "$text", "$plain"})
"""First keys of objects that are not a user's. One of a user's own that has such a key is stored as `$plain`."""
_RESERVED = re.compile(rb'\{"\$(?:ref|list|dict|text|plain)":')


def looks_like_chunks(data: bytes) -> bool:
    """Whether there is an object in the JSON that would be taken for a reference."""
    return b'{"$' in data and _RESERVED.search(data) is not None


def escaped(tree: Tree) -> Tree:
    """The same, in which nothing looks like a reference."""
    if type(tree) is list:
        return [escaped(item) for item in tree]
    if type(tree) is not dict:
        return tree
    if next(iter(tree), "") in RESERVED:
        return {"$plain": [[key, escaped(item)] for key, item in tree.items()]}
    return {key: escaped(item) for key, item in tree.items()}
