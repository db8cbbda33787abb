"""Every test that is tried on stores in files is tried on PostgreSQL too, or says why not."""

from __future__ import annotations

import re
from pathlib import Path

from tests.over_postgres import FOLDERS, NOT_FOR_POSTGRES

TESTS = Path(__file__).parent
NAMED = re.compile(r'"sqlite|SqliteStore\(|SqliteCheckpointStorage\(|FileStore\(|FileCheckpointStorage\(|"file"')


def test_no_module_forgets_postgresql() -> None:
    modules = {path.relative_to(TESTS).as_posix(): path for folder in FOLDERS for path in (TESTS / folder).glob("*.py")}
    texts = {name: path.read_text(encoding="utf-8") for name, path in modules.items()}
    without = {name for name, text in texts.items() if NAMED.search(text) and "postgres" not in text.lower()}
    assert without - NOT_FOR_POSTGRES.keys() == set(), "let them use PostgreSQL, or say in over_postgres.py why not"
    assert set(NOT_FOR_POSTGRES) <= modules.keys()
