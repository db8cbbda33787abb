"""Our stores work from several event loops and operating system threads at once. The contract leaves it open."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.conformance.stores import STORES

from perdure.store import Store
from perdure.testing.conformance.threads import own, thread_ids


async def commit_five_times(store: Store, thread_id: str) -> None:
    owner = await own(store, thread_id)
    for _ in range(5):
        await owner.save(events=1, chunks={"aa": thread_id.join('""').encode()})
    await owner.release()


@pytest.mark.parametrize("kind", STORES)
async def test_a_store_is_used_from_several_event_loops_at_once(kind: str, tmp_path: Path) -> None:
    store = STORES[kind](tmp_path)

    def commit_in_another_loop(name: str) -> None:
        asyncio.run(commit_five_times(store, name))

    names = [f"t{index}" for index in range(8)]
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(4) as pool:
        others = (loop.run_in_executor(pool, commit_in_another_loop, name) for name in names)
        await asyncio.gather(*others, commit_five_times(store, "here"))
    assert sorted(await thread_ids(store)) == sorted([*names, "here"])
    for name in names:
        assert [info.number for info in await store.infos(thread_id=name)] == [1, 2, 3, 4, 5]
    await store.close()
