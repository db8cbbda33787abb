"""`perdure serve` as a process: started, killed, stopped, and started again on its port."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import psutil  # type: ignore[import-untyped]  # it has no types
from click.testing import CliRunner
from tests.databases.daemon import free_port
from tests.server.zygote import ZYGOTE

from perdure.cli.commands.init import init

COMMAND = Path(sys.executable).with_name("perdure")
LIMIT_SECONDS = 60.0
"""A server that takes longer to start or to end hangs."""
T = TypeVar("T")
_TAKEN = ("address already in use", "listened on")
"""The messages of a server whose port is not free."""
_UNWANTED = ("PERDURE", "DATABASE_URL", "REDIS_URL", "MODEL", "OTEL_", "JWT_")


class _Forked:
    """A process that the zygote made, like a Popen."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        return ZYGOTE.exit_code(self.pid)

    def wait(self, timeout: float) -> int:
        patience = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > patience:
                raise subprocess.TimeoutExpired(f"server {self.pid}", timeout)
            time.sleep(0.005)
        return code


def project(folder: Path) -> Path:
    """Writes a project with `perdure init` into this folder."""
    done = CliRunner().invoke(init, [str(folder)])
    assert done.exit_code == 0, done.output
    return folder


def flows_project(folder: Path, **keys: Any) -> Path:
    """Writes a project with the workflows of flows.py, on SQLite unless `keys` change the configuration."""
    folder.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("flows.py"), folder)
    config = {"agent": "flows:chain", "workflows": {"asking": "flows:asking"}, "checkpointer": "sqlite:///perdure.db"}
    (folder / "perdure.json").write_text(json.dumps({**config, **keys}), encoding="utf-8")
    return folder


class Server:
    """One server of the project in `folder`. It is started by `with` or `start`, and killed when the block ends.

    It is forked from a process that has imported everything, which takes a tenth of the time; if `fresh`, the command
    is started as a user starts it.
    """

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        env: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
        *,
        fresh: bool = False,
    ) -> None:
        self.folder = folder
        self.port = free_port() if port is None else port
        self._may_move = port is None
        self._env = dict(env or {})
        self._arguments = arguments
        self._is_fresh = fresh
        self._process: subprocess.Popen[bytes] | _Forked | None = None
        self.exit_code: int | None = None
        """The exit code of the last process, once it has ended."""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "It is not running."
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """The output of this process and of its predecessors."""
        return self._log_file.read_text(encoding="utf-8", errors="replace")

    # ------------------------------------------------------------ beginning and end

    def start(self) -> Self:
        """Returns when the server answers. A port that no test chose is replaced if another process has taken it."""
        for _ in range(5):
            self.begin()
            if self._answers_in_time():
                return self
            if not self._may_move or not any(message in self.log for message in _TAKEN):
                break
            self.port = free_port()
        raise AssertionError(f"It ended with {self.wait()}: {self.log[-4000:]}")

    def begin(self) -> None:
        """Start the process, and do not wait for it."""
        assert not self.is_running
        arguments, env = ["serve", "--port", str(self.port), *self._arguments], self._environment()
        if not self._is_fresh:
            self._process = _Forked(ZYGOTE.fork(arguments, self.folder, env, self._log_file))
            return
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [COMMAND, *arguments], cwd=self.folder, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def send(self, how: signal.Signals) -> None:
        os.kill(self.pid, how)

    def kill(self) -> None:
        """Ends the process at once with SIGKILL."""
        if self.is_running:
            self.send(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        """Stops the process with SIGTERM and returns its exit code."""
        self.send(signal.SIGTERM)
        return self.wait()

    def wait(self, seconds: float = LIMIT_SECONDS) -> int:
        if self._process is not None:
            self.exit_code = self._process.wait(seconds)
            self._process = None
        assert self.exit_code is not None, "It was never started."
        return self.exit_code

    # ------------------------------------------------------------ requests

    def client(self, **more: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=LIMIT_SECONDS, trust_env=False, **more)

    def get(self, path: str, **more: Any) -> httpx.Response:
        with self.client() as client:
            return client.get(path, **more)

    def post(self, path: str, body: Any = None, **more: Any) -> httpx.Response:
        with self.client() as client:
            return client.post(path, json=body, **more)

    # ------------------------------------------------------------ inside

    @property
    def _log_file(self) -> Path:
        return self.folder / f"serve-{self.port}.log"

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_UNWANTED)}
        return kept | {"PYTHONUNBUFFERED": "1"} | self._env

    def _answers_in_time(self) -> bool:
        """False if it ended instead."""
        patience = time.monotonic() + LIMIT_SECONDS
        with self.client() as client:
            while self.is_running:
                try:
                    if client.get("/ping").status_code == 200 and self._listens():
                        return True
                except httpx.TransportError:
                    pass
                assert time.monotonic() < patience, f"not ready: {self.log[-4000:]}"
                time.sleep(0.01)
        return False

    def _listens(self) -> bool:
        """Returns whether this process listens on the port, and not another process."""
        try:
            connections = psutil.Process(self.pid).net_connections("tcp")
        except psutil.Error:
            return False
        return any(
            connection.status == psutil.CONN_LISTEN and connection.laddr.port == self.port for connection in connections
        )


def eventually(ask: Callable[[], T], seconds: float = LIMIT_SECONDS) -> T:
    """Calls `ask` until its result is true, and returns the result. Another process makes it true."""
    patience = time.monotonic() + seconds
    while not (result := ask()):
        assert time.monotonic() < patience, f"still {result!r} after {seconds:g} seconds"
        time.sleep(0.01)
    return result


# ---------------------------------------------------------------- of a project with the workflows of flows.py


def turn(key: str) -> dict[str, Any]:
    """Returns the body that invokes `chain` in the thread of this name."""
    return {"messages": [{"role": "user", "content": key}], "config": {"thread_id": key}}


def done(server: Server, key: str) -> list[str]:
    """Returns the words that the run of this key recorded, in order."""
    return (server.folder / f"{key}.done").read_text(encoding="utf-8").splitlines()
