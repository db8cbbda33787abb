"""`follow`: the log exactly once and in order, live events before those of their superstep, and where it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from tests.six_methods import SixMethods
from tests.turns import turns

from perdure import (
    CursorExpired,
    Executor,
    InMemoryCheckpointStorage,
    NoEventLog,
    NoStorage,
    Opaque,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    handler,
)
from perdure.checkpoints.any_storage import read_events
from perdure.checkpoints.follow import MAX_LIVE_EVENT_BYTES, decode_live_event
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.codecs.json_codec import JsonCodec
from perdure.testing.conformance.threads import make_events as logged, own

SECONDS = 15.0


@dataclass
class Note:
    text: str


class Teller(Executor):
    """Tells what it gets, waits at the gate if there is one, and counts down."""

    def __init__(self, gate: asyncio.Event | None = None, data: Any = None) -> None:
        super().__init__("teller")
        self.gate = gate
        self.data = data

    @handler
    async def tell(self, left: int, ctx: WorkflowContext[int, int]) -> None:
        await ctx.add_event(WorkflowEvent.emit("teller", Note(f"{left}") if self.data is None else self.data))
        if self.gate is not None:
            await self.gate.wait()
        if left > 1:
            await ctx.send_message(left - 1)
        else:
            await ctx.yield_output(0)


def telling(storage: Any, gate: asyncio.Event | None = None, data: Any = None) -> Workflow:
    teller = Teller(gate, data)
    return WorkflowBuilder(name="w", start_executor=teller, checkpoint_storage=storage).add_edge(teller, teller).build()


async def all_of(events: AsyncIterator[WorkflowEvent]) -> list[WorkflowEvent]:
    async with asyncio.timeout(SECONDS):
        return [event async for event in events]


async def until(kind: str, events: AsyncIterator[WorkflowEvent]) -> AsyncIterator[WorkflowEvent]:
    async with asyncio.timeout(SECONDS):
        while (event := await anext(events)).type != kind:
            yield event
        yield event


async def log_of(storage: StoreCheckpointStorage, thread_id: str = "t") -> list[WorkflowEvent]:
    return [event async for event in read_events(storage, thread_id, None, None)]


async def test_the_log_is_given_once_and_in_order_from_any_cursor() -> None:
    storage = InMemoryCheckpointStorage()
    await telling(storage).run(3, thread_id="t")
    log = await log_of(storage)
    assert await all_of(storage.follow("t", until_idle=True)) == log
    for after in (0, 1, 5, len(log) - 1, len(log), 99):
        assert await all_of(storage.follow("t", after=after, until_idle=True)) == log[after:]


async def test_live_events_come_while_their_superstep_runs_and_then_its_events_come() -> None:
    storage, gate = InMemoryCheckpointStorage(), asyncio.Event()
    workflow = telling(storage, gate)
    async with aclosing(workflow.follow("t")) as events:  # type: ignore[type-var]
        run = asyncio.create_task(workflow.run(1, thread_id="t"))
        event = [event async for event in until("data", events)][-1]
        assert (event.data, event.seq, event.thread_id) == (Note("1"), None, "t")
        assert event.run_id and event.timestamp
        assert "executor_completed" not in {one.type for one in await log_of(storage)}
        gate.set()
        rest = [event async for event in until("checkpoint_saved", events)]
        assert [one.type for one in rest if one.seq is None] == ["checkpoint_saved"], "once it is saved"
        assert rest[-2].type == "status" and rest[-3].type == "superstep_completed"
        await run


async def test_a_run_in_the_same_loop_is_followed_with_all_that_it_tells_in_order() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = telling(storage)
    following = asyncio.create_task(until_it_rests(workflow.follow("t", provisional=True)))
    while not storage.store.has_subscribers("t"):
        await turns(1)
    await workflow.run(4, thread_id="t")
    found = await following
    assert [one for one in found if one.seq is not None] == await log_of(storage)
    tokens = [one.data.text for one in found if one.type == "data"]
    assert tokens == ["4", "3", "2", "1"]
    done = 0
    for one in found:
        if one.type == "superstep_completed" and one.seq is not None:
            done += 1
        if one.type in ("data", "executor_invoked") and one.seq is None:
            left = int(one.data.text) if one.type == "data" else None
            assert left is None or left <= 4 - done


async def until_it_rests(events: AsyncIterator[WorkflowEvent]) -> list[WorkflowEvent]:
    found: list[WorkflowEvent] = []
    async with asyncio.timeout(SECONDS), aclosing(events):  # type: ignore[type-var]
        async for event in events:
            found.append(event)
            if event.type == "status" and event.seq is not None and event.state == "IDLE":
                return found
    return found


async def test_nothing_but_the_log_comes_if_nothing_else_is_wanted() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = telling(storage)
    following = asyncio.create_task(until_it_rests(storage.follow("t", live=False)))
    while not storage.store.has_subscribers("t"):
        await turns(1)
    await workflow.run(3, thread_id="t")
    assert await following == await log_of(storage)


async def test_until_idle_ends_where_there_is_no_thread_and_waits_where_one_is_owned() -> None:
    storage = InMemoryCheckpointStorage()
    assert await all_of(storage.follow("t", until_idle=True)) == []
    owner = await own(storage.store)
    await owner.save(status="IDLE")
    following = asyncio.create_task(all_of(storage.follow("t", until_idle=True)))
    while not storage.store.has_subscribers("t"):
        await turns(1)
    await turns(20)
    assert not following.done(), "somebody owns it"
    await owner.note(status="IN_PROGRESS")
    await owner.release()
    await turns(20)
    assert not following.done(), "it was left in the middle"
    owner = await own(storage.store)
    await owner.note(status="FAILED")
    await owner.release()
    assert await following == []


async def test_a_cursor_that_is_forgotten_raises() -> None:
    storage = InMemoryCheckpointStorage()
    owner = await own(storage.store)
    await owner.save(events=logged(1, 5))
    await owner.note(prunes_events_before=9)
    with pytest.raises(CursorExpired):
        await all_of(storage.follow("t", after=2))


async def test_what_nobody_could_have_told_is_ignored() -> None:
    storage = InMemoryCheckpointStorage()
    bodies = [b"", b"rubbish", b"[1]", b'[0,{"type":"data"}]', b'[0,{"type":"data","thread_id":"u"}]', b"[" * 5000]
    async with aclosing(storage.follow("t")) as events:  # type: ignore[type-var]
        following = asyncio.ensure_future(anext(events))
        while not storage.store.has_subscribers("t"):
            await turns(1)
        for body in bodies:
            storage.store.publish("t", body)
        storage.store.publish("t", b'[0,{"type":"data","thread_id":"t","data":"at last","seq":7}]')
        event = await following
        assert (event.data, event.seq) == ("at last", None)


def test_what_is_heard_is_never_run_whatever_the_storage_saves_with() -> None:
    note = msgspec.json.encode(JsonCodec(lenient=True).encode(Note("x"), "note"))
    bomb = note.replace(b":Note", b":Bomb")
    found = decode_live_event(b'[0,{"type":"data","thread_id":"t","data":%b}]' % bomb, JsonCodec(lenient=True))
    assert found is not None and isinstance(found.event.data, Opaque)


async def test_what_cannot_leave_the_process_or_is_very_large_is_not_told_and_disturbs_nobody() -> None:
    for data in (object(), "x" * MAX_LIVE_EVENT_BYTES):
        storage = InMemoryCheckpointStorage()
        workflow = telling(storage, data=data)
        following = asyncio.create_task(until_it_rests(storage.follow("t")))
        while not storage.store.has_subscribers("t"):
            await turns(1)
        assert (await workflow.run(1, thread_id="t")).get_outputs() == [0]
        assert "data" not in {one.type for one in await following}


async def test_a_storage_without_a_log_cannot_be_followed() -> None:
    with pytest.raises(NoEventLog):
        await all_of(telling(SixMethods()).follow("t"))
    with pytest.raises(NoStorage):
        telling(None).follow("t")
