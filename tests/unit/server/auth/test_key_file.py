"""The file of API keys: written wholly or not at all, by one process after the other, and for its owner alone."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.server.auth.api_keys import KeyFile, StoredKey, make_key, revoke_key
from perdure.server.config.schema import InvalidConfig
from perdure.testing import FakeClock

ADDING = """
import sys
from datetime import UTC, datetime
from perdure.server.auth.api_keys import make_key
from perdure.server.auth.api_keys import KeyFile

file = KeyFile(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for _ in range(25):
    file.change(lambda keys: (*keys, make_key(sys.argv[2], created=datetime.now(UTC)).stored))
"""


@pytest.fixture
def file(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path / "keys.json")


def a_key(user: str = "ada") -> StoredKey:
    return make_key(user, created=FakeClock().now()).stored


def test_written_keys_are_read_again(file: KeyFile) -> None:
    first, second = a_key(), a_key("bob")
    file.change(lambda keys: (*keys, first))
    file.change(lambda keys: (*keys, second))
    assert file.read().keys == (first, second)


def test_only_the_owner_may_read_and_write_the_file_whatever_the_umask(file: KeyFile) -> None:
    before = os.umask(0)
    try:
        file.change(lambda keys: (*keys, a_key()))
    finally:
        os.umask(before)
    for path in file.path.parent.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_two_processes_that_write_at_once_lose_no_key(file: KeyFile) -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", ADDING, str(file.path), user],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for user in ("ada", "bob")
    ]
    for child in children:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
    for child in children:
        child.communicate("go\n", timeout=60)
    assert [child.returncode for child in children] == [0, 0]
    users = [key.user for key in file.read().keys]
    assert (users.count("ada"), users.count("bob")) == (25, 25)


def test_failed_change_leaves_the_file_unchanged(file: KeyFile, monkeypatch: pytest.MonkeyPatch) -> None:
    file.change(lambda keys: (a_key(),))
    before = file.path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("perdure.platform.fsync_file", fail)
        with pytest.raises(OSError, match="full"):
            file.change(lambda keys: ())
    with pytest.raises(KeyError):
        file.change(lambda keys: revoke_key(keys, "nobody", FakeClock().now()))
    assert file.path.read_bytes() == before
    assert {path.name for path in file.path.parent.iterdir()} == {"keys.json", "keys.json.lock"}


def test_new_file_is_synced_before_it_replaces_the_old_file(file: KeyFile, monkeypatch: pytest.MonkeyPatch) -> None:
    acts: list[str] = []
    replace = os.replace

    def replacing(source: Path, target: Path) -> None:
        acts.append("replace")
        replace(source, target)

    monkeypatch.setattr("perdure.platform.fsync_file", lambda fd: acts.append("sync"))
    monkeypatch.setattr("perdure.platform.os.replace", replacing)
    monkeypatch.setattr("perdure.platform.fsync_folder", lambda path: acts.append("sync folder"))
    file.change(lambda keys: (a_key(),))
    assert acts == ["sync", "replace", "sync folder"]


def test_each_change_has_a_later_stamp_even_within_one_clock_tick(
    file: KeyFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.server.auth.api_keys.time.time_ns", lambda: 1_800_000_000_000_000_000)
    stamps = []
    for _ in range(3):
        file.change(lambda keys: keys)
        stamps.append(file.path.stat().st_mtime_ns)
    assert stamps[0] < stamps[1] < stamps[2]


def test_lock_that_is_not_released_raises(file: KeyFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.server.auth.api_keys.BUSY_SECONDS", 0.0)
    with file._lock():
        with pytest.raises(InvalidConfig, match=r"another process has held keys\.json\.lock for 0 seconds"):
            file.change(lambda keys: ())


def test_file_that_other_users_may_write_is_rejected(file: KeyFile) -> None:
    file.change(lambda keys: (a_key(),))
    file.path.chmod(0o660)
    with pytest.raises(InvalidConfig, match=r"other users may write to this file of API keys \(mode 0660\).*chmod 600"):
        file.read()


GOOD = b'{"id": "0123456789abcdef", "user": "ada", "salt": "%s", "hash": "%s", "created": "2026-01-01T00:00:00Z"}' % (
    b"00" * 16,
    b"00" * 32,
)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "truncated"),
        (b"\xff\xfe", "malformed"),
        (b"[]", "Expected `object`"),
        (b"{}", "missing required field `version`"),
        (b'{"version": "x", "keys": []}', "Expected `int`"),
        (b'{"version": 1, "keys": [{}]}', "missing required field"),
        (b'{"version": 1, "keys": [%s, %s]}' % (GOOD, GOOD), "key 0123456789abcdef is there twice"),
        (b'{"version": 1, "keys": [%s]}' % GOOD.replace(b"0Z", b"0"), "has no zone"),
        (b'{"version": 1, "keys": [%s]}' % GOOD.replace(b"ada", b""), "names no user"),
        (b'{"version": 1, "keys": [%s]}' % GOOD.replace(b"00" * 32, "é".encode() * 32), "matching regex"),
        (b"[" * 100_000, "deeply|recursion|Expected `object`"),
    ],
)
def test_damaged_file_is_rejected_with_the_reason(file: KeyFile, content: bytes, why: str) -> None:
    file.path.write_bytes(content)
    file.path.chmod(0o600)
    with pytest.raises(InvalidConfig, match=f"this file of API keys is damaged: .*({why})"):
        file.read()
    with pytest.raises(InvalidConfig):
        file.change(lambda keys: (a_key(),))
    assert file.path.read_bytes() == content


def test_sample_of_these_tests_is_valid(file: KeyFile) -> None:
    file.path.write_bytes(b'{"version": 1, "keys": [%s]}' % GOOD)
    file.path.chmod(0o600)
    assert [key.user for key in file.read().keys] == ["ada"]


def test_file_of_a_newer_version_is_rejected(file: KeyFile) -> None:
    file.path.write_bytes(b'{"version": 2, "keys": {}}')
    file.path.chmod(0o600)
    with pytest.raises(InvalidConfig, match=r"written by a newer perdure \(version 2; this one reads 1"):
        file.read()


def test_folder_in_place_of_the_file_raises(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="cannot be read: Is a directory"):
        KeyFile(tmp_path).read()
