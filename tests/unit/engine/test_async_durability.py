"""durability="async": events report only what the store holds, however far behind the writes are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.promises.processes import STORAGES
from tests.unit.engine.flows import Weather, countdown, crossing, take_all

from perdure import WorkflowEvent
from perdure.checkpoints.any_storage import read_events
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.testing import Faults


@pytest.fixture(params=STORAGES)
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreCheckpointStorage]:
    made = STORAGES[request.param](tmp_path)
    yield made
    await made.close()


async def last_stored(storage: StoreCheckpointStorage) -> int:
    return max([event.seq or 0 async for event in read_events(storage, "t", 0, None)], default=0)


async def test_cursor_of_an_uncommitted_superstep_is_already_stored(
    storage: StoreCheckpointStorage,
) -> None:
    faults, cursors, stored = Faults(), list[int](), 0
    flow = countdown(checkpoint_storage=faults.wrap(storage))
    with faults.pause("commit", nth=3) as pause:
        async for event in flow.run(8, thread_id="t", stream=True, durability="async", max_lag=4):
            if event.type == "superstep_completed":
                assert event.checkpoint is None and event.last_seq is not None
                assert event.last_seq <= await last_stored(storage)
                cursors.append(event.last_seq)
                if event.iteration == 4:
                    await pause
                    stored = await last_stored(storage)
                    assert len(await storage.list_checkpoint_ids(thread_id="t")) == 2
                    pause.resume()
    assert len(cursors) == 9 and cursors == sorted(cursors)
    assert max(cursors[:4]) <= stored < cursors[-1]  # no cursor includes the held commit


async def test_checkpoint_saved_event_names_a_stored_checkpoint_and_cursor(
    storage: StoreCheckpointStorage,
) -> None:
    flow, saved = countdown(checkpoint_storage=storage), list[WorkflowEvent]()
    async for event in flow.run(5, thread_id="t", stream=True, durability="async", max_lag=2):
        if event.type == "checkpoint_saved":
            assert event.checkpoint is not None and event.last_seq is not None
            assert (await storage.load(event.checkpoint)).thread_id == "t"
            saved.append(event)
    infos = await storage.list_checkpoint_infos(thread_id="t")
    assert [event.checkpoint for event in saved] == infos
    cursors = [event.last_seq or 0 for event in saved]
    assert cursors == sorted(cursors) and cursors[-1] <= await last_stored(storage)
    for event in saved:  # the checkpoint does not include the events after the cursor
        after = [logged async for logged in read_events(storage, "t", event.last_seq or 0, None)]
        assert [logged.seq for logged in after] == list(
            range((event.last_seq or 0) + 1, await last_stored(storage) + 1)
        )


async def test_reading_from_any_cursor_after_a_crash_has_no_gap_and_no_repeat(
    storage: StoreCheckpointStorage,
) -> None:
    """The resumed run emits unstored events again, under seqs that no event has reported as a cursor."""
    faults, events = Faults(), list[WorkflowEvent]()
    flow = countdown(checkpoint_storage=faults.wrap(storage))
    faults.fail("commit", nth=4, error=OSError("the disk is gone"))
    with pytest.raises(Exception, match="the disk is gone"):
        await take_all(flow.run(8, thread_id="t", stream=True, durability="async", max_lag=4), events)
    reported = [event.last_seq for event in events if event.type in ("superstep_completed", "checkpoint_saved")]
    cursors = [seq for seq in reported if seq is not None]
    stored = await last_stored(storage)
    assert len(cursors) > 3 and max(cursors) <= stored
    assert (await countdown(checkpoint_storage=storage).run(thread_id="t")).get_outputs() == ["lift-off"]
    for cursor in set(cursors):
        seqs = [event.seq async for event in read_events(storage, "t", cursor, None)]
        assert seqs == list(range(cursor + 1, await last_stored(storage) + 1))


async def test_sync_superstep_completed_event_names_its_checkpoint(storage: StoreCheckpointStorage) -> None:
    completed: list[WorkflowEvent] = []
    async for event in countdown(checkpoint_storage=storage).run(3, thread_id="t", stream=True):
        if event.type == "superstep_completed":
            assert event.checkpoint is not None and event.last_seq is not None
            assert event.last_seq <= await last_stored(storage)
            completed.append(event)
    assert len(completed) == 4


async def test_failed_run_reports_only_stored_cursors(storage: StoreCheckpointStorage) -> None:
    events: list[WorkflowEvent] = []
    flow = crossing(Weather(), checkpoint_storage=storage)
    with pytest.raises(ConnectionError):
        await take_all(flow.run("x", thread_id="t", stream=True, durability="async"), events)
    stored = await last_stored(storage)
    assert all(event.last_seq <= stored for event in events if event.last_seq is not None)
