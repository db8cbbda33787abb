"""API keys: the key file, new keys and authentication. A key is `pd_<id>_<secret>`."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, NamedTuple, TypeAlias

import msgspec

from perdure.clock import Clock, SystemClock
from perdure.errors import PerdureError
from perdure.log import get_logger
from perdure.platform import replace_file, try_lock_file
from perdure.server.auth.principal import AuthUnavailable, Credentials, NotAuthenticated, Principal, is_user_id
from perdure.server.config.schema import InvalidConfig, invalid

logger = get_logger(__name__)

VERSION = 1
BUSY_SECONDS = 10.0
LOCK_RETRY_SECONDS = 0.005
Digits: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]+$", min_length=16, max_length=64)]
"""Hexadecimal."""


class StoredKey(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A key as stored: the secret cannot be derived from it."""

    id: Digits
    """The public part of the key: `perdure keys` lists and revokes keys by it."""
    user: str
    salt: Digits
    hash: Digits
    """HMAC-SHA-256 of the secret under the salt."""
    created: datetime
    roles: tuple[str, ...] = ()
    scopes: tuple[str, ...] | None = None
    """None: no limits."""
    name: str | None = None
    """A label chosen by the owner."""
    expires: datetime | None = None
    revoked: datetime | None = None


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    keys: tuple[StoredKey, ...]


class Signature(NamedTuple):
    """Identifies a version of the file."""

    inode: int
    size: int
    modified: int
    changed: int


class KeyFileContents(NamedTuple):
    keys: tuple[StoredKey, ...]
    signature: Signature | None
    """None: the file does not exist."""


