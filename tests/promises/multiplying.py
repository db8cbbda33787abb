"""Thousands of checkpoints made of one, as rows of a store's tables: to commit them one by one would take seconds."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.promises.processes import Place
from tests.schemas import SCHEMAS

from perdure.stores.sqlite.commits import BLOCK


def multiply(place: Place, count: int, *, in_own_threads: bool) -> None:
    """So many more of the workflow, and perhaps the thread, of the last one."""
    if place.kind == "postgres":
        SCHEMAS.fetch(place.folder, OF_MANY_THREADS if in_own_threads else OF_ONE_THREAD, count)
    else:
        _in_sqlite(place.database, count, in_own_threads=in_own_threads)


def _in_sqlite(database: Path, count: int, *, in_own_threads: bool) -> None:
    with closing(sqlite3.connect(database)) as db, db:
        db.row_factory = sqlite3.Row
        commit = dict(db.execute("SELECT * FROM commits ORDER BY seq DESC LIMIT 1").fetchone())
        thread = dict(db.execute("SELECT * FROM threads WHERE thread = ?", (commit["thread"],)).fetchone())
        commits, threads = [], []
        for number in range(1, count + 1):
            seq = commit["seq"] + number
            commits.append({**commit, "seq": seq, "checkpoint_id": f"made-{number}"})
            if in_own_threads:
                own = thread["thread"] + number
                threads.append({**thread, "thread": own, "thread_id": f"made-{number}", "moved": seq})
                commits[-1]["thread"] = own
            else:
                commits[-1].update(number=commit["number"] + number, parent=commit["number"] + number - 1)
        if not in_own_threads:
            last = commits[-1]
            threads.append({**thread, "number": last["number"], "head": last["number"], "moved": last["seq"]})
        for table, rows in (("commits", commits), ("threads", threads)):
            names = ", ".join(f":{name}" for name in rows[0])
            db.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({names})", rows)
        db.execute(f"INSERT OR IGNORE INTO blocks SELECT DISTINCT workflow, seq / {BLOCK} FROM commits WHERE workflow")


OF_ONE_THREAD = """
WITH last AS (SELECT * FROM {s}.commits ORDER BY seq DESC LIMIT 1),
made AS (INSERT INTO {s}.commits (thread, number, seq, parent, iteration, refers, checkpoint_id, workflow, made_at,
  run_id, status, seal, root) SELECT thread, number + g, nextval('{s}.moves'), number + g - 1, iteration, refers,
  '\\x00' || convert_to('made-' || g, 'UTF8'), workflow, made_at, run_id, status, seal, root
  FROM last, generate_series(1, $1::int) g RETURNING thread, number, seq)
UPDATE {s}.threads t SET number = m.number, head = m.number, moved = m.seq
  FROM (SELECT * FROM made ORDER BY number DESC LIMIT 1) m WHERE t.thread = m.thread
"""
OF_MANY_THREADS = """
WITH last AS (SELECT * FROM {s}.commits ORDER BY seq DESC LIMIT 1),
made AS (INSERT INTO {s}.commits (thread, number, seq, iteration, refers, checkpoint_id, workflow, made_at,
  run_id, status, seal, root) SELECT gen_random_uuid(), number, nextval('{s}.moves'), iteration, refers,
  '\\x00' || convert_to('made-' || g, 'UTF8'), workflow, made_at, run_id, status, seal, root
  FROM last, generate_series(1, $1::int) g RETURNING thread, number, seq, checkpoint_id, workflow, status)
INSERT INTO {s}.threads (thread, thread_id, workflow, fence, number, head, moved, status)
  SELECT thread, convert_from(substr(checkpoint_id, 2), 'UTF8'), workflow, 1, number, number, seq, status FROM made
"""
