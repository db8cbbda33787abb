"""Keys on the command line: `PERDURE_KEYS` for every command, `perdure rekey`, and what becomes of a plain store."""

from __future__ import annotations

import asyncio
import json
import os
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.command import in_terminal, needs_pseudo_terminals, perdure
from tests.encryption.places import NEW, OLD, Place
from tests.encryption.planted import asking, secret

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.codecs.aes_gcm import AesGcm

ENCRYPTED, PLAIN = "sqlite:///encrypted.db", "sqlite:///plain.db"
OLD_TEXT, NEW_TEXT = b64encode(OLD).decode(), b64encode(NEW).decode()
ONLY_OLD, BOTH, ONLY_NEW = f"old:{OLD_TEXT}", f"new:{NEW_TEXT},old:{OLD_TEXT}", f"new:{NEW_TEXT}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With two stores, one of them encrypted, and a thread in each that waits for an answer."""

    async def make(name: str, encryption: AesGcm | None) -> None:
        storage: StoreCheckpointStorage = Place("sqlite", f"sqlite:///{tmp_path / name}", tmp_path).storage(encryption)
        await asking(storage).run(secret("input"), thread_id="asked")
        await storage.close()

    asyncio.run(make("encrypted.db", AesGcm({"old": OLD})))
    asyncio.run(make("plain.db", None))
    return tmp_path


def json_of(folder: Path, *arguments: str, keys: str, store: str = ENCRYPTED) -> Any:
    done = perdure(*arguments, "--json", folder=folder, store=store, PERDURE_KEYS=keys)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return json.loads(done.stdout)


def refusal(folder: Path, *arguments: str, store: str = ENCRYPTED, code: int = 1, keys: str = "") -> str:
    done = perdure(*arguments, folder=folder, store=store, PERDURE_KEYS=keys)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert "Traceback" not in done.stderr and OLD_TEXT not in done.stderr
    return " ".join(done.stderr.split())


def test_every_command_reads_an_encrypted_store_with_environment_keys(folder: Path) -> None:
    [thread] = json_of(folder, "threads", keys=ONLY_OLD)
    assert thread["thread_id"] == "asked"
    assert secret("state") in str(json_of(folder, "state", "asked", keys=ONLY_OLD))
    assert json_of(folder, "verify", keys=ONLY_OLD) == {"threads": 1, "damage": []}


def test_missing_wrong_or_invalid_keys_are_reported_with_the_reason(folder: Path) -> None:
    assert "is encrypted, and that key is missing" in refusal(folder, "threads")
    assert "is encrypted with key 'old'" in refusal(folder, "threads", keys=ONLY_NEW)
    assert "PERDURE_KEYS is not valid base64" in refusal(folder, "threads", code=2, keys="k:???")
    plain = refusal(folder, "threads", store=PLAIN, keys=ONLY_OLD)
    assert "is not encrypted, although this storage uses a key" in plain and "`perdure transfer`" in plain


def test_rekey_encrypts_all_payloads_with_the_first_key(folder: Path) -> None:
    before = json_of(folder, "rekey", "--dry-run", keys=BOTH)
    assert list(before["payloads"]) == ["old"] and before["rewritten"] == 0 and not before["is_complete"]
    done = perdure("rekey", folder=folder, store=ENCRYPTED, PERDURE_KEYS=BOTH)
    count = before["payloads"]["old"]
    assert done.returncode == 0
    assert f"1 thread checked: {count} payloads encrypted with key 'new'. No other key is needed." in done.stdout
    assert json_of(folder, "rekey", "--dry-run", keys=ONLY_NEW)["payloads"] == {"new": count}
    assert json_of(folder, "threads", keys=ONLY_NEW)
    assert OLD_TEXT not in done.stdout + done.stderr
    assert "No keys are set." in refusal(folder, "rekey")


def test_rekey_lists_what_it_cannot_rekey_and_exits_with_1(folder: Path) -> None:
    async def harm() -> None:
        below = Place("sqlite", f"sqlite:///{folder / 'encrypted.db'}", folder).store()
        await below.post("asked", "forged", "message", b'"plain"')
        await below.close()

    asyncio.run(harm())
    done = perdure("rekey", folder=folder, store=ENCRYPTED, PERDURE_KEYS=BOTH)
    assert done.returncode == 1
    assert "NOT REKEYED" in done.stdout and "Item forged of the inbox in thread 'asked' is not encrypted" in done.stdout
    assert "No other key" not in done.stdout


def test_plain_store_is_transferred_to_an_encrypted_one_and_rekeyed_there(folder: Path) -> None:
    report = json_of(folder, "transfer", PLAIN, "file:new", keys=ONLY_OLD)
    assert report["copied"] == ["asked"]
    kept = b"".join(file.read_bytes() for file in (folder / "new").iterdir())
    assert b"$aes-gcm:old:" in kept and b"Z\\u" not in kept and secret("input").encode() not in kept
    assert json_of(folder, "transfer", ENCRYPTED, "file:other", keys=BOTH)["copied"] == ["asked"]
    assert json_of(folder, "rekey", "--dry-run", keys=BOTH, store="file:other")["payloads"].keys() == {"new"}
    assert "is encrypted" in refusal(folder, "transfer", ENCRYPTED, "file:third")
    assert not os.path.exists(folder / "third") or not list((folder / "third").glob("*.jsonl"))


@needs_pseudo_terminals
def test_at_a_terminal_the_keys_are_a_table(folder: Path) -> None:
    shown, code = in_terminal("rekey", "--dry-run", folder=folder, PERDURE_STORE=ENCRYPTED, PERDURE_KEYS=BOTH)
    assert code == 0 and "KEY" in shown and "would be encrypted with key 'new'." in " ".join(shown.split())
