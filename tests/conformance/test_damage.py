"""A check of our stores finds every payload that was changed and every part that was lost, and names the thread."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conformance.harming import damage, lose_a_part
from tests.conformance.stores import ON_DISK, STORES

from perdure.errors import DamagedStore
from perdure.records import LoggedEvents
from perdure.testing.conformance.threads import own, save_thread

PAYLOADS = ("root", "event", "journal", "inbox")
SIZE = 50_000


@pytest.mark.parametrize("kind", ON_DISK)
async def test_a_changed_payload_is_found_and_its_thread_is_named(kind: str, tmp_path: Path) -> None:
    """A chunk, too, where a commit has one checksum; in PostgreSQL its digest proves it: `verify` compares that."""
    for what in (*PAYLOADS, *(["chunk"] if kind != "postgres" else [])):
        folder = tmp_path / what
        folder.mkdir()
        store = STORES[kind](folder)
        await save_thread(store, "sound", 3, chunks={"aa": b'"sound"'}, events=1)
        owner = await own(store, "hurt")
        await owner.save(root=b'{"of":"the root value"}', chunks={"aa": b'"the chunk value"'}, events=1)
        await owner.note(events=LoggedEvents(2, 1, b'[["the event value"]]'))
        await owner.record(1, b'"the journal value"')
        await store.post("hurt", "item", "message", b'"the inbox value"')
        await owner.release()
        await store.close()
        assert damage(kind, folder, b"the %b value" % what.encode()) >= 1
        store = STORES[kind](folder)
        problems = await store.check()
        assert {entry.thread_id for entry in problems} == {"hurt"} and all(entry.reason for entry in problems), (
            what,
            problems,
        )
        await store.close()


@pytest.mark.parametrize("kind", ON_DISK)
async def test_check_reports_a_store_that_lost_a_part(kind: str, tmp_path: Path) -> None:
    store = STORES[kind](tmp_path)
    owner = await own(store)
    for number in range(1, 41):
        dropped = [f"c{number - 1}.{number - 1}"] * (number > 1)
        await owner.save(chunks={f"c{number}": b'"%b"' % bytes([48 + number]).ljust(SIZE, b"x")}, dropped=dropped)
    await owner.release()
    await store.close()
    lose_a_part(kind, tmp_path, SIZE)
    store = STORES[kind](tmp_path)
    try:
        reasons = [entry.reason for entry in await store.check()]
    except DamagedStore as error:  # where hardly anything of it can be read
        reasons = [error.reason]
    assert reasons and all(reasons)
    await store.close()
