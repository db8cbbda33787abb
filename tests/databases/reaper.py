"""A process that waits until another is gone, then ends the server that belonged to it and removes its folder."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it has no types

POLL_SECONDS = 0.2
END_SECONDS = 1.0
"""How long a server may take to end when it is asked to. It is killed then, as one is that a shell has started in the
background: it ignores SIGQUIT."""
PATIENCE_SECONDS = 15.0


def main() -> None:
    owner, folder = int(sys.argv[1]), Path(sys.argv[2])
    while folder.exists():
        time.sleep(POLL_SECONDS)
        if not psutil.pid_exists(owner):
            _end(folder)
            remove_shared_memory(folder)
            shutil.rmtree(folder, ignore_errors=True)


def write_pid(folder: Path, pid: int) -> None:
    """Whom to end."""
    try:
        (folder / "pid").write_text(f"{pid} {psutil.Process(pid).create_time()}", encoding="utf-8")
    except psutil.NoSuchProcess:
        pass  # it has ended already


def _end(folder: Path) -> None:
    try:
        pid, started = (folder / "pid").read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        return  # it was never started
    members = family(int(pid))
    if not members or abs(members[0].create_time() - float(started)) > 1:  # another program has the number by now
        return
    # PostgreSQL ends at once on SIGQUIT, and frees its shared memory. A paused server must first continue for that.
    send(members[:1], signal.SIGQUIT)
    send(members, signal.SIGCONT)
    if not are_gone_in_time(members, END_SECONDS):  # such as one that inherited from a shell to ignore SIGQUIT
        send(members, signal.SIGKILL)
        are_gone_in_time(members)


def remove_shared_memory(folder: Path) -> None:
    """What a PostgreSQL that was killed has left behind: a segment of a few bytes that says that it runs."""
    try:
        segment = int((folder / "data" / "postmaster.pid").read_text(encoding="utf-8").splitlines()[6].split()[1])
    except (OSError, IndexError, ValueError):
        return  # it ended in order, or is no PostgreSQL
    ctypes.CDLL(None).shmctl(segment, 0, None)  # 0: IPC_RMID


# ---------------------------------------------------------------- processes of a server


def family(pid: int) -> list[psutil.Process]:
    """A process and all that it started, itself first."""
    try:
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def send(members: Sequence[psutil.Process], how: signal.Signals) -> None:
    for member in members:
        try:
            member.send_signal(how)
        except psutil.NoSuchProcess:
            pass


def are_gone_in_time(members: Sequence[psutil.Process], seconds: float = PATIENCE_SECONDS) -> bool:
    patience = time.monotonic() + seconds
    while any(is_there(member) for member in members):
        if time.monotonic() > patience:
            return False
        time.sleep(0.002)
    return True


def is_there(member: psutil.Process) -> bool:
    try:
        return bool(member.is_running() and member.status() != psutil.STATUS_ZOMBIE)  # a zombie holds nothing any more
    except psutil.NoSuchProcess:
        return False


if __name__ == "__main__":
    os.chdir("/")
    main()
