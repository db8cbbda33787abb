"""The file of API keys: who has one, what it allows, and a hash of it. `perdure keys` writes it, servers read it."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, NamedTuple, TypeAlias

import msgspec

from perdure.platform import fsync_file, fsync_folder, try_lock_file
from perdure.server.auth.principal import is_user_id
from perdure.server.config.errors import InvalidConfig, invalid

VERSION = 1
BUSY_SECONDS = 10.0
LOOK_AGAIN_SECONDS = 0.005
Digits: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]+$", min_length=16, max_length=64)]
"""Hexadecimal."""


class StoredKey(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A key as it is kept: nobody can make it from this."""

    id: Digits
    """Part of the key, and no secret: what it is listed and revoked by."""
    user: str
    salt: Digits
    hash: Digits
    """HMAC-SHA-256 of the secret under the salt."""
    created: datetime
    roles: tuple[str, ...] = ()
    scopes: tuple[str, ...] | None = None
    """None: not narrowed."""
    name: str | None = None
    """What its owner calls it."""
    expires: datetime | None = None
    revoked: datetime | None = None


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    keys: tuple[StoredKey, ...]


class Signature(NamedTuple):
    """What tells that a file is another one, or has changed."""

    inode: int
    size: int
    modified: int
    changed: int


class KeyFileContents(NamedTuple):
    keys: tuple[StoredKey, ...]
    signature: Signature | None
    """None: there is no file."""


class KeyFile:
    """One such file. Its methods block for as long as a small file takes."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def signature(self) -> Signature | None:
        """Two microseconds on a local disk: cheap enough to be asked with each request."""
        try:
            return _signature(os.stat(self.path))
        except FileNotFoundError:
            return None

    def read(self) -> KeyFileContents:
        """Nothing, if there is no file. Raises InvalidConfig for one that is damaged, or that others may write to."""
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                content = file.read()
        except FileNotFoundError:
            return KeyFileContents((), None)
        except OSError as error:
            raise self._invalid(f"this file of API keys cannot be read: {error.strerror}.") from error
        self._refuse_other_writers(status)
        return KeyFileContents(self._decoded(content), _signature(status))

    def is_open_to_others(self) -> bool:
        """Whether more people than its owner may read it. They learn who has keys, and no key."""
        try:
            return sys.platform != "win32" and bool(os.stat(self.path).st_mode & (stat.S_IRGRP | stat.S_IROTH))
        except FileNotFoundError:
            return False

    def change(self, change: Callable[[tuple[StoredKey, ...]], tuple[StoredKey, ...]]) -> None:
        """Replace the keys by what `change` makes of them, wholly or not at all, one process after the other.

        Raises what `change` raises, and InvalidConfig as `read` does; nothing is written then.
        """
        with self._locked():
            before = self.read()
            self._write(change(before.keys), before.signature)

    # ------------------------------------------------------------ reading

    def _refuse_other_writers(self, status: os.stat_result) -> None:
        # Whoever can write to it can give themselves a key, for any user.
        if sys.platform != "win32" and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise self._invalid(
                f"others may write to this file of API keys (mode {stat.S_IMODE(status.st_mode):04o}), and so make "
                f"keys for themselves. Take this right from them (chmod 600 {self.path}), and look whether all keys in "
                "it are yours: `perdure keys list`."
            )

    def _decoded(self, content: bytes) -> tuple[StoredKey, ...]:
        try:
            version = msgspec.json.decode(content, type=dict[str, msgspec.Raw]).get("version")
            if version is not None and bytes(version).isdigit() and int(bytes(version)) > VERSION:
                raise self._invalid(
                    f"this file of API keys was written by a newer perdure (version {int(bytes(version))}; this one "
                    f"knows {VERSION}). Nothing was changed. Upgrade perdure here."
                )
            document = msgspec.json.decode(content, type=_Document)
            _check(document.keys)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            if isinstance(error, InvalidConfig):
                raise
            raise self._invalid(
                f"this file of API keys is damaged: {error}. Nothing was changed. Put back a copy of it; or move it "
                "away and make new keys with `perdure keys create`: those that were given out end then."
            ) from error
        return document.keys

    # ------------------------------------------------------------ writing

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """A file beside it is locked: the file itself is replaced, and a lock would stay with the old one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = self._beside(".lock")
        fd = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            until = time.monotonic() + BUSY_SECONDS
            while not try_lock_file(fd):
                if time.monotonic() > until:
                    raise self._invalid(
                        f"another process has held {lock.name} for {BUSY_SECONDS:g} seconds. Nothing was changed. Try "
                        "again, or end it."
                    )
                time.sleep(LOOK_AGAIN_SECONDS)
            yield
        finally:
            os.close(fd)  # and with it the lock ends

    def _write(self, keys: tuple[StoredKey, ...], before: Signature | None) -> None:
        document = msgspec.json.format(msgspec.json.encode(_Document(VERSION, keys)), indent=2) + b"\n"
        beside = self._beside(f".{os.getpid()}.new")
        beside.unlink(missing_ok=True)
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(fd, "wb") as file:
                file.write(document)
                file.flush()
                # A file system's own stamp moves in steps of some milliseconds. Two changes within one step could look
                # like none to a server, and a key that was revoked would go on working.
                stamp = time.time_ns() if before is None else max(time.time_ns(), before.modified + 1)
                os.utime(beside, ns=(stamp, stamp))
                fsync_file(file.fileno())
            os.replace(beside, self.path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        fsync_folder(self.path.parent)

    def _invalid(self, sentence: str) -> InvalidConfig:
        return invalid(str(self.path), sentence)

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)


def _signature(status: os.stat_result) -> Signature:
    return Signature(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _check(keys: tuple[StoredKey, ...]) -> None:
    """What types do not say. Raises ValueError."""
    known: set[str] = set()
    for one in keys:
        if one.id in known:
            raise ValueError(f"key {one.id} is there twice")  # one of the two may be revoked
        if not is_user_id(one.user):
            raise ValueError(f"key {one.id} names no user")
        if not all(map(_is_aware, (one.created, one.expires, one.revoked))):
            raise ValueError(f"a time of key {one.id} has no zone")
        known.add(one.id)


def _is_aware(at: datetime | None) -> bool:
    return at is None or at.tzinfo is not None
