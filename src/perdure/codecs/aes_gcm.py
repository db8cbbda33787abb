"""AES-GCM: what is stored can be read, and changed, only by those who have the key. Needs the package `cryptography`.

A payload becomes a JSON text, `"$aes-gcm:<key id>:<base64 of nonce, ciphertext and tag>"`, which a store keeps like any
other. It is bound to its place: in another, it cannot be decrypted. Each thread has a key of its own, made from the one
that was given, so that the random nonces of one key stay few, however much is written.
"""

from __future__ import annotations

import os
import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
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
"""Threads whose keys are remembered."""


class KeyProvider(Protocol):
    """Where keys come from that are kept elsewhere. It is asked for each key once, in the event loop, so it must not
    wait for anything."""

    @property
    def current_key_id(self) -> str:
        """The key that is written with from now on. (A method without arguments will do.)"""

    def key(self, key_id: str) -> bytes:
        """The key of this id, which never changes. Raises KeyError if there is none."""


Key: TypeAlias = bytes | str
"""16, 24 or 32 bytes; or these as base64, in a text."""


class AesGcm:
    """Encrypts all that a storage keeps: `SqliteCheckpointStorage(path, encryption=AesGcm(key))`.

    `keys` is one key; several of them, the first of which is written with; a mapping of key ids to keys, of which
    `current` is written with; or a `KeyProvider`. A key is 16, 24 or 32 bytes, or these as base64 (`generate_key`).
    A key without an id is known by a few digits of a hash of it.
    """

    def __init__(
        self, keys: Key | Sequence[Key] | Mapping[str, Key] | KeyProvider, *, current: str | None = None
    ) -> None:
        self._changed = _error_of_changes()
        self._provider: Any = _provider_of(keys, current)
        self._cipher = lru_cache(maxsize=_CIPHERS)(self._new_cipher)

    @classmethod
    def from_environment(cls, variable: str = VARIABLE) -> Self:
        """With the keys in an environment variable: `id:key,id:key`, in base64. The first is written with. An id may be
        left out. Raises ValueError if there are none."""
        parts = [part.strip() for part in os.environ.get(variable, "").split(",") if part.strip()]
        if not parts:
            raise ValueError(f"{variable} is not set. It holds the keys of what is encrypted: id:key,id:key.")
        keys: dict[str, Key] = {}
        for part in parts:
            key_id, found, text = part.rpartition(":")
            key = _key(text, variable)
            key_id = key_id if found else _id_of(key)
            if keys.setdefault(key_id, key) != key:
                raise ValueError(f"{variable} has two keys with the id {key_id!r}.")
        return cls(keys, current=next(iter(keys)))

    @staticmethod
    def generate_key() -> str:
        """A new key of 32 bytes, as base64. Keep it as you keep passwords: without it, nothing can be read."""
        return b2a_base64(os.urandom(32), newline=False).decode("ascii")

    def __repr__(self) -> str:
        return f"AesGcm(current={self.current_key_id!r})"  # never a key

    @property
    def current_key_id(self) -> str:
        """The key that is written with."""
        found = self._provider.current_key_id
        return _checked_id(found() if callable(found) else found)

    def encrypt(self, thread_id: str, place: str, data: bytes) -> bytes:
        """The data as a JSON text, under the current key, bound to this place in this thread."""
        key_id, nonce = self.current_key_id, os.urandom(_NONCE_BYTES)
        sealed = self._cipher(key_id, thread_id).encrypt(nonce, data, _bound(thread_id, place))
        return b'%b%b:%b"' % (_START, key_id.encode("ascii"), b2a_base64(nonce + sealed, newline=False))

    def decrypt(self, thread_id: str, place: str, payload: bytes) -> bytes:
        """The data again. Raises KeyError with the id of a key that was not given, and ValueError for what is not as it
        was encrypted, or was for another place."""
        key_id = self.key_id_of(payload)
        if key_id is None or not payload.endswith(b'"'):
            raise ValueError("it is not a payload that was encrypted")
        cipher = self._cipher(key_id, thread_id)
        sealed = a2b_base64(payload[len(_START) + len(key_id) + 1 : -1], strict_mode=True)
        try:
            return cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], _bound(thread_id, place))
        except self._changed:
            reason = f"it was changed, belongs elsewhere, or was not written with the key that was given as {key_id!r}"
            raise ValueError(reason) from None

    def key_id_of(self, payload: bytes) -> str | None:
        """The key that it was encrypted with; None for what was not encrypted."""
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
        return AESGCM(_derived(key, thread_id, b"perdure payload"))

    def scrambler(self, key: bytes, thread_id: str) -> Callable[[], Callable[[bytes], bytes]]:
        """Makes functions of blocks of 16 bytes, any number of them: each is turned into what nobody can tell without
        the key. All do the same; one is for one thread of the system at a time."""
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        # No mode of encryption: the block cipher itself, which the names of chunks are permuted with.
        cipher = Cipher(algorithms.AES(_derived(key, thread_id, b"perdure names")), modes.ECB())  # noqa: S305
        return lambda: cipher.encryptor().update


