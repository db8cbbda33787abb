"""AES-GCM: stored data can be read and changed only with the key. Needs the package `cryptography`.

A payload becomes a JSON text, `"$aes-gcm:<key id>:<base64 of nonce, ciphertext and tag>"`, which a store keeps like any
other. It is bound to its place: at another, it cannot be decrypted. Each thread has a key derived from the main key,
so that the number of random nonces per key stays small.
"""

from __future__ import annotations

import os
import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

from perdure.errors import MissingExtra

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

VARIABLE = "PERDURE_KEYS"
_START = b'"$aes-gcm:'
_NONCE_BYTES = 12
_KEY_BYTES = (16, 24, 32)
_KEY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_CIPHERS = 1024
"""Number of threads whose ciphers are cached."""


class KeyProvider(Protocol):
    """A source of keys, such as a key management service. Called once for each key, in the event loop, so it must not
    block."""

    @property
    def current_key_id(self) -> str:
        """The key for new data. A method without arguments is accepted, too."""

    def key(self, key_id: str) -> bytes:
        """The key with this id, which never changes. Raises KeyError for an unknown id."""


Key: TypeAlias = bytes | str
"""16, 24 or 32 bytes; or these as base64, in a text."""


class AesGcm:
    """Encrypts all payloads of a storage: `SqliteCheckpointStorage(path, encryption=AesGcm(key))`.

    `keys` is one key; a list, whose first key encrypts new data; a mapping of key ids to keys, where `current`
    encrypts new data; or a `KeyProvider`. A key is 16, 24 or 32 bytes, or these as base64 (`generate_key`). The id of
    a key without one is part of its hash.
    """

    def __init__(
        self, keys: Key | Sequence[Key] | Mapping[str, Key] | KeyProvider, *, current: str | None = None
    ) -> None:
        try:
            from cryptography.exceptions import InvalidTag
        except ImportError as error:
            raise MissingExtra("AesGcm", "cryptography", "crypto") from error
        self._changed: type[Exception] = InvalidTag
        self._provider: Any = _provider_of(keys, current)
        self._cipher = lru_cache(maxsize=_CIPHERS)(self._new_cipher)

    @classmethod
    def from_environment(cls, variable: str = VARIABLE) -> Self:
        """With the keys of an environment variable: `id:key,id:key`, in base64, ids optional. The first encrypts new
        data. Raises ValueError if the variable has no keys."""
        parts = [part.strip() for part in os.environ.get(variable, "").split(",") if part.strip()]
        if not parts:
            raise ValueError(f"{variable} is not set. Set it to the encryption keys: id:key,id:key.")
        keys: dict[str, Key] = {}
        for part in parts:
            key_id, colon, text = part.rpartition(":")
            key = _key(text, variable)
            key_id = key_id if colon else _id_of(key)
            if keys.setdefault(key_id, key) != key:
                raise ValueError(f"{variable} has two keys with the id {key_id!r}.")
        return cls(keys, current=next(iter(keys)))

    @staticmethod
    def generate_key() -> str:
        """A new key of 32 bytes, as base64. Store it like a password: without it, nothing can be read."""
        return b2a_base64(os.urandom(32), newline=False).decode("ascii")

    def __repr__(self) -> str:
        return f"AesGcm(current={self.current_key_id!r})"  # never a key

    @property
    def current_key_id(self) -> str:
        """The key for new data."""
        key_id = self._provider.current_key_id
        return _checked_id(key_id() if callable(key_id) else key_id)

    def encrypt(self, thread_id: str, place: str, data: bytes) -> bytes:
        """The data as a JSON text, under the current key, bound to this place in this thread."""
        key_id, nonce = self.current_key_id, os.urandom(_NONCE_BYTES)
        sealed = self._cipher(key_id, thread_id).encrypt(nonce, data, _associated_data(thread_id, place))
        return b'%b%b:%b"' % (_START, key_id.encode("ascii"), b2a_base64(nonce + sealed, newline=False))

    def decrypt(self, thread_id: str, place: str, payload: bytes) -> bytes:
        """The data of a payload. Raises KeyError with the id of a missing key, and ValueError for a payload that was
        changed or belongs to another place."""
        key_id = self.key_id_of(payload)
        if key_id is None or not payload.endswith(b'"'):
            raise ValueError("it is not an encrypted payload")
        cipher = self._cipher(key_id, thread_id)
        sealed = a2b_base64(payload[len(_START) + len(key_id) + 1 : -1], strict_mode=True)
        try:
            return cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], _associated_data(thread_id, place))
        except self._changed:
            reason = f"it was changed, belongs elsewhere, or was written with another key than {key_id!r}"
            raise ValueError(reason) from None

    def key_id_of(self, payload: bytes) -> str | None:
        """The id of the payload's key; None for a payload that is not encrypted."""
        if not payload.startswith(_START):
            return None
        end = payload.find(b":", len(_START), len(_START) + 65)
        return payload[len(_START) : end].decode("ascii", "replace") if end > 0 else ""

    def _new_cipher(self, key_id: str, thread_id: str) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            key = self._provider.key(key_id)
        except KeyError:
            key = None
        if key is None:
            raise KeyError(key_id)
        key = _key(key, f"key {key_id!r}")
        return AESGCM(_derive_key(key, thread_id, b"perdure payload"))

    def scrambler(self, key: bytes, thread_id: str) -> Callable[[], Callable[[bytes], bytes]]:
        """A factory of functions that permute blocks of 16 bytes with the key. All functions do the same; each may be
        used by one OS thread at a time."""
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        # Not a mode of encryption: the plain block cipher, which permutes the names of chunks.
        cipher = Cipher(algorithms.AES(_derive_key(key, thread_id, b"perdure names")), modes.ECB())  # noqa: S305
        return lambda: cipher.encryptor().update


