"""Promise 9 over versions: what older versions wrote lies in the repository, and is read and resumed by this one."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.fixtures.format_1 import (
    LONG_DICT,
    LONG_LIST,
    LONG_TEXT,
    NOON,
    VALUES,
    Note,
    asking,
    fan,
    keeping,
    nested,
    stepping,
)

from perdure import FileCheckpointStorage, SqliteCheckpointStorage, WorkflowRunState
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.errors import CursorExpired
from perdure.testing import FakeClock

FIXTURES = Path(__file__).parents[1] / "fixtures"
FORMATS = ["format-1"]
THREADS = {"finished", "values", "chunks", "asked", "answered", "nested", "rewound", "half", "asleep", "trimmed"}


@pytest.fixture(params=FORMATS)
def kept(request: pytest.FixtureRequest) -> Path:
    """What a process of that version left behind."""
    return FIXTURES / str(request.param)


@pytest.fixture(params=["sqlite", "file", "file without its index"])
async def old(request: pytest.FixtureRequest, kept: Path, tmp_path: Path) -> AsyncIterator[StoreCheckpointStorage]:
    """A copy of it."""
    if request.param == "sqlite":
        shutil.copy(kept / "threads.sqlite3", tmp_path)
        made: StoreCheckpointStorage = SqliteCheckpointStorage(tmp_path / "threads.sqlite3", synchronous="NORMAL")
    else:
        shutil.copytree(kept / "threads", tmp_path / "threads")
        if request.param == "file":
            shutil.copy(kept / "index", tmp_path / "threads" / "index.db")
        made = FileCheckpointStorage(tmp_path / "threads", fsync=False)
    async with made:
        yield made


def clock(days: int = 0) -> FakeClock:
    return FakeClock(NOON + timedelta(days=days))


async def test_all_threads_are_listed_and_every_checkpoint_can_be_read(old: StoreCheckpointStorage) -> None:
    threads = {thread.thread_id for thread in await old.list_threads()}
    assert threads == THREADS
    infos = await old.list_checkpoint_infos()
    checkpoints = await old.list_checkpoints()
    assert [checkpoint.info.checkpoint_id for checkpoint in checkpoints] == [info.checkpoint_id for info in infos]
    assert {info.thread_id for info in infos} == threads
    for thread_id in THREADS - {"trimmed"}:  # which has lost its first events
        log = [event async for event in asking(old, clock()).open(thread_id=thread_id).events(after=0)]
        assert [event.seq for event in log] == list(range(1, len(log) + 1)) and log != []


async def test_values_of_every_kind_come_back_exactly(old: StoreCheckpointStorage) -> None:
    result = await keeping(old, clock()).run(thread_id="values")
    assert result.get_outputs() == [VALUES]
    head = await old.get_latest(thread_id="values")
    assert head is not None and head.state == {"values": VALUES}
    assert head.executors["keeper"].private == {"values": VALUES}


async def test_long_texts_lists_and_dicts_come_back_and_grow_on(old: StoreCheckpointStorage) -> None:
    workflow = keeping(old, clock())
    await workflow.run("once more", thread_id="chunks")
    grown = ["grow", "grow more", "once more"]
    for count, checkpoint in enumerate((await old.list_checkpoints(thread_id="chunks"))[1::2]):
        assert checkpoint.state["long"] == {
            "text": LONG_TEXT + "end" * count,
            "list": [*LONG_LIST, *grown[:count]],
            "dict": {**LONG_DICT, **({"new": 1} if count else {})},
        }
        assert checkpoint.executors["keeper"].private == {"text": LONG_TEXT[::-1]}


async def test_finished_thread_returns_its_outputs_and_takes_posted_messages(old: StoreCheckpointStorage) -> None:
    assert await old.store.head("finished") is not None
    result = await fan(old, clock()).run(thread_id="finished")
    assert result.get_outputs() == ["posted source2 a2 + posted source2 b2 + posted source2 c2"]
    first = (await old.list_checkpoint_infos(thread_id="finished"))[3]
    assert (await fan(old, clock()).run(checkpoint_id=first)).get_outputs() == [
        "x source1 a1 + x source1 b1 + x source1 c1"
    ]


async def test_a_thread_whose_process_was_killed_in_a_fan_replays_its_journal(old: StoreCheckpointStorage) -> None:
    ran = []

    async def see(executor_id: str) -> None:
        ran.append(executor_id)

    result = await fan(old, clock(), see).run(thread_id="half")
    assert result.get_outputs() == ["x source1 a1 + x source1 b1 + x source1 c1"]
    assert ran == ["b"]


@pytest.mark.parametrize("thread_id", ["asked", "answered"])
async def test_questions_wait_for_their_answers(old: StoreCheckpointStorage, thread_id: str) -> None:
    asked = await old.pending_requests(thread_id=thread_id)
    numbers = [1, 2] if thread_id == "asked" else [2]
    assert [(request.request_id, request.assignee, request.deadline) for request in asked] == [
        (f"colour-{number}", "ann", NOON + timedelta(days=number)) for number in numbers
    ]
    answers = {f"colour-{number}": "blue" for number in numbers}
    outputs = (await asking(old, clock()).run(responses=answers, thread_id=thread_id)).get_outputs()
    assert outputs == [f"colour {number}: blue" for number in numbers]


async def test_deadlines_pass(old: StoreCheckpointStorage) -> None:
    result = await asking(old, clock(days=1)).run(thread_id="asked")
    assert result.get_outputs() == ["colour 1: default 1"]
    assert [event.data for event in result.get_request_info_events()] == [Note("colour 2")]


async def test_sub_workflow_of_an_old_store_continues(old: StoreCheckpointStorage) -> None:
    asked = await nested(old, clock()).run(thread_id="nested")
    ids = [str(event.request_id) for event in asked.get_request_info_events()]
    result = await nested(old, clock()).run(responses=dict.fromkeys(ids, "L"), thread_id="nested")
    assert sorted(output[1] for output in result.get_outputs()) == ["size 1: L", "size 2: L"]


async def test_a_sleeper_wakes_with_its_steps(old: StoreCheckpointStorage) -> None:
    calls: list[str] = []
    asked = await stepping(old, clock(days=1), calls).run(thread_id="asleep")
    assert asked.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    result = await stepping(old, clock(days=1), calls).run(responses={"go on": "yes"}, thread_id="asleep")
    assert result.get_outputs() == ["2 4 yes 20"]
    assert calls == ["double(10)"], "the steps of version 1 are not called again"


async def test_a_rewound_thread_has_its_line_and_its_branch(
    old: StoreCheckpointStorage,
) -> None:
    messages = [
        message.data for message in await fan(old, clock()).messages("rewound") if message.target_id == "source"
    ]
    assert messages == ["first", "found"]
    lost = [
        checkpoint
        for checkpoint in await old.list_checkpoints(thread_id="rewound")
        if "lost" in str(checkpoint.state.get("joined"))
    ]
    assert len(lost) == 1
    assert "lost source2 a2" in (await fan(old, clock()).run(checkpoint_id=lost[0].checkpoint_id)).get_outputs()[0]


async def test_a_thread_can_be_pruned_copied_and_deleted(old: StoreCheckpointStorage) -> None:
    await old.store.copy_thread("chunks", "copy")
    infos = await old.list_checkpoint_infos(thread_id="chunks")
    assert await old.store.prune("chunks", [info.checkpoint_id for info in infos[:-1]]) == len(infos) - 1
    assert await old.delete_thread("half")
    for thread_id in ("chunks", "copy"):
        head = await old.get_latest(thread_id=thread_id)
        assert head is not None and head.state["long"]["list"] == [*LONG_LIST, "grow", "grow more"]


async def test_pruned_checkpoints_stay_pruned_and_pinned_ones_are_kept(old: StoreCheckpointStorage) -> None:
    infos = await old.list_checkpoint_infos(thread_id="trimmed")
    assert [(info.number, info.is_pinned) for info in infos] == [(4, True), (6, False), (7, False), (8, False)]
    for checkpoint in await old.list_checkpoints(thread_id="trimmed"):
        assert checkpoint.state
    handle = keeping(old, clock()).open(thread_id="trimmed")
    with pytest.raises(CursorExpired) as expired:
        [event async for event in handle.events(after=0)]
    oldest = expired.value.oldest
    log = [event.seq async for event in handle.events(after=oldest - 1)]
    assert log == list(range(oldest, oldest + len(log))) and log
    await keeping(old, clock()).run("one more", thread_id="trimmed")


async def test_verify_reports_no_damage_in_an_old_store(old: StoreCheckpointStorage) -> None:
    assert await old.verify() == []
    await keeping(old, clock()).run("grow", thread_id="chunks")
    assert await old.verify() == []
