"""The tables of a PostgreSQL store.

A commit is one row of `commits`, and one thread has one row of `threads`, which every commit updates in place: none of
the columns that change each time is in an index, so the update stays within its page. Every key begins with the thread,
a hash of its id, so that the tables can be partitioned by it.

Invariants:
* `threads.number` is the number of the thread's last commit, `head` that of its newest checkpoint. The next commit is
  `number + 1`, made by the owner whose fence is the row's.
* A commit's checkpoint is there if it has an id that is not among the thread's `pruned`, or is pinned. What was
  pruned is freed later, by a sweep.
* Lists of names and references are texts of words. A chunk is kept while its commit has a checkpoint, or events that
  refer to it, or while the `carried` references of another commit of the thread name it.
* A `parent` is the commit whose checkpoint it continues from, or the nearest before that which was not swept.
* Journal entries are of the thread's owner, in the order of `entry`.
* An inbox item whose `body` is NULL was consumed: posting it again does nothing.
"""

from __future__ import annotations

import re
from typing import Any

from perdure.errors import NewerFormat, StorageFailed
from perdure.stores.postgres.pool import Refused

VERSION = 1

TABLES = """
CREATE TABLE {s}.meta (version int NOT NULL);

CREATE TABLE {s}.processes (
  process uuid PRIMARY KEY,              -- a hash of who it is
  identity varchar(400) NOT NULL,
  leased_until timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE {s}.threads (
  thread uuid PRIMARY KEY,
  thread_id text NOT NULL,
  workflow text NOT NULL DEFAULT '',
  fence bigint NOT NULL DEFAULT 0,
  owner text,                            -- the run that holds it
  process uuid,                          -- and where that runs
  number bigint NOT NULL DEFAULT 0,
  head bigint,
  moved bigint NOT NULL DEFAULT 0,       -- the place of its last commit in the order of all
  journal_writes bigint NOT NULL DEFAULT 0,       -- grows with every write to the journal
  status text NOT NULL DEFAULT '',
  updated_at text NOT NULL DEFAULT '',
  due_at timestamptz,
  first_seq bigint NOT NULL DEFAULT 1,   -- the oldest event that is kept
  last_seq bigint NOT NULL DEFAULT 0,
  events_dropped_before bigint NOT NULL DEFAULT 0,  -- events of commits before this one are pruned
  events_freed_before bigint NOT NULL DEFAULT 0,   -- and before this one they are freed
  collect_at int NOT NULL DEFAULT 16,      -- so much is pruned before it is freed
  pruned bigint[] NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50);
CREATE INDEX threads_by_id ON {s}.threads (left(thread_id, 200) COLLATE "C");
CREATE INDEX threads_due ON {s}.threads (due_at) WHERE due_at IS NOT NULL;

CREATE SEQUENCE {s}.moves;

CREATE TABLE {s}.commits (
  thread uuid NOT NULL,
  number bigint NOT NULL,
  seq bigint NOT NULL,                   -- the order of commits across threads
  parent bigint,
  first_seq bigint,                      -- events: the first one, and how many
  made_at timestamptz,
  iteration int,
  event_count int,
  refers boolean NOT NULL,               -- its events refer to chunks of its checkpoint
  is_pinned boolean NOT NULL DEFAULT false,
  checkpoint_id bytea,                   -- ids of hexadecimal digits as bytes; others behind a zero
  workflow text,
  previous text,                         -- the checkpoint it continues from, where that is one of another thread
  timestamp text,                        -- as it was given, where `made_at` could not say it to the letter
  run_id bytea NOT NULL,                 -- the same, without run-
  status text NOT NULL,
  names text,                            -- of its chunks: digest:length, in the order in which they lie in `chunks`
  dropped text,                          -- what its parent has and it has not
  carried text,                          -- what it has of commits that are no longer in its line
  own text,                              -- chunks that only its events refer to
  seal bytea NOT NULL,                   -- 8 bytes prove the root, 8 the events, 4 the links
  root bytea,
  events bytea,
  chunks bytea,
  PRIMARY KEY (thread, number) WITH (fillfactor = 100) -- all three grow at their ends
) WITH (toast_tuple_target = 8160);      -- one row stays one row: reading back from a second table costs more
CREATE UNIQUE INDEX commits_checkpoint ON {s}.commits (checkpoint_id) WITH (fillfactor = 100)
  WHERE checkpoint_id IS NOT NULL;
CREATE INDEX commits_workflow ON {s}.commits (workflow, seq) WITH (fillfactor = 100)
  WHERE checkpoint_id IS NOT NULL;
CREATE INDEX commits_branching ON {s}.commits (thread, parent) WHERE parent <> number - 1;
CREATE INDEX commits_kept ON {s}.commits (thread, number) WHERE carried IS NOT NULL OR is_pinned;

CREATE TABLE {s}.journal (
  thread uuid NOT NULL,
  mark uuid NOT NULL,                    -- made by the owner: writing one again does nothing
  entry bigint NOT NULL DEFAULT nextval('{s}.moves'),
  delivery_id bigint NOT NULL,
  body bytea NOT NULL,
  seal bytea NOT NULL,
  PRIMARY KEY (thread, mark)
);

CREATE TABLE {s}.inbox (
  thread uuid NOT NULL,
  item_id text NOT NULL,
  item bigint NOT NULL DEFAULT nextval('{s}.moves'),
  kind text NOT NULL,
  body bytea,
  seal bytea NOT NULL,
  PRIMARY KEY (thread, item_id)
);

CREATE TABLE {s}.requests (
  thread uuid NOT NULL,
  request_id text NOT NULL,
  executor_id text NOT NULL,
  asked_at timestamptz NOT NULL,
  deadline timestamptz,
  assignee text,
  PRIMARY KEY (thread, request_id)
);
CREATE INDEX requests_asked ON {s}.requests (asked_at);
"""


