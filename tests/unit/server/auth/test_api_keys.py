"""API keys: the stored form of a key, its user, and that changes of the file take effect at once."""

from __future__ import annotations

import hmac
import json
import logging
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.unit.server.auth.credentials import refusal, with_key, with_token

from perdure.server.auth import api_keys
from perdure.server.auth.api_keys import (
    FORM,
    NO_KEY,
    NOT_VALID,
    ApiKeys,
    KeyFile,
    KeyFileContents,
    make_key,
    revoke_key,
)
from perdure.server.auth.principal import AuthUnavailable, Credentials, Principal
from perdure.server.config.schema import InvalidConfig
from perdure.testing import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def file(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path / "keys.json")


def add(file: KeyFile, user: str, **more: Any) -> tuple[str, str]:
    """Adds a key, and returns it with its id."""
    made = make_key(user, created=FakeClock().now(), **more)
    file.change(lambda keys: (*keys, made.stored))
    return made.key, made.stored.id


async def test_key_in_either_header_authenticates_its_user(file: KeyFile) -> None:
    key, key_id = add(file, "ada", roles=["operator"], scopes=["graph:*"], name="laptop")
    keys = ApiKeys(file)
    known = Principal("ada", ("operator",), frozenset({"graph:*"}), {"key_id": key_id, "key_name": "laptop"})
    assert await keys.authenticate(with_key(key)) == known
    assert await keys.authenticate(with_token(key)) == known


def test_keys_have_the_documented_form_and_are_unique() -> None:
    made = {make_key("ada", created=FakeClock().now()).key for _ in range(100)}
    assert len(made) == 100
    assert all(FORM.fullmatch(key) for key in made)


def test_neither_file_nor_stored_key_contains_the_secret(file: KeyFile) -> None:
    key, _ = add(file, "ada")
    secret = key.split("_", 2)[2]
    written = file.path.read_text()
    assert secret not in written and key not in written
    [stored] = file.read().keys
    assert secret not in repr(stored)


def test_hash_of_a_secret_depends_on_the_salt() -> None:
    assert api_keys.hash_of("secret", "00" * 16) != api_keys.hash_of("secret", "01" * 16)


@pytest.mark.parametrize(
    "change", ["secret", "id", "case", "longer", "shorter", "not ascii", "newline", "empty", "huge"]
)
async def test_altered_key_is_rejected(file: KeyFile, change: str) -> None:
    key, key_id = add(file, "ada")
    other = {
        "secret": key[:-2] + ("AA" if key[-2:] != "AA" else "BB"),
        "id": key.replace(key_id, "0123456789abcdef"),
        "case": key.upper(),
        "longer": f"{key}A",
        "shorter": key[:-1],
        "not ascii": f"{key[:-1]}é",
        "newline": f"{key}\n",
        "empty": "pd__",
        "huge": f"pd_{'0' * 10_000_000}",
    }[change]
    assert await refusal(ApiKeys(file), with_key(other)) == NOT_VALID


async def test_missing_key_error_explains_how_to_send_a_key(file: KeyFile) -> None:
    add(file, "ada")
    assert await refusal(ApiKeys(file), Credentials(headers={})) == NO_KEY


async def test_unknown_id_takes_the_same_path_as_a_wrong_secret(file: KeyFile, monkeypatch: pytest.MonkeyPatch) -> None:
    key, key_id = add(file, "ada")
    keys = ApiKeys(file)
    compared: list[tuple[int, int]] = []
    really_compare = hmac.compare_digest

    def compare(left: str, right: str) -> bool:
        compared.append((len(left), len(right)))
        return really_compare(left, right)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    for wrong in (key[:-2] + "__", key.replace(key_id, "0" * 16), key.replace(key_id, "f" * 16), "rubbish"):
        assert await refusal(keys, with_key(wrong)) == NOT_VALID
    assert compared == [(64, 64)] * 4


async def test_expired_key_is_rejected(file: KeyFile, clock: FakeClock) -> None:
    key, _ = add(file, "ada", expires=clock.now() + timedelta(days=90))
    keys = ApiKeys(file, clock)
    clock.advance(90 * 86_400 - 1)
    assert await refusal(keys, with_key(key)) == ""
    clock.advance(1)
    assert await refusal(keys, with_key(key)) == "The API key has expired."


