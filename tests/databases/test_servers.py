"""The servers that other tests stand on: they start, die, stand still, come back, and leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
import redis
from tests.databases.fixtures import POSTGRES_URL, Place
from tests.databases.postgres import Databases, PostgresServer
from tests.databases.reaper import are_gone_in_time, family, is_there
from tests.databases.sql import Sql
from tests.databases.valkey import ValkeyServer

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[PostgresServer]:
    with PostgresServer(durable=True) as server:
        server.execute("CREATE TABLE kept (number int)")
        yield server


@pytest.fixture(scope="module")
def own_valkey() -> Iterator[ValkeyServer]:
    with ValkeyServer(durable=True) as server:
        yield server


def test_a_killed_postgres_has_all_that_it_acknowledged(own_postgres: PostgresServer) -> None:
    own_postgres.execute("INSERT INTO kept VALUES (42)")
    members = family(own_postgres.pid)
    own_postgres.kill()
    assert not any(is_there(member) for member in members)
    with pytest.raises(ConnectionRefusedError):
        own_postgres.execute("SELECT 1")
    own_postgres.start()
    sql = Sql(own_postgres.dsn)
    assert [row["number"] for row in sql.fetch("SELECT number FROM kept")] == [42]
    sql.close()
    assert "automatic recovery in progress" in own_postgres.log


async def test_a_paused_postgres_answers_when_it_is_resumed(own_postgres: PostgresServer) -> None:
    connection = await asyncpg.connect(own_postgres.dsn)
    own_postgres.pause()
    answer = asyncio.create_task(connection.fetchval("SELECT 7"))
    assert not (await asyncio.wait([answer], timeout=0.1))[0]
    own_postgres.resume()
    assert await answer == 7
    await connection.close()


def test_a_restarted_postgres_is_at_the_same_address(own_postgres: PostgresServer) -> None:
    dsn, pid = own_postgres.dsn, own_postgres.pid
    own_postgres.restart()
    assert own_postgres.dsn == dsn and own_postgres.pid != pid
    own_postgres.execute("SELECT 1")


def test_databases_are_empty_and_do_not_see_each_other(postgres_server: Databases) -> None:
    with postgres_server.database() as first, postgres_server.database() as other:
        assert first != other
        for dsn in (first, other):
            sql = Sql(dsn)
            sql.execute("CREATE SCHEMA perdure")
            sql.close()


def test_a_place_is_a_schema_that_is_not_there_yet(postgres_server: Databases, postgres_place: Place) -> None:
    assert postgres_place.dsn == postgres_server.dsn
    postgres_server.execute(f'CREATE SCHEMA "{postgres_place.schema}"')


def test_a_killed_valkey_has_its_file_and_a_flushed_one_nothing(own_valkey: ValkeyServer) -> None:
    with redis.Redis.from_url(own_valkey.url) as client:
        client.set("key", "value")
        own_valkey.kill()
        with pytest.raises(redis.ConnectionError):
            client.get("key")
        own_valkey.start()
        assert client.get("key") == b"value"
        own_valkey.flush()
        assert client.get("key") is None


def test_a_paused_valkey_does_not_answer(own_valkey: ValkeyServer) -> None:
    with redis.Redis.from_url(own_valkey.url, socket_timeout=0.1, retry=None) as client:
        own_valkey.pause()
        with pytest.raises(redis.TimeoutError):
            client.get("key")
        own_valkey.resume()
    with redis.Redis.from_url(own_valkey.url) as client:
        assert client.get("key") is None


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_finds_an_empty_valkey(valkey_url: str, turn: int) -> None:
    with redis.Redis.from_url(valkey_url) as client:
        assert client.dbsize() == 0
        client.set("key", turn)


SERVERS_THAT_ARE_LEFT_ALONE = """
import os, time
from tests.databases.postgres import PostgresServer
from tests.databases.valkey import ValkeyServer
postgres, valkey = PostgresServer().start(), ValkeyServer().start()
valkey.pause()
print(postgres.pid, postgres.folder, valkey.pid, valkey.folder, flush=True)
time.sleep(60)
"""


def test_servers_of_a_killed_process_are_gone_soon_after() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SERVERS_THAT_ARE_LEFT_ALONE],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        postgres, postgres_folder, valkey, valkey_folder = process.stdout.readline().split()
        members = [*family(int(postgres)), *family(int(valkey))]
        process.kill()
    assert len(members) > 5
    assert are_gone_in_time(members)
    patience = time.monotonic() + 15
    while Path(postgres_folder).exists() or Path(valkey_folder).exists():
        assert time.monotonic() < patience
        time.sleep(0.01)


TESTS_THAT_SHARE = """
import os, pathlib
import pytest
from tests.databases.fixtures import postgres_server

@pytest.mark.parametrize("number", range(4))
def test_where_it_is(postgres_server, number):
    with pathlib.Path("seen").open("a") as seen:
        print(os.environ["PYTEST_XDIST_WORKER"], postgres_server.dsn, file=seen)
"""


def test_all_workers_of_a_run_share_one_postgres_which_ends_with_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_sharing.py").write_text(TESTS_THAT_SHARE, encoding="utf-8")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-pxdist",
            "-n2",
            "--dist=each",
            "-pno:cacheprovider",
            f"--basetemp={tmp_path}/its",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", POSTGRES_URL: ""},
        check=True,
        capture_output=True,
    )
    seen = [line.split() for line in (tmp_path / "seen").read_text(encoding="utf-8").splitlines()]
    assert {worker for worker, _ in seen} == {"gw0", "gw1"}
    [dsn] = {dsn for _, dsn in seen}
    address = urlsplit(dsn)
    patience = time.monotonic() + 15
    while _is_listening(address.port):
        assert time.monotonic() < patience
        time.sleep(0.01)


def _is_listening(port: int | None) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0
