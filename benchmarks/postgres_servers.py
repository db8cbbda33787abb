"""The servers of a run: one PostgreSQL with fsync, on the disk of the checkout, and one Valkey."""

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from peer import ROOT
from postgres_place import DATABASE, VALKEY

sys.path.insert(0, str(ROOT))  # it uses the servers of the tests

from tests.databases.postgres import PostgresServer, programs
from tests.databases.valkey import ValkeyServer

AS_SHIPPED = {"shared_buffers": "128MB", "wal_level": "replica", "max_wal_senders": "10", "io_method": "worker"}
"""Settings of a new installation, which a server for tests changes."""


class Servers:
    """PostgreSQL and Valkey, started at the first use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._postgres: PostgresServer | None = None
        self._valkey: ValkeyServer | None = None

    @contextmanager
    def database(self, folder: Path) -> Iterator[None]:
        """A new database for a job, with its address in the folder."""
        postgres, valkey = self._start()
        with postgres.database() as dsn:
            (folder / DATABASE).write_text(dsn, encoding="utf-8")
            (folder / VALKEY).write_text(valkey.url, encoding="utf-8")
            yield

    def _start(self) -> tuple[PostgresServer, ValkeyServer]:
        if self._postgres is None or self._valkey is None:
            tempfile.tempdir = str(_reachable(self._folder))
            self._postgres = self._stack.enter_context(PostgresServer(durable=True, settings=AS_SHIPPED))
            self._valkey = self._stack.enter_context(ValkeyServer())
            tempfile.tempdir = None
        return self._postgres, self._valkey

    def close(self) -> None:
        self._stack.close()


def _reachable(folder: Path) -> Path:
    """The folder, or another folder of the same disk that the server can read.

    A benchmark of root starts the server as another user, who may not reach the folder. Raises SystemExit without a
    folder on the same disk.
    """
    if os.geteuid() or all(path.stat().st_mode & stat.S_IXOTH for path in (folder, *folder.parents)):
        return folder
    other = Path(tempfile.gettempdir())
    if other.stat().st_dev != folder.stat().st_dev:
        raise SystemExit(f"a server that must not run as root cannot reach {folder}, and {other} is another disk")
    return other


def server_version() -> str:
    output = subprocess.run([programs() / "psql", "--version"], check=True, capture_output=True, text=True).stdout
    return f"PostgreSQL {output.split()[-1]}"
