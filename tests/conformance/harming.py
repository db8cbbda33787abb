"""Harm that is done to a store behind its back, wherever it keeps what it was given: in files, or in PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from tests.schemas import SCHEMAS

PAYLOADS = {"commits": ("root", "events"), "journal": ("body",), "inbox": ("body",)}
"""Where PostgreSQL has bytes that it is to give back. Chunks stand in an array, and are proved by their digests: the
storage that asks for them compares these, and so does its `verify`."""


def damage(kind: str, folder: Path, text: bytes) -> int:
    """Change one character of what is written there. How many places there were."""
    changed = text[:-1] + bytes([text[-1] ^ 1])
    return _damage_rows(folder, text, changed) if kind == "postgres" else _damage_files(folder, text, changed)


def _damage_files(folder: Path, text: bytes, changed: bytes) -> int:
    places = 0
    for path in files_in(folder):
        data = path.read_bytes()
        places += data.count(text)
        if text in data:
            path.write_bytes(data.replace(text, changed))
    return places


def _damage_rows(folder: Path, text: bytes, changed: bytes) -> int:
    places = 0
    for table, columns in PAYLOADS.items():
        for column in columns:
            statement = (
                f"UPDATE {{s}}.{table} SET {column} = overlay({column} PLACING $2 FROM position($1 IN {column}))"
                f" WHERE position($1 IN {column}) > 0 RETURNING 1"
            )
            places += len(SCHEMAS.fetch(folder, statement, text, changed))
    return places


def lose_a_part(kind: str, folder: Path, size: int) -> None:
    """Of each file that is larger than this, or some rows from the middle of each table."""
    if kind == "postgres":
        assert SCHEMAS.fetch(folder, "DELETE FROM {s}.commits WHERE number BETWEEN 14 AND 20 RETURNING 1")
        return
    for path in files_in(folder):
        data = path.read_bytes()
        if len(data) > size:
            third, half = len(data) // 3, len(data) // 2
            path.write_bytes(data[:third] + bytes(half - third) + data[half:])


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
