"""Promise 18: pruning by age, count, workflow and status breaks nothing that is left, and reports what it does."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.promises.damage import flip
from tests.promises.histories import DAY, Days, Seen, infos, log, numbers
from tests.promises.processes import Place
from tests.promises.stages import Asker, Boom, Does, Relay, Stage, alone, ledger

from perdure import CheckpointPinned, CursorExpired, InMemoryCheckpointStorage, ThreadNotFound, WorkflowRunState
from perdure.checkpoints.history.pruning import PruneReport
from perdure.checkpoints.storage import StoreCheckpointStorage


async def turns(storage: StoreCheckpointStorage, count: int, thread_id: str = "t", name: str = "alone") -> None:
    workflow = ledger(Stage(), storage, name=name)
    for turn in range(count):
        await workflow.run(f"m{turn}", thread_id=thread_id)


async def everything(storage: StoreCheckpointStorage) -> Any:
    """All that can be read of it."""
    threads = await storage.list_threads()
    listed = await storage.list_checkpoint_infos()
    return threads, listed, [await storage.store.events_after(thread.thread_id, None) for thread in threads]


async def both(storage: StoreCheckpointStorage, **options: Any) -> PruneReport:
    """Prunes after a dry run, which changes nothing and reports the same. What is left is unchanged."""
    seen, before = Seen(), await everything(storage)
    await seen.look(storage)
    dry_report = await storage.prune(**options, dry_run=True)
    assert await everything(storage) == before and dry_report.is_dry_run and dry_report.freed_bytes is None
    report = await storage.prune(**options)
    assert (report.threads, report.skipped) == (
        dry_report.threads,
        dry_report.skipped,
    ) and report.freed_bytes is not None
    await seen.look(storage)
    return report


def going(report: PruneReport) -> dict[str, int]:
    return {thread.thread_id: thread.checkpoints for thread in report.threads}


# ---------------------------------------------------------------- checkpoints


async def test_keep_last_keeps_the_newest_checkpoints_of_each_thread(storage: StoreCheckpointStorage) -> None:
    await turns(storage, 3, "t")
    await turns(storage, 1, "u")
    report = await both(storage, keep_last=2)
    assert going(report) == {"t": 4} and (await numbers(storage, "t"), await numbers(storage, "u")) == ([5, 6], [1, 2])
    assert going(await both(storage, keep_last=2)) == {}


async def test_older_than_prunes_old_checkpoints_except_heads(
    storage: StoreCheckpointStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = Days(monkeypatch)
    days.pass_(-10)
    await turns(storage, 2, "t")
    await turns(storage, 2, "u")
    days.pass_(9)
    await turns(storage, 1, "t")
    assert going(await both(storage, older_than=20 * DAY)) == {}
    assert going(await both(storage, older_than=5 * DAY)) == {"u": 3, "t": 4}
    assert (await numbers(storage, "t"), await numbers(storage, "u")) == ([5, 6], [4])


async def test_checkpoint_is_pruned_only_if_age_and_count_both_allow_it(
    storage: StoreCheckpointStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = Days(monkeypatch)
    days.pass_(-10)
    await turns(storage, 2)
    days.pass_(9)
    await turns(storage, 2)
    assert going(await both(storage, older_than=5 * DAY, keep_last=6)) == {"t": 2}
    assert going(await both(storage, older_than=5 * DAY, keep_last=1)) == {"t": 2}
    assert await numbers(storage) == [5, 6, 7, 8]


async def test_pruning_by_time_equals_pruning_by_age(storage: StoreCheckpointStorage) -> None:
    await turns(storage, 2)
    between = datetime.now(UTC)
    await turns(storage, 1)
    assert going(await both(storage, older_than=between)) == {"t": 4}
    assert await numbers(storage) == [5, 6]


async def test_pruning_is_limited_to_the_selected_threads(storage: StoreCheckpointStorage) -> None:
    await turns(storage, 2, "a", name="one")
    await turns(storage, 2, "b", name="two")
    asker = alone(Asker("asker"), storage)
    await asker.run("q", thread_id="c")
    await asker.run(responses={"q": "1"}, thread_id="c")
    await asker.run("r", thread_id="c")
    pending = WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    assert going(await storage.prune(keep_last=1, workflow_name="one", dry_run=True)) == {"a": 3}
    assert going(await storage.prune(keep_last=1, thread_id="b", dry_run=True)) == {"b": 3}
    assert going(await storage.prune(keep_last=1, thread_id="b", workflow_name="one", dry_run=True)) == {}
    assert set(going(await storage.prune(keep_last=1, status="IDLE", dry_run=True))) == {"a", "b"}
    assert set(going(await storage.prune(keep_last=1, status=pending, dry_run=True))) == {"c"}
    assert set(going(await storage.prune(keep_last=1, status=["IDLE", pending], dry_run=True))) == {"a", "b", "c"}
    assert going(await storage.prune(keep_last=1, status=[], dry_run=True)) == {}


async def test_pinned_checkpoints_stay_and_branches_go(storage: StoreCheckpointStorage) -> None:
    await turns(storage, 3)
    known = await infos(storage)
    await storage.pin(known[1])
    await storage.pin(known[5])
    await storage.rewind("t", known[4])
    assert going(await both(storage, keep_last=1)) == {"t": 4}
    assert await numbers(storage) == [1, 5, 7]


async def test_fork_request_and_failed_run_continue_after_pruning(storage: StoreCheckpointStorage) -> None:
    stage, asker = Stage(), alone(Asker("asker"), storage)
    failing = alone(Relay("relay", stage), storage)
    await turns(storage, 3, "t")
    fork = await storage.fork((await infos(storage))[2], thread_id="fork")
    await asker.run("q", thread_id="asked")
    stage.failing = {"relay"}
    with pytest.raises(Boom):
        await failing.run("x", thread_id="failed")
    await both(storage, keep_last=1)
    stage.failing = set()
    assert (await ledger(Stage(), storage).run("z", thread_id=fork.thread_id)).get_outputs() == [["m0", "z"]]
    assert (await asker.run(responses={"q": "a"}, thread_id="asked")).get_outputs() == ["q=a"]
    assert (await failing.run(thread_id="failed")).get_final_state() is WorkflowRunState.IDLE


async def test_a_thread_that_is_being_run_is_pruned_behind_its_head(storage: StoreCheckpointStorage) -> None:
    stage = Stage()
    workflow = ledger(stage, storage)
    await workflow.run("a", thread_id="t")
    stage.close("ledger")
    async with workflow.open(thread_id="t") as run:
        await run.send("b")
        await stage.entered["ledger"].wait()
        assert going(await both(storage, keep_last=1)) == {"t": 2}
        stage.gates["ledger"].set()
        result = await run.wait()
    assert result is not None and result.get_outputs() == [["a", "b"]]
    assert await numbers(storage) == [3, 4]


async def test_events_go_with_checkpoints_but_not_those_of_the_last_run(storage: StoreCheckpointStorage) -> None:
    await turns(storage, 3)
    whole = await log(storage)
    report = await both(storage, keep_last=1)
    assert [thread.events_before for thread in report.threads] == [5]
    last = [(event.seq, event.type) for event in whole if event.run_id == whole[-1].run_id]
    assert [(event.seq, event.type) for event in await log(storage)] == last
    with pytest.raises(CursorExpired):
        await log(storage, 0)


async def test_a_pinned_checkpoint_cannot_be_deleted(storage: StoreCheckpointStorage) -> None:
    await turns(storage, 2)
    known = await infos(storage)
    await storage.pin(known[2])
    await storage.pin(known[4])
    for pinned in (known[2], known[4]):
        with pytest.raises(CheckpointPinned, match=r"is pinned, so it was not deleted\. Unpin it first"):
            await storage.delete(pinned)
    assert await numbers(storage) == [1, 2, 3, 4]
    await storage.unpin(known[2])
    assert await storage.delete(known[2]) and not await storage.delete(known[2])
    assert await numbers(storage) == [1, 3, 4]


async def test_damaged_thread_is_named_and_skipped_and_the_others_are_pruned(place: Place) -> None:
    async with place.storage() as storage:
        for thread_id in ("a", "damaged", "z"):
            await turns(storage, 3, thread_id)
    if place.kind == "file":
        file = place.folder / "threads/damaged.jsonl"
        flip(file, file.stat().st_size // 2)
    else:
        place.change(
            sqlite="UPDATE commits SET body = zeroblob(20) WHERE number = 3 AND thread = "
            "(SELECT thread FROM threads WHERE thread_id = 'damaged')",
            postgres="UPDATE {s}.threads SET head = 3 WHERE thread_id = 'damaged'",  # it needs no payload
        )
    async with place.storage() as storage:
        report = await storage.prune(keep_last=1)
        assert going(report) == {"a": 5, "z": 5}
        [skipped] = report.skipped
        assert skipped.thread_id == "damaged" and skipped.reason.startswith("it is damaged: ")
        assert (await ledger(Stage(), storage).run("new", thread_id="z")).get_outputs() == [["m0", "m1", "m2", "new"]]


# ---------------------------------------------------------------- whole threads


async def test_idle_threads_without_recent_commits_are_pruned_whole(
    storage: StoreCheckpointStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = Days(monkeypatch)
    days.pass_(-10)
    await turns(storage, 2, "old")
    await turns(storage, 1, "moved")
    days.pass_(9)
    await turns(storage, 1, "moved")
    await turns(storage, 1, "new")
    report = await both(storage, older_than=5 * DAY, whole_threads=True)
    assert [(thread.thread_id, thread.checkpoints, thread.is_whole) for thread in report.threads] == [("old", 4, True)]
    assert (report.whole_threads, report.skipped) == (1, ())
    assert {thread.thread_id for thread in await storage.list_threads()} == {"moved", "new"}


async def test_threads_with_open_work_are_skipped_with_a_reason(storage: StoreCheckpointStorage) -> None:
    stage = Stage()
    await turns(storage, 1, "gone")
    await alone(Asker("asker"), storage).run("q", thread_id="asked")
    await turns(storage, 1, "pinned")
    await storage.pin((await storage.list_checkpoint_infos(thread_id="pinned"))[0])
    await turns(storage, 1, "posted")
    await storage.store.post("posted", "item", "message", b'"x"')
    stage.failing = {"relay"}
    with pytest.raises(Boom):
        await alone(Relay("relay", stage), storage).run("x", thread_id="failed")
    await turns(storage, 1, "owned")
    held = await storage.store.open("owned", "somebody")
    report = await both(storage, older_than=timedelta(0), whole_threads=True)
    assert {skipped.thread_id: skipped.reason for skipped in report.skipped} == {
        "asked": "requests are pending: 1",
        "pinned": "it has pinned checkpoints: 1",
        "posted": "messages wait in its inbox: 1",
        "owned": "run 'somebody' owns it",
    }
    assert set(going(report)) == {"gone", "failed"}
    await storage.store.release(held.lease)


async def test_sleeping_thread_is_not_pruned_whole(storage: StoreCheckpointStorage) -> None:
    async def rest(message: str, ctx: Any) -> None:
        await ctx.sleep(DAY)

    async with alone(Does("sleeper", rest), storage).open(thread_id="t") as run:
        await run.send("x")
        async for event in run.events():
            if event.type == "superstep_completed":
                break  # it is suspended, and leaving the block cancels the run
    report = await both(storage, older_than=timedelta(0), whole_threads=True)
    [skipped] = report.skipped
    assert skipped.reason.startswith("it resumes by itself at 20") and len(await storage.list_threads()) == 1


async def test_threads_of_a_named_status_are_pruned_whole_too(storage: StoreCheckpointStorage) -> None:
    await turns(storage, 1, "cut off")
    await alone(Asker("asker"), storage).run("q", thread_id="asked")
    await storage.rewind(
        "cut off", (await infos(storage, "cut off"))[1]
    )  # before its superstep, which no run executes now
    everywhere: Any = {"older_than": timedelta(0), "whole_threads": True}
    report = await both(storage, **everywhere)
    assert {skipped.thread_id: skipped.reason for skipped in report.skipped} == {
        "cut off": "it is not at rest (IN_PROGRESS)",
        "asked": "requests are pending: 1",
    }
    assert going(report) == {}
    assert set(going(await both(storage, **everywhere, status="IN_PROGRESS"))) == {"cut off"}
    assert set(going(await both(storage, **everywhere, status="IDLE_WITH_PENDING_REQUESTS"))) == {"asked"}
    assert await storage.list_threads() == []


# ---------------------------------------------------------------- reports and refusals


async def test_the_report_is_readable_and_plain(storage: StoreCheckpointStorage) -> None:
    assert str(await storage.prune(keep_last=1)) == "nothing to prune"
    await turns(storage, 2, "t")
    await turns(storage, 1, "u")
    steps: list[tuple[int, int]] = []
    report = await storage.prune(keep_last=1, dry_run=True, progress=lambda done, of: steps.append((done, of)))
    assert steps == [(1, 2), (2, 2)]
    assert str(report) == (
        "4 checkpoints of 2 threads would go\nt: 3 checkpoints, events before commit 3\nu: 1 checkpoint"
    )
    assert json.loads(json.dumps(report.to_dict())) == {
        "is_dry_run": True,
        "checkpoints": 4,
        "whole_threads": 0,
        "freed_bytes": None,
        "threads": [
            {"thread_id": "t", "workflow_name": "alone", "checkpoints": 3, "events_before": 3, "is_whole": False},
            {"thread_id": "u", "workflow_name": "alone", "checkpoints": 1, "events_before": 0, "is_whole": False},
        ],
        "skipped": [],
    }
    await storage.pin((await infos(storage, "u"))[1])
    report = await storage.prune(older_than=timedelta(0), whole_threads=True)
    first, *lines = str(report).splitlines()
    assert first.startswith("1 whole thread, with 4 checkpoints of 1 thread gone")
    assert lines == ["t: the whole thread, with 4 checkpoints", "u: left alone, it has pinned checkpoints: 1"]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({}, ValueError, r"prune\(\) needs keep_last .*, older_than .*, or both\. Nothing was removed"),
        ({"keep_last": 0}, ValueError, "keep_last expects 1 checkpoint or more, got 0: the head of a thread always"),
        ({"keep_last": "3"}, TypeError, "keep_last expects a number of checkpoints, got '3'"),
        (
            {"older_than": 30},
            TypeError,
            "older_than expects a timedelta, .*, or a time, got 30",
        ),
        ({"older_than": -DAY}, ValueError, "a time that has passed"),
        ({"older_than": datetime.now(UTC).replace(tzinfo=None)}, ValueError, "a time with a zone"),
        ({"older_than": datetime.now(UTC) + DAY}, ValueError, "a time that has passed"),
        ({"keep_last": 1, "status": "IDEL"}, ValueError, r"got 'IDEL' \(did you mean 'IDLE'\?\)"),
        ({"keep_last": 1, "status": ["IDLE", 3]}, ValueError, "status expects run states"),
        ({"whole_threads": True}, ValueError, "pass older_than, and not keep_last. Nothing was removed"),
        ({"whole_threads": True, "keep_last": 1, "older_than": DAY}, ValueError, "pass older_than, and not"),
        ({"keep_last": 1, "thread_id": "nobody"}, ThreadNotFound, "nobody"),
    ],
)
async def test_invalid_arguments_are_refused_and_nothing_is_pruned(
    options: Any, error: type[Exception], text: str
) -> None:
    storage = InMemoryCheckpointStorage()
    await turns(storage, 2)
    with pytest.raises(error, match=text):
        await storage.prune(**options)
    assert await numbers(storage) == [1, 2, 3, 4]
