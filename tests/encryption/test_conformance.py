"""An encrypted store keeps every clause of the contract, whatever is below it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.encryption.places import OLD

from perdure.codecs.aes_gcm import AesGcm
from perdure.store import Store
from perdure.stores.encrypted.store import EncryptedStore
from perdure.stores.file.store import FileStore
from perdure.stores.memory.store import MemoryStore
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing.conformance import validate
from perdure.testing.conformance.suite import all_clauses

OF_THE_STORE_BELOW = ("crash", "damage")
"""Families that take long, and are about what lies below; it is tried without a key elsewhere."""
FAMILIES = sorted({one.family for one in all_clauses()} - {*OF_THE_STORE_BELOW})


def in_memory(folder: Path) -> Store:
    return EncryptedStore(MemoryStore(), AesGcm(OLD))


def in_sqlite(folder: Path) -> Store:
    return EncryptedStore(SqliteStore(folder / "threads.db", synchronous="NORMAL"), AesGcm(OLD))


def in_files(folder: Path) -> Store:
    return EncryptedStore(FileStore(folder / "threads", fsync=False), AesGcm(OLD))


async def test_over_memory_it_conforms() -> None:
    report = await validate(in_memory, shared=False, tell=None)
    assert report.ok, report.failures
    assert all("lives in one object" in one.reason for one in report.not_applicable)


@pytest.mark.parametrize("make", ["in_sqlite", "in_files"])
@pytest.mark.parametrize("family", FAMILIES)
async def test_over_files_it_conforms(make: str, family: str) -> None:
    report = await validate(f"tests.encryption.test_conformance:{make}", tell=None, only=family)
    assert report.ok, report.failures
    assert report.results and not report.not_applicable


async def test_with_a_changed_byte_anywhere_it_gives_no_other_bytes() -> None:
    report = await validate(in_sqlite, tell=None, only=["a_changed_byte_anywhere_gives_no_other_bytes"])
    assert report.ok, report.failures