class _GivenKeys:
    """Implements `KeyProvider`."""

    def __init__(self, keys: Mapping[str, bytes], current: str) -> None:
        self._keys = keys
        self.current_key_id = current

    def key(self, key_id: str) -> bytes:
        return self._keys[key_id]


def _provider_of(given: Any, current: str | None) -> KeyProvider:
    if hasattr(given, "current_key_id") and callable(getattr(given, "key", None)):
        if current is not None:
            raise TypeError("A key provider says itself which key is current: leave out current=.")
        provider: KeyProvider = given
        return provider
    if isinstance(given, Mapping):
        keys = {_checked_id(key_id): _key(key, f"key {key_id!r}") for key_id, key in given.items()}
    elif isinstance(given, list | tuple):
        keys = {_id_of(key): key for key in (_key(one, "a key") for one in given)}
        current = next(iter(keys), None) if current is None else current
    else:
        key = _key(given, "the key")
        keys = {_id_of(key): key}
    if current is None and len(keys) == 1:
        (current,) = keys
    if current is None:
        named = f"one of {sorted(keys)}" if keys else "at least one key"
        raise ValueError(f"AesGcm must know which key to write with: expected {named} as current=, got none.")
    if current not in keys:
        raise ValueError(f"current= names the key {current!r}, which is not among those given: {sorted(keys)}.")
    return _GivenKeys(keys, current)


def _key(given: object, what: str) -> bytes:
    """Raises TypeError or ValueError, which never tell the key."""
    expected = "16, 24 or 32 bytes, or these as base64 in a text, such as AesGcm.generate_key() gives"
    if isinstance(given, str):
        try:
            key = a2b_base64(given.strip().replace("-", "+").replace("_", "/"), strict_mode=True)
        except ValueError:
            raise ValueError(f"{what} is a text, and no base64: expected {expected}.") from None
    elif isinstance(given, bytes | bytearray):
        key = bytes(given)
    else:
        raise TypeError(f"{what}: expected {expected}, got {type(given).__name__}.")
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
    """The same wherever the key is given, so that another key is known to be another."""
    return blake2b(key, digest_size=4, person=b"perdure key id").hexdigest()


def _derived(key: bytes, thread_id: str, purpose: bytes) -> bytes:
    return blake2b(thread_id.encode("utf-8", "surrogatepass"), key=key, digest_size=32, person=purpose).digest()


def _bound(thread_id: str, place: str) -> bytes:
    return f"{place}\0{thread_id}".encode("utf-8", "surrogatepass")


def _error_of_changes() -> type[Exception]:
    """What is raised for a payload that was changed. Raises MissingExtra."""
    try:
        from cryptography.exceptions import InvalidTag
    except ImportError as error:
        raise MissingExtra("AesGcm", "cryptography", "crypto") from error
    return InvalidTag
