"""A run of one process followed in another: tokens while they are spoken, the log exactly once, from any cursor."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from tests.databases.valkey import ValkeyServer
from tests.valkey.acts import talk
from tests.valkey.others import SECONDS, Others, Pipe
from tests.valkey.places import Place

from perdure import WorkflowEvent
from perdure.checkpoints.any_storage import read_events
from perdure.checkpoints.storage import StoreCheckpointStorage

COUNT = 4


async def next_of(events: object, kind: str, data: object = None) -> list[WorkflowEvent]:
    """All up to this one."""
    seen: list[WorkflowEvent] = []
    async with asyncio.timeout(SECONDS):
        async for event in events:  # type: ignore[attr-defined]  # an iterator of events
            seen.append(event)
            if event.type == kind and data in (None, event.data):
                return seen
    raise AssertionError(f"{kind} {data} never came: {seen}")


async def log_of(storage: StoreCheckpointStorage) -> list[WorkflowEvent]:
    return [event async for event in read_events(storage, "t", None, None)]


async def started(others: Others, place: Place, *stops: int) -> Pipe:
    run = others.start(talk, place, "t", COUNT, stops)
    await run.wait_for("ready")
    return run


async def test_tokens_arrive_while_the_superstep_that_emits_them_still_runs(
    truth: Place, valkey_url: str, others: Others
) -> None:
    place = truth.beside(valkey_url)
    async with place.storage() as storage, aclosing(storage.follow("t")) as events:  # type: ignore[type-var]
        run = await started(others, place, 3, 2)
        run.send("go on")
        for left in (3, 2):
            seen = await next_of(events, "data", f"{left}.2")  # the run waits for the message below
            tokens = [event for event in seen if event.type == "data" and event.data.startswith(f"{left}.")]
            assert [event.data for event in tokens] == [f"{left}.0", f"{left}.1", f"{left}.2"]
            assert all(
                event.seq is None and event.thread_id == "t" and event.run_id and event.timestamp for event in tokens
            )
            assert sum(event.type == "superstep_completed" for event in await log_of(storage)) == COUNT - left
            run.send("go on")
        assert await run.wait_for("ended") == (["said all"],)


async def test_provisional_events_come_before_the_log_and_only_on_request(
    truth: Place, valkey_url: str, others: Others
) -> None:
    place = truth.beside(valkey_url)
    async with place.storage() as storage:
        follow = storage.follow("t", provisional=True)
        async with aclosing(follow) as events:  # type: ignore[type-var]
            run = await started(others, place, 3)
            run.send("go on")
            seen = await next_of(events, "data", "3.2")
            invoked = [(event.executor_id, event.seq is None) for event in seen if event.type == "executor_invoked"]
            assert invoked.count(("pong", True)) == 1 and ("pong", False) not in invoked
            run.send("go on")
            await next_of(events, "output")
        quiet = [event async for event in storage.follow("t", live=False, until_idle=True)]
        await run.wait_for("ended")
        log = await log_of(storage)
        assert quiet == log[: len(quiet)]
        assert [event async for event in storage.follow("t", until_idle=True)] == log


async def test_stream_resumes_at_its_cursor_in_another_instance_without_gap(
    truth: Place, valkey_url: str, others: Others
) -> None:
    place = truth.beside(valkey_url)
    run = await started(others, place, COUNT, 2)
    seqs = [0]

    async def connect() -> bool:
        """For three events, as an instance that then goes away; False once there are no more to come."""
        async with place.storage() as storage:
            events = storage.follow("t", after=seqs[-1], until_idle=True)
            async with aclosing(events):  # type: ignore[type-var]
                async for event in events:
                    if event.seq is not None:
                        seqs.append(event.seq)
                        if event.seq % 3 == 0:
                            return True
        return False

    async def reconnect() -> None:
        while await connect():
            pass

    run.send("go on")
    await run.wait_for("at", COUNT)
    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
        tasks.create_task(reconnect())
        run.send("go on")
        await run.wait_for("at", 2)
        run.send("go on")
    async with truth.storage() as storage:
        assert seqs == list(range(len(await log_of(storage)) + 1))


@pytest.mark.parametrize("harm", ["none", "never there"])
async def test_follow_until_idle_ends_once_the_thread_is_at_rest(
    harm: str, truth: Place, own_valkey: ValkeyServer, others: Others
) -> None:
    place = truth.beside(own_valkey.url)
    if harm == "never there":
        own_valkey.kill()
    async with place.storage() as storage:
        assert [event async for event in storage.follow("t", until_idle=True)] == [], "there is no thread yet"
        run = await started(others, place, COUNT)
        run.send("go on")
        await run.wait_for("at", COUNT)

        async def follow() -> list[WorkflowEvent]:
            return [event async for event in storage.follow("t", until_idle=True, live=False)]

        async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
            following = tasks.create_task(follow())
            run.send("go on")
            await run.wait_for("closed")
        assert following.result() == await log_of(storage)
