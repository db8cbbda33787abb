"""Owners of threads: a process is checked directly where that is possible, and otherwise by its lease."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest

from perdure.platform import ProcessIdentity, process_identity
from perdure.stores.process_identity import (
    LEASE_SECONDS,
    RENEW_SECONDS,
    is_owner_dead,
    own_identity,
)

FUTURE, PAST = 3_600.0, -3_600.0


def as_stored(process: ProcessIdentity) -> str:
    return msgspec.json.encode(process).decode()


def is_gone(process: ProcessIdentity, seconds: float) -> bool:
    """Whether it is gone, with a lease that ends so many seconds from now."""
    return is_owner_dead(as_stored(process), seconds > 0)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield started
    started.kill()
    started.communicate()


def process_of(child: subprocess.Popen[bytes]) -> ProcessIdentity:
    who = process_identity(child.pid)
    return ProcessIdentity(who.boot_id, who.pid_namespace, who.pid, who.started, "token")


def this_process() -> ProcessIdentity:
    return msgspec.json.decode(own_identity(os.getpid()), type=ProcessIdentity)


def test_this_process_is_never_gone_whatever_its_lease() -> None:
    assert not is_gone(this_process(), FUTURE)
    assert not is_gone(this_process(), PAST)


def test_this_process_is_the_same_each_time_and_comes_back_from_its_json() -> None:
    assert own_identity(os.getpid()) == own_identity(os.getpid())
    assert as_stored(this_process()) == own_identity(os.getpid())


def test_a_process_that_lives_is_not_gone_even_if_its_lease_has_run_out(child: subprocess.Popen[bytes]) -> None:
    assert not is_gone(process_of(child), PAST)


def test_a_process_that_was_stopped_is_not_gone(child: subprocess.Popen[bytes]) -> None:
    child.send_signal(19)
    assert not is_gone(process_of(child), PAST)


def test_dead_process_is_gone_at_once_even_as_a_zombie(child: subprocess.Popen[bytes]) -> None:
    process = process_of(child)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is a zombie
    assert is_gone(process, FUTURE)
    child.wait()
    assert is_gone(process, FUTURE)


def test_process_with_the_same_pid_and_another_start_is_another(child: subprocess.Popen[bytes]) -> None:
    assert is_gone(replace(process_of(child), started="1"), FUTURE)
    assert is_gone(replace(this_process(), started="1"), FUTURE)


def test_lease_decides_for_a_process_that_cannot_be_seen() -> None:
    for elsewhere in (replace(this_process(), boot_id="another"), replace(this_process(), pid_namespace="pid:[1]")):
        assert not is_gone(elsewhere, FUTURE)
        assert is_gone(elsewhere, PAST)


def test_a_lease_is_renewed_several_times_before_it_runs_out() -> None:
    assert 3 * RENEW_SECONDS <= LEASE_SECONDS


def test_child_process_differs_from_its_parent() -> None:
    read, write = os.pipe()
    this_process()  # known before the fork, and not to be taken over by the child
    child = os.fork()
    if child == 0:
        os.write(write, as_stored(this_process()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    process = msgspec.json.decode(os.read(read, 10_000), type=ProcessIdentity)
    os.close(read)
    os.close(write)
    assert (process.pid, process.token != this_process().token) == (child, True)
    assert is_gone(process, FUTURE)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"pid":"x"}'])
def test_owner_with_an_unreadable_identity_lives_as_long_as_its_lease(text: str) -> None:
    assert is_owner_dead(text, is_leased=False) and not is_owner_dead(text, is_leased=True)
