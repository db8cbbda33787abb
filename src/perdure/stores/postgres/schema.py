"""The tables of a PostgreSQL store.

A commit is one row of `commits`. A thread is one row of `threads`, which every commit updates in place: no index covers
the columns that change each time, so the update stays within its page. Every key begins with the thread, a hash of its
id, so that the tables can be partitioned by it.

Invariants:
* `threads.number` is the number of the thread's last commit, `head` that of its newest checkpoint. The next commit is
  `number + 1`, by the owner whose fence is the row's.
* A commit has a checkpoint if it has an id, and is pinned or not among the thread's `pruned`. A collection of garbage
  frees pruned checkpoints later.
* Lists of names and references are texts of words. A chunk stays while its commit has a checkpoint, or events that
  refer to it, or while the `carried` references of another commit of the thread name it.
* A `parent` is the commit whose checkpoint it continues from, or its nearest ancestor that was not freed.
* Journal entries belong to the thread's owner, in the order of `entry`.
* An inbox item whose `body` is NULL was consumed: posting it again has no effect.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from perdure.errors import NewerFormat, StorageFailed
from perdure.stores.postgres.pool import Refused

VERSION = 1

TABLES = """
CREATE TABLE {s}.meta (version int NOT NULL);

CREATE TABLE {s}.processes (
  process uuid PRIMARY KEY,              -- a hash of its identity
  identity varchar(400) NOT NULL,
  leased_until timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE {s}.threads (
  thread uuid PRIMARY KEY,
  thread_id text NOT NULL,
  workflow text NOT NULL DEFAULT '',
  fence bigint NOT NULL DEFAULT 0,
  owner text,                            -- the run that owns it
  process uuid,                          -- the process of that run
  number bigint NOT NULL DEFAULT 0,
  head bigint,
  moved bigint NOT NULL DEFAULT 0,       -- the position of its last commit in the order of all
  journal_writes bigint NOT NULL DEFAULT 0,       -- grows with every write to the journal
  status text NOT NULL DEFAULT '',
  updated_at text NOT NULL DEFAULT '',
  due_at timestamptz,
  first_seq bigint NOT NULL DEFAULT 1,   -- the oldest kept event
  last_seq bigint NOT NULL DEFAULT 0,
  events_dropped_before bigint NOT NULL DEFAULT 0,  -- readers do not see events of earlier commits
  events_freed_before bigint NOT NULL DEFAULT 0,   -- events of earlier commits are freed
  collect_at int NOT NULL DEFAULT 16,      -- the size of `pruned` that starts a collection
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
  checkpoint_id bytea,                   -- hexadecimal digits as bytes; other ids after a zero byte
  workflow text,
  previous text,                         -- the checkpoint it continues from, if it belongs to another thread
  timestamp text,                        -- the original text, if `made_at` cannot restore it
  run_id bytea NOT NULL,                 -- packed likewise, without run-
  status text NOT NULL,
  names text,                            -- of its chunks: digest:length, in the order of `chunks`
  dropped text,                          -- references of its parent that it does not have
  carried text,                          -- references to commits that are no longer its ancestors
  own text,                              -- chunks that only its events refer to
  seal bytea NOT NULL,                   -- 8 bytes prove the root, 8 the events, 4 the references
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
  mark uuid NOT NULL,                    -- chosen by the owner: a repeated write has no effect
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


def quote_identifier(schema: str) -> str:
    return '"' + schema.replace('"', '""') + '"'


@lru_cache(maxsize=1024)
def in_schema(text: str, schema: str) -> str:
    """The statement with `{s}` replaced by the schema. Cached: asyncpg finds prepared statements by their text."""
    name = quote_identifier(schema)
    in_literal = "'" + name.replace("'", "''")
    return re.sub("'?{s}", lambda match: in_literal if match[0][0] == "'" else name, text)


async def find_version(connection: Any, schema: str) -> int:
    """0 for a schema without tables. Raises StorageFailed for a schema with tables of another program."""
    query = "SELECT array_agg(c.relname::text) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    tables = await connection.fetchval(f"{query} WHERE n.nspname = $1 AND c.relkind IN ('r', 'p')", schema)
    if not tables:
        return 0
    if "meta" not in tables or "commits" not in tables:
        others = ", ".join(sorted(tables)[:3])
        reason = f"it holds tables of another program ({others}); give perdure a schema of its own"
        raise StorageFailed("PostgresStore", f"use schema {schema!r}", reason)
    return int(await connection.fetchval(f"SELECT version FROM {quote_identifier(schema)}.meta"))


async def prepare(connection: Any, schema: str) -> None:
    """Create the tables unless they exist. Many processes may call this at the same time.

    Raises NewerFormat for tables of another version.
    """
    name = quote_identifier(schema)
    try:  # in one statement, for the usual case
        query = f"SELECT version FROM {name}.meta WHERE to_regclass($1) IS NOT NULL"
        if await connection.fetchval(query, f"{name}.commits") == VERSION:
            return
    except Refused:
        pass  # there are no tables, or those of another program: `find_version` looks closer
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
            await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {name}")
        await connection.execute(in_schema(TABLES, schema))
        await connection.execute(in_schema("INSERT INTO {s}.meta VALUES ($1)", schema), VERSION)
