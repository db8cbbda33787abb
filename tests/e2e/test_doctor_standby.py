"""`holdfast doctor` of a primary that has a standby, and of the standby."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.conftest import Call, Told
from tests.e2e.test_doctor import found, marks
from tests.e2e.test_doctor_postgres import changed, password_of, sql
from tests.e2e.threads import ask
from tests.servers.postgres import PostgresServer, programs

REPLICATES = {"wal_level": "replica", "max_wal_senders": "4", "max_connections": "20"}


@contextmanager
def standby_of(primary: PostgresServer) -> Iterator[str]:
    """The dsn of a hot standby."""
    settings = {**REPLICATES, "primary_conninfo": f"{primary.dsn}?application_name=berlin"}
    standby = PostgresServer(settings=settings)
    data = standby.folder / "data"
    owner = data.stat()
    shutil.rmtree(data)
    copied = (
        programs() / "pg_basebackup",
        "--pgdata",
        data,
        "--dbname",
        primary.dsn,
        "--checkpoint",
        "fast",
        "--no-sync",
    )
    subprocess.run(copied, check=True, capture_output=True, timeout=20)
    (data / "standby.signal").touch()
    for path in (data, *data.rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid)
    with standby:
        yield changed(primary.dsn, port=standby.port)


def wait_until_it_is_seen(dsn: str) -> None:
    """Until the primary knows its standby: the connection is the standby's to make."""
    with sql(dsn) as session:
        while not session.fetch("SELECT 1 FROM pg_stat_replication WHERE replay_lsn IS NOT NULL"):
            time.sleep(0.01)


def test_a_primary_tells_of_its_standby_and_a_standby_is_refused(call: Call, told: Told) -> None:
    with PostgresServer(settings=REPLICATES) as primary:
        ask(call, "r-1", store=primary.dsn)
        with standby_of(primary) as dsn:
            wait_until_it_is_seen(primary.dsn)
            tree = told("doctor", primary.dsn)
            [standby] = tree["standbys"]
            assert (standby["name"], standby["state"], standby["sync"]) == ("berlin", "streaming", "async")
            assert found(tree, "replication")["found"].startswith("1 standby: berlin (async)")
            done = call("doctor", dsn)
            assert marks(done, 1)["server"] == "fail"
            assert "behind its primary: it may only be read. Name the primary" in done.stdout
            assert password_of(dsn) not in done.stdout
