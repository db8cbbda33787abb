"""The SQL of `postgres_report.py`. `{s}` is the schema; all of it only reads."""

from __future__ import annotations

SERVER = """
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int AS version_number,
  current_user::text AS user, current_database()::text AS database, pg_is_in_recovery() AS is_standby,
  current_setting('default_transaction_read_only') = 'on' AS is_read_only,
  (SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()) AS has_tls,
  (SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND usename <> current_user
    AND state IS NULL) AS hidden_sessions
"""

SETTINGS = """
SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum',
  'track_counts', 'synchronous_standby_names', 'statement_timeout', 'idle_in_transaction_session_timeout')
"""

SCHEMA = """
SELECT n.oid IS NOT NULL AS is_there,
  CASE WHEN n.oid IS NULL THEN has_database_privilege(current_database(), 'CREATE')
    ELSE has_schema_privilege(n.oid, 'CREATE') AND has_schema_privilege(n.oid, 'USAGE') END AS may_create,
  COALESCE(has_schema_privilege(n.oid, 'USAGE'), false) AS may_use
FROM (SELECT 1) one LEFT JOIN pg_namespace n ON n.nspname = $1
"""

RIGHTS = """
SELECT format('%s on %s', p.name, c.relname) AS missing
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p(name)
WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') AND c.relname = ANY ($2) AND NOT has_table_privilege(c.oid, p.name)
  AND (c.relname <> 'meta' OR p.name = 'SELECT')
UNION ALL
SELECT 'USAGE on the sequence ' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind = 'S' AND c.relname = 'moves' AND NOT has_sequence_privilege(c.oid, 'USAGE')
ORDER BY 1
"""

OWNED_BY_OTHERS = """
SELECT count(*) AS count FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') AND c.relname = ANY ($2) AND NOT pg_has_role(c.relowner, 'USAGE')
"""

INDEXES = """
SELECT c.relname::text AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_index i ON i.indexrelid = c.oid WHERE n.nspname = $1 AND i.indisvalid
"""

TABLES = """
WITH RECURSIVE part AS (
  SELECT c.oid AS root, c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') AND c.relname = ANY ($2)
  UNION ALL SELECT part.root, i.inhrelid FROM part JOIN pg_inherits i ON i.inhparent = part.oid
)
SELECT max(r.relname::text) AS name, (count(*) - 1)::int AS partitions,
  sum(CASE WHEN c.relkind = 'p' THEN 0 ELSE GREATEST(c.reltuples, s.n_live_tup, 0) END)::bigint AS rows,
  COALESCE(sum(s.n_dead_tup), 0)::bigint AS dead_rows,
  sum(pg_table_size(c.oid))::bigint AS table_bytes, sum(pg_indexes_size(c.oid))::bigint AS index_bytes,
  COALESCE(sum(s.n_tup_upd), 0)::bigint AS updates, COALESCE(sum(s.n_tup_hot_upd), 0)::bigint AS hot_updates,
  max(GREATEST(s.last_vacuum, s.last_autovacuum)) AS vacuumed_at
FROM part JOIN pg_class c ON c.oid = part.oid JOIN pg_class r ON r.oid = part.root
LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid
GROUP BY part.root ORDER BY sum(pg_total_relation_size(c.oid)) DESC, 1
"""

THREADS = """
SELECT count(*) FILTER (WHERE thread <> $1)::bigint AS threads, count(owner)::bigint AS owned,
  count(*) FILTER (WHERE thread = $1) > 0 AS is_encrypted,
  count(*) FILTER (WHERE owner IS NULL AND due_at < clock_timestamp() - interval '1 minute')::bigint AS overdue
FROM {s}.threads
"""

OWNERS = """
SELECT p.identity, COALESCE(p.leased_until > clock_timestamp(), false) AS is_leased, count(t.thread)::int AS threads
FROM {s}.processes p FULL JOIN (SELECT thread, process FROM {s}.threads WHERE owner IS NOT NULL) t
  ON t.process = p.process
GROUP BY p.process, p.identity, p.leased_until
"""

COMMITS = "SELECT count(*)::bigint AS commits, count(checkpoint_id)::bigint AS checkpoints FROM {s}.commits"

ESTIMATED_CHECKPOINTS = """
SELECT COALESCE(sum(c.reltuples), 0)::bigint AS count FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind = 'i' AND (c.relname = 'commits_checkpoint' OR c.oid IN (SELECT i.inhrelid
  FROM pg_inherits i JOIN pg_class p ON p.oid = i.inhparent WHERE p.relname = 'commits_checkpoint'))
"""

WAITING = """
SELECT (SELECT count(*) FROM {s}.requests)::bigint AS requests,
  (SELECT count(*) FROM {s}.requests WHERE deadline < clock_timestamp())::bigint AS late_requests,
  (SELECT count(*) FROM {s}.inbox WHERE body IS NOT NULL AND thread <> $1)::bigint AS inbox
"""

HOLDERS = """
SELECT 'session' AS kind, concat_ws(' ', pid, usename, NULLIF(application_name, '')) AS name, state,
  extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds
FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
UNION ALL
SELECT 'prepared transaction', gid || ' of ' || owner, 'prepared',
  extract(epoch FROM clock_timestamp() - prepared)::float8
FROM pg_prepared_xacts WHERE database = current_database()
UNION ALL
SELECT 'replication slot', slot_name::text, 'inactive', 0 FROM pg_replication_slots
WHERE NOT active AND (xmin IS NOT NULL OR catalog_xmin IS NOT NULL)
ORDER BY 4 DESC LIMIT 20
"""

CONNECTIONS = """
SELECT (SELECT COALESCE(sum(numbackends), 0) FROM pg_stat_database)::int AS used,
  (current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
    - COALESCE(current_setting('reserved_connections', true), '0')::int) AS limit
"""

STANDBYS = """
SELECT COALESCE(NULLIF(application_name, ''), host(client_addr), pid::text) AS name, state, sync_state AS sync,
  pg_wal_lsn_diff(pg_current_wal_lsn(), COALESCE(replay_lsn, flush_lsn))::bigint AS behind_bytes,
  extract(epoch FROM replay_lag)::float8 AS behind_seconds
FROM pg_stat_replication ORDER BY 1
"""

BEHIND = """
SELECT CASE WHEN pg_last_wal_receive_lsn() IS NOT DISTINCT FROM pg_last_wal_replay_lsn() THEN 0
  ELSE extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp()) END::float8 AS seconds
"""
