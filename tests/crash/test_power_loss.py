"""A power cut at any moment of a file store: all acknowledged data is there, and threads continue to the same end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chance import SOAK
from tests.crash import notes
from tests.crash.flows import FLOWS, Flow, fan
from tests.crash.notes import Story
from tests.crash.outages import ROUNDS, Outages, check, taken_to_the_end

from perdure import FileCheckpointStorage
from perdure.errors import DamagedCheckpoint, DamagedStore
from perdure.stores.disk import Disk
from perdure.testing import ProcessGone


@pytest.fixture(autouse=True)
def _work_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(notes, "pace", 0)
    yield
    notes.begin_notes()


@pytest.mark.parametrize("name", ["fan-3", "asking"])
async def test_acknowledged_commits_survive_a_power_cut_after_any_operation(
    name: str, seed: int, tmp_path: Path
) -> None:
    outages, flow = Outages(tmp_path, seed), FLOWS[name]
    calm = await taken_to_the_end(flow, outages.storage)

    async def look(folder: Path, story: Story) -> None:
        await check(folder, flow, story, calm)

    assert await outages.try_all(look) > len(outages.disk.moments) > 20


async def test_outcomes_that_are_recorded_together_survive_a_power_cut(seed: int, tmp_path: Path) -> None:
    outages, flow = Outages(tmp_path, seed), Flow("fan-12", fan("fan-12", 12, 0), "go", 12)
    calm = await taken_to_the_end(flow, outages.storage)

    async def look(folder: Path, story: Story) -> None:
        await check(folder, flow, story, calm)

    await outages.try_all(look, rounds=2 * ROUNDS)


async def test_pruned_thread_survives_a_power_cut(seed: int, tmp_path: Path) -> None:
    outages, flow = Outages(tmp_path, seed), FLOWS["chain"]
    storage, file = outages.storage, tmp_path / "threads" / "chain.jsonl"
    calm = await taken_to_the_end(flow, storage)
    before, size = len(outages.disk.moments), file.stat().st_size
    for checkpoint_id in (await storage.list_checkpoint_ids())[:4]:
        assert await storage.delete(checkpoint_id)
    assert file.stat().st_size < size  # an index that is older than this takes it for a loss

    async def look(folder: Path, story: Story) -> None:
        await check(folder, flow, story, calm)

    await outages.try_all(look, first=before)


@pytest.mark.parametrize("dies_after", [3, 4, 5, 6, 9, 12] if SOAK else [5, 6])
async def test_unsynced_writes_of_a_killed_process_are_not_built_on(dies_after: int, seed: int, tmp_path: Path) -> None:
    """The process is killed, another continues from what it left, and then the power goes."""
    outages, flow = Outages(tmp_path, seed), FLOWS["fan-3"]
    outages.disk.dies_after = dies_after
    with pytest.raises(ProcessGone):
        await taken_to_the_end(flow, outages.storage)
    outages.disk.dies_after = None
    outages.disk.die()
    outages.storage = outages.new_storage(tmp_path / "threads")
    # No process really died, so the lease is taken by force, before anything lists the store.
    await outages.storage.store.release((await outages.storage.store.open(flow.name, "heir", takeover=True)).lease)
    calm = await taken_to_the_end(flow, outages.storage)

    async def look(folder: Path, story: Story) -> None:
        await check(folder, flow, story, calm)

    await outages.try_all(look, first=dies_after)


async def test_a_deleted_thread_does_not_come_back(seed: int, tmp_path: Path) -> None:
    outages, flow = Outages(tmp_path, seed), FLOWS["asking"]
    storage = outages.storage
    await flow.build(storage).run(flow.message, thread_id=flow.name)
    before = len(outages.disk.moments)
    assert await storage.delete_thread(flow.name)
    outages.disk.note("committed asking 0 deleted")
    await storage.store.post("another", "item", "message", b'"x"')

    async def look(folder: Path, story: Story) -> None:
        async with FileCheckpointStorage(folder) as storage:
            is_there = flow.name in {thread.thread_id for thread in await storage.list_threads()}
            assert not (is_there and story.acknowledged[flow.name] == 0)
            await storage.list_checkpoints()

    await outages.try_all(look, first=before)


async def test_power_cut_without_fsync_gives_the_same_end_or_reports_damage(seed: int, tmp_path: Path) -> None:
    """The loss is reported, or it is the end of a thread: that part is done again, to the same result."""
    outages, flow = Outages(tmp_path, seed, syncs=False), FLOWS["fan-3"]
    calm = await taken_to_the_end(flow, outages.storage)

    errors = list[str]()

    async def look(folder: Path, story: Story) -> None:
        async with FileCheckpointStorage(folder, fsync=False) as storage:
            try:
                assert await taken_to_the_end(flow, storage) == calm
            except (DamagedStore, DamagedCheckpoint) as error:
                errors.append(str(error))

    await outages.try_all(look)
    assert all("fan-3" in error for error in errors)


@pytest.mark.parametrize("lost", ["what an append wrote", "all of the file"])
async def test_without_fsync_a_loss_before_the_end_of_a_thread_is_reported(lost: str, tmp_path: Path) -> None:
    flow, threads = FLOWS["fan-3"], tmp_path / "threads"
    outages = Outages(tmp_path, 0, syncs=False)
    await taken_to_the_end(flow, outages.storage)
    await outages.storage.close()
    file = threads / "fan-3.jsonl"
    if lost == "all of the file":
        file.write_bytes(b"")  # its index is there, and knows of commits
    else:
        append = [operation for operation in outages.disk.operations if operation.what == "append"][3]
        content = bytearray(file.read_bytes())
        content[append.place : append.place + len(append.data)] = b"\0" * len(append.data)
        file.write_bytes(content)
        (threads / "index.db").unlink()

    async with FileCheckpointStorage(threads, fsync=False) as storage:
        with pytest.raises((DamagedStore, DamagedCheckpoint), match="fan-3"):
            await taken_to_the_end(flow, storage)


def test_new_folder_is_synced_into_its_parents(tmp_path: Path) -> None:
    synced: list[Path] = []

    class Watched(Disk):
        def sync_folder(self, path: Path) -> None:
            synced.append(path)
            super().sync_folder(path)

    Watched().make_folder(tmp_path / "a" / "b")
    assert synced == [tmp_path, tmp_path / "a"]
