"""Promise 18: a retention policy is applied with each commit. What it keeps is whole, and nothing else is kept."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.promises.histories import DAY, EACH_POLICY, Days, Seen, infos, numbers
from tests.promises.processes import STORAGES
from tests.promises.stages import Again, Asker, Boom, Relay, Sink, Stage, alone, chain, entries, fan, ledger
from tests.unit.engine.flows import countdown

from perdure import WorkflowExecutor, WorkflowRunState
from perdure.checkpoints.history.retention import FullHistory, KeepFor, KeepLast, LatestOnly, Retention
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.testing import assert_survives_crash


@pytest.mark.parametrize(
    ("retention", "kept"),
    [
        (FullHistory(), [[1, 2], [1, 2, 3, 4], [1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 7, 8]]),
        (LatestOnly(), [[2], [4], [6], [8]]),
        (KeepLast(3), [[1, 2], [2, 3, 4], [4, 5, 6], [6, 7, 8]]),
        (KeepLast(5), [[1, 2], [1, 2, 3, 4], [2, 3, 4, 5, 6], [4, 5, 6, 7, 8]]),
        (KeepFor(DAY), [[1, 2], [1, 2, 3, 4], [3, 4, 5, 6], [5, 6, 7, 8]]),
    ],
    ids=lambda value: repr(value).split("(")[0],
)
async def test_each_turn_keeps_as_many_checkpoints_as_the_policy_names(
    storage: StoreCheckpointStorage, monkeypatch: pytest.MonkeyPatch, retention: Retention, kept: list[list[int]]
) -> None:
    storage.retention = retention
    days, seen, workflow = Days(monkeypatch), Seen(), ledger(Stage(), storage)
    for turn, expected in enumerate(kept, 1):
        result = await workflow.run(f"m{turn}", thread_id="t")
        assert result.get_outputs() == [[f"m{number}" for number in range(1, turn + 1)]]
        assert await numbers(storage) == expected
        await seen.look(storage)
        days.pass_(0.6)
    assert await entries(storage) == ["m1", "m2", "m3", "m4"]


@EACH_POLICY
async def test_new_process_continues_with_the_kept_checkpoints(
    storage: StoreCheckpointStorage, retention: Retention
) -> None:
    storage.retention = retention
    for turn in range(1, 6):
        result = await ledger(Stage(), storage).run(f"m{turn}", thread_id="t")
        assert len(result.get_outputs()[0]) == turn
        await storage.close()
    kept = {LatestOnly: [10], KeepLast: [8, 9, 10], KeepFor: list(range(1, 11))}
    assert await numbers(storage) == kept[type(retention)]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@EACH_POLICY
async def test_every_durability_keeps_as_many_and_gives_the_same_output(
    storage: StoreCheckpointStorage, retention: Retention, durability: Any
) -> None:
    storage.retention = retention
    workflow = countdown(checkpoint_storage=storage)
    for _ in range(2):
        result = await workflow.run(20, thread_id="t", durability=durability, max_lag=5)
        assert result.get_outputs() == ["lift-off"]
    kept = await numbers(storage)
    every = [1, 2, 3, 4] if durability == "exit" else list(range(1, 45))
    last = {LatestOnly: 1, KeepLast: 3, KeepFor: len(every)}[type(retention)]
    assert len(kept) == last and kept == sorted(kept)
    await Seen().look(storage)


# ---------------------------------------------------------------- branches and forks


async def test_branch_left_by_a_rewind_is_pruned_unless_it_is_young(storage: StoreCheckpointStorage) -> None:
    expected: dict[Retention, list[int]] = {
        LatestOnly(): [6],
        KeepLast(3): [2, 5, 6],
        KeepFor(DAY): [1, 2, 3, 4, 5, 6],
    }
    for turn, (retention, kept) in enumerate(expected.items()):
        thread_id, seen = f"t{turn}", Seen()
        storage.retention = FullHistory()
        workflow = ledger(Stage(), storage)
        for message in ("a", "b"):
            await workflow.run(message, thread_id=thread_id)
        await seen.look(storage)
        storage.retention = retention
        await storage.rewind(thread_id, (await infos(storage, thread_id))[2])
        await storage.checkpoint(thread_id)
        assert await numbers(storage, thread_id) == kept
        await seen.look(storage)
        result = await workflow.run("c", thread_id=thread_id)
        assert result.get_outputs() == [["a", "c"]]


async def test_pinned_branch_is_kept_and_can_be_rewound_to(storage: StoreCheckpointStorage) -> None:
    storage.retention = KeepLast(2)
    workflow, seen = ledger(Stage(), storage), Seen()
    for message in ("a", "b", "c"):
        await workflow.run(message, thread_id="t")
        await storage.pin((await storage.list_checkpoint_infos(thread_id="t"))[-1])
    await seen.look(storage)
    await storage.rewind("t", (await infos(storage))[2])
    await workflow.run("d", thread_id="t")
    assert await numbers(storage) == [2, 4, 6, 8, 9] and await entries(storage) == ["a", "d"]
    await storage.rewind("t", (await infos(storage))[6])
    assert await entries(storage) == ["a", "b", "c"]
    assert await numbers(storage) == [2, 4, 6, 10]
    await seen.look(storage)


@EACH_POLICY
async def test_fork_keeps_values_that_its_origin_prunes(storage: StoreCheckpointStorage, retention: Retention) -> None:
    workflow, seen = ledger(Stage(), storage), Seen()
    for message in ("a", "b"):
        await workflow.run(message * 5000, thread_id="t")
    fork = await storage.fork((await infos(storage))[2], thread_id="fork")
    await seen.look(storage)
    storage.retention = retention
    for message in ("c", "d", "e"):
        await workflow.run(message, thread_id="t")
    await seen.look(storage)
    result = await workflow.run("z", thread_id=fork.thread_id)
    assert result.get_outputs() == [["a" * 5000, "z"]]
    await seen.look(storage)


# ---------------------------------------------------------------- pins


@EACH_POLICY
async def test_pinned_checkpoint_is_kept_until_it_is_unpinned(
    storage: StoreCheckpointStorage, monkeypatch: pytest.MonkeyPatch, retention: Retention
) -> None:
    storage.retention = retention
    days, seen, workflow = Days(monkeypatch), Seen(), ledger(Stage(), storage)
    await workflow.run("a" * 9000, thread_id="t")
    [*_, pinned] = await storage.list_checkpoint_infos(thread_id="t")
    await storage.pin(pinned)
    await seen.look(storage)
    for turn in range(20):
        days.pass_(0.7)
        await workflow.run(f"m{turn}", thread_id="t")
    assert pinned.checkpoint_id in await seen.look(storage)
    assert (await infos(storage))[2].is_pinned
    await storage.unpin(pinned)
    await workflow.run("last", thread_id="t")
    assert pinned.checkpoint_id not in await seen.look(storage)


# ---------------------------------------------------------------- what is not finished


@EACH_POLICY
async def test_pending_requests_survive_retention_and_can_be_answered(
    storage: StoreCheckpointStorage, again: Again, retention: Retention
) -> None:
    storage.retention = retention

    def build() -> Any:
        return alone(Asker("asker"), storage)

    workflow = build()
    result = await workflow.run("one two", thread_id="t")
    assert result.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    for _ in range(5):
        await storage.checkpoint("t")
    assert [request.request_id for request in await storage.pending_requests()] == ["one", "two"]
    result = await again(workflow, build).run(responses={"two": "2"}, thread_id="t")
    assert result.get_outputs() == ["two=2"]
    assert [request.request_id for request in await storage.pending_requests()] == ["one"]
    result = await again(workflow, build).run(responses={"one": "1"}, thread_id="t")
    assert result.get_outputs() == ["one=1"] and await storage.pending_requests() == []


@EACH_POLICY
async def test_failed_superstep_resumes_without_repeating_finished_siblings(
    storage: StoreCheckpointStorage, again: Again, retention: Retention
) -> None:
    storage.retention = retention
    stage = Stage()
    stage.failing, stage.fails_after = {"c"}, 2
    stage.watch_journal(storage)
    workflow = fan(stage, storage)
    for _ in range(3):
        with pytest.raises(Boom):
            await workflow.run("x" if not stage.calls else None, thread_id="t")
    before = await numbers(storage)
    stage.failing = set()
    result = await again(workflow, lambda: fan(stage, storage)).run(thread_id="t")
    assert result.get_outputs() == ["x-source-a+x-source-b+x-source-c"]
    assert (stage.called("source"), stage.called("a"), stage.called("b")) == (1, 1, 1)
    assert len(before) == (1 if retention == LatestOnly() else 2)


@EACH_POLICY
async def test_a_sub_workflow_that_waits_is_kept_with_its_parent(
    storage: StoreCheckpointStorage, again: Again, retention: Retention
) -> None:
    storage.retention = retention
    stage = Stage()

    def build() -> Any:
        child = WorkflowExecutor(alone(Asker("asker")), "child", propagate_request=True)
        return chain(Relay("first", stage), child, Sink("last"), storage=storage)

    workflow = build()
    await workflow.run("q", thread_id="t")
    for _ in range(3):
        await storage.checkpoint("t")
    result = await again(workflow, build).run(responses={"q-first": "yes"}, thread_id="t")
    assert result.get_outputs() == ["q-first=yes"] and stage.called("first") == 1


@EACH_POLICY
async def test_thread_that_fails_in_a_chain_continues_under_retention(
    storage: StoreCheckpointStorage, retention: Retention
) -> None:
    storage.retention = retention
    stage = Stage()
    relays = [Relay(name, stage) for name in "abcdef"]

    def build() -> Any:
        return chain(*relays, Sink("last"), storage=storage)

    for name in "bdf":
        stage.failing = {name}
        with pytest.raises(Boom):
            await build().run("x" if name == "b" else None, thread_id="t")
    stage.failing = set()
    result = await build().run(thread_id="t")
    assert result.get_outputs() == ["x-a-b-c-d-e-f"]
    assert [stage.called(name) for name in "abcdef"] == [1, 2, 1, 2, 1, 2]


@pytest.mark.parametrize("kind", STORAGES)
@pytest.mark.parametrize("retention", [LatestOnly(), KeepLast(2)], ids=repr)
async def test_a_crash_before_or_after_any_write_costs_nothing(tmp_path: Path, kind: str, retention: Retention) -> None:
    folders = (tmp_path / f"{number}" for number in count())

    def empty() -> StoreCheckpointStorage:
        return STORAGES[kind](next(folders), retention=retention)

    survived = await assert_survives_crash(lambda storage: fan(Stage(), storage), "x", storage=empty)
    assert len(survived.points) > 8
    answers = {"one": "1", "two": "2"}
    await assert_survives_crash(lambda storage: alone(Asker("a"), storage), "one two", storage=empty, answers=answers)
