"""The memory store keeps the contract. Clauses that need two objects or processes do not apply."""

from __future__ import annotations

from pathlib import Path

from tests.chance import SEED
from tests.conformance.stores import make_memory

from perdure.store import Store
from perdure.testing.conformance import StoreConformance


class TestMemory(StoreConformance):
    shared = False
    seed = SEED

    def make_store(self, folder: Path) -> Store:
        return make_memory(folder)
