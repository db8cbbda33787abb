"""Encrypted sessions: messages and the state of agents are encrypted, ids and times are not.

Each entry is sealed as a whole, and bound to its session and to its clear fields: in another session or after another
entry it cannot be decrypted. Its id is a keyed digest of its content, so that guesses of the content cannot be
verified. The key of the digest is random and stored, sealed, in the session's first line. It survives a change of the
encryption key, so that equal messages stay the same entry.
"""

from __future__ import annotations

import os
from binascii import b2a_base64
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Protocol

import msgspec

from perdure.agent_workflow.conversations.log import EntryLine, Line, NotASessionLine, Seal, SessionLine
from perdure.errors import MissingKey, PlaintextRefused

KEY_BYTES = 32
ELSEWHERE = "Store encrypted sessions in a separate folder or file."


class SessionEncryption(Protocol):
    """Encrypts payloads: `perdure.AesGcm`."""

    def encrypt(self, thread_id: str, place: str, data: bytes) -> bytes:
        """The data as encrypted JSON, readable only with the current key and bound to this place."""

    def decrypt(self, thread_id: str, place: str, payload: bytes) -> bytes:
        """The decrypted data. Raises KeyError with the id of an unknown key, and ValueError for changed data or another
        place."""

    def key_id_of(self, payload: bytes) -> str | None:
        """The id of the key that encrypted the payload; None for a payload that is not encrypted."""


class _LineContent(msgspec.Struct, omit_defaults=True):
    """The encrypted part of an entry."""

    messages: list[Any] = []
    state: Any = None


class Sealing:
    """The seals of a store's sessions: all encrypted, or all plain."""

    def __init__(self, encryption: SessionEncryption | None, store: str) -> None:
        if encryption is not None and not hasattr(encryption, "encrypt"):  # the value is not shown: it may be a key
            raise TypeError(f"encryption expects AesGcm(key), got a {type(encryption).__name__}.")
        self._encryption = encryption
        self._store = store
        self._is_checked = False

    @property
    def is_plain(self) -> bool:
        return self._encryption is None

    def seal_for(self, session_id: str) -> Seal:
        if self._encryption is None:
            return Seal(session_id, self._store)
        return EncryptedSeal(session_id, self._store, self._encryption)

    def check(self, first_lines: Iterable[Line]) -> None:
        """Check existing sessions before the first write; later calls do nothing once a session exists. Raises
        MissingKey or PlaintextRefused."""
        if self._is_checked:
            return
        has_sessions = False
        for line in first_lines:
            if not isinstance(line, SessionLine):
                continue
            has_sessions = True
            if line.key and self.is_plain:
                raise MissingKey(f"The session store {self._store!r}")
            if bool(line.key) != self.is_plain:
                self._is_checked = True
                return
        if has_sessions:
            raise PlaintextRefused(f"The content of the session store {self._store!r}", ELSEWHERE)


class EncryptedSeal(Seal):
    def __init__(self, session_id: str, store: str, encryption: SessionEncryption) -> None:
        super().__init__(session_id, store)
        self._encryption = encryption
        self._created = ""
        self._key = b""

    def first_line(self) -> SessionLine:
        line = super().first_line()
        self._created, self._key = line.created, os.urandom(KEY_BYTES)
        return msgspec.structs.replace(line, key=self._encrypt(self._place_of_key(), self._key))

    def begin(self, line: SessionLine) -> None:
        if not line.key:
            raise PlaintextRefused(self.location, ELSEWHERE)
        self._created = line.created
        self._key = self._decrypt(self._place_of_key(), line.key)

    def digest(self, data: bytes) -> str:
        digest = blake2b(data, key=self._key, digest_size=16, person=b"perdure entry").digest()
        return b2a_base64(digest, newline=False)[:22].decode("ascii")

    def seal(self, line: EntryLine) -> EntryLine:
        content = msgspec.json.encode(_LineContent(line.messages, line.state))
        clear = msgspec.structs.replace(line, messages=[], state=None)
        return msgspec.structs.replace(clear, sealed=self._encrypt(self._place_of(clear), content))

    def unseal(self, line: EntryLine) -> EntryLine:
        if not line.sealed or line.messages or line.state is not None:
            raise PlaintextRefused(f"Entry {line.entry_id!r} of session {self.session_id!r} in {self.store!r}")
        clear = msgspec.structs.replace(line, sealed="")
        content = msgspec.json.decode(self._decrypt(self._place_of(clear), line.sealed), type=_LineContent)
        return msgspec.structs.replace(clear, messages=content.messages, state=content.state)

    def _place_of_key(self) -> str:
        return f"session\0{self._created}"

    def _place_of(self, clear: EntryLine) -> str:
        return f"session entry\0{self._created}\0{msgspec.json.encode(clear).decode()}"

    def _encrypt(self, place: str, data: bytes) -> str:
        return msgspec.json.decode(self._encryption.encrypt(self.session_id, place, data), type=str)

    def _decrypt(self, place: str, sealed: str) -> bytes:
        """Raises MissingKey or NotASessionLine."""
        payload = msgspec.json.encode(sealed)
        try:
            return self._encryption.decrypt(self.session_id, place, payload)
        except KeyError as error:
            raise MissingKey(self.location, self._encryption.key_id_of(payload)) from error
        except ValueError as error:
            raise NotASessionLine(f"it cannot be decrypted: {error}") from error
