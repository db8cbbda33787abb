"""AesGcm: the forms of keys, the encrypted payloads, and the errors for wrong payloads."""

from __future__ import annotations

import os
import subprocess
import sys
from base64 import b64encode, urlsafe_b64encode
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st
from tests.encryption.places import NEW, OLD, OTHER

from perdure import AesGcm, KeyProvider
from perdure.codecs.aes_gcm import VARIABLE

SECRET = b"attack at dawn"


@given(st.text(), st.text(), st.binary())
def test_encrypted_payload_decrypts_and_is_json_without_a_line_break(thread_id: str, place: str, data: bytes) -> None:
    encryption = AesGcm(OLD)
    payload = encryption.encrypt(thread_id, place, data)
    assert encryption.decrypt(thread_id, place, payload) == data
    assert isinstance(msgspec.json.decode(payload), str) and b"\n" not in payload and b"\\" not in payload
    assert encryption.encrypt(thread_id, place, data) != payload


def test_flipped_bit_or_another_place_fails_the_decryption() -> None:
    encryption = AesGcm(OLD)
    payload = encryption.encrypt("t", "root\x001", SECRET)
    start = payload.index(b":", 10) + 1
    end = len(payload.rstrip(b'="')) - 1  # the last character may stand for fewer bits than it could
    for at in range(start, end):
        for bit in range(7):
            flipped = payload[:at] + bytes([payload[at] ^ 1 << bit]) + payload[at + 1 :]
            with pytest.raises(ValueError):  # noqa: PT011  # in many ways
                encryption.decrypt("t", "root\x001", flipped)
    for thread_id, place in (("u", "root\x001"), ("t", "root\x002"), ("t", "events\x001")):
        with pytest.raises(ValueError, match="it was changed, belongs elsewhere, or was written with another key"):
            encryption.decrypt(thread_id, place, payload)
    for cut in (payload[:-1], payload[:30], b'"$aes-gcm:', b'"$aes-gcm:k:"', b'"$aes-gcm:k:AAAA"', b"{}", b""):
        with pytest.raises((ValueError, KeyError)):
            encryption.decrypt("t", "root\x001", cut)


@pytest.mark.parametrize("size", [16, 24, 32])
def test_a_key_may_be_bytes_or_base64_and_is_the_same_key(size: int) -> None:
    key = os.urandom(size)
    payload = AesGcm(key).encrypt("t", "p", SECRET)
    text = b64encode(key).decode()
    for same in (text, urlsafe_b64encode(key).decode(), f" {text}\n"):
        assert AesGcm(same).decrypt("t", "p", payload) == SECRET


def test_a_generated_key_is_a_text_of_32_bytes_and_never_the_same() -> None:
    keys = {AesGcm.generate_key() for _ in range(50)}
    assert len(keys) == 50 and {len(key) for key in keys} == {44}
    AesGcm(keys.pop())


def test_another_key_is_recognised_by_its_id() -> None:
    payload = AesGcm(OLD).encrypt("t", "p", SECRET)
    assert AesGcm(OLD).current_key_id == AesGcm(OLD).key_id_of(payload) != AesGcm(OTHER).current_key_id
    with pytest.raises(KeyError) as caught:
        AesGcm(OTHER).decrypt("t", "p", payload)
    assert caught.value.args == (AesGcm(OLD).current_key_id,)
    assert AesGcm(OLD).key_id_of(b'{"plain":1}') is None


def test_several_keys_encrypt_with_the_current_and_decrypt_with_all() -> None:
    old, new = AesGcm({"old": OLD}), AesGcm({"old": OLD, "new": NEW}, current="new")
    before = old.encrypt("t", "p", SECRET)
    after = new.encrypt("t", "p", SECRET)
    assert (new.key_id_of(before), new.key_id_of(after)) == ("old", "new")
    assert new.decrypt("t", "p", before) == new.decrypt("t", "p", after) == SECRET
    in_order = AesGcm([NEW, OLD])
    assert in_order.current_key_id == AesGcm(NEW).current_key_id
    assert in_order.decrypt("t", "p", AesGcm(OLD).encrypt("t", "p", SECRET)) == SECRET
    with pytest.raises(ValueError, match="was written with another key than 'old'"):
        AesGcm({"old": OTHER}).decrypt("t", "p", before)


class Vault:
    """A key provider whose current key changes while it is used."""

    def __init__(self) -> None:
        self.keys = {"2025": OLD, "2026": NEW}
        self.current_key_id = "2025"
        self.asked: list[str] = []

    def key(self, key_id: str) -> bytes:
        self.asked.append(key_id)
        return self.keys[key_id]


