"""Threads as a whole: deleted, copied within a store, and rewritten while their owner continues."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

from perdure.errors import ThreadBusy, ThreadNotFound
from perdure.records import Commit
from perdure.store import Store
from perdure.testing.conformance.clause import clause, expect, expect_equal, expect_fields, expect_one, expect_raises
from perdure.testing.conformance.threads import (
    ThreadOwner,
    all_commits,
    at,
    checkpoint_ids,
    chunks,
    expect_owner_finds,
    expect_state,
    expect_unchanged,
    header_of,
    make_events,
    make_request,
    own,
    pending,
    read_as_owner,
    read_everything,
    ref,
    save_full_thread,
    save_thread,
    thread_ids,
)


@clause
async def nothing_is_left_of_a_deleted_thread_and_others_are_left_alone(store: Store) -> None:
    """Delete a thread; False if none exists."""
    await save_full_thread(store, "u")
    async with expect_unchanged(store):
        await save_full_thread(store, "t")
        before = await store.infos(thread_id="t")
        expect_equal("whether it was there", await store.delete_thread("t"), True)
        expect_equal("whether it was there then", await store.delete_thread("t"), False)
        await store.post("v", "item", "message", b"1")
        expect_equal("whether one that was only posted to was there", await store.delete_thread("v"), True)
        await expect_state(store, threads=["u"], requests=["q"], due=["u"], head=None, events=[], chunks=set())
        for info in before:
            expect_equal(f"checkpoint {info.checkpoint_id!r}", await store.find_checkpoint(info.checkpoint_id), None)
    await expect_owner_finds(store, "u", journal=[(5, b'{"done":1}')])
    await expect_owner_finds(store, number=0, last_seq=0, journal=[], inbox=[])
    await store.post("t", "consumed", "message", b"2")  # an id that the old one had consumed
    owner = await own(store)
    expect_equal("the inbox", [item.item_id for item in owner.opened.inbox], ["consumed"])
    await owner.save("t-1", events=1)
    await expect_state(store, checkpoints=["u-1", "u-2", "u-4", "t-1"], events=[1])


@clause
async def a_thread_with_an_owner_or_that_is_not_as_it_was_is_not_deleted(store: Store) -> None:
    """only if that is its last commit, its inbox is empty and no checkpoint of it is pinned; otherwise False,
    without any change."""
    await save_thread(store, "t", 2)
    expect_equal("whether one that moved went", await store.delete_thread("t", if_unmoved_since=1), False)
    await store.post("t", "item", "message", b"1")
    expect_equal("whether one with an item went", await store.delete_thread("t", if_unmoved_since=2), False)
    owner = await own(store)
    await owner.note(consumed=["item"])
    async with expect_unchanged(store):
        await expect_raises(ThreadBusy, store.delete_thread("t"), "deleting a thread with an owner")
    await owner.note()
    await owner.release()
    await store.pin("t-1")
    expect_equal("whether one with a pin went", await store.delete_thread("t", if_unmoved_since=4), False)
    await expect_state(store, checkpoints=["t-1", "t-2"])
    await store.unpin("t-1")
    expect_equal("whether one that is as it was went", await store.delete_thread("t", if_unmoved_since=4), True)
    await expect_state(store, "then", checkpoints=[])


@clause
async def a_copy_holds_all_commits_under_new_checkpoint_ids_and_nothing_else(store: Store) -> None:
    """Create a thread `to` with copies of all commits of this one, under new checkpoint ids."""
    await save_full_thread(store)
    held = await own(store)
    await store.copy_thread("t", "copy")
    original, copied = await store.infos(thread_id="t"), await store.infos(thread_id="copy")
    expect_equal("how many checkpoints it has", len(copied), len(original))
    expect(not {info.checkpoint_id for info in original} & {info.checkpoint_id for info in copied}, "ids are shared")
    for before, after, followed in zip(original, copied, [None, *copied], strict=False):
        previous = followed and followed.checkpoint_id
        renamed = {"thread_id": "copy", "checkpoint_id": after.checkpoint_id, "previous_checkpoint_id": previous}
        expect_equal(f"the copy of commit {before.number}", after, msgspec.structs.replace(before, **renamed))
        checkpoint, copy = [await store.find_checkpoint(info.checkpoint_id) for info in (before, after)]
        expect_equal(f"the root of commit {before.number}", copy and copy.root, checkpoint and checkpoint.root)
    expect_equal("its chunks", await chunks(store, "copy"), await chunks(store, "t"))
    log, copied_log = [await store.events_after(name, 0) for name in ("t", "copy")]
    bodies = [[(batch.first_seq, batch.count, batch.body) for batch in batches] for batches in (log, copied_log)]
    expect_equal("its events", bodies[1], bodies[0])
    expect_equal("the checkpoints of its events", [batch.info for batch in copied_log], [*copied[:2], None])
    thread = expect_one("the threads of that name", await store.threads(thread_id="copy"))
    expect_fields("the copy", thread, number=4, status="IDLE", run_id=None)
    expect_equal("its requests", await pending(store, thread_id="copy"), [("copy", "q")])
    await expect_owner_finds(store, "copy", last_seq=4, journal=[], inbox=[])
    await held.save()


@clause
async def a_copy_and_its_original_are_independent(store: Store) -> None:
    """Create a thread `to` with copies of all commits of this one, under new checkpoint ids."""
    owner = await save_full_thread(store)
    await store.copy_thread("t", "copy")
    before = [await store.infos(thread_id="t"), await store.events_after("t", 0), await chunks(store, "t")]
    copy = await own(store, "copy")
    copy.has[4] = owner.has[4]
    await copy.save(brings=["new"], drops=["shared"], events=1)
    await copy.release()
    copied = await checkpoint_ids(store, thread_id="copy")
    await store.prune("copy", copied[:2])
    after = [await store.infos(thread_id="t"), await store.events_after("t", 0), await chunks(store, "t")]
    expect_equal("the original after its copy was moved and pruned", after, before)
    held = await chunks(store, "copy")
    await store.delete_thread("t")
    expect_equal("the threads", await thread_ids(store), ["copy"])
    expect_equal("the chunks of the copy", await chunks(store, "copy"), held)
    expect_equal("its checkpoints", await checkpoint_ids(store), copied[2:])


@clause
async def a_copy_never_takes_the_place_of_a_thread(store: Store) -> None:
    """Raises ThreadBusy if a thread `to` exists already."""
    await save_full_thread(store)
    await save_thread(store, "there")
    await store.post("posted to", "item", "message", b"1")
    held = await own(store, "claimed")
    async with expect_unchanged(store):
        for to in ("there", "posted to", "claimed", "t"):
            await expect_raises(ThreadBusy, store.copy_thread("t", to), f"copying to {to!r}, which there is")
        await expect_raises(ThreadNotFound, store.copy_thread("none", "new"), "copying a thread that does not exist")
    await expect_owner_finds(store, "posted to", inbox=[("item", "message", b"1")])
    await held.save()


@clause
async def a_copy_of_a_pruned_thread_has_all_that_is_left(store: Store, owner: ThreadOwner) -> None:
    """Create a thread `to` with copies of all commits of this one, under new checkpoint ids."""
    await owner.save(brings=["a"])
    await owner.save(brings=["b"])
    await owner.save(brings=["c"], drops=["b"], requests=[make_request("t", "q", 1)], due_at=at(2))
    await owner.note(events=1, status="FAILED")
    await owner.release()
    await store.prune("t", ["t-1", "t-2"])
    await store.copy_thread("t", "copy")
    await expect_state(store, "of the copy", thread_id="copy", chunks={ref("a", 1), ref("c", 3)})
    expect_equal("its requests", await pending(store, thread_id="copy"), [("copy", "q")])
    await store.prune("t", ["t-3"])
    await store.copy_thread("t", "empty")
    for name in ("t", "empty"):
        thread = expect_one(f"the threads {name!r}", await store.threads(thread_id=name))
        expect_fields(f"the thread {name!r} without a checkpoint", thread, number=4, status="FAILED", due_at=None)
    expect_equal("the threads of the workflow", await thread_ids(store, workflow_name="w"), ["t", "copy", "empty"])
    again = await own(store, "copy")
    again.has = {3: {}}
    await again.save()
    expect_equal("how many went of the copy", await store.prune("copy", (await checkpoint_ids(store))[:1]), 1)
    await expect_state(store, "of the copy then", thread_id="copy", chunks={ref("a", 1), ref("c", 3)})


Payload: TypeAlias = tuple[str, str, bytes]


def wrap(kind: str, name: str, data: bytes) -> bytes:
    """A change that shows what it was given."""
    return msgspec.json.encode([kind, name, msgspec.Raw(data)])


def unwrap(data: bytes) -> bytes:
    """What was given; the bytes themselves if they were not changed."""
    value = msgspec.json.decode(data)
    is_wrapped = isinstance(value, list) and len(value) == 3 and isinstance(value[1], str)
    return msgspec.json.encode(value[2]) if is_wrapped else msgspec.json.encode(value)


async def payloads(store: Store, thread_id: str = "t") -> list[Payload]:
    """All that is kept of the thread: kind, name and bytes."""
    header = await header_of(store, thread_id)
    kept = [payload for commit in await all_commits(store, thread_id) for payload in payloads_of(commit)]
    kept += [("journal", str(entry.delivery_id), entry.body) for entry in header.journal]
    return sorted([*kept, *(("inbox", item.item_id, item.body) for item in header.inbox)])


def payloads_of(commit: Commit) -> list[Payload]:
    root = [] if commit.root is None else [("root", str(commit.number), commit.root)]
    events = [] if commit.events is None else [("events", str(commit.number), commit.events.body)]
    return [*root, *events, *(("chunk", digest, data) for digest, data in sorted(commit.chunks.items()))]


@clause
async def every_payload_goes_through_the_change(store: Store) -> None:
    """Replace every payload of the thread by what `change` returns; returns how many differ."""
    await save_full_thread(store)
    await save_full_thread(store, "u")
    before, others = await payloads(store), await payloads(store, "u")
    seen: list[Payload] = []

    def change(kind: str, name: str, data: bytes) -> bytes:
        seen.append((kind, name, data))
        return data if kind == "events" else wrap(kind, name, data)

    count = await store.rewrite("t", change)
    expect_equal("what was put through", sorted(seen), before)
    expect_equal("how many came back different", count, sum(kind != "events" for kind, _, _ in before))
    expected = sorted((kind, name, change(kind, name, data)) for kind, name, data in before)
    expect_equal("what is there now", await payloads(store), expected)
    expect_equal("what is in the other thread", await payloads(store, "u"), others)
    expect_equal("how many of a thread that does not exist", await store.rewrite("none", change), 0)


@clause
async def nothing_but_payloads_is_rewritten(store: Store) -> None:
    """Changes nothing else."""
    await save_full_thread(store)
    await store.pin("t-2")
    await store.prune("t", ["t-1"])
    before = await _all_of(store)
    originals: dict[bytes, bytes] = {}

    def change(kind: str, name: str, data: bytes) -> bytes:
        changed = wrap(kind, name, data)
        originals[changed] = data
        return changed

    await store.rewrite("t", lambda kind, name, data: data)
    expect_equal("what can be read after a change that changes nothing", await _all_of(store), before)
    await store.rewrite("t", change)
    expect_equal("what is damaged then", await store.check(), [])
    await store.rewrite("t", lambda kind, name, data: originals[data])
    expect_equal("what can be read after a change and its reverse", await _all_of(store), before)
    await store.prune("t", ["t-4"])
    await expect_state(store, "after a prune", checkpoints=["t-2"])


async def _all_of(store: Store) -> list[Any]:
    header = msgspec.structs.replace(await header_of(store), fence=0)  # reading as an owner claims the thread
    return [await read_everything(store), await read_as_owner(store), header, await all_commits(store)]


@clause
async def the_owner_of_a_rewritten_thread_continues(store: Store, owner: ThreadOwner) -> None:
    """Needs no lease: the owner of the thread keeps running."""
    await owner.save(brings=["a"], events=1, requests=[make_request("t", "q", 1)], due_at=at(9))
    await store.post("t", "item", "message", b"1")
    await owner.record(1)
    await store.rewrite("t", wrap)
    await owner.record(2)
    await owner.save(brings=["b"], events=make_events(2, refers=True), unsettled=[2], consumed=["item"])
    expect_fields("the header", await header_of(store), inbox=[], consumed=["item"])
    expect_equal("the commits", [commit.number for commit in await all_commits(store)], [1, 2])
    await owner.release()
    await expect_state(store, journal=[2])


@clause
async def a_change_that_fails_leaves_each_commit_whole(store: Store) -> None:
    """Atomic for each commit, journal entry and inbox item."""
    await save_full_thread(store)
    before = await all_commits(store)
    for fails_at in range(1, 9):
        calls = itertools.count(1)

        def change(kind: str, name: str, data: bytes, fails_at: int = fails_at, calls: Iterator[int] = calls) -> bytes:
            if next(calls) == fails_at:
                raise RuntimeError("it does not want any more")
            return wrap(kind, name, unwrap(data))

        await expect_raises(RuntimeError, store.rewrite("t", change), f"a change that fails at payload {fails_at}")
        for commit, original in zip(await all_commits(store), before, strict=True):
            now, plain = [[data for _, _, data in payloads_of(each)] for each in (commit, original)]
            states = {data == data_before for data, data_before in zip(now, plain, strict=True)}
            expect(len(states) < 2, f"of commit {commit.number} some payloads were changed, and some were not")
            expect_equal(f"the payloads of commit {commit.number}", [*map(unwrap, now)], [*map(unwrap, plain)])
    expect_equal("what is damaged after all that", await store.check(), [])
