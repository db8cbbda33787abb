"""A run of one process followed in another: tokens while they are spoken, the log exactly once, from any cursor."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from tests.servers.valkey import ValkeyServer
from tests.valkey.acts import talk
from tests.valkey.others import SECONDS, Others, Pipe
from tests.valkey.places import Place

from perdure import WorkflowEvent
from perdure.checkpoints.any_storage import read_events
from perdure.checkpoints.storage import StoreCheckpointStorage

COUNT = 4


async def next_of(events: object, kind: str, data: object = None) -> list[WorkflowEvent]:
    """All up to this one."""
    found: list[WorkflowEvent] = []
    async with asyncio.timeout(SECONDS):
        async for event in events:  # type: ignore[attr-defined]  # an iterator of events
            found.append(event)
            if event.type == kind and data in (None, event.data):
                return found
    raise AssertionError(f"{kind} {data} never came: {found}")


async def log_of(storage: StoreCheckpointStorage) -> list[WorkflowEvent]:
    return [event async for event in read_events(storage, "t", None, None)]


async def started(others: Others, place: Place, *stops: int) -> Pipe:
    run = others.start(talk, place, "t", COUNT, stops)
    await run.hear_of("ready")
    return run


async def test_tokens_are_heard_while_the_superstep_that_tells_them_still_runs(
    truth: Place, valkey_url: str, others: Others
) -> None:
    place = truth.beside(valkey_url)
    async with place.storage() as storage, aclosing(storage.follow("t")) as events:  # type: ignore[type-var]
        run = await started(others, place, 3, 2)
        run.say("go on")
        for left in (3, 2):
            seen = await next_of(events, "data", f"{left}.2")  # it waits until it is told to go on
            tokens = [one for one in seen if one.type == "data" and one.data.startswith(f"{left}.")]
            assert [one.data for one in tokens] == [f"{left}.0", f"{left}.1", f"{left}.2"]
            assert all(one.seq is None and one.thread_id == "t" and one.run_id and one.timestamp for one in tokens)
            assert sum(one.type == "superstep_completed" for one in await log_of(storage)) == COUNT - left
            run.say("go on")
        assert await run.hear_of("ended") == (["said all"],)


async def test_what_is_provisional_comes_before_it_is_in_the_log_and_only_if_wanted(
    truth: Place, valkey_url: str, others: Others
) -> None:
    place = truth.beside(valkey_url)
    async with place.storage() as storage:
        follow = storage.follow("t", provisional=True)
        async with aclosing(follow) as events:  # type: ignore[type-var]
            run = await started(others, place, 3)
            run.say("go on")
            seen = await next_of(events, "data", "3.2")
            invoked = [(one.executor_id, one.seq is None) for one in seen if one.type == "executor_invoked"]
            assert invoked.count(("pong", True)) == 1 and ("pong", False) not in invoked
            run.say("go on")
            await next_of(events, "output")
        quiet = [one async for one in storage.follow("t", live=False, until_idle=True)]
        await run.hear_of("ended")
        log = await log_of(storage)
        assert quiet == log[: len(quiet)]
        assert [one async for one in storage.follow("t", until_idle=True)] == log


async def test_a_stream_goes_on_from_its_cursor_in_another_instance_without_gap_or_repeat(
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

    run.say("go on")
    await run.hear_of("at", COUNT)
    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
        tasks.create_task(reconnect())
        run.say("go on")
        await run.hear_of("at", 2)
        run.say("go on")
    async with truth.storage() as storage:
        assert seqs == list(range(len(await log_of(storage)) + 1))


@pytest.mark.parametrize("harm", ["none", "never there"])
async def test_it_ends_once_the_thread_is_at_rest_if_asked_to(
    harm: str, truth: Place, own_valkey: ValkeyServer, others: Others
) -> None:
    place = truth.beside(own_valkey.url)
    if harm == "never there":
        own_valkey.kill()
    async with place.storage() as storage:
        assert [event async for event in storage.follow("t", until_idle=True)] == [], "there is no thread yet"
        run = await started(others, place, COUNT)
        run.say("go on")
        await run.hear_of("at", COUNT)

        async def follow() -> list[WorkflowEvent]:
            return [event async for event in storage.follow("t", until_idle=True, live=False)]

        async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
            following = tasks.create_task(follow())
            run.say("go on")
            await run.hear_of("closed")
        assert following.result() == await log_of(storage)
