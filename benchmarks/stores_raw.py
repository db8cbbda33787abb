"""The raw limit: writes the rows and lines of a store of perdure again, without an engine.

A countdown fills the store first. So the tables and indexes are those of perdure, and each row or line is as long as
the last one that perdure wrote.
"""

import os
import sqlite3
import time
from pathlib import Path


def sqlite_seconds(folder: Path, synchronous: str, commits: int) -> float:
    """The time of transactions in WAL. Each reads the row of the thread, inserts a row of `commits`, and updates."""
    db = sqlite3.connect(folder / "store.db", isolation_level=None)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {synchronous}")
        columns = [column for _, column, *_ in db.execute("PRAGMA table_info(commits)")]
        last = db.execute("SELECT * FROM commits WHERE checkpoint_id IS NOT NULL ORDER BY seq DESC LIMIT 1").fetchone()
        row = dict(zip(columns, last, strict=True))
        thread, number, id_bytes = row["thread"], row["number"], len(row["checkpoint_id"])
        insert = f"INSERT INTO commits ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
        started = time.perf_counter()
        for _ in range(commits):
            number += 1
            row.update(seq=None, number=number, parent=number - 1, checkpoint_id=os.urandom(id_bytes))
            db.execute("BEGIN IMMEDIATE")
            db.execute("SELECT fence, number, head FROM threads WHERE thread = ?", (thread,)).fetchone()
            seq = db.execute(insert, tuple(row.values())).lastrowid
            db.execute(
                "UPDATE threads SET number = ?, head = ?, moved = ? WHERE thread = ?", (number, number, seq, thread)
            )
            db.execute("COMMIT")
        return time.perf_counter() - started
    finally:
        db.close()


def file_seconds(folder: Path, *, syncs: bool, commits: int) -> float:
    """The time of appends, with or without a sync after each."""
    (path,) = folder.rglob("*.jsonl")
    line = path.read_bytes().splitlines(keepends=True)[-2]  # the last line belongs to the end of the run
    file = os.open(folder / "raw", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    sync = getattr(os, "fdatasync", os.fsync)
    try:
        started = time.perf_counter()
        for _ in range(commits):
            os.write(file, line)
            if syncs:
                sync(file)
        return time.perf_counter() - started
    finally:
        os.close(file)
