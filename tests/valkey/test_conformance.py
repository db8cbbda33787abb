"""A store with Valkey beside it keeps every clause of the contract, whether Valkey is there or not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.store import Store
from holdfast.stores.accelerated import AcceleratedStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.valkey import Valkey
from holdfast.testing.conformance import StoreConformance

URL = "HOLDFAST_TRIED_VALKEY_URL"
"""Other processes make the store, too."""


@pytest.fixture(autouse=True)
def _url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    is_up = request.cls is TestWithValkey
    monkeypatch.setenv(URL, request.getfixturevalue("valkey_url") if is_up else "redis://127.0.0.1:1")
    yield


class TestWithValkey(StoreConformance):
    def make_store(self, folder: Path) -> Store:
        store = SqliteStore(folder / "threads.db", synchronous="OFF")
        return AcceleratedStore(store, Valkey(os.environ[URL]), str(folder))


class TestWithoutValkey(TestWithValkey):
    """It is not there."""
