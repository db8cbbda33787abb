"""`storage.save` under cancellation: no thread stays claimed, and no cancellation is swallowed."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from tests.promises.processes import STORAGES
from tests.turns import turns

from perdure import SqliteCheckpointStorage, WorkflowCheckpoint
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.testing import Faults


def checkpoint(checkpoint_id: str) -> WorkflowCheckpoint:
    return WorkflowCheckpoint("w", "h", checkpoint_id=checkpoint_id, thread_id="t")


@pytest.fixture(params=STORAGES)
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreCheckpointStorage]:
    made = STORAGES[request.param](tmp_path)
    yield made
    await made.close()


@pytest.mark.parametrize(
    ("point", "when"), [("open", "before"), ("open", "after"), ("commit", "before"), ("commit", "after")]
)
async def test_cancelled_save_completes_and_raises_cancelled_error(
    point: str, when: str, storage: StoreCheckpointStorage
) -> None:
    faults, continued = Faults(), list[str]()
    faulty = faults.wrap(storage)

    async def user() -> None:
        await faulty.save(checkpoint("first"))
        continued.append("as if nothing had happened")

    with faults.pause(point, when=when) as pause:  # type: ignore[arg-type]  # of the parameters
        saving = asyncio.create_task(user())
        await pause
        saving.cancel()
        await turns(3)
    with pytest.raises(asyncio.CancelledError):
        await saving
    assert continued == []
    await storage.save(checkpoint("second"))  # the thread has no owner
    assert await storage.list_checkpoint_ids() == ["first", "second"]


async def test_save_that_timed_out_releases_the_thread(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    async with SqliteCheckpointStorage(path, synchronous="NORMAL") as storage:
        await storage.save(checkpoint("first"))
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        freeing = asyncio.get_running_loop().call_later(0.2, other.execute, "ROLLBACK")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await storage.save(checkpoint("late"))
        assert freeing.when() <= asyncio.get_running_loop().time()
        other.close()
        await storage.save(checkpoint("next"))
        assert await storage.list_checkpoint_ids() == ["first", "late", "next"]


async def test_a_cancellation_while_a_database_commits_is_not_swallowed(tmp_path: Path) -> None:
    path, faults, continued = tmp_path / "threads.db", Faults(), list[str]()
    async with SqliteCheckpointStorage(path, synchronous="NORMAL") as storage:
        await storage.save(checkpoint("first"))
        other = sqlite3.connect(path, isolation_level=None)
        faults.call("open", partial(other.execute, "BEGIN IMMEDIATE"), when="after")
        commits = asyncio.Event()
        faults.call("commit", commits.set)

        async def user() -> None:
            await faults.wrap(storage).save(checkpoint("second"))
            continued.append("as if nothing had happened")

        saving = asyncio.create_task(user())
        await commits.wait()
        await turns(3)
        saving.cancel()
        await turns(3)
        assert not saving.done()
        other.execute("ROLLBACK")
        other.close()
        with pytest.raises(asyncio.CancelledError):
            await saving
        assert continued == []
        await storage.save(checkpoint("third"))
        assert await storage.list_checkpoint_ids() == ["first", "second", "third"]


async def test_cancelled_save_with_a_failing_release_is_still_cancelled(
    storage: StoreCheckpointStorage,
) -> None:
    faults = Faults()
    with faults.pause("commit") as pause:
        saving = asyncio.create_task(faults.wrap(storage).save(checkpoint("first")))
        await pause
        faults.fail("release", error=OSError("the line went dead"), when="after")
        saving.cancel()
        await turns(3)
    with pytest.raises(asyncio.CancelledError):
        await saving
    await storage.save(checkpoint("second"))
