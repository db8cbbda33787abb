"""Acts on one thread of a PostgreSQL store at the same time, with the order of what the server does forced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.conftest import SOAK
from tests.databases.fixtures import Place
from tests.databases.postgres import Databases
from tests.databases.proxy import Instant, Proxy
from tests.postgres.at_once import AtOnce
from tests.postgres.forcing import Forced

from perdure.errors import CheckpointNotFound, CursorExpired, DamagedCheckpoint, ThreadBusy
from perdure.records import JournalEntry
from perdure.testing.conformance.threads import own, save_thread


@pytest.fixture
async def forced(postgres_place: Place) -> AsyncIterator[Forced]:
    async with Forced(*postgres_place) as schema:
        yield schema


# ---------------------------------------------------------------- deleting


async def test_thread_is_not_deleted_while_a_store_claims_it(forced: Forced) -> None:
    first, other = forced.store(), forced.store()
    await save_thread(first, "t", 2)
    async with forced.under_way("threads", "UPDATE"):
        opening = asyncio.create_task(first.open("t", "run"))
        await forced.until_waiting(1)
        deleting = asyncio.create_task(other.delete_thread("t"))
        await forced.until_waiting(2)
    assert (await opening).number == 2
    with pytest.raises(ThreadBusy):
        await deleting
    assert [info.number for info in await other.infos(thread_id="t")] == [1, 2]


@pytest.mark.parametrize("if_unmoved_since", [None, 1])
async def test_a_post_beside_a_deletion_is_there_afterwards(forced: Forced, if_unmoved_since: int | None) -> None:
    first, other = forced.store(), forced.store()
    await save_thread(first, "t", 1)
    async with forced.locked("{s}.commits"):
        deleting = asyncio.create_task(first.delete_thread("t", if_unmoved_since=if_unmoved_since))
        await forced.until_waiting(1)
        posting = asyncio.create_task(other.post("t", "item", "k", b"1"))
        await asyncio.wait([posting, asyncio.create_task(forced.until_waiting(2))], return_when="FIRST_COMPLETED")
    await posting
    await deleting
    assert await other.thread_ids() == ["t"]
    assert [item.item_id for item in (await other.open("t", "run")).inbox] == ["item"]


async def test_a_pin_beside_a_deletion_is_refused_or_keeps_the_thread(forced: Forced) -> None:
    first, other = forced.store(), forced.store()
    await save_thread(first, "t", 1)
    async with forced.locked("{s}.commits"):
        deleting = asyncio.create_task(first.delete_thread("t", if_unmoved_since=1))
        await forced.until_waiting(1)
        pinning = asyncio.create_task(other.pin("t-1"))
        await forced.until_waiting(2)
    try:
        await pinning
        is_pinned = True
    except CheckpointNotFound:
        is_pinned = False
    assert await deleting is not is_pinned
    assert (await other.find_checkpoint("t-1") is not None) is is_pinned


# ---------------------------------------------------------------- pruning


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
async def test_checkpoint_pinned_while_a_prune_waits_stays(postgres_server: Databases, isolation: str) -> None:
    with postgres_server.database() as dsn:
        async with Forced(dsn, "perdure") as forced:
            name = await forced.value("SELECT current_database()")
            await forced.execute(f"ALTER DATABASE \"{name}\" SET default_transaction_isolation = '{isolation}'")
            first, other = forced.store(), forced.store()
            await save_thread(first, "t", 5)
            async with forced.locked("{s}.commits WHERE number = 2"):
                pruning = asyncio.create_task(first.prune("t", ["t-2", "t-3"]))
                await forced.until_waiting(1)
                await other.pin("t-3")
            assert await pruning == 1
            assert [info.number for info in await other.infos(thread_id="t")] == [1, 3, 4, 5]


async def test_checkpoint_pinned_while_a_commit_prunes_it_can_be_resumed(forced: Forced) -> None:
    first, other = forced.store(), forced.store()
    owner = await own(first, "t")
    for _ in range(3):
        await owner.save()
    async with forced.locked("{s}.threads", "FOR NO KEY UPDATE"):
        saving = asyncio.create_task(owner.save(prunes=[2]))
        await forced.until_waiting(1)
        await other.pin("t-2")
    await saving
    await owner.save(parent=2)
    assert [info.number for info in await other.infos(thread_id="t")] == [1, 2, 3, 4, 5]


async def test_needed_chunks_stay_when_checkpoints_and_events_go_together(forced: Forced) -> None:
    store = forced.store()
    owner = await own(store, "t")
    a, b = "a" * 24, "b" * 24
    await owner.save(events=1, chunks={a: b'"A"', b: b'"B"'})
    await owner.save(dropped=[f"{b}.1"])
    third = await owner.save(parent=1, dropped=[f"{a}.1"])
    await store.prune("t", ["t-1"])
    owner.head = third
    await owner.save(prunes=[2], prunes_events_before=2)  # what carries a goes, and what holds it is looked at
    await owner.release()
    await store.prune("t", [])  # what was not freed yet
    assert await store.read_chunks("t", [1]) == {1: {b: b'"B"'}}


async def test_chunks_rewritten_while_a_prune_cuts_others_out_stay_whole(forced: Forced) -> None:
    first, other = forced.store(), forced.store()
    owner = await own(first, "t")
    a, b, c = "a" * 24, "b" * 24, "c" * 24
    await owner.save(chunks={a: b'"A"', b: b'"BBB"', c: b'"CCCCC"'})
    await owner.save(dropped=[f"{b}.1"])
    owner.head = await owner.save(parent=1, dropped=[f"{a}.1"])
    await owner.save()
    await first.prune("t", ["t-1"])  # which then only holds what others have of it
    async with forced.under_way("commits", "UPDATE"):
        rewriting = asyncio.create_task(other.rewrite("t", lambda kind, name, body: body + b"  "))
        await forced.until_waiting(1)
        pruning = asyncio.create_task(first.prune("t", ["t-2"]))
        await forced.until_waiting(2)
    await rewriting
    await pruning
    assert await first.read_chunks("t", [1]) == {1: {b: b'"BBB"  ', c: b'"CCCCC"  '}}
    assert await first.check() == []


async def test_refused_prune_removes_no_events(forced: Forced) -> None:
    store = forced.store()
    owner = await own(store, "t")
    await owner.save(events=1)
    await owner.save(events=1)
    with pytest.raises(ThreadBusy):
        await store.prune("t", ["t-2"], events_before=3)
    assert [events.first_seq for events in await store.events_after("t", None)] == [1, 2]


async def test_events_of_a_commit_under_way_stay_when_older_events_are_pruned(forced: Forced) -> None:
    first, other = forced.store(), forced.store()
    owner = await own(first, "t")
    await owner.save(events=2)
    await owner.save()
    async with forced.under_way("commits", "INSERT"):
        saving = asyncio.create_task(owner.save(events=2))
        await forced.until_waiting(1)
        pruning = asyncio.create_task(other.prune("t", [], events_before=2))
        await forced.until_waiting(2)
    await saving
    await pruning
    assert [events.first_seq for events in await other.events_after("t", 2)] == [3]


async def test_reader_of_events_during_pruning_gets_all_or_cursor_expired(forced: Forced) -> None:
    store = forced.store()
    owner = await own(store, "t")
    await owner.save(events=2)
    is_over = asyncio.Event()

    async def move() -> None:
        for _ in range(100):
            await owner.save(events=2, prunes_events_before=owner.number, prunes=[owner.number])
        is_over.set()

    moving = asyncio.create_task(move())
    seen = 0
    while not is_over.is_set() or seen < owner.last_seq:
        try:
            for events in await store.events_after("t", seen):
                assert events.first_seq <= seen + 1
                seen = events.first_seq + events.count - 1
        except CursorExpired as error:
            seen = error.oldest - 1
    await moving


# ---------------------------------------------------------------- copying


async def test_open_beside_a_copy_to_the_same_id_sees_the_whole_copy(forced: Forced) -> None:
    first, other = forced.store(), forced.store()
    await save_thread(first, "t", 3)
    async with forced.under_way("commits", "INSERT"):
        copying = asyncio.create_task(first.copy_thread("t", "copy"))
        await forced.until_waiting(1)
        opening = asyncio.create_task(other.open("copy", "run"))
        await forced.until_waiting(2)
    await copying
    opened = await opening
    assert opened.info is not None
    assert (opened.number, opened.info.number) == (3, 3)


async def test_copies_of_a_thread_that_commits_and_prunes_are_whole(forced: Forced) -> None:
    first, other = forced.store(), forced.store(pool_size=1)
    owner = await own(first, "t")
    await owner.save()
    is_over = asyncio.Event()

    async def move() -> None:
        while not is_over.is_set():
            await owner.save(prunes=[owner.number])

    moving = asyncio.create_task(move())
    for number in range(20):
        await other.copy_thread("t", f"copy {number}")
        assert await other.head(f"copy {number}") is not None
    is_over.set()
    await moving
    assert await other.check() == []


# ---------------------------------------------------------------- writing


async def test_one_of_two_concurrent_commits_keeps_the_same_checkpoint_id(forced: Forced) -> None:
    first, other = forced.store(), forced.store()
    a, b = await own(first, "a"), await own(other, "b")
    async with forced.under_way("commits", "INSERT"):
        saving = [asyncio.create_task(owner.save("same")) for owner in (a, b)]
        await forced.until_waiting(2)
    await asyncio.gather(*saving)
    assert [info.checkpoint_id for info in await first.infos()] == ["same"]


async def test_journal_entries_of_several_stores_under_one_lease_are_all_kept(forced: Forced) -> None:
    first, other = forced.store(), forced.store()
    owner = await own(first, "t")
    await owner.record(1)
    await other.append_journal(owner.lease, JournalEntry(0, 2, b"{}"))
    await owner.record(3)
    more = [JournalEntry(0, delivery_id, b"{}") for delivery_id in range(4, 10)]
    await asyncio.gather(*(other.append_journal(owner.lease, entry) for entry in more))
    delivery_ids = [entry.delivery_id for entry in (await other.open("t", "next", takeover=True)).journal]
    assert delivery_ids[:3] == [1, 2, 3]
    assert sorted(delivery_ids[3:]) == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("instant", [Instant.BEFORE, Instant.AFTER, Instant.ANSWERED])
async def test_multi_statement_act_is_done_once_when_commit_gets_no_reply(forced: Forced, instant: Instant) -> None:
    with Proxy(forced.dsn) as proxy:
        store = forced.store(proxy.url)
        owner = await own(store, "t")
        await owner.save()
        await owner.save()
        proxy.cut(instant, "COMMIT;")
        await owner.save(parent=1)
        proxy.cut(instant, "COMMIT;")
        await store.copy_thread("t", "copy")
        proxy.cut(instant, "COMMIT;")
        assert await store.delete_thread("copy")
        assert proxy.cuts == 3
        assert not await store.delete_thread("copy")
        assert [info.number for info in await store.infos()] == [1, 2, 3]
        await store.close()


# ---------------------------------------------------------------- rewriting


@pytest.mark.parametrize("table", ["journal", "inbox"])
async def test_rewrite_leaves_a_damaged_row_as_it_is(forced: Forced, table: str) -> None:
    """A new seal would prove what was changed."""
    store = forced.store()
    owner = await own(store, "t")
    await owner.record(1)
    await store.post("t", "item", "k", b"1")
    await forced.execute(f"UPDATE {{s}}.{table} SET body = 'changed'")
    with pytest.raises(DamagedCheckpoint, match="was changed"):
        await store.rewrite("t", lambda kind, name, body: b"[" + body + b"]")
    assert await forced.value(f"SELECT body FROM {{s}}.{table}") == b"changed"
    other = "inbox" if table == "journal" else "journal"
    assert (await forced.value(f"SELECT body FROM {{s}}.{other}"))[:1] == b"["
    assert [damage.thread_id for damage in await store.check()] == ["t"]


# ---------------------------------------------------------------- all at once


async def test_concurrent_acts_of_all_kinds_lose_nothing(forced: Forced) -> None:
    """Owners that take threads from each other, posts, pins, prunes, copies, rewrites and readers; see the seed."""
    acts = AtOnce([forced.store(pool_size=4) for _ in range(4)], seconds=60 if SOAK else 1.5)
    await acts.run()
    assert acts.wrong == [], f"seed {acts.seed}"
    assert acts.done["commit"] and acts.done["copy"] and acts.done["pin"] and acts.done["rewrite"], acts.done
    assert await acts.store.check() == []