def test_key_provider_names_the_current_key_and_is_asked_once_per_key() -> None:
    vault = Vault()
    provider: KeyProvider = vault
    encryption = AesGcm(provider)
    before = encryption.encrypt("t", "p", SECRET)
    vault.current_key_id = "2026"
    after = encryption.encrypt("t", "p", SECRET)
    assert [encryption.key_id_of(payload) for payload in (before, after)] == ["2025", "2026"]
    assert encryption.decrypt("t", "p", before) == SECRET
    assert vault.asked == ["2025", "2026"]
    with pytest.raises(KeyError, match="2024"):
        encryption.decrypt("t", "p", before.replace(b"2025", b"2024"))


def test_a_provider_may_have_methods_only() -> None:
    class Methods:
        def current_key_id(self) -> str:
            return "k"

        def key(self, key_id: str) -> bytes:
            return OLD

    provider: Any = Methods()
    assert AesGcm(provider).current_key_id == "k"


@pytest.mark.parametrize(
    ("keys", "current", "message"),
    [
        (b"short", None, "the key has 5 bytes: expected 16, 24 or 32 bytes"),
        ("no base64!", None, "the key is not valid base64"),
        (7, None, "the key: expected 16, 24 or 32 bytes, or these as base64 in a text.*, got int"),
        ({"a": OLD, "b": NEW}, None, r"expected one of \['a', 'b'\] as current=, got none"),
        ({"a": OLD}, "b", r"current= names the key 'b', which is not among those given: \['a'\]"),
        ({"a:b": OLD}, None, "A key id is a text of letters, digits"),
        ({"a": b"short"}, None, "key 'a' has 5 bytes"),
        ({}, None, "expected at least one key as current=, got none"),
        ([], None, "expected at least one key as current=, got none"),
        (Vault(), "2025", "A key provider has its own current_key_id"),
    ],
    ids=["short", "no base64", "number", "no current", "wrong current", "id", "one short", "none", "empty", "provider"],
)
def test_invalid_keys_are_refused_with_the_reason(keys: Any, current: str | None, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        AesGcm(keys, current=current)


def test_no_message_and_no_repr_shows_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "not-quite-a-key-in-base64"
    shown = [repr(AesGcm(OLD)), repr(AesGcm({"a": OLD, "b": NEW}, current="b")), str(AesGcm(OLD).__dict__)]
    for given_keys in (key, {"a": key}, [key], key.encode()):
        with pytest.raises(ValueError, match="expected 16, 24 or 32 bytes") as caught:
            AesGcm(given_keys)
        shown.append(str(caught.value))
    monkeypatch.setenv(VARIABLE, f"a:{key}")
    with pytest.raises(ValueError, match=VARIABLE) as caught:
        AesGcm.from_environment()
    shown.append(str(caught.value))
    forms = (key, "oooooooo", "nnnnnnnn", OLD.hex(), b64encode(OLD).decode())
    assert [text for text in shown if any(form in text for form in forms)] == []
    assert repr(AesGcm({"a": OLD, "b": NEW}, current="b")) == "AesGcm(current='b')"


def test_environment_keys_may_have_ids_and_the_first_is_used_to_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old, new = b64encode(OLD).decode(), b64encode(NEW).decode()
    monkeypatch.setenv(VARIABLE, f"new:{new}, old:{old}")
    encryption = AesGcm.from_environment()
    assert encryption.current_key_id == "new"
    assert encryption.decrypt("t", "p", AesGcm({"old": OLD}).encrypt("t", "p", SECRET)) == SECRET
    monkeypatch.setenv(VARIABLE, f"{new},{old}")
    assert AesGcm.from_environment().current_key_id == AesGcm(NEW).current_key_id
    monkeypatch.setenv(VARIABLE, f"a:{new},a:{old}")
    with pytest.raises(ValueError, match="PERDURE_KEYS has two keys with the id 'a'"):
        AesGcm.from_environment()
    for nothing in ("", " , "):
        monkeypatch.setenv(VARIABLE, nothing)
        with pytest.raises(ValueError, match="PERDURE_KEYS is not set"):
            AesGcm.from_environment()


def test_without_the_package_the_extra_to_install_is_named() -> None:
    program = (
        "import sys; sys.modules['cryptography'] = None\n"
        "import perdure\n"
        "try: perdure.AesGcm(b'k' * 32)\n"
        "except perdure.MissingExtra as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "AesGcm needs the package 'cryptography'" in done.stdout and "perdure[crypto]" in done.stdout
