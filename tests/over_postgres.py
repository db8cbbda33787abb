"""What of the shared tests runs on which stores in `make test`, and what does not, with the reasons."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

STORES = {"memory", "file", "sqlite", "postgres", "six methods"}

FOLDERS = ("conformance", "promises", "compat", "crash", "property")
"""Whose tests are tried on every store."""

NOT_FOR_POSTGRES: dict[str, str] = {
    "compat/test_files.py": "about the folder of a FileCheckpointStorage; for other processes: tests/promises",
    "crash/power.py": "what a power cut leaves of files: in PostgreSQL its write-ahead log answers for that",
    "crash/outages.py": "the same",
    "crash/test_power_loss.py": "the same; servers that are killed and come back: tests/fleet",
    "crash/scarce.py": "a disk that is full and a folder that may not be written: the server's, not ours",
    "crash/test_scarcity.py": "the same; what a server that refuses does to a run: tests/fleet",
    "property/test_file_store.py": "an index beside the files, which can be lost",
    "promises/test_history_export_and_import.py": "a store's file is no exported thread; all else takes every storage",
    "promises/test_p09_stores_of_older_versions_open.py": "no older version has written to PostgreSQL",
    "promises/test_p12_a_damaged_file_is_named.py": "files; for tables: test_p12_a_damaged_table_is_named.py",
    "promises/test_verification.py": "rows of SQLite; for PostgreSQL: test_verification_of_tables.py",
    "promises/test_verification_of_files.py": "files; for tables: test_verification_of_tables.py",
}
"""Modules that name stores in files and not PostgreSQL; test_over_postgres.py finds those that are missing here."""

OF_THE_ENGINE = re.compile(r"/promises/test_(change_|engine_|p0[2-8]_|p09_what|p10_|p11_)")
"""Promises that engine and codec keep, alike on every store: memory and SQLite are enough."""


def choose(items: Sequence[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Those to run and those to leave out: over PostgreSQL each test once, with one combination of its parameters.

    Where it takes several stores, all of them are PostgreSQL then. PERDURE_SOAK=1 runs every combination of all.
    """
    all_items, items = items, [item for item in items if not _is_tried_elsewhere(item)]
    best: dict[tuple[Any, ...], pytest.Item] = {}
    for item in items:
        key = _function(item)
        if _count(item) > _count(best.get(key)):
            best[key] = item
    kept = [item for item in items if not _count(item) or item is best.get(_function(item))]
    chosen = {id(item) for item in kept}
    return kept, [item for item in all_items if id(item) not in chosen]


def _is_tried_elsewhere(item: pytest.Item) -> bool:
    """Whether another run covers it: on another store, from memory with a new object, or with the same object."""
    callspec = getattr(item, "callspec", None)
    if callspec is None or item.path.parent.name not in ("promises", "compat"):
        return False
    stores = {value for value in callspec.params.values() if isinstance(value, str) and value in STORES}
    if OF_THE_ENGINE.search(item.path.as_posix()) and stores & {"file", "postgres"}:
        return True
    again = getattr(callspec.params.get("again"), "__name__", "")
    return bool(stores and again) and (again == "with_a_new_object") == ("memory" in stores)


def _function(item: pytest.Item) -> tuple[Any, ...]:
    return item.path, getattr(item, "cls", None), getattr(item, "originalname", item.name)


def _count(item: pytest.Item | None) -> int:
    """How many of its parameters are PostgreSQL, if it is one of the shared tests."""
    callspec = getattr(item, "callspec", None) if item is not None and item.path.parent.name in FOLDERS else None
    params = () if callspec is None else callspec.params.values()
    return sum(isinstance(value, str) and value in ("postgres", "in postgres") for value in params)
