"""Sessions that are encrypted: what was said, and what agents keep. Ids and times stay in clear.

An entry is sealed as a whole, and bound to its session and to all of it that is in clear: elsewhere, or after another
one, it cannot be decrypted. Its id is made from what it says, so it is made with a key: nobody can try out guesses.
That key is random, and stands in the session's first line, sealed. It stays the same when other keys come, so that the
same said again is still the same entry.
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
ELSEWHERE = "Keep encrypted sessions in a folder or file of their own."


class SessionEncryption(Protocol):
    """What encrypts: `perdure.AesGcm`."""

    def encrypt(self, thread_id: str, place: str, data: bytes) -> bytes:
        """The data as JSON that nobody can read without the current key, bound to this place."""

    def decrypt(self, thread_id: str, place: str, payload: bytes) -> bytes:
        """The data again. Raises KeyError with the id of a key that was not given, and ValueError for what is not as it
        was encrypted, or was for another place."""

    def key_id_of(self, payload: bytes) -> str | None:
        """The key that it was encrypted with; None for what was not encrypted."""


class _LineContent(msgspec.Struct, omit_defaults=True):
    """What of an entry is encrypted."""

    messages: list[Any] = []
    state: Any = None


class Sealing:
    """Of all sessions of a store: with a key, or as they are. A store is the one or the other."""

    def __init__(self, encryption: SessionEncryption | None, store: str) -> None:
        if encryption is not None and not hasattr(encryption, "encrypt"):  # never shown: it may be a key
            raise TypeError(f"encryption expects AesGcm(key), got a {type(encryption).__name__}.")
        self._encryption = encryption
        self._store = store
        self._is_checked = False

    @property
    def is_plain(self) -> bool:
        return self._encryption is None

    def of(self, session_id: str) -> Seal:
        if self._encryption is None:
            return Seal(session_id, self._store)
        return EncryptedSeal(session_id, self._store, self._encryption)

    def check(self, first_lines: Iterable[Line]) -> None:
        """Before anything is written beside what is there. Once is enough, as soon as there is a session. Raises
        MissingKey or PlaintextRefused."""
        if self._is_checked:
            return
        found = False
        for line in first_lines:
            if not isinstance(line, SessionLine):
                continue
            found = True
            if line.key and self.is_plain:
                raise MissingKey(f"The session store {self._store!r}")
            if bool(line.key) != self.is_plain:
                self._is_checked = True
                return
        if found:
            raise PlaintextRefused(f"What is in the session store {self._store!r}", ELSEWHERE)


class EncryptedSeal(Seal):
    def __init__(self, session_id: str, store: str, encryption: SessionEncryption) -> None:
        super().__init__(session_id, store)
        self._encryption = encryption
        self._made = ""
        self._key = b""

    def begun(self) -> SessionLine:
        line = super().begun()
        self._made, self._key = line.made, os.urandom(KEY_BYTES)
        return msgspec.structs.replace(line, key=self._encrypted(self._place_of_key(), self._key))

    def begin(self, line: SessionLine) -> None:
        if not line.key:
            raise PlaintextRefused(self.place, ELSEWHERE)
        self._made = line.made
        self._key = self._decrypted(self._place_of_key(), line.key)

    def digest(self, data: bytes) -> str:
        made = blake2b(data, key=self._key, digest_size=16, person=b"perdure entry").digest()
        return b2a_base64(made, newline=False)[:22].decode("ascii")

    def seal(self, line: EntryLine) -> EntryLine:
        said = msgspec.json.encode(_LineContent(line.messages, line.state))
        clear = msgspec.structs.replace(line, messages=[], state=None)
        return msgspec.structs.replace(clear, sealed=self._encrypted(self._place_of(clear), said))

    def unseal(self, line: EntryLine) -> EntryLine:
        if not line.sealed or line.messages or line.state is not None:
            raise PlaintextRefused(f"Entry {line.entry_id!r} of session {self.session_id!r} in {self.store!r}")
        clear = msgspec.structs.replace(line, sealed="")
        said = msgspec.json.decode(self._decrypted(self._place_of(clear), line.sealed), type=_LineContent)
        return msgspec.structs.replace(clear, messages=said.messages, state=said.state)

    def _place_of_key(self) -> str:
        return f"session\0{self._made}"

    def _place_of(self, clear: EntryLine) -> str:
        return f"session entry\0{self._made}\0{msgspec.json.encode(clear).decode()}"

    def _encrypted(self, place: str, data: bytes) -> str:
        return msgspec.json.decode(self._encryption.encrypt(self.session_id, place, data), type=str)

    def _decrypted(self, place: str, sealed: str) -> bytes:
        """Raises MissingKey or NotASessionLine."""
        payload = msgspec.json.encode(sealed)
        try:
            return self._encryption.decrypt(self.session_id, place, payload)
        except KeyError as error:
            raise MissingKey(self.place, self._encryption.key_id_of(payload)) from error
        except ValueError as error:
            raise NotASessionLine(f"it cannot be decrypted: {error}") from error
