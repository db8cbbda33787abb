"""The contract of codecs: values in, trees of plain JSON out, and back.

A tree is what JSON can hold as it is: None, bool, int (64 bits), float (finite), str, list, and dict with
str keys. Everything above the stores speaks values; everything below speaks the bytes of a tree.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

Tree: TypeAlias = Any
"""None | bool | int | float | str | list[Tree] | dict[str, Tree] (mypy cannot unfold it quickly enough)."""


@dataclass(frozen=True)
class DeclaredTypes:
    """The types that a workflow lets a decoder build, beside the built-in set."""

    types: frozenset[type] = frozenset()
    """Declared classes: those in handler annotations, the types that they reach, and `allowed_types`."""
    names: frozenset[str] = frozenset()
    """Declared by name (`package.module:Qualname`), as the peers' `allowed_checkpoint_types` does."""
    packages: frozenset[str] = frozenset()
    """Top-level packages of the executors: data types defined in them are declared too."""

    def union(self, other: DeclaredTypes) -> DeclaredTypes:
        if self.types >= other.types and self.names >= other.names and self.packages >= other.packages:
            return self
        return DeclaredTypes(self.types | other.types, self.names | other.names, self.packages | other.packages)


class Codec(Protocol):
    """Turns values into trees and back, exactly: the decoded value is equal and of the same type."""

    def encode(self, value: object, path: str) -> Tree:
        """The tree of the value; it shares nothing with the value that user code could change.

        `path` names the value in messages: `state['report']`. Raises UnsavableValue with the path of the
        offending part: a type that `decode` would reject, a cycle, a value that no codec supports.
        """

    def decode(self, tree: Tree, path: str) -> Any:
        """The value. Raises UnreadableValue, and no other error, for any tree."""

    def for_types(self, declared: DeclaredTypes) -> Codec:
        """The same codec, limited to the built-in set and these types."""


def declare(*items: type | str | Iterable[type | str]) -> DeclaredTypes:
    """`allowed_types` as users write them: classes and `module:Qualname` strings. Raises TypeError."""
    entries = [entry for item in items for entry in ((item,) if isinstance(item, (type, str)) else item)]
    for entry in entries:
        if not isinstance(entry, type | str):
            raise TypeError(f"allowed_types expects classes and 'module:Qualname' strings, got {entry!r}.")
    types = frozenset(entry for entry in entries if isinstance(entry, type))
    return DeclaredTypes(types, frozenset(entry for entry in entries if isinstance(entry, str)))


@dataclass(frozen=True)
class Encoded:
    """An encoded value: a checkpoint stores its tree unchanged, and its codec decodes it."""

    tree: Tree
    codec: Codec
