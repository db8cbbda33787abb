"""History: a thread moves between any two stores with all that it has, and continues there as it would here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.promises.moved_threads import CONTINUATIONS, make_all
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
    for thread_id in CONTINUATIONS.keys() - {"kept"}:
        await storage.export_thread(thread_id, folder / "exported", overwrite=True)
        files[thread_id] = (folder / "exported").read_bytes()
    return files


async def readable(storage: StoreCheckpointStorage) -> dict[str, Any]:
    """All that can be read of a store. An empty list is as good as an empty tuple."""
    content = await read_everything(storage.store)
    for thread_id, logged in content["events"].items():
        content["events"][thread_id] = [msgspec.structs.replace(entry, own=tuple(entry.own)) for entry in logged]
    return content


async def logged_entries(storage: StoreCheckpointStorage, thread_id: str) -> list[Any]:
    return [(entry.first_seq, entry.count, entry.body) for entry in await storage.store.events_after(thread_id, None)]


async def asked(storage: StoreCheckpointStorage, thread_id: str) -> list[Any]:
    requests = await storage.pending_requests(thread_id=thread_id)
    return [
        (request.request_id, request.executor_id, request.asked_at, request.deadline, request.assignee)
        for request in requests
    ]


async def test_a_store_is_copied_with_all_that_can_be_read_of_it(
    source: StoreCheckpointStorage, target: StoreCheckpointStorage, tmp_path: Path
) -> None:
    before, files = await readable(source), await exported(source, tmp_path)
    report = await copy_store(source, target)
    assert (list(report.copied), report.is_complete) == (list(CONTINUATIONS), True), report
    assert await readable(target) == before
    assert await exported(target, tmp_path) == files
    assert await target.verify() == []
    assert await readable(source) == before, "the source was changed"


async def test_copied_threads_continue_as_the_originals_do(
    source: StoreCheckpointStorage, target: StoreCheckpointStorage
) -> None:
    await copy_store(source, target)
    for thread_id, continue_thread in CONTINUATIONS.items():
        expected = await continue_thread(source)
        assert await continue_thread(target) == expected, thread_id
        ours, theirs = await logged_entries(source, thread_id), await logged_entries(target, thread_id)
        assert [entry[:2] for entry in theirs] == [entry[:2] for entry in ours], f"seqs of {thread_id}"
    assert await target.verify() == []
    for thread_id in CONTINUATIONS:
        infos = await target.list_checkpoint_infos(thread_id=thread_id)
        await target.rewind(thread_id, infos[0])
    await target.prune(keep_last=1)
    assert await target.verify() == []
    assert await source.verify() == []


@pytest.mark.parametrize("source", ["memory"], indirect=True)
async def test_retention_continues_after_a_copy(source: StoreCheckpointStorage, target: StoreCheckpointStorage) -> None:
    await copy_store(source, target)
    target.retention = LatestOnly()
    for thread_id, continue_thread in CONTINUATIONS.items():
        await continue_thread(target)
        left = await target.list_checkpoint_infos(thread_id=thread_id)
        head = max(info.number for info in left)
        assert all(info.is_pinned or info.number == head for info in left), thread_id
    await target.prune(keep_last=1)
    assert await target.verify() == []


async def test_thread_can_be_imported_under_other_ids_beside_the_first(
    source: StoreCheckpointStorage, tmp_path: Path
) -> None:
    for thread_id in CONTINUATIONS:
        path = tmp_path / "thread.jsonl"
        await source.export_thread(thread_id, path, overwrite=True)
        for copy_id in (f"{thread_id} 2", f"{thread_id} 3"):
            info = await source.import_thread(path, thread_id=copy_id)
            assert info.thread_id == copy_id
            ours = await source.list_checkpoint_infos(thread_id=thread_id)
            theirs = await source.list_checkpoint_infos(thread_id=copy_id)
            assert shape(theirs) == shape(ours)
            assert not {info.checkpoint_id for info in ours} & {info.checkpoint_id for info in theirs}
            assert info.checkpoint_id == theirs[-1].checkpoint_id
            assert await logged_entries(source, copy_id) == await logged_entries(source, thread_id)
            asked = {
                (request.request_id, request.asked_at) for request in await source.pending_requests(thread_id=copy_id)
            }
            assert asked == {
                (request.request_id, request.asked_at) for request in await source.pending_requests(thread_id=thread_id)
            }
    assert await source.verify() == []


def shape(infos: list[CheckpointInfo]) -> list[Any]:
    """Their places and links, without their names. Links to other threads keep their names."""
    places = {info.checkpoint_id: info.number for info in infos}
    links = [places.get(info.previous_checkpoint_id or "", info.previous_checkpoint_id) for info in infos]
    return [
        (info.number, info.iteration_count, info.timestamp, info.run_id, info.status, info.is_pinned, link)
        for info, link in zip(infos, links, strict=True)
    ]
