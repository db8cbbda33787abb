"""Bytes, names and sizes: what a store keeps comes back as it was, whatever it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from perdure.errors import UnsupportedId
from perdure.names import SHORT
from perdure.records import LoggedEvents
from perdure.store import Store
from perdure.testing.conformance.clause import clause, expect, expect_equal, expect_fields, expect_one, run_together
from perdure.testing.conformance.location import TrialLocation
from perdure.testing.conformance.threads import (
    ThreadOwner,
    checkpoint_ids,
    chunk,
    chunks,
    expect_owner_finds,
    expect_state,
    make_request,
    own,
    read_as_owner,
    read_everything,
    save_thread,
    thread_ids,
)

MANY = 130
"""More than a page of anything that a store reads in pages."""


BODIES = (b"null", b"0", b'""', b"[]", b"{}", b"-1.50e+3", b'{"a":1,"a":2}', '"é\\u00e9🦀 \\ud83e\\udd80"'.encode())


@clause
async def bytes_come_back_as_they_were(store: Store) -> None:
    """A store never looks into the bytes it keeps"""
    for index, body in enumerate(BODIES):
        thread_id = f"t{index}"
        owner = await own(store, thread_id)
        await owner.save(root=body, chunks={"aa": body}, events=LoggedEvents(1, 1, body))
        await owner.record(1, body)
        await store.post(thread_id, "item", "message", body)
        expect_equal("an event", [batch.body for batch in await store.events_after(thread_id, 0)], [body])
        expect_equal("a chunk", await chunks(store, thread_id), {"aa.1": body})
        await expect_owner_finds(store, thread_id, root=body, journal=[(1, body)], inbox=[("item", "message", body)])


@clause
async def any_text_is_an_id_and_no_two_are_taken_for_one(store: Store) -> None:
    """The checkpoint with this id, whichever thread it belongs to."""
    for name in IDS:
        owner = await own(store, name, owner=f"run {name}", workflow_name=f"w {name}")
        await owner.save(f"c {name}", brings=[name], status=name, requests=[make_request(name, name, 1, assignee=name)])
        await store.post(name, name, name, b"1")
        await owner.release()
    await expect_state(store, checkpoints=[f"c {name}" for name in IDS])
    for name in IDS:
        checkpoint = await store.find_checkpoint(f"c {name}")
        info = checkpoint and checkpoint.info
        expect_fields(f"the checkpoint of {name!r}", info, thread_id=name, run_id=f"run {name}")
        expect_equal(f"those of {name!r}", await checkpoint_ids(store, workflow_name=f"w {name}"), [f"c {name}"])
        await expect_owner_finds(store, name, inbox=[(name, name, b"1")])
        request = expect_one(f"the requests of {name!r}", await store.pending_requests(thread_id=name))
        expect_fields(f"the request of {name!r}", request, request_id=name, assignee=name)


@clause
async def a_commit_may_be_large(store: Store, owner: ThreadOwner) -> None:
    """New chunks, by digest."""
    big = b'"' + b"x" * 2_000_000 + b'"'
    many = dict(chunk(f"chunk {index}") for index in range(2000))
    await owner.save(root=big, chunks=many)
    await owner.record(1, big)
    await store.post("t", "item", "message", big)
    within = await read_as_owner(store)
    expect(within["root"] == big, "a root of 2 MB did not come back as it was")
    expect(within["journal"] == [(1, big)], "a journal entry of 2 MB did not come back as it was")
    expect(within["inbox"] == [("item", "message", big)], "an item of 2 MB did not come back as it was")
    stored = (await store.read_chunks("t", [1])).get(1)
    expect(stored == many, f"of 2000 chunks in one commit {len(stored or ())} came back")
    again = await own(store, takeover=True)
    digests = sorted(many)
    await again.save(dropped=[f"{digest[:SHORT]}.1" for digest in digests[::2]])
    await store.prune("t", ["t-1"])
    stored = (await store.read_chunks("t", [1])).get(1)
    expect(stored == {digest: many[digest] for digest in digests[1::2]}, f"{len(stored or ())} of 1000 chunks are left")


IDS = (
    *("a/b", "../up", "C:\\con", "new\nline", "日本語 🦀", "%s {} '; DROP TABLE threads; --"),
    *("ab", "AB", "ab ", " ab", "ab.", "00", "0", "é", "e\u0301", "s", "ſ", "K", "\u212a", ""),
)

LONG = "".join(chr(0x4E00 + index) for index in Random(1).choices(range(20_000), k=30_000))  # noqa: S311  # text
"""Incompressible: a name that fits into no index of a database."""


async def _save_under(owner: ThreadOwner, workflow_name: str) -> None:
    owner.workflow_name = workflow_name
    await owner.save()


NAMED: dict[str, Callable[[ThreadOwner, str], Awaitable[object]]] = {
    "checkpoint id": lambda owner, name: owner.save(name),
    "workflow name": _save_under,
    "request id": lambda owner, name: owner.save(requests=[make_request("t", name, 1)]),
    "assignee": lambda owner, name: owner.save(requests=[make_request("t", "q", 1, assignee=name)]),
    "status": lambda owner, name: owner.save(status=name),
    "run id": lambda owner, name: owner.save(run_id=name),
    "item id": lambda owner, name: owner.store.post("t", name, "message", b"1"),
    "kind of an item": lambda owner, name: owner.store.post("t", f"item {len(name)}", name, b"1"),
    "owner": lambda owner, name: owner.store.open("t", name, takeover=True),
    "thread id": lambda owner, name: owner.store.post(name, "item", "message", b"1"),
}


@clause
async def a_name_is_stored_or_rejected_and_then_nothing_is_written(store: Store) -> None:
    """Each method is one atomic step: it happens completely or not at all."""
    for what, act in NAMED.items():
        owner = await own(store)
        await owner.save("c1")
        for name in (LONG[:500], LONG, "NUL \0 NUL"):
            before = await _all_of(store)
            try:
                await act(owner, name)
            except UnsupportedId as error:
                expect(name != LONG[:500], f"the {what} of 500 characters is rejected: {error}")
                expect_equal(f"what can be read after the {what} was rejected", await _all_of(store), before)
            else:
                is_stored = await _all_of(store) != before
                expect(is_stored, f"the {what} of {len(name)} characters is accepted and not stored")
        last = await own(store, owner="last", takeover=True)
        await last.release()
        await store.delete_thread("t")
    expect_equal("the damage after all that", await store.check(), [])


async def _all_of(store: Store) -> list[Any]:
    header = await store.thread_header("t")
    return [await read_everything(store), header, list(await store.commits("t")), list(await store.thread_ids())]


THREAD_IDS = ("../up", "/absolute", "a/b", "..", ".", "~", "C:\\con", "nul.txt", "index.db", "x" * 101, "é" * 2000)


@clause
async def a_thread_id_leads_to_no_file_outside_the_folder(place: TrialLocation) -> None:
    """A store keeps threads."""
    before = sorted(path.name for path in (*place.folder.iterdir(), *place.folder.parent.glob("up*")))
    names = [*THREAD_IDS, "x" * 100_000]
    for number, thread_id in enumerate(names):
        await save_thread(place.store, thread_id, checkpoint_id=f"c{number}")
    listed = await thread_ids(place.store)
    expect(listed == names, f"of {len(names)} threads these are listed: {[name[:30] for name in listed]}")
    after = sorted(path.name for path in (*place.folder.iterdir(), *place.folder.parent.glob("up*")))
    expect_equal("the files outside the folder", [name for name in after if name != "store"], before)


@clause
async def a_thread_may_have_many_commits_entries_and_items(store: Store, owner: ThreadOwner) -> None:
    """New chunks, by digest."""
    for number in range(1, MANY + 1):
        await owner.save(chunks={"aa": b"%d" % number}, events=1)
    await run_together(*(store.post("t", f"item {index}", "message", b"1") for index in range(MANY)))
    for delivery_id in range(MANY):
        await owner.record(delivery_id)
    expect_equal("the commits with chunks", len(await store.read_chunks("t", range(1, MANY + 100))), MANY)
    expect_equal("the batches of events", len(await store.events_after("t", 100)), MANY - 100)
    page = await checkpoint_ids(store, limit=2, before=f"t-{MANY - 2}")
    expect_equal("a page of checkpoints", page, [f"t-{MANY - 4}", f"t-{MANY - 3}"])
    within = await read_as_owner(store)
    expect_equal("journal and inbox", (len(within["journal"]), len(within["inbox"])), (MANY, MANY))
