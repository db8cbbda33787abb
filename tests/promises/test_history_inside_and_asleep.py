"""Forks and rewinds take all of a thread along: sub-workflows that have not ended, sleepers, recorded steps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from tests.promises.stages import Stage
from tests.promises.test_p04_times_pass_between_processes import MONDAY, sleeper, sleeping_function
from tests.promises.test_p06_a_crash_inside_a_child_resumes_inside_it import Make, nestings, one_deep

from perdure import Workflow
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.records import Commit

Sleeping = Callable[..., Workflow]
Way = Callable[[Workflow, StoreCheckpointStorage, Any], Awaitable[str]]


async def by_fork(workflow: Workflow, storage: StoreCheckpointStorage, target: Any) -> str:
    return (await workflow.fork(target)).thread_id


async def by_fork_of_storage(workflow: Workflow, storage: StoreCheckpointStorage, target: Any) -> str:
    return (await storage.fork(target)).thread_id


async def by_rewind(workflow: Workflow, storage: StoreCheckpointStorage, target: Any) -> str:
    return (await workflow.rewind("t", target)).thread_id


async def by_rewind_of_storage(workflow: Workflow, storage: StoreCheckpointStorage, target: Any) -> str:
    return (await storage.rewind("t", target)).thread_id


ways = pytest.mark.parametrize("way", [by_fork, by_fork_of_storage, by_rewind, by_rewind_of_storage])


@ways
@nestings
async def test_fork_or_rewind_continues_inside_a_sub_workflow(
    storage: StoreCheckpointStorage, make: Make, way: Way
) -> None:
    stage = Stage()
    flow = make(stage, storage)
    await flow.run("x", thread_id="t")
    history = (await flow.history("t"))[::-1]
    inside = [info for info in history if (await storage.load(info)).children]
    assert len(inside) >= 3
    for target in inside:
        thread_id = await way(flow, storage, target)
        assert (await make(stage, storage).run(thread_id=thread_id)).get_outputs() == ["x-a-b-c"]


async def test_the_state_of_a_sub_workflow_is_compared(storage: StoreCheckpointStorage) -> None:
    flow = one_deep(Stage(), storage)
    await flow.run("x", thread_id="t")
    history = (await flow.history("t"))[::-1]
    differences = "\n".join([str(await flow.diff(*pair)) for pair in pairwise(history)])
    assert "+ children[" in differences and "- children[" in differences and "].messages['a']" in differences


@ways
@pytest.mark.parametrize("make", [sleeper, sleeping_function])
async def test_fork_or_rewind_of_a_sleeper_sleeps_and_repeats_nothing(
    storage: StoreCheckpointStorage, make: Sleeping, way: Way
) -> None:
    stage, is_asleep = Stage(), asyncio.Event()
    write = storage.store.commit

    async def noticed(commit: Commit) -> None:
        await write(commit)
        if commit.due_at is not None:
            is_asleep.set()

    storage.store.commit = noticed  # type: ignore[method-assign]  # a tap on the real method
    running = asyncio.create_task(make(stage, storage, days=0).run("x", thread_id="t"))
    await is_asleep.wait()
    running.cancel()
    await asyncio.wait([running])
    asleep = (await storage.history("t"))[0]
    tomorrow = make(stage, storage, days=1)
    assert (await tomorrow.run(thread_id="t")).get_outputs() == ["woke"]
    assert await storage.store.due(MONDAY + timedelta(days=2)) == []
    thread_id = await way(tomorrow, storage, asleep)
    [due] = await storage.store.due(MONDAY + timedelta(days=2))
    assert due.thread_id == thread_id and due.due_at == MONDAY + timedelta(days=1)
    assert (await make(stage, storage, days=1).run(thread_id=thread_id)).get_outputs() == ["woke"]
    assert (stage.called("before"), stage.called("after")) == (1, 2), "what was recorded by then is not done again"
