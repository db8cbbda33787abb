"""The connection is cut in the middle of each write: the write is there once, and its caller gets that result."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest
from tests.chance import SOAK
from tests.databases.fixtures import Place
from tests.databases.proxy import Counts, Instant, Proxy

from perdure.store import Store
from perdure.stores.postgres.store import PostgresStore
from perdure.testing.conformance.threads import ThreadOwner, own, save_thread

Act = Callable[[ThreadOwner], Awaitable[object]]


async def commit(owner: ThreadOwner) -> None:
    await owner.save(brings=["new"], events=2, consumed=["waiting"])


async def commit_without_a_checkpoint(owner: ThreadOwner) -> None:
    await owner.note(events=1, status="FAILED")


async def commit_in_the_place_of_another_checkpoint(owner: ThreadOwner) -> None:
    await owner.save(f"{owner.lease.thread_id}-1", brings=["new"], events=1)


async def commit_after_an_older_checkpoint(owner: ThreadOwner) -> None:
    await owner.save(parent=1, brings=["new"])


async def post(owner: ThreadOwner) -> None:
    await owner.store.post(owner.lease.thread_id, "item", "message", b"1")


async def append_journal(owner: ThreadOwner) -> None:
    await owner.record(7)


async def open_again(owner: ThreadOwner) -> None:
    opened = await owner.store.open(owner.lease.thread_id, "another run", takeover=True)
    assert (opened.number, opened.lease.owner) == (2, "another run")
    await owner.store.renew(opened.lease)


async def release(owner: ThreadOwner) -> None:
    await owner.release()
    assert (await owner.store.threads(thread_id=owner.lease.thread_id))[0].run_id is None


async def pin(owner: ThreadOwner) -> None:
    await owner.store.pin(f"{owner.lease.thread_id}-1")


async def prune(owner: ThreadOwner) -> None:
    assert await owner.store.prune(owner.lease.thread_id, [f"{owner.lease.thread_id}-1"]) == 1


async def copy(owner: ThreadOwner) -> None:
    await owner.store.copy_thread(f"{owner.lease.thread_id} beside", f"{owner.lease.thread_id} copied")


async def delete(owner: ThreadOwner) -> None:
    assert await owner.store.delete_thread(f"{owner.lease.thread_id} beside")


ACTS: list[Act] = [
    *(commit, commit_without_a_checkpoint, commit_in_the_place_of_another_checkpoint, commit_after_an_older_checkpoint),
    *(post, append_journal, open_again, release, pin, prune, copy, delete),
]


@pytest.fixture
def proxy(postgres_place: Place) -> Any:
    with Proxy(postgres_place.dsn) as proxy:
        yield proxy


@pytest.fixture
async def store(proxy: Proxy, postgres_place: Place) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(proxy.url, schema=postgres_place.schema)
    yield store
    await store.close()


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
async def test_act_whose_connection_is_cut_is_done_exactly_once(
    store: PostgresStore, proxy: Proxy, act: Act, seed: int
) -> None:
    before = await trace(store, (await prepared(store, "T")).lease.thread_id)
    undisturbed = await prepared(store, "undisturbed")
    with proxy.counted() as counts:
        await act(undisturbed)
    expected = await trace(store, "undisturbed")
    assert expected != before
    for number, (instant, (statement, skip)) in enumerate(moments(list(statements_of(counts)), random.Random(seed))):
        thread_id = f"cut {number}"
        owner = await prepared(store, thread_id)
        proxy.cut(instant, statement, skip=skip)
        acting = asyncio.ensure_future(act(owner))
        await asyncio.wait([acting], timeout=0.3)  # what comes late in a transaction holds it up
        await asyncio.to_thread(proxy.deliver)
        await acting
        assert proxy.doom is None, f"not sent: {statement}"
        assert await trace(store, thread_id) == expected, f"cut {instant.value}: {statement}"


def statements_of(counts: Counts) -> Iterator[tuple[str, int]]:
    """Each with how often it was executed before. Those of the driver, and of the heartbeat, come when they like."""
    for number, statement in enumerate(counts.statements):
        is_drivers = "pg_catalog" in statement or "'jit'" in statement
        if not is_drivers and "processes (identity" not in statement:
            yield statement, counts.statements[:number].count(statement)


def moments(statements: Sequence[tuple[str, int]], chance: random.Random) -> list[tuple[Instant, tuple[str, int]]]:
    """All instants of the last statement, and some of those of the others."""
    last = [(instant, statements[-1]) for instant in Instant]
    others = [(instant, statement) for instant in Instant for statement in statements[:-1]]
    return last + (others if SOAK else chance.sample(others, min(4, len(others))))


async def prepared(store: Store, thread_id: str) -> ThreadOwner:
    """A thread with two checkpoints and something in its inbox, and another beside it."""
    await save_thread(store, f"{thread_id} beside", 2, brings=["some"], events=1)
    owner = await own(store, thread_id)
    await owner.save(brings=["one"], events=1)
    await owner.save(brings=["two"], events=1)
    await store.post(thread_id, "waiting", "message", b"0")
    return owner


async def trace(store: Store, thread_id: str) -> str:
    """All that is stored of the thread and those beside it, with the same words for all threads."""
    rows: list[str] = []
    for name in (thread_id, f"{thread_id} beside", f"{thread_id} copied"):
        standing = await store.thread_header(name)
        if standing is None:
            continue
        infos = await store.infos(thread_id=name)
        owner = (await store.threads(thread_id=name))[0].run_id
        words = repr((standing, await store.commits(name), [(info.is_pinned, info) for info in infos], owner))
        for info in infos:  # a copy has ids of its own
            words = words.replace(info.checkpoint_id, f"{name}-{info.number}")
        rows.append(words)
    # A claim that is made again has another fence.
    return re.sub("fence=[23]", "fence=2", "\n".join(rows).replace(thread_id, "T"))
