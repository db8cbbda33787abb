"""A reader who has all that is stored, and not the key, sees nothing of users' values."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.encryption.places import Place, closed, ended
from tests.encryption.planted import PLACES, asking, hanging, secret

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.codecs.aes_gcm import AesGcm

ROOT = Path(__file__).parents[2]


async def plant(place: Place, key: str) -> None:
    """The program, until it has killed itself."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.encryption.planted", place.url, key), cwd=ROOT
    )
    assert await ended(process) == -signal.SIGKILL


def forms(text: str) -> Iterable[bytes]:
    """How it may be written: as it is, escaped, as hex, or inside something that is base64."""
    data = text.encode()
    yield data
    yield json.dumps(text)[1:-1].encode()
    yield json.dumps(text, ensure_ascii=False)[1:-1].encode()
    yield data.hex().encode()
    for shift in range(3):
        yield b64encode(b"\0" * shift + data)[4 if shift else 0 : -4]


def found_in(raw: bytes, texts: Iterable[str]) -> list[str]:
    return [text for text in texts if any(form in raw for form in forms(text))]


async def digests_of(storage: StoreCheckpointStorage) -> set[str]:
    """Return the names of all chunks as the holder of the key knows them."""
    digests: set[str] = set()
    for thread_id in await storage.store.thread_ids():
        for commit in await storage.store.commits(thread_id):
            digests.update(commit.chunks)
    return digests


async def test_stored_data_contains_no_secret_and_no_digest(place: Place) -> None:
    key = AesGcm.generate_key()
    await plant(place, key)
    raw = await place.raw()
    assert found_in(raw, map(secret, PLACES)) == []
    assert b"Z\xc3\xbcrich" not in raw and b"planted" not in raw

    storage = place.storage(AesGcm(key))
    digests = await digests_of(storage)
    assert len(digests) > 10
    assert [digest for digest in digests if digest.encode() in raw or digest[:6].encode() in raw] == []
    assert raw.count(b"$aes-gcm:") > 40
    await closed(storage)


@pytest.mark.parametrize("place", ["sqlite", "file"], indirect=True)
async def test_plain_store_contains_every_secret_and_digest(place: Place) -> None:
    """So the test above would find them. Of the arguments of a step only a digest is ever kept."""
    await plant(place, "")
    raw = await place.raw()
    assert found_in(raw, map(secret, PLACES)) == [secret(place) for place in PLACES if place != "step argument"]
    storage = place.storage()
    digests = await digests_of(storage)
    assert all(digest.encode() in raw for digest in digests)
    await closed(storage)


async def test_holder_of_the_key_resumes_where_the_process_was_killed(place: Place) -> None:
    key = AesGcm.generate_key()
    await plant(place, key)
    storage = place.storage(AesGcm(key))
    result = await hanging(storage, hangs=False).run(thread_id="killed")
    expected = [secret("journal"), secret("step result")]
    assert sorted(result.get_outputs()) == sorted(expected * 2), "also what waited in the inbox was delivered"
    answered = await asking(storage).run(thread_id="asked", responses={"q-1": secret("answer")})
    assert f"{secret('step result')} {secret('answer')}" in answered.get_outputs()
    async with asking(storage).open(thread_id="answered") as run:
        events = [event.data async for event in run.events(after=0) if event.type == "told"]
    assert events == [secret("event")]
    assert await storage.verify() == []
    await closed(storage)
    assert found_in(await place.raw(), map(secret, PLACES)) == []
