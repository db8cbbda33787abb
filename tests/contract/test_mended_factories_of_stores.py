"""What makes a store for the conformance suite: one that takes no folder is one clear error, not one a clause."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.stores.memory.store import MemoryStore
from perdure.testing.conformance import validate


def without_a_folder() -> MemoryStore:
    return MemoryStore()


@pytest.mark.parametrize("factory", [MemoryStore, without_a_folder], ids=["a class", "a function"])
async def test_a_factory_that_takes_no_folder_is_refused_before_anything_is_tried(factory: Any) -> None:
    told: list[Any] = []
    with pytest.raises(TypeError, match=r"called with a folder: def make_store\(folder: Path\) -> Store"):
        await validate(factory, tell=told.append)
    assert told == []