def quoted(schema: str) -> str:
    """As an identifier in SQL."""
    return '"' + schema.replace('"', '""') + '"'


def in_schema(text: str, schema: str) -> str:
    """A statement with `{s}` for the schema."""
    name = quoted(schema)
    in_literal = "'" + name.replace("'", "''")
    return re.sub("'?{s}", lambda found: in_literal if found[0][0] == "'" else name, text)


async def find_version(connection: Any, schema: str) -> int:
    """0 where there are no tables yet. Raises StorageFailed for a schema of something else."""
    named = await connection.fetchval(
        "SELECT array_agg(c.relname::text) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = $1 AND c.relkind IN ('r', 'p')",
        schema,
    )
    if not named:
        return 0
    if "meta" not in named or "commits" not in named:
        reason = f"it holds tables of something else ({', '.join(sorted(named)[:3])}); give perdure a schema of its own"
        raise StorageFailed("PostgresStore", f"use schema {schema!r}", reason)
    return int(await connection.fetchval(f"SELECT version FROM {quoted(schema)}.meta"))


async def _version_at_once(connection: Any, schema: str) -> int | None:
    """In one statement, as whoever begins asks it. None where there is more to look at."""
    only_if = "to_regclass($1) IS NOT NULL"
    try:
        found = await connection.fetchval(
            f"SELECT version FROM {quoted(schema)}.meta WHERE {only_if}", f"{quoted(schema)}.commits"
        )
    except Refused:  # there are no tables, or they are of something else
        return None
    return found if isinstance(found, int) else None


async def prepare(connection: Any, schema: str) -> None:
    """Create the tables unless they exist. Many processes may call this at the same time.

    Raises NewerFormat for tables of another version.
    """
    if await _version_at_once(connection, schema) == VERSION:
        return
    async with connection.transaction(isolation="read_committed"):
        # The second process waits here, and then finds the tables. The lock ends with the transaction.
        await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"perdure schema {schema}")
        version = await find_version(connection, schema)
        if version == VERSION:
            return
        if version != 0:
            raise NewerFormat(f"schema {schema!r}", version, VERSION)
        exists = await connection.fetchval("SELECT 1 FROM pg_namespace WHERE nspname = $1", schema)
        if not exists:  # an administrator may have created the schema before
            await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
        await connection.execute(in_schema(TABLES, schema))
        await connection.execute(in_schema("INSERT INTO {s}.meta VALUES ($1)", schema), VERSION)
