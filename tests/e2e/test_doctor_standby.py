"""`perdure doctor` of a primary server and of a standby."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.databases.postgres import PostgresServer, programs
from tests.e2e.conftest import Call, CallJson
from tests.e2e.test_doctor import finding_of, marks
from tests.e2e.test_doctor_postgres import password_of, sql
from tests.e2e.threads import ask

from perdure.stores.postgres import database as postgres_database

REPLICATES = {"wal_level": "replica", "max_wal_senders": "4"}
SEEN = "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming' AND flush_lsn IS NOT NULL"


@contextmanager
def follower_of(dsn: str, folder: Path) -> Iterator[None]:
    """A program that receives the WAL. The server lists it as a standby."""
    command: list[str | Path] = [
        programs() / "pg_receivewal",
        "--dbname",
        f"{dsn}?application_name=berlin",
        "--directory",
        folder,
    ]
    with (
        subprocess.Popen([*command, "--synchronous", "--no-loop"], stderr=subprocess.PIPE) as process,
        sql(dsn) as session,
    ):
        try:
            while process.poll() is None and not session.fetch(SEEN):
                time.sleep(0.01)
            yield
        finally:
            process.kill()


def test_doctor_lists_standbys_of_a_primary_and_fails_on_a_standby(
    call: Call, call_json: CallJson, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PostgresServer(settings=REPLICATES) as server:
        ask(call, "r-1", store=server.dsn)
        with follower_of(server.dsn, tmp_path):
            tree = call_json("doctor", server.dsn)
        [standby] = tree["standbys"]
        assert (standby["name"], standby["state"], standby["sync"]) == ("berlin", "streaming", "async")
        assert standby["behind_bytes"] >= 0
        assert finding_of(tree, "replication")["found"].startswith("1 standby: berlin (async)")
        server.stop()
        (server.folder / "data" / "standby.signal").touch()
        server.start()
        done = call("doctor", server.dsn)
        assert marks(done, 1)["server"] == "fail"
        assert "a standby: it is read-only. Name the primary" in done.stdout
        assert marks(done, 1)["threads"] == "ok"
        assert password_of(server.dsn) not in done.stdout
        assert call("verify", server.dsn).stdout == "1 thread checked: no damage.\n"
        monkeypatch.setattr(
            postgres_database, "RECONNECT_SECONDS", 0.3
        )  # the storage waits for a promotion of the standby
        assert "read-only" in call("run", "office:titles", "x", store=server.dsn).stderr
