"""The opt-in codec for values that no other codec can store. It trusts stored data completely."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

from perdure.codec import DeclaredTypes, Tree
from perdure.codecs.builtin_types import from_base64, to_base64
from perdure.errors import UnreadableValue, UnsavableValue


class PickleSerializer:
    """Stores anything that pickle can. Loading runs the code that the stored data names."""

    def __init__(self) -> None:
        warnings.warn(
            "PickleSerializer runs stored data to load it: anyone who can write to the storage can run code here. Use "
            "it only with a storage that no one else can write to; allowed_types=[...] needs no pickle.",
            UserWarning,
            stacklevel=2,
        )

    def encode(self, value: object, path: str) -> Tree:
        try:
            data = pickle.dumps(value, protocol=5)
        except Exception as error:
            raise UnsavableValue(path, f"pickle rejected it: {type(error).__name__}: {error}") from error
        return {"$pickle": to_base64(data)}

    def decode(self, tree: Tree, path: str) -> Any:
        if type(tree) is not dict or list(tree) != ["$pickle"] or type(tree["$pickle"]) is not str:
            raise UnreadableValue(
                path, "it was not stored with PickleSerializer", "Load it with the codec it was saved with."
            )
        try:
            return pickle.loads(from_base64(tree["$pickle"]))
        except Exception as error:
            raise UnreadableValue(path, f"pickle failed: {type(error).__name__}: {error}") from error

    def for_types(self, declared: DeclaredTypes) -> PickleSerializer:
        """Itself: pickle cannot be limited to types."""
        return self
