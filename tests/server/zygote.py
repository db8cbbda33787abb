"""A process that has imported the server and does nothing but fork: that is how a server starts in a moment."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class Zygote:
    """Starts the zygote and sends it orders. Its servers end with it, and it ends with this process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def fork(self, arguments: Sequence[str], folder: Path, env: Mapping[str, str], log: Path) -> int:
        """Starts `perdure` with these arguments and returns its process id."""
        return int(self._ask(arguments=list(arguments), folder=str(folder), env=dict(env), log=str(log)))

    def exit_code(self, pid: int) -> int | None:
        """Returns None while the process runs. After a signal the code is the negative number of the signal."""
        code = self._ask(pid=pid)
        return None if code is None else int(code)

    def _ask(self, **order: Any) -> Any:
        with self._lock:
            process = self._started()
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.server.zygote"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": path},
            )
            atexit.register(self.close)
        return self._process

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None and self._process.stdout is not None
            self._process.stdin.close()  # which ends it
            self._process.wait(10)
            self._process.stdout.close()
            self._process = None


ZYGOTE = Zygote()


# ---------------------------------------------------------------- in the zygote


def main() -> None:
    replies = os.dup(1)
    os.dup2(2, 1)
    _warm_up()
    ended: dict[int, int] = {}
    running: set[int] = set()
    for line in sys.stdin:
        order = json.loads(line)
        if "pid" in order:
            reply = _exit_code(order["pid"], ended, running)
        else:
            reply = _forked(order, replies)
            running.add(reply)
        os.write(replies, json.dumps(reply).encode() + b"\n")
    for pid in running:
        os.kill(pid, signal.SIGKILL)


def _warm_up() -> None:
    """Import what a server needs, also what is imported when it is first used."""
    import uvicorn.lifespan.on
    import uvicorn.protocols.http.auto
    import uvicorn.protocols.websockets.auto  # noqa: F401  # only to be loaded
    from litestar import Litestar

    import perdure.agents.base
    import perdure.agents.recording  # noqa: F401  # and what `perdure init` writes needs

    Litestar([], logging_config=None)  # which imports its plugins


def _exit_code(pid: int, ended: dict[int, int], running: set[int]) -> int | None:
    if pid not in ended:
        ended_pid, status = os.waitpid(pid, os.WNOHANG)
        if not ended_pid:
            return None
        ended[pid] = os.waitstatus_to_exitcode(status)
        running.discard(pid)
    return ended[pid]


def _forked(order: dict[str, Any], replies: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.close(replies)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.clear()
        os.environ.update(order["env"])
        os.chdir(order["folder"])
        code = _served(order["arguments"])
    except BaseException:  # noqa: BLE001  # the log records it, and the process ends here
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _served(arguments: list[str]) -> int:
    """As the command does it."""
    from perdure.cli.main import main as perdure

    sys.argv = ["perdure", *arguments]
    try:
        perdure()
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


if __name__ == "__main__":
    main()
