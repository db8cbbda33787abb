"""What a chunker remembers of the checkpoint before."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from perdure.checkpoints.cutting import Layers

if TYPE_CHECKING:
    from perdure.checkpoints.pieces import Chunk, Piece

_NOTHING = object()


class Memo:
    """What was made of the value at one place of the tree, so that what did not change is not made again.

    It is in step with the last checkpoint: all chunks that it names are in use. Whatever is not seen in a checkpoint is
    forgotten, since its chunks are dropped with it.
    """

    __slots__ = ("inside", "is_large", "items", "kind", "layers", "piece", "pieces", "raws", "value")

    def __init__(self) -> None:
        self.is_large = False
        """Whether it was when last seen: then there is no use in trying whether it is small."""
        self.forget(None)

    def forget(self, kind: type | None) -> None:
        self.kind = kind
        self.value: Any = _NOTHING
        self.piece: Piece = (b"", ())
        self.inside: dict[str, Memo] = {}
        self.items: list[Any] = []
        """Of a list. Trees are never changed, so the same object is the same value."""
        self.raws: list[Any] = []
        """The same, in a form that can be compared."""
        self.pieces: list[Piece] = []
        self.layers: Layers[Chunk] | None = None

    def at(self, key: str) -> Memo:
        found = self.inside.get(key)
        if found is None:
            found = self.inside[key] = Memo()
        return found

    def keep(self, keys: Collection[str]) -> None:
        if len(self.inside) > len(keys):
            self.inside = {key: one for key, one in self.inside.items() if key in keys}