async def test_key_revoked_while_in_use_is_rejected_at_once(file: KeyFile, clock: FakeClock) -> None:
    key, key_id = add(file, "ada")
    other, _ = add(file, "bob")
    keys = ApiKeys(file, clock)
    assert await refusal(keys, with_key(key)) == ""
    file.change(lambda known: revoke_key(known, key_id, clock.now()))
    assert await refusal(keys, with_key(key)) == NOT_VALID
    assert await refusal(keys, with_key(other)) == ""


async def test_hundred_changes_in_a_row_each_take_effect_at_once(file: KeyFile, clock: FakeClock) -> None:
    """Some changes fall within one tick of the file system's own stamps."""
    keys = ApiKeys(file, clock)
    for _ in range(50):
        key, key_id = add(file, "ada")
        assert await refusal(keys, with_key(key)) == ""
        file.change(partial(revoke_key, key_id=key_id, at=clock.now()))
        assert await refusal(keys, with_key(key)) == NOT_VALID


async def test_server_started_without_a_file_sees_the_first_key(
    file: KeyFile, caplog: pytest.LogCaptureFixture
) -> None:
    keys = ApiKeys(file)
    assert "contains no API key" in caplog.text
    key, _ = add(file, "ada")
    assert await refusal(keys, with_key(key)) == ""
    file.path.unlink()
    assert await refusal(keys, with_key(key)) == NOT_VALID


async def test_file_damaged_while_in_use_rejects_all_and_is_logged_once(
    file: KeyFile, caplog: pytest.LogCaptureFixture
) -> None:
    key, _ = add(file, "ada")
    keys = ApiKeys(file)
    whole = file.path.read_bytes()
    file.path.write_bytes(whole[:-20])
    for _ in range(3):
        with pytest.raises(AuthUnavailable, match="Authentication is not available now"):
            await keys.authenticate(with_key(key))
    assert caplog.text.count("no valid API keys") == 1
    assert key not in caplog.text
    file.path.write_bytes(whole)
    assert await refusal(keys, with_key(key)) == ""


def test_server_does_not_start_with_a_damaged_file(file: KeyFile) -> None:
    file.path.write_text("{")
    with pytest.raises(InvalidConfig, match=r"keys\.json: this file of API keys is damaged: .*Nothing was changed"):
        ApiKeys(file)


def test_file_that_other_users_may_read_is_logged(file: KeyFile, caplog: pytest.LogCaptureFixture) -> None:
    add(file, "ada")
    assert not file.is_open_to_others()
    file.path.chmod(0o644)
    ApiKeys(file)
    assert "Other users may read" in caplog.text


async def test_file_is_read_again_only_after_a_change(file: KeyFile, monkeypatch: pytest.MonkeyPatch) -> None:
    key, _ = add(file, "ada")
    keys = ApiKeys(file)
    reads: list[KeyFile] = []
    read = KeyFile.read

    def counted(self: KeyFile) -> KeyFileContents:
        reads.append(self)
        return read(self)

    monkeypatch.setattr(KeyFile, "read", counted)
    for _ in range(1000):
        await keys.authenticate(with_key(key))
    assert reads == []
    other_key, _ = add(file, "bob")
    reads.clear()  # what `add` read
    for _ in range(1000):
        await keys.authenticate(with_key(other_key))
    assert len(reads) == 1


async def test_secret_of_a_key_is_never_logged(file: KeyFile, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    key, key_id = add(file, "ada")
    keys = ApiKeys(file)
    await keys.authenticate(with_key(key))
    assert await refusal(keys, with_key(key.replace(key_id, "0" * 16))) == NOT_VALID
    assert key.split("_", 2)[2] not in caplog.text


def test_file_is_json_with_the_documented_names(file: KeyFile) -> None:
    add(file, "ada", roles=["operator"], scopes=["graph:read"], expires=FakeClock().now(), name="ci")
    document = json.loads(file.path.read_text())
    assert document["version"] == 1
    expected = {"id", "user", "salt", "hash", "created", "roles", "scopes", "name", "expires"}
    assert set(document["keys"][0]) == expected
