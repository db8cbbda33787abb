"""`perdure doctor` of a real PostgreSQL: its report, its findings for problems, and that it prints no password."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
from tests.databases.pooler import Pooler
from tests.databases.postgres import Databases, unique_name
from tests.databases.sql import Sql
from tests.databases.valkey import ValkeyServer
from tests.e2e.conftest import Call, CallJson
from tests.e2e.test_doctor import finding_of, marks
from tests.e2e.threads import ask

CARELESS = {"settings"}
"""The checks that warn on a server for tests, which does not sync."""


@contextmanager
def sql(dsn: str) -> Iterator[Sql]:
    with closing(Sql(dsn)) as session:
        yield session


def password_of(url: str) -> str:
    password = urlsplit(url).password
    assert password
    return password


def replace_parts(dsn: str, **parts: Any) -> str:
    """The dsn with another user, password, host, port or database."""
    split = urlsplit(dsn)
    user, password = parts.get("user", split.username), parts.get("password", split.password)
    host, port = parts.get("host", split.hostname), parts.get("port", split.port)
    path = f"/{parts['database']}" if "database" in parts else split.path
    return urlunsplit(split._replace(netloc=f"{user}:{password}@{host}:{port}", path=path))


def test_database_without_tables_gets_a_warning_and_stays_unchanged(
    call: Call, call_json: CallJson, postgres_dsn: str
) -> None:
    assert {check for check, mark in marks(call("doctor", postgres_dsn)).items() if mark != "ok"} == {
        "schema",
        *CARELESS,
    }
    tree = call_json("doctor", postgres_dsn)
    assert finding_of(tree, "schema")["found"] == "perdure does not exist yet: the first use creates it"
    assert (tree["kind"], tree["is_well"], tree["schema"]["version"]) == ("postgresql", True, 0)
    for command in ("threads", "verify"):
        done = call(command, store=postgres_dsn)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("Error: No store exists in schema 'perdure' of postgresql://")
        assert password_of(postgres_dsn) not in done.stderr
    with sql(postgres_dsn) as session:
        assert session.fetch("SELECT 1 FROM pg_namespace WHERE nspname = 'perdure'") == []


def test_store_in_use_is_reported_table_by_table(call: Call, call_json: CallJson, postgres_dsn: str) -> None:
    ask(call, "r-1", store=postgres_dsn)
    ask(call, "r-2", store=postgres_dsn)
    done = call("doctor", store=postgres_dsn)
    assert {check for check, mark in marks(done).items() if mark != "ok"} == CARELESS
    assert done.stdout.partition("\n\nTABLE ")[2].splitlines()[0].split() == [
        *("ROWS", "DEAD", "SIZE", "INDEXES", "HOT", "VACUUMED")
    ]
    tree = call_json("doctor", store=postgres_dsn)
    server, contents = tree["server"], tree["contents"]
    assert (server["is_pooled"], server["has_tls"], server["is_standby"]) == (False, False, False)
    assert server["round_trip_seconds"] > 0
    assert abs(server["clock_ahead_seconds"]) < 60  # the same clock; a busy machine answers late
    assert (contents["threads"], contents["checkpoints"], contents["requests"]) == (2, 4, 2)
    assert (contents["owned"], contents["left_behind"], contents["inbox"]) == (0, 0, 0)
    tables = {table["name"]: table for table in tree["tables"]}
    assert tables.keys() >= {"meta", "processes", "threads", "commits", "journal", "inbox", "requests"}
    assert all(table["table_bytes"] + table["index_bytes"] > 0 for table in tables.values())
    assert tree["connections"]["used"] < tree["connections"]["limit"]
    assert json.dumps(tree).count(password_of(postgres_dsn)) == 0


@pytest.mark.parametrize(
    ("wrong", "problem", "remedy"),
    [
        ({"password": "gue55ed"}, "the password is wrong", "PGPASSWORD"),
        ({"user": "nobody_here"}, "no such user exists", "PGPASSWORD"),
        ({"database": "no_such"}, "no such database exists", "createdb"),
        ({"port": 1}, "no server listens there", "Is the server running"),
        ({"host": "no-such-host.invalid"}, "no host has that name", "Correct it in the URL"),
        ({"password": "a#b"}, "the URL cannot be read", "%XX"),
    ],
)
def test_unreachable_server_fails_with_reason_and_remedy(
    wrong: dict[str, Any], problem: str, remedy: str, call: Call, call_json: CallJson, postgres_dsn: str
) -> None:
    url = replace_parts(postgres_dsn, **wrong)
    done, other = call("doctor", url), call("threads", store=url)
    assert marks(done, 1) == {"connection": "fail"}
    assert (other.returncode, other.stdout) == (1, "")
    for text in (done.stdout, other.stderr):
        assert problem in text and remedy in text
        assert not any(secret in text for secret in (password_of(postgres_dsn), "gue55ed", "a#b"))


def test_error_for_a_mistyped_url_shows_no_password(call: Call) -> None:
    for url in ("postgressql://ada:s3cret@host/db", "postgresql://ada:s3cret@host/db?sslmode=maybe"):
        done = call("doctor", url)
        assert done.returncode in (1, 2)
        assert "s3cret" not in done.stdout + done.stderr


def test_server_without_tls_fails_if_the_url_requires_tls(call: Call, postgres_dsn: str) -> None:
    done = call("doctor", f"{postgres_dsn}?sslmode=require")
    assert marks(done, 1) == {"connection": "fail"}
    assert "a connection with TLS failed" in done.stdout


@pytest.fixture
def role(postgres_server: Databases) -> Iterator[str]:
    """A user that may only log in."""
    name = unique_name()
    postgres_server.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'low'")
    yield name
    postgres_server.execute(f"DROP ROLE {name}")


def test_missing_rights_are_named_and_the_remedies_suffice(
    call: Call, call_json: CallJson, postgres_server: Databases, postgres_dsn: str, role: str
) -> None:
    low = replace_parts(postgres_dsn, user=role, password="low")

    def remedy(check: str, code: int = 1) -> str:
        done = call("doctor", low, "--json")
        assert done.returncode == code
        return str(finding_of(json.loads(done.stdout), check)["remedy"])

    with sql(postgres_dsn) as administrator:
        statement = remedy("schema")
        assert statement == f"An administrator runs: CREATE SCHEMA perdure AUTHORIZATION {role}"
        run = call("run", "office:titles", "x", store=low)
        assert "this user may not create one. `perdure doctor` shows what is missing." in run.stderr
        ask(call, "r-1", store=postgres_dsn)  # the administrator creates schema and tables instead
        statement = remedy("schema")
        administrator.execute(statement.removeprefix("Its owner runs: "))
        statement = remedy("rights")
        administrator.execute(statement.removeprefix("The owner of the tables runs: "))
        assert call_json("doctor", low)["contents"]["threads"] == 1
        ask(call, "r-2", store=low)
        administrator.execute(f"REVOKE DELETE ON perdure.commits FROM {role}")
        assert f"{role} is missing DELETE on commits. " in call("doctor", low).stdout
        administrator.execute(f"DROP OWNED BY {role}")


def test_user_at_the_connection_limit_fails_with_the_reason(
    call: Call, postgres_server: Databases, postgres_dsn: str, role: str
) -> None:
    postgres_server.execute(f"ALTER ROLE {role} CONNECTION LIMIT 1")
    low = replace_parts(postgres_dsn, user=role, password="low")
    with sql(low) as session:
        session.execute("SELECT 1")
        done = call("doctor", low)
    assert marks(done, 1) == {"connection": "fail"}
    assert "all its connections are in use" in done.stdout and "pool_size" in done.stdout


def test_schema_of_a_newer_perdure_or_another_program_fails(call: Call, postgres_dsn: str) -> None:
    ask(call, "r-1", store=postgres_dsn)
    with sql(postgres_dsn) as session:
        session.execute("UPDATE perdure.meta SET version = 99")
        session.execute("CREATE SCHEMA shop; CREATE TABLE shop.orders (id int)")
    done = call("doctor", postgres_dsn)
    assert marks(done, 1)["format"] == "fail"
    assert "version 99" in done.stdout and "Upgrade perdure" in done.stdout
    done = call("doctor", f"{postgres_dsn}?schema=shop")
    assert marks(done, 1)["schema"] == "fail"
    assert "tables of another program (orders)" in done.stdout and "?schema=NAME" in done.stdout


def test_printed_command_shows_no_password_and_works_with_pgpassword(
    call: Call, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refund = '{"customer": "Bob", "amount": 12}'
    arguments = ("run", "office:refunds", refund, "--json-input", "--thread", "r-1", "--store", postgres_dsn)
    printed = call(*arguments, store=None).stdout
    assert password_of(postgres_dsn) not in printed
    [command] = [line.partition("answer it: ")[2] for line in printed.splitlines() if "answer it: " in line]
    monkeypatch.setenv("PGPASSWORD", password_of(postgres_dsn))
    assert "12 to Bob" in call(*shlex.split(command)[1:], store=None).stdout
    assert call(*arguments[:-4], "--thread", "r-2", store=postgres_dsn).stdout.endswith("--app office:refunds\n")


def test_url_names_the_schema_for_every_command(
    call: Call, call_json: CallJson, ids: list[str], postgres_dsn: str
) -> None:
    url = f"{postgres_dsn}?schema=team%20a"
    moved = call_json("transfer", "sqlite:///threads.db", url)
    assert sorted(moved["copied"]) == ["r-1", "r-2"]
    assert call("verify", url).stdout == "2 threads checked: no damage.\n"
    assert call_json("doctor", url)["schema"]["name"] == "team a"
    assert call_json("doctor", postgres_dsn)["schema"]["version"] == 0


def test_missing_index_and_dead_rows_get_warnings(call: Call, postgres_dsn: str) -> None:
    ask(call, "r-1", store=postgres_dsn)
    with sql(postgres_dsn) as session:
        session.execute("DROP INDEX perdure.threads_due; ALTER TABLE perdure.journal SET (autovacuum_enabled = off)")
        session.execute(
            "INSERT INTO perdure.journal (thread, mark, delivery_id, body, seal)"
            " SELECT gen_random_uuid(), gen_random_uuid(), n, '', '' FROM generate_series(1, 10001) n"
        )
        session.execute("DELETE FROM perdure.journal; SELECT pg_stat_force_next_flush()")
        session.fetch("SELECT 1")
    done = call("doctor", postgres_dsn)
    warned = {check for check, mark in marks(done).items() if mark == "warn"}
    assert warned == {"indexes", "dead rows", *CARELESS}
    assert "missing or not valid: threads_due" in done.stdout
    assert "journal: 10001 beside 0 live ones" in done.stdout


def test_session_that_holds_back_vacuum_is_listed(call_json: CallJson, postgres_dsn: str) -> None:
    with sql(postgres_dsn) as session:
        session.execute("BEGIN; SET application_name = 'report'; SELECT 1")
        [holder] = call_json("doctor", postgres_dsn)["holders"]
        assert (holder["kind"], holder["state"]) == ("session", "idle in transaction")
        assert holder["name"].endswith(" postgres report")


@pytest.mark.parametrize("knows_statements", [True, False])
def test_doctor_detects_a_pooler(call: Call, call_json: CallJson, postgres_dsn: str, knows_statements: bool) -> None:
    with Pooler(postgres_dsn, knows_statements=knows_statements) as pooler:
        ask(call, "r-1", store=pooler.dsn)
        tree = call_json("doctor", pooler.dsn)
    assert tree["server"]["is_pooled"] is True
    assert finding_of(tree, "pooler")["found"].startswith("yes")
    assert tree["contents"]["threads"] == 1


def test_valkey_is_reported_and_never_fails_the_check(call: Call, call_json: CallJson, postgres_dsn: str) -> None:
    with ValkeyServer() as valkey:
        tree = call_json("doctor", postgres_dsn, "--redis-url", valkey.url)
        assert finding_of(tree, "valkey")["found"].startswith("Valkey 9.")
        assert tree["valkey"]["round_trip_seconds"] > 0
        for url, problem in (
            (valkey.url.replace("@", "x@"), "it refuses the user or the password"),
            ("redis://:s3cret@127.0.0.1:1", "no server listens there"),
        ):
            done = call("doctor", postgres_dsn, "--redis-url", url)
            assert marks(done)["valkey"] == "warn"
            assert problem in done.stdout
            assert not any(secret in done.stdout for secret in ("s3cret", password_of(valkey.url)))
        valkey.pause()
        done = call("doctor", postgres_dsn, "--redis-url", valkey.url)
        assert marks(done)["valkey"] == "warn"
        assert "it does not answer within 0.25 s. Without it nothing is lost" in done.stdout
        valkey.resume()
    done = call("doctor", postgres_dsn, "--redis-url", "http://:s3cret@host")
    assert done.returncode == 2
    assert "s3cret" not in done.stderr
