"""A process that has imported everything and does nothing but fork: a life costs a fork, not the start of a Python."""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

LIMIT_SECONDS = 60.0
"""A life that takes longer hangs."""


@dataclass(frozen=True)
class Ended:
    """How a life ended."""

    status: int
    """As `waitpid` says it: 0, an exit code, or minus a signal."""
    seconds: float
    """From when it was ready."""

    @property
    def was_killed(self) -> bool:
        return self.status == -signal.SIGKILL


class Zygote:
    """The other end of it. `life` waits until the forked process is gone."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._number = 0

    def life(self, what: str, order: Any, kill_after: float | None = None) -> Ended:
        """Have `module:function` called with the order and a function that says `ready`; kill it so long after that.

        Raises AssertionError with the traceback if it raised, or if it took too long.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        self._number += 1
        request = {"number": self._number, "what": what, "order": order, "kill_after": kill_after}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        reply = json.loads(self._process.stdout.readline())
        while reply["number"] != self._number:  # of a life whose test was over before it
            reply = json.loads(self._process.stdout.readline())
        if reply["problem"] is not None:
            raise AssertionError(f"A life failed that nobody killed: {reply['problem']}")
        return Ended(reply["status"], reply["seconds"])


@contextmanager
def zygote() -> Iterator[Zygote]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.zygote"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
    )
    with process:
        try:
            yield Zygote(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()  # which ends it


# ---------------------------------------------------------------- in the zygote


def main() -> None:
    replies = os.dup(1)
    os.dup2(2, 1)  # the output of the code under test stays out of the replies
    _warm_up()
    for line in sys.stdin:
        request = json.loads(line)
        reply = {
            "number": request["number"],
            **_one_life(_found(request["what"]), request["order"], request["kill_after"]),
        }
        os.write(replies, json.dumps(reply).encode() + b"\n")


def _warm_up() -> None:
    """Import what runs need, also what is imported when it is first used: none of it is to be done in each life."""
    import asyncio

    from tests.crash import crowd, flows, forking, lives, loss_windows, posting, scarce, stopping  # noqa: F401  # only to be loaded

    from perdure import InMemoryCheckpointStorage
    from perdure.testing.crash import take_to_the_end

    async def all_flows() -> None:
        for flow in flows.FLOWS.values():
            storage = InMemoryCheckpointStorage()
            await take_to_the_end(flow.build(storage), storage, flow.message, flow.answers, thread_id=flow.name)

    asyncio.run(all_flows())


def _found(what: str) -> Callable[[Any, Callable[[], object]], None]:
    module, _, name = what.partition(":")
    function: Callable[[Any, Callable[[], object]], None] = getattr(importlib.import_module(module), name)
    return function


def _one_life(
    function: Callable[[Any, Callable[[], object]], None], order: Any, kill_after: float | None
) -> dict[str, Any]:
    reader, writer = os.pipe()  # closed by its end, whatever that is
    child = os.fork()
    if child == 0:
        os.close(reader)
        _live(function, order, writer)
    os.close(writer)
    os.read(reader, 1)  # that it is ready; nothing if it ended before
    began = time.monotonic()
    if kill_after is not None:
        select.select([reader], [], [], kill_after)
        os.kill(child, signal.SIGKILL)
    is_over = bool(select.select([reader], [], [], LIMIT_SECONDS)[0])
    seconds = time.monotonic() - began
    if not is_over:
        os.kill(child, signal.SIGKILL)
    problem = b"".join(iter(lambda: os.read(reader, 65536), b"")).decode()
    os.close(reader)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if not is_over:
        problem = f"it did not end within {LIMIT_SECONDS:g} seconds"
    elif status == 1 and not problem:
        problem = "it ended with 1 and said nothing"
    return {"status": status, "seconds": seconds, "problem": problem or None}


def _live(function: Callable[[Any, Callable[[], object]], None], order: Any, writer: int) -> None:
    code = 1
    try:
        function(order, lambda: os.write(writer, b"."))
        code = 0
    except BaseException:  # noqa: BLE001  # the parent reads it; this process must not run on as the zygote
        os.write(writer, traceback.format_exc().encode()[-8000:])
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
