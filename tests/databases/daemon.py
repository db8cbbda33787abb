"""A server program with a folder of its own: started, killed, paused, and gone with the process that started it."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.databases import reaper
from tests.databases.reaper import are_gone_in_time, family, send, write_pid

LIMIT_SECONDS = 30.0
"""A server that takes longer to start or to end hangs."""

_PORTS = range(20_000, 32_000)
"""Below those that systems give to outgoing connections: the port of a server that is down stays free for it."""


class Daemon:
    """One server program and all processes that it makes. What it writes is in `folder`, and goes with it.

    A reaper process ends the server and removes the folder once `belongs_to` (this process) is gone, however it went.
    """

    def __init__(self, name: str, user: str | None = None, belongs_to: int | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"perdure-{name}-"))
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None
        if user is not None:
            self.folder.chmod(0o700)
            shutil.chown(self.folder, user)
        self._reaper = subprocess.Popen(
            [sys.executable, "-I", reaper.__file__, str(belongs_to or os.getpid()), str(self.folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # an interruption at the terminal is not for it
        )

    @property
    def pid(self) -> int:
        assert self._process is not None, "It is not running."
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def run(self, command: Sequence[str | Path]) -> None:
        """A program that prepares the folder, as the server's user."""
        done = subprocess.run(
            [str(word) for word in command],
            cwd=self.folder,
            env=_environment(),
            user=self._user,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, f"{command[0]} ended with {done.returncode}: {done.stderr.decode()[-2000:]}"

    def start(self, command: Sequence[str | Path], is_ready: Callable[[], bool]) -> bool:
        """Wait until it is ready. False if it ended instead: what it said is in `log`."""
        assert not self.is_running
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [str(word) for word in command],
                cwd=self.folder,
                env=_environment(),
                user=self._user,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        write_pid(self.folder, self._process.pid)
        patience = time.monotonic() + LIMIT_SECONDS
        while not is_ready():
            if self._process.poll() is not None:
                return False
            assert time.monotonic() < patience, f"not ready after {LIMIT_SECONDS:g} seconds: {self.log[-2000:]}"
            time.sleep(0.005)
        return True

    @property
    def log_file(self) -> Path:
        return self.folder / "log"

    @property
    def log(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def end(self, how: signal.Signals) -> None:
        """Ask it to end, and wait until it has."""
        if self.is_running:
            os.kill(self.pid, how)
            self._wait()

    def kill(self) -> None:
        """All of its processes at one instant, as a power cut would: none of them gets to do anything more."""
        if not self.is_running:
            return
        self.pause()
        members = family(self.pid)
        send(members, signal.SIGKILL)
        self._wait()
        assert are_gone_in_time(members), f"still there after SIGKILL: {members}"

    def pause(self) -> None:
        """It keeps its connections and answers nothing."""
        send(family(self.pid)[:1], signal.SIGSTOP)  # before its children are listed: it makes no more of them
        send(family(self.pid)[1:], signal.SIGSTOP)

    def resume(self) -> None:
        send(family(self.pid) if self.is_running else [], signal.SIGCONT)

    def close(self) -> None:
        """Kill what is left of it, and remove the folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._reaper.terminate()
        self._reaper.wait()

    def _wait(self) -> None:
        assert self._process is not None
        self._process.wait(LIMIT_SECONDS)
        self._process = None


def free_port() -> int:
    """Return a port that no process listens on now."""
    while True:
        port = random.SystemRandom().choice(_PORTS)
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def _environment() -> dict[str, str]:
    """None of the settings that clients take from the environment, and messages in English."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return {**kept, "LC_ALL": "C"}
