"""History: a thread moves between any two stores with all that it has, and goes on there as it would have here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.promises.moved_threads import GOING_ON, make_all
from tests.promises.processes import STORAGES

from perdure.checkpoints.history.retention import LatestOnly
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.checkpoints.transfer.copy_store import copy_store
from perdure.records import CheckpointInfo
from perdure.testing.conformance.threads import read_everything


@pytest.fixture(params=STORAGES)
async def source(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreCheckpointStorage]:
    (tmp_path / "source").mkdir()
    made = STORAGES[request.param](tmp_path / "source")
    await make_all(made)
    yield made
    await made.close()


@pytest.fixture(params=STORAGES)
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreCheckpointStorage]:
    (tmp_path / "target").mkdir()
    made = STORAGES[request.param](tmp_path / "target")
    yield made
    await made.close()


async def exported(storage: StoreCheckpointStorage, folder: Path) -> dict[str, bytes]:
    """The file of each thread. Of one it may differ: what only waits to be freed need not be taken over."""
    files = {}
    for thread_id in GOING_ON.keys() - {"kept"}:
        await storage.export_thread(thread_id, folder / "exported", overwrite=True)
        files[thread_id] = (folder / "exported").read_bytes()
    return files


async def readable(storage: StoreCheckpointStorage) -> dict[str, Any]:
    """All that can be read of a store. An empty list is as good as an empty tuple."""
    found = await read_everything(storage.store)
    for thread_id, logged in found["events"].items():
        found["events"][thread_id] = [msgspec.structs.replace(one, own=tuple(one.own)) for one in logged]
    return found


async def told(storage: StoreCheckpointStorage, thread_id: str) -> list[Any]:
    return [(one.first_seq, one.count, one.body) for one in await storage.store.events_after(thread_id, None)]


async def asked(storage: StoreCheckpointStorage, thread_id: str) -> list[Any]:
    found = await storage.pending_requests(thread_id=thread_id)
    return [(one.request_id, one.executor_id, one.asked_at, one.deadline, one.assignee) for one in found]


async def test_a_store_is_copied_with_all_that_can_be_read_of_it(
    source: StoreCheckpointStorage, target: StoreCheckpointStorage, tmp_path: Path
) -> None:
    before, files = await readable(source), await exported(source, tmp_path)
    report = await copy_store(source, target)
    assert (list(report.copied), report.is_complete) == (list(GOING_ON), True), report
    assert await readable(target) == before
    assert await exported(target, tmp_path) == files
    assert await target.verify() == []
    assert await readable(source) == before, "the source was changed"


async def test_what_was_copied_goes_on_as_it_would_have_gone_on(
    source: StoreCheckpointStorage, target: StoreCheckpointStorage
) -> None:
    await copy_store(source, target)
    for thread_id, go_on in GOING_ON.items():
        expected = await go_on(source)
        assert await go_on(target) == expected, thread_id
        ours, theirs = await told(source, thread_id), await told(target, thread_id)
        assert [one[:2] for one in theirs] == [one[:2] for one in ours], f"seqs of {thread_id}"
    assert await target.verify() == []
    for thread_id in GOING_ON:
        infos = await target.list_checkpoint_infos(thread_id=thread_id)
        await target.rewind(thread_id, infos[0])
    await target.prune(keep_last=1)
    assert await target.verify() == []
    assert await source.verify() == []


@pytest.mark.parametrize("source", ["memory"], indirect=True)
async def test_retention_goes_on_where_it_was(source: StoreCheckpointStorage, target: StoreCheckpointStorage) -> None:
    await copy_store(source, target)
    target.retention = LatestOnly()
    for thread_id, go_on in GOING_ON.items():
        await go_on(target)
        left = await target.list_checkpoint_infos(thread_id=thread_id)
        head = max(one.number for one in left)
        assert all(one.is_pinned or one.number == head for one in left), thread_id
    await target.prune(keep_last=1)
    assert await target.verify() == []


async def test_a_thread_can_be_imported_under_another_id_beside_the_first(
    source: StoreCheckpointStorage, tmp_path: Path
) -> None:
    for thread_id in GOING_ON:
        path = tmp_path / "thread.jsonl"
        await source.export_thread(thread_id, path, overwrite=True)
        for copy_id in (f"{thread_id} 2", f"{thread_id} 3"):
            info = await source.import_thread(path, thread_id=copy_id)
            assert info.thread_id == copy_id
            ours = await source.list_checkpoint_infos(thread_id=thread_id)
            theirs = await source.list_checkpoint_infos(thread_id=copy_id)
            assert shape(theirs) == shape(ours)
            assert not {one.checkpoint_id for one in ours} & {one.checkpoint_id for one in theirs}
            assert info.checkpoint_id == theirs[-1].checkpoint_id
            assert await told(source, copy_id) == await told(source, thread_id)
            asked = {(one.request_id, one.asked_at) for one in await source.pending_requests(thread_id=copy_id)}
            assert asked == {
                (one.request_id, one.asked_at) for one in await source.pending_requests(thread_id=thread_id)
            }
    assert await source.verify() == []


def shape(infos: list[CheckpointInfo]) -> list[Any]:
    """Their places and links, without their names. Links to other threads keep their names."""
    places = {one.checkpoint_id: one.number for one in infos}
    links = [places.get(one.previous_checkpoint_id or "", one.previous_checkpoint_id) for one in infos]
    return [
        (one.number, one.iteration_count, one.timestamp, one.run_id, one.status, one.is_pinned, link)
        for one, link in zip(infos, links, strict=True)
    ]