class KeyFile:
    """The file of API keys. `perdure keys` writes it, servers read it. Methods block for a small file's time."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def signature(self) -> Signature | None:
        """Takes two microseconds on a local disk: cheap enough for each request."""
        try:
            return _signature(os.stat(self.path))
        except FileNotFoundError:
            return None

    def read(self) -> KeyFileContents:
        """The keys; none if the file does not exist. Raises InvalidConfig for a damaged or group-writable file."""
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                content = file.read()
        except FileNotFoundError:
            return KeyFileContents((), None)
        except OSError as error:
            raise self._invalid(f"this file of API keys cannot be read: {error.strerror}.") from error
        # A user with write access could add a key for any user.
        if sys.platform != "win32" and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise self._invalid(
                f"other users may write to this file of API keys (mode {stat.S_IMODE(status.st_mode):04o}), so they "
                f"could add keys. Remove that permission (chmod 600 {self.path}) and check that all keys are yours: "
                "`perdure keys list`."
            )
        return KeyFileContents(self._decode(content), _signature(status))

    def is_open_to_others(self) -> bool:
        """Whether other users may read the file. It names the users, but contains no key."""
        try:
            return sys.platform != "win32" and bool(os.stat(self.path).st_mode & (stat.S_IRGRP | stat.S_IROTH))
        except FileNotFoundError:
            return False

    def change(self, change: Callable[[tuple[StoredKey, ...]], tuple[StoredKey, ...]]) -> None:
        """Replace the keys by `change(keys)`, atomically; a lock serializes processes.

        Raises what `change` raises, and InvalidConfig as `read` does; then nothing is written.
        """
        with self._lock():
            before = self.read()
            self._write(change(before.keys), before.signature)

    def _decode(self, content: bytes) -> tuple[StoredKey, ...]:
        try:
            version = msgspec.json.decode(content, type=dict[str, msgspec.Raw]).get("version")
            if version is not None and bytes(version).isdigit() and int(bytes(version)) > VERSION:
                raise self._invalid(
                    f"this file of API keys was written by a newer perdure (version {int(bytes(version))}; this one "
                    f"reads {VERSION}). Nothing was changed. Upgrade perdure."
                )
            document = msgspec.json.decode(content, type=_Document)
            _check_keys(document.keys)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            if isinstance(error, InvalidConfig):
                raise
            raise self._invalid(
                f"this file of API keys is damaged: {error}. Nothing was changed. Restore a backup. Or move it "
                "away and create new keys with `perdure keys create`; the old keys stop working then."
            ) from error
        return document.keys

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Lock a separate file, because the key file itself is replaced."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = self.path.with_name(f"{self.path.name}.lock")
        fd = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            until = time.monotonic() + BUSY_SECONDS
            while not try_lock_file(fd):
                if time.monotonic() > until:
                    raise self._invalid(
                        f"another process has held {lock.name} for {BUSY_SECONDS:g} seconds. Nothing was changed. Try "
                        "again, or stop that process."
                    )
                time.sleep(LOCK_RETRY_SECONDS)
            yield
        finally:
            os.close(fd)  # releases the lock

    def _write(self, keys: tuple[StoredKey, ...], before: Signature | None) -> None:
        document = msgspec.json.format(msgspec.json.encode(_Document(VERSION, keys)), indent=2) + b"\n"
        with replace_file(self.path, mode=0o600) as file:
            file.write(document)
            file.flush()
            # File systems store times in steps of milliseconds. Two changes within one step could look like none to a
            # server, and a revoked key would keep working.
            stamp = time.time_ns() if before is None else max(time.time_ns(), before.modified + 1)
            os.utime(file.name, ns=(stamp, stamp))

    def _invalid(self, sentence: str) -> InvalidConfig:
        return invalid(str(self.path), sentence)


def _signature(status: os.stat_result) -> Signature:
    return Signature(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _check_keys(keys: tuple[StoredKey, ...]) -> None:
    """Raises ValueError for duplicate ids, invalid users and times without a zone."""
    ids: set[str] = set()
    for key in keys:
        if key.id in ids:
            raise ValueError(f"key {key.id} is there twice")  # one of them may be revoked
        if not is_user_id(key.user):
            raise ValueError(f"key {key.id} names no user")
        if any(at is not None and at.tzinfo is None for at in (key.created, key.expires, key.revoked)):
            raise ValueError(f"a time of key {key.id} has no zone")
        ids.add(key.id)


# ---------------------------------------------------------------- keys


SECRET_BYTES = 32
SALT_BYTES = 16
ID_BYTES = 8
FORM = re.compile(r"pd_([0-9a-f]{16})_([A-Za-z0-9_-]{43})", re.ASCII)
NOT_VALID = "The API key is not valid."
NO_KEY = "This server needs an API key: send it as `X-API-Key` or `Authorization: Bearer`."
# Stands in for an unknown key, so that the time of a comparison does not reveal which ids exist.
_ABSENT_KEY = StoredKey("00" * ID_BYTES, "", "00" * SALT_BYTES, "00" * SECRET_BYTES, datetime.min)  # noqa: DTZ901  # never read


class NewKey(NamedTuple):
    key: str
    """Shown once; it cannot be derived from `stored`."""
    stored: StoredKey


def make_key(
    user: str,
    *,
    created: datetime,
    roles: Iterable[str] = (),
    scopes: Iterable[str] | None = None,
    expires: datetime | None = None,
    name: str | None = None,
) -> NewKey:
    """A new key of this user with a secret of 32 random bytes. Nothing is written."""
    key_id, salt = secrets.token_hex(ID_BYTES), secrets.token_hex(SALT_BYTES)
    secret = secrets.token_urlsafe(SECRET_BYTES)
    stored = StoredKey(
        id=key_id,
        user=user,
        salt=salt,
        hash=hash_of(secret, salt),
        created=created,
        roles=tuple(roles),
        scopes=None if scopes is None else tuple(scopes),
        name=name,
        expires=expires,
    )
    return NewKey(f"pd_{key_id}_{secret}", stored)


def hash_of(secret: str, salt: str) -> str:
    # One round is enough: slow hashes protect passwords that can be guessed, and 32 random bytes cannot. A slow hash
    # would also let strangers keep the server busy with wrong keys.
    return hmac.new(salt.encode(), secret.encode(), hashlib.sha256).hexdigest()


class ApiKeys:
    """Authenticates the keys of a file. The next request after a change of the file uses the new keys."""

    def __init__(self, file: KeyFile, clock: Clock | None = None) -> None:
        """Raises InvalidConfig for an unusable file."""
        self._file = file
        self._clock = clock or SystemClock()
        self._keys: dict[str, StoredKey] = {}
        self._signature: Signature | None = None
        self._warned_of: Signature | None = None
        self._read()
        if not self._keys:
            logger.warning(
                "%s contains no API key, so all requests will be refused. `perdure keys create USER` creates a key",
                file.path,
            )

    async def authenticate(self, credentials: Credentials) -> Principal:
        self._reload_if_changed()
        text = credentials.api_key or credentials.token
        if not text:
            raise NotAuthenticated(NO_KEY)
        match = FORM.fullmatch(text)
        key_id, secret = match.groups() if match else ("", "")
        stored = self._keys.get(key_id, _ABSENT_KEY)
        is_match = hmac.compare_digest(hash_of(secret, stored.salt), stored.hash)
        if not is_match or stored is _ABSENT_KEY or stored.revoked is not None:
            raise NotAuthenticated(NOT_VALID)
        if stored.expires is not None and stored.expires <= self._clock.now():
            raise NotAuthenticated("The API key has expired.")
        scopes = None if stored.scopes is None else frozenset(stored.scopes)
        label = {} if stored.name is None else {"key_name": stored.name}
        return Principal(stored.user, stored.roles, scopes, {"key_id": stored.id, **label})

    def _reload_if_changed(self) -> None:
        """Raises AuthUnavailable while the file is unusable: keys read earlier may be revoked by now."""
        try:
            signature = self._file.signature()
            if signature != self._signature:
                self._read()
        except (PerdureError, OSError) as problem:
            try:
                state = self._file.signature()
            except OSError:
                state = Signature(0, 0, 0, 0)
            if state != self._warned_of:  # once for each version of the file, not with each request
                self._warned_of = state
                logger.error("no valid API keys: all requests will be refused: %s", problem)
            raise AuthUnavailable from None

    def _read(self) -> None:
        keys, self._signature = self._file.read()
        self._keys = {key.id: key for key in keys}
        if self._file.is_open_to_others():
            logger.warning(
                "Other users may read %s. It names the users with API keys, but contains no key. Run: chmod 600 %s",
                self._file.path,
                self._file.path,
            )


def revoke_key(keys: tuple[StoredKey, ...], key_id: str, at: datetime) -> tuple[StoredKey, ...]:
    """The keys with this one revoked at this time, or earlier if it was already. Raises KeyError for an unknown id."""
    if all(key.id != key_id for key in keys):
        raise KeyError(key_id)
    return tuple(
        msgspec.structs.replace(key, revoked=at) if key.id == key_id and key.revoked is None else key for key in keys
    )
