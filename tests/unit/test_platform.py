"""Syncing, locking, naming and ending processes, as Linux does them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from perdure.platform import (
    fsync_file,
    fsync_folder,
    is_process_alive,
    kill_hard,
    process_identity,
    try_lock_file,
    unlock_file,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these look at Linux's own behaviour")


@contextmanager
def opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def another_process() -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that waits until it is ended, and reap it in any case."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_files_and_folders_are_synced(tmp_path: Path) -> None:
    with opened(tmp_path / "a") as fd:
        os.write(fd, b"kept")
        fsync_file(fd)
    fsync_folder(tmp_path)


def test_a_folder_that_is_not_there_cannot_be_synced(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fsync_folder(tmp_path / "gone")


def test_only_one_holder_has_the_lock_of_a_file(tmp_path: Path) -> None:
    with opened(tmp_path / "lock") as first, opened(tmp_path / "lock") as second:
        assert try_lock_file(first)
        assert not try_lock_file(second)
        unlock_file(first)
        assert try_lock_file(second)
        assert not try_lock_file(first)


def test_closing_the_file_releases_the_lock(tmp_path: Path) -> None:
    with opened(tmp_path / "lock") as first:
        assert try_lock_file(first)
    with opened(tmp_path / "lock") as second:
        assert try_lock_file(second)


def test_unlocking_an_unlocked_file_changes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "lock") as fd:
        unlock_file(fd)
        unlock_file(fd)


def test_locking_leaves_content_and_position_alone(tmp_path: Path) -> None:
    with opened(tmp_path / "lock") as fd:
        os.write(fd, b"content")
        os.lseek(fd, 3, os.SEEK_SET)
        assert try_lock_file(fd)
        assert os.read(fd, 10) == b"tent"


def test_process_identity_describes_the_current_process() -> None:
    here = process_identity()
    assert here == process_identity()
    assert here.pid == os.getpid()
    assert here.boot_id
    assert here.pid_namespace.startswith("pid:[")
    assert is_process_alive(here)


def test_killed_process_is_not_alive_even_before_it_is_reaped() -> None:
    with another_process() as process:
        identity = process_identity(process.pid)
        assert is_process_alive(identity)
        kill_hard(process.pid)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # returns when it has ended, and leaves it a zombie
        assert is_process_alive(identity) is False
        assert process.wait() == -9


def test_later_process_with_the_same_pid_is_another_process() -> None:
    assert is_process_alive(replace(process_identity(), started="1")) is False


def test_process_of_another_boot_or_container_has_an_unknown_state() -> None:
    here = process_identity()
    assert is_process_alive(replace(here, boot_id="another")) is None
    assert is_process_alive(replace(here, pid_namespace="pid:[1]")) is None


def test_ended_process_has_no_identity_and_killing_it_does_not_raise() -> None:
    with another_process() as process:
        process.kill()
        process.wait()
        with pytest.raises(ProcessLookupError, match=f"No process {process.pid} exists"):
            process_identity(process.pid)
        kill_hard(process.pid)
