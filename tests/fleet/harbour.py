"""Where fleets come from: a process that has imported all they need, and forks; and many processes at once."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.crash import zygote
from tests.crash.zygote import ROOT, Zygote

MODULES = ("racing", "stopping", "preparing", "working")
"""Of this folder, whose functions are called in lives."""


@contextmanager
def harbour() -> Iterator[Zygote]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fleet.harbour"],
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


def all_at_once(number: int, work: Callable[[int], object]) -> None:
    """Fork so many, let them all begin at one instant, and wait for the end of all. Raises if one of them did."""
    gate, opens = os.pipe()
    reader, writer = os.pipe()
    children = [_fork(number, work, (gate, opens), writer) for number in range(number)]
    for end in (gate, opens, writer):  # from now on no process holds the gate shut
        os.close(end)
    with open(reader, encoding="utf-8") as problems:
        problem = problems.read()
    ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if problem or any(ended):
        raise AssertionError(f"They ended with {ended}. {problem}")


def _fork(number: int, work: Callable[[int], object], gate: tuple[int, int], writer: int) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.close(gate[1])
        os.read(gate[0], 1)
        work(number)
        code = 0
    except BaseException:  # noqa: BLE001  # the process that started this one reads the traceback
        os.write(writer, traceback.format_exc().encode()[-8000:])
    finally:
        os._exit(code)


def main() -> None:
    replies = os.dup(1)
    os.dup2(2, 1)  # the output of the code under test stays out of the replies
    for name in MODULES:
        importlib.import_module(f"tests.fleet.{name}")
    for line in sys.stdin:
        request = json.loads(line)
        outcome = zygote._one_life(zygote._found(request["what"]), request["order"], request["kill_after"])
        os.write(replies, json.dumps({"number": request["number"], **outcome}).encode() + b"\n")


if __name__ == "__main__":
    main()