def _provider_of(source: Any, current: str | None) -> Any:
    if hasattr(source, "current_key_id") and callable(getattr(source, "key", None)):
        if current is not None:
            raise TypeError("A key provider has its own current_key_id: leave out current=.")
        return source
    if isinstance(source, Mapping):
        keys = {_checked_id(key_id): _key(key, f"key {key_id!r}") for key_id, key in source.items()}
    elif isinstance(source, list | tuple):
        keys = {_id_of(key): key for key in (_key(value, "a key") for value in source)}
        current = next(iter(keys), None) if current is None else current
    else:
        key = _key(source, "the key")
        keys = {_id_of(key): key}
    if current is None and len(keys) == 1:
        (current,) = keys
    if current is None:
        named = f"one of {sorted(keys)}" if keys else "at least one key"
        raise ValueError(f"AesGcm needs a key for new data: expected {named} as current=, got none.")
    if current not in keys:
        raise ValueError(f"current= names the key {current!r}, which is not among those given: {sorted(keys)}.")
    return SimpleNamespace(key=keys.__getitem__, current_key_id=current)


def _key(value: object, what: str) -> bytes:
    """Raises TypeError or ValueError, whose messages never contain the key."""
    expected = "16, 24 or 32 bytes, or these as base64 in a text, such as AesGcm.generate_key() returns"
    if isinstance(value, str):
        try:
            key = a2b_base64(value.strip().replace("-", "+").replace("_", "/"), strict_mode=True)
        except ValueError:
            raise ValueError(f"{what} is not valid base64: expected {expected}.") from None
    elif isinstance(value, bytes | bytearray):
        key = bytes(value)
    else:
        raise TypeError(f"{what}: expected {expected}, got {type(value).__name__}.")
    if len(key) not in _KEY_BYTES:
        raise ValueError(f"{what} has {len(key)} bytes: expected {expected}.")
    return key


@lru_cache(maxsize=64)
def _checked_id(key_id: object) -> str:
    if not isinstance(key_id, str) or not _KEY_ID.fullmatch(key_id):
        raise ValueError(
            f"A key id is a text of letters, digits, '_', '.' and '-', at most 64 of them, got {key_id!r}."
        )
    return key_id


def _id_of(key: bytes) -> str:
    """An id derived from the key, so that different keys have different ids."""
    return blake2b(key, digest_size=4, person=b"perdure key id").hexdigest()


def _derive_key(key: bytes, thread_id: str, purpose: bytes) -> bytes:
    return blake2b(thread_id.encode("utf-8", "surrogatepass"), key=key, digest_size=32, person=purpose).digest()


def _associated_data(thread_id: str, place: str) -> bytes:
    return f"{place}\0{thread_id}".encode("utf-8", "surrogatepass")
