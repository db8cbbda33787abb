"""Threads that are damaged on the disk, and what is expected of them and of the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.promises.processes import Place
from tests.promises.stages import Boom, Stage, fan, ledger

from perdure import WorkflowCheckpointException
from perdure.checkpoints.storage import StoreCheckpointStorage

WRITTEN = ["zero" * 200, "one" * 200, "two" * 200]


async def write(storage: StoreCheckpointStorage) -> str:
    """Threads `t` and `other`, at rest, and `half`, with two of three siblings recorded. Gives the head's id of `t`."""
    for thread_id in ("t", "other"):
        for message in WRITTEN:
            await ledger(Stage(), storage).run(message, thread_id=thread_id)
    stage = Stage()
    stage.watch_journal(storage)
    stage.failing, stage.fails_after = {"b"}, 2
    with pytest.raises(Boom):
        await fan(stage, storage).run("x", thread_id="half")
    head = await storage.get_latest(thread_id="t")
    assert head is not None
    return head.checkpoint_id


async def assert_threads_continue(place: Place, *thread_ids: str) -> None:
    """Assert that these threads are whole: a new run continues each."""
    async with place.storage() as storage:
        for thread_id in thread_ids:
            if thread_id == "half":
                result = await fan(Stage(), storage).run(thread_id="half")
                assert result.get_outputs() == ["x-source-a+x-source-b+x-source-c"]
            else:
                result = await ledger(Stage(), storage).run("new", thread_id=thread_id)
                assert result.get_outputs() == [[*WRITTEN, "new"]]


async def is_refused(place: Place, thread_id: str, named: str = "") -> None:
    """Whatever is done with the thread is an error that names it; twice, since the first must not hide the damage."""
    async with place.storage() as storage:
        for message in ("new", None):
            with pytest.raises(WorkflowCheckpointException) as raised:
                await ledger(Stage(), storage).run(message, thread_id=thread_id)
            assert f"thread {thread_id!r}" in str(raised.value), raised.value
            assert named in str(raised.value), f"the checkpoint is not named: {raised.value}"


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
