"""API keys: making one, and telling by one who sends a request. A key is `pd_<id>_<secret>`."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

import msgspec

from perdure.clock import Clock, SystemClock
from perdure.errors import PerdureError
from perdure.log import get_logger
from perdure.server.auth.key_file import KeyFile, Signature, StoredKey
from perdure.server.auth.principal import AuthUnavailable, Credentials, NotAuthenticated, Principal

logger = get_logger(__name__)

SECRET_BYTES = 32
SALT_BYTES = 16
ID_BYTES = 8
FORM = re.compile(r"pd_([0-9a-f]{16})_([A-Za-z0-9_-]{43})", re.ASCII)
NOT_VALID = "The API key is not valid."
NO_KEY = "This server wants an API key: send it as `X-API-Key`, or as `Authorization: Bearer`."
# Stands for a key that is not there: looking for one takes as long as finding one, and tells nobody which ids exist.
_NOBODY = StoredKey("00" * ID_BYTES, "", "00" * SALT_BYTES, "00" * SECRET_BYTES, datetime.min)  # noqa: DTZ901  # never looked at


class MadeKey(NamedTuple):
    key: str
    """Shown once; it cannot be made again from what is kept."""
    stored: StoredKey


def make_key(
    user: str,
    *,
    created: datetime,
    roles: Iterable[str] = (),
    scopes: Iterable[str] | None = None,
    expires: datetime | None = None,
    name: str | None = None,
) -> MadeKey:
    """A new key of this user, 32 random bytes of it secret. Nothing is written."""
    key_id, secret, salt = (
        secrets.token_hex(ID_BYTES),
        secrets.token_urlsafe(SECRET_BYTES),
        secrets.token_hex(SALT_BYTES),
    )
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
    return MadeKey(f"pd_{key_id}_{secret}", stored)


def hash_of(secret: str, salt: str) -> str:
    # One round is enough. Slow hashes are for what people think up: they make each guess expensive. Nobody guesses 32
    # random bytes, however fast; and a slow hash would let anybody keep the server busy with wrong keys.
    return hmac.new(salt.encode(), secret.encode(), hashlib.sha256).hexdigest()


class ApiKeys:
    """Knows those who have a key in this file. A change of the file is heeded with the next request."""

    def __init__(self, file: KeyFile, clock: Clock | None = None) -> None:
        """Raises InvalidConfig for a file that cannot be used."""
        self._file = file
        self._clock = clock or SystemClock()
        self._keys: dict[str, StoredKey] = {}
        self._signature: Signature | None = None
        self._warned_of: Signature | None = None
        self._read()
        if not self._keys:
            logger.warning(
                "%s holds no API key, so nobody can come in: `perdure keys create USER` makes one", file.path
            )

    async def authenticate(self, credentials: Credentials) -> Principal:
        self._look()
        given = credentials.api_key or credentials.token
        if not given:
            raise NotAuthenticated(NO_KEY)
        found = FORM.fullmatch(given)
        key_id, secret = found.groups() if found else ("", "")
        stored = self._keys.get(key_id, _NOBODY)
        is_right = hmac.compare_digest(hash_of(secret, stored.salt), stored.hash)
        if not is_right or stored is _NOBODY or stored.revoked is not None:
            raise NotAuthenticated(NOT_VALID)
        if stored.expires is not None and stored.expires <= self._clock.now():
            raise NotAuthenticated("The API key has expired.")
        return _principal(stored)

    def _look(self) -> None:
        """Raises AuthUnavailable while the file cannot be used: keys that were read before may be revoked by now."""
        try:
            signature = self._file.signature()
            if signature != self._signature:
                self._read()
        except (PerdureError, OSError) as problem:
            self._tell(problem)
            raise AuthUnavailable from None

    def _read(self) -> None:
        contents = self._file.read()
        self._keys = {one.id: one for one in contents.keys}
        self._signature = contents.signature
        if self._file.is_open_to_others():
            logger.warning(
                "More people than its owner may read %s. They learn who has API keys, and no key: chmod 600 %s",
                self._file.path,
                self._file.path,
            )

    def _tell(self, problem: Exception) -> None:
        """Once for each state of the file, not with each request."""
        try:
            state = self._file.signature()
        except OSError:
            state = Signature(0, 0, 0, 0)
        if state != self._warned_of:
            self._warned_of = state
            logger.error("Nobody can come in: %s", problem)


def _principal(stored: StoredKey) -> Principal:
    scopes = None if stored.scopes is None else frozenset(stored.scopes)
    named = {} if stored.name is None else {"key_name": stored.name}
    return Principal(stored.user, stored.roles, scopes, {"key_id": stored.id, **named})


def revoke_key(keys: tuple[StoredKey, ...], key_id: str, at: datetime) -> tuple[StoredKey, ...]:
    """With this one revoked, at this time unless it was before. Raises KeyError if there is none."""
    if all(one.id != key_id for one in keys):
        raise KeyError(key_id)
    return tuple(
        msgspec.structs.replace(one, revoked=at) if one.id == key_id and one.revoked is None else one for one in keys
    )
