"""A new key: what is old can be read with the old one, what is new is under the new one, and in the end all is."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.encryption.places import NEW, OLD, Place, closed, ended
from tests.encryption.rekeying import KEYS

from perdure import Executor, RekeyReport, WorkflowBuilder, WorkflowContext, handler
from perdure.codecs.aes_gcm import AesGcm
from perdure.errors import MissingKey
from perdure.store import Store
from perdure.testing.conformance.threads import own, read_as_owner, read_everything, save_full_thread, save_thread

ROOT = Path(__file__).parents[2]


def old() -> AesGcm:
    return AesGcm({"old": OLD})


def both() -> AesGcm:
    return AesGcm(KEYS, current="new")


def new() -> AesGcm:
    return AesGcm({"new": NEW})


async def rekeyed(store: Any, *, dry_run: bool = False) -> RekeyReport:
    report: RekeyReport = await store.rekey(dry_run=dry_run)
    return report


async def contents(store: Store, thread_ids: Sequence[str]) -> list[Any]:
    return [await read_everything(store), *[await read_as_owner(store, thread_id) for thread_id in thread_ids]]


async def test_old_key_is_not_needed_after_a_rekey(place: Place) -> None:
    store = place.store(old())
    await save_full_thread(store, "t")
    await store.pin("t-2")
    await store.prune("t", ["t-1"])
    await store.post("posted", "item", "message", b'"hello"')
    before = await contents(store, ["t", "posted"])
    await closed(store)

    store = place.store(both())
    assert await contents(store, ["t", "posted"]) == before
    owner = await own(store, "u")
    await owner.save(brings=["a"], events=1)
    await owner.release()
    raw = await place.raw()
    assert b"$aes-gcm:old:" in raw and b"$aes-gcm:new:" in raw
    report = await rekeyed(store)
    assert report.is_complete and report.threads == 3 and not report.failed
    assert (report.rewritten, report.payloads) == (report.payloads["old"], {"old": 12, "new": 3})
    assert (await contents(store, ["t", "posted"]))[1:] == before[1:]
    assert await store.check() == []
    again = await rekeyed(store)
    assert (again.rewritten, again.payloads, again.is_complete) == (0, {"new": 15}, True)
    await closed(store)

    store = place.store(new())
    assert (await contents(store, ["t", "posted"]))[1:] == before[1:]
    owner = await own(store, "t")
    await owner.save(brings=["z"], drops=["shared"])
    await closed(store)
    store = place.store(old())
    with pytest.raises(MissingKey, match="'new'"):
        await store.threads()
    await closed(store)


def payloads_in(raw: bytes) -> set[bytes]:
    return set(re.findall(rb'\$aes-gcm:[^"]+"', raw))


async def test_a_dry_run_counts_and_changes_nothing(place: Place) -> None:
    store = place.store(old())
    await save_thread(store, "t", 3, events=1)
    await closed(store)
    store = place.store(both())
    kept = payloads_in(await place.raw())
    report = await rekeyed(store, dry_run=True)
    assert (report.payloads, report.rewritten, report.is_complete) == ({"old": 7}, 0, False)
    await closed(store)
    assert payloads_in(await place.raw()) == kept


async def killed_while_rekeying(place: Place, count: int) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.encryption.rekeying", place.url, str(count)), cwd=ROOT
    )
    assert await ended(process) == -signal.SIGKILL


async def test_a_rekey_that_is_killed_loses_nothing_and_is_completed_by_another(place: Place) -> None:
    store = place.store(old())
    for name in ("a", "b", "c"):
        await save_full_thread(store, name)
    before = await read_everything(store)
    await closed(store)
    for count in (1, 9, 20):
        await killed_while_rekeying(place, count)
        store = place.store(both())
        assert await read_everything(store) == before
        assert await store.check() == []
        await closed(store)
    store = place.store(both())
    assert (await rekeyed(store)).is_complete
    await closed(store)
    store = place.store(new())
    assert await read_everything(store) == before
    await closed(store)


class Count(Executor):
    @handler
    async def count(self, number: int, ctx: WorkflowContext[int, int]) -> None:
        ctx.set_state("log", [*ctx.get_state("log", []), "x" * 200])
        if number:
            await ctx.send_message(number - 1)
        else:
            await ctx.yield_output(len(ctx.get_state("log")))


async def test_threads_run_while_a_rekey_is_under_way(place: Place) -> None:
    count = Count("count")
    storage = place.storage(old())
    before = WorkflowBuilder(name="w", start_executor=count, checkpoint_storage=storage).add_edge(count, count).build()
    for thread_id in ("a", "b"):
        assert (await before.run(10, thread_id=thread_id)).get_outputs() == [11]
    await closed(storage)

    storage, other = place.storage(both()), place.storage(both())
    after = WorkflowBuilder(name="w", start_executor=count, checkpoint_storage=storage).add_edge(count, count).build()
    runs = asyncio.gather(*(after.run(25, thread_id=thread_id) for thread_id in "abcd"))
    reports = [await other.rekey()]
    while not runs.done():
        reports.append(await other.rekey())
    assert [result.get_outputs()[-1] for result in await runs] == [37, 37, 26, 26]
    assert all(report.is_complete for report in reports)
    assert sum(report.rewritten for report in reports) > 50
    assert await storage.verify() == []
    await closed(storage, other)

    storage = place.storage(new())
    assert await storage.verify() == []
    assert [thread.thread_id for thread in await storage.list_threads()] != []
    await closed(storage)


async def test_rekey_leaves_and_names_unreadable_payloads_and_does_the_rest(place: Place) -> None:
    store = place.store(old())
    await save_thread(store, "forged", 2)
    await save_thread(store, "good", 2)
    await closed(store)
    below = place.store()
    owner = await own(below, "forged")
    await owner.save("plain", root=b'"plain"')
    strange = b'"$aes-gcm:older:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"'
    await owner.save("strange", root=strange)
    await owner.release()
    await closed(below)
    store = place.store(both())
    report = await rekeyed(store)
    assert not report.is_complete and report.payloads == {"old": 5, "older": 1}
    assert report.rewritten == 5
    failures = [(failure.thread_id, failure.reason) for failure in report.failed]
    assert [thread_id for thread_id, _ in failures] == ["forged", "forged"]
    assert "commit 3 in thread 'forged' is not encrypted" in failures[0][1]
    assert "commit 4 in thread 'forged' is encrypted with key 'older'" in failures[1][1]
    await closed(store)
    store = place.store(new())
    assert await store.find_checkpoint("forged-2") is not None and await store.head("good") is not None
    await closed(store)


async def test_rekey_reports_progress_after_each_thread(place: Place) -> None:
    storage = place.storage(old())
    for name in "abc":
        await save_thread(storage.store, name)
    reported: list[tuple[int, int, str]] = []
    await storage.rekey(progress=lambda *progress: reported.append(progress))
    assert reported == [(1, 3, "a"), (2, 3, "b"), (3, 3, "c")]
    await closed(storage)


async def test_a_storage_without_encryption_has_nothing_to_rekey(tmp_path: Path) -> None:
    storage = Place("sqlite", f"sqlite:///{tmp_path / 'plain.db'}", tmp_path).storage()
    with pytest.raises(ValueError, match="encryption"):
        await storage.rekey()
    await closed(storage)
