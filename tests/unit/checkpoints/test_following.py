"""`follow`: the log exactly once and in order, live events before the logged events of their superstep, and its end."""

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

SECONDS = 30.0


@dataclass
class Note:
    text: str


class Emitter(Executor):
    """Emits its input, waits at the gate if it has one, and counts down."""

    def __init__(self, gate: asyncio.Event | None = None, data: Any = None) -> None:
        super().__init__("teller")
        self.gate = gate
        self.data = data

    @handler
    async def count_down(self, left: int, ctx: WorkflowContext[int, int]) -> None:
        await ctx.add_event(WorkflowEvent.emit("teller", Note(f"{left}") if self.data is None else self.data))
        if self.gate is not None:
            await self.gate.wait()
        if left > 1:
            await ctx.send_message(left - 1)
        else:
            await ctx.yield_output(0)


def emitting(storage: Any, gate: asyncio.Event | None = None, data: Any = None) -> Workflow:
    emitter = Emitter(gate, data)
    return (
        WorkflowBuilder(name="w", start_executor=emitter, checkpoint_storage=storage).add_edge(emitter, emitter).build()
    )


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


async def test_follow_yields_the_log_once_and_in_order_from_any_cursor() -> None:
    storage = InMemoryCheckpointStorage()
    await emitting(storage).run(3, thread_id="t")
    log = await log_of(storage)
    assert await all_of(storage.follow("t", until_idle=True)) == log
    for after in (0, 1, 5, len(log) - 1, len(log), 99):
        assert await all_of(storage.follow("t", after=after, until_idle=True)) == log[after:]


async def test_live_events_arrive_during_their_superstep_then_its_logged_events() -> None:
    storage, gate = InMemoryCheckpointStorage(), asyncio.Event()
    workflow = emitting(storage, gate)
    async with aclosing(workflow.follow("t")) as events:  # type: ignore[type-var]
        run = asyncio.create_task(workflow.run(1, thread_id="t"))
        event = [event async for event in until("data", events)][-1]
        assert (event.data, event.seq, event.thread_id) == (Note("1"), None, "t")
        assert event.run_id and event.timestamp
        assert "executor_completed" not in {event.type for event in await log_of(storage)}
        gate.set()
        rest = [event async for event in until("checkpoint_saved", events)]
        assert [event.type for event in rest if event.seq is None] == ["checkpoint_saved"], "once it is saved"
        assert rest[-2].type == "status" and rest[-3].type == "superstep_completed"
        await run


async def test_follow_in_the_same_loop_yields_all_events_of_a_run_in_order() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = emitting(storage)
    following = asyncio.create_task(until_it_rests(workflow.follow("t", provisional=True)))
    while not storage.store.has_subscribers("t"):
        await turns(1)
    await workflow.run(4, thread_id="t")
    received = await following
    assert [event for event in received if event.seq is not None] == await log_of(storage)
    tokens = [event.data.text for event in received if event.type == "data"]
    assert tokens == ["4", "3", "2", "1"]
    done = 0
    for event in received:
        if event.type == "superstep_completed" and event.seq is not None:
            done += 1
        if event.type in ("data", "executor_invoked") and event.seq is None:
            left = int(event.data.text) if event.type == "data" else None
            assert left is None or left <= 4 - done


async def until_it_rests(events: AsyncIterator[WorkflowEvent]) -> list[WorkflowEvent]:
    received: list[WorkflowEvent] = []
    async with asyncio.timeout(SECONDS), aclosing(events):  # type: ignore[type-var]
        async for event in events:
            received.append(event)
            if event.type == "status" and event.seq is not None and event.state == "IDLE":
                return received
    return received


async def test_follow_without_live_events_yields_only_the_log() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = emitting(storage)
    following = asyncio.create_task(until_it_rests(storage.follow("t", live=False)))
    while not storage.store.has_subscribers("t"):
        await turns(1)
    await workflow.run(3, thread_id="t")
    assert await following == await log_of(storage)


async def test_until_idle_ends_without_a_thread_and_waits_for_an_owner() -> None:
    storage = InMemoryCheckpointStorage()
    assert await all_of(storage.follow("t", until_idle=True)) == []
    owner = await own(storage.store)
    await owner.save(status="IDLE")
    following = asyncio.create_task(all_of(storage.follow("t", until_idle=True)))
    while not storage.store.has_subscribers("t"):
        await turns(1)
    await turns(20)
    assert not following.done(), "an owner holds the thread"
    await owner.note(status="IN_PROGRESS")
    await owner.release()
    await turns(20)
    assert not following.done(), "the run has not ended"
    owner = await own(storage.store)
    await owner.note(status="FAILED")
    await owner.release()
    assert await following == []


async def test_expired_cursor_raises() -> None:
    storage = InMemoryCheckpointStorage()
    owner = await own(storage.store)
    await owner.save(events=logged(1, 5))
    await owner.note(prunes_events_before=9)
    with pytest.raises(CursorExpired):
        await all_of(storage.follow("t", after=2))


async def test_invalid_live_messages_are_ignored() -> None:
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


def test_live_event_of_an_unknown_type_stays_opaque_with_a_lenient_codec() -> None:
    note = msgspec.json.encode(JsonCodec(lenient=True).encode(Note("x"), "note"))
    bomb = note.replace(b":Note", b":Bomb")
    live_event = decode_live_event(b'[0,{"type":"data","thread_id":"t","data":%b}]' % bomb, JsonCodec(lenient=True))
    assert live_event is not None and isinstance(live_event.event.data, Opaque)


async def test_live_data_that_is_unsavable_or_too_large_is_not_published() -> None:
    for data in (object(), "x" * MAX_LIVE_EVENT_BYTES):
        storage = InMemoryCheckpointStorage()
        workflow = emitting(storage, data=data)
        following = asyncio.create_task(until_it_rests(storage.follow("t")))
        while not storage.store.has_subscribers("t"):
            await turns(1)
        assert (await workflow.run(1, thread_id="t")).get_outputs() == [0]
        assert "data" not in {event.type for event in await following}


async def test_a_storage_without_a_log_cannot_be_followed() -> None:
    with pytest.raises(NoEventLog):
        await all_of(emitting(SixMethods()).follow("t"))
    with pytest.raises(NoStorage):
        emitting(None).follow("t")
