"""Differences between Linux, macOS and Windows: syncing and locking files, identifying and killing processes.

Tests run on Linux. The branches for macOS and Windows follow the systems' documentation.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

# Windows locks a range of bytes and blocks reads of it by others: lock a byte far behind any content.
_LOCK_OFFSET = 0x7FFF_FFFF_0000


def fsync_file(fd: int) -> None:
    """Return when the file's content would survive a power cut. Its times need not."""
    if sys.platform == "darwin":
        import fcntl

        try:
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # plain fsync leaves the data in the drive's cache
        except OSError:
            os.fsync(fd)  # not every file system supports F_FULLFSYNC
    elif sys.platform == "win32":
        os.fsync(fd)
    else:
        os.fdatasync(fd)


def fsync_folder(path: str | os.PathLike[str]) -> None:
    """Return when files made, renamed or removed in the folder would survive a power cut.

    Windows cannot sync a folder; its file systems journal such changes themselves.
    """
    if sys.platform == "win32":
        return
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def replace_file(path: Path, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A file that appears, or replaces another, only when the block ends without an error; then it survives a power
    cut."""
    part = path.with_name(f".{path.name}.{os.urandom(8).hex()}.part")
    try:
        with open(part, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            fsync_file(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    fsync_folder(path.parent)


def try_lock_file(fd: int) -> bool:
    """Take the file's lock if it is free. Returns whether it was.

    The lock belongs to this file descriptor. It ends with `unlock_file`, with closing the file, or with the process.
    """
    try:
        if sys.platform == "win32":
            import msvcrt

            with _at_the_lock_byte(fd):
                msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # flock raises the first, msvcrt the second
        return False
    return True


def unlock_file(fd: int) -> None:
    """Release the lock. Does nothing if it is not held."""
    if sys.platform == "win32":
        import msvcrt

        with suppress(PermissionError), _at_the_lock_byte(fd):  # PermissionError: it was not locked
            msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)
    else:
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_UN)


def reset_in_children(objects: Iterable[Any]) -> None:
    """Call `reset` of these objects in each forked child, before it does anything else."""

    def reset_all() -> None:
        for each in list(objects):
            each.reset()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=reset_all)


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Identifies one process, also against a later one with the same pid."""

    boot_id: str
    """Identifies one boot of one machine; empty where the system has none."""
    pid_namespace: str
    """The container in which `pid` is valid; empty where the system has none."""
    pid: int
    started: str
    """Its start time in the system's own notation. Compare it for equality only."""
    token: str = ""
    """Random, in the identity of an owner of threads: distinguishes processes on hosts without a boot id."""


def process_identity(pid: int | None = None) -> ProcessIdentity:
    """The identity of this process, or of a running one with this pid. Raises ProcessLookupError if none exists."""
    pid = os.getpid() if pid is None else pid
    started = _start_time(pid)
    if started is None:
        raise ProcessLookupError(f"No process {pid} exists.")
    return ProcessIdentity(boot_id(), _pid_namespace(), pid, started)


def is_process_alive(identity: ProcessIdentity) -> bool | None:
    """Whether that process still runs; None if it cannot be seen from here.

    A process of another machine or container is invisible: the caller must wait until its lease expires. A stopped
    process (SIGSTOP) is alive; a zombie is not.
    """
    if (identity.boot_id, identity.pid_namespace) != (boot_id(), _pid_namespace()):
        return None
    return _start_time(identity.pid) == identity.started


def kill_hard(pid: int) -> None:
    """Kill a process immediately, without a chance to clean up. Does nothing if it has ended."""
    try:
        # Windows has no SIGKILL. SIGTERM ends the process there, as any signal but the two console events does.
        os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))
    except ProcessLookupError:
        pass
    except OSError as problem:
        if getattr(problem, "winerror", None) != 87:  # ERROR_INVALID_PARAMETER: no such process
            raise


@contextmanager
def _at_the_lock_byte(fd: int) -> Iterator[None]:
    """Move to the lock byte, where msvcrt.locking locks, and restore the position."""
    before = os.lseek(fd, 0, os.SEEK_CUR)
    os.lseek(fd, _LOCK_OFFSET, os.SEEK_SET)
    try:
        yield
    finally:
        os.lseek(fd, before, os.SEEK_SET)


@lru_cache(maxsize=1)
def boot_id() -> str:
    """Identifies this boot of this machine; empty where the system has no such id."""
    if sys.platform == "linux":
        return _read("/proc/sys/kernel/random/boot_id")
    if sys.platform == "darwin":
        return _ask("sysctl", "-n", "kern.bootsessionuuid")
    return ""


def _pid_namespace() -> str:
    """Not cached: a process can be moved, and reading a link costs microseconds."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _start_time(pid: int) -> str | None:
    """The start time of the process; None if it is not running."""
    if sys.platform == "linux":
        # Field 22. The name before it may hold spaces and brackets, so count from its end.
        fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        return None if not fields or fields[0] in "ZX" else fields[19]  # a zombie has ended
    if sys.platform == "win32":
        return _start_time_windows(pid)
    return _ask("ps", "-o", "lstart=", "-p", str(pid)) or None


def _start_time_windows(pid: int) -> str | None:
    """The creation time by GetProcessTimes, without opening the process for more than that."""
    import ctypes

    if sys.platform != "win32":
        return None
    kernel32 = ctypes.windll.kernel32
    kernel32.OpenProcess.restype = ctypes.c_void_p
    query_limited_information, still_active = 0x1000, 259
    opened = kernel32.OpenProcess(query_limited_information, False, pid)
    if not opened:
        return None
    try:
        process = ctypes.c_void_p(opened)
        exit_code = ctypes.c_ulong()
        times = [ctypes.c_ulonglong() for _ in range(4)]
        if not kernel32.GetExitCodeProcess(process, ctypes.byref(exit_code)) or exit_code.value != still_active:
            return None
        if not kernel32.GetProcessTimes(process, *map(ctypes.byref, times)):
            return None
        return str(times[0].value)
    finally:
        kernel32.CloseHandle(ctypes.c_void_p(opened))


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _ask(*command: str) -> str:
    """The output of a system program; empty if it fails."""
    import subprocess

    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
