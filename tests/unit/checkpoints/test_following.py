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
from perdure.checkpoints import follow as follow_module
from perdure.checkpoints.any_storage import read_events
from perdure.checkpoints.feed import MAX_LIVE_EVENT_BYTES, decode_live_event, encode_live_event
from perdure.checkpoints.follow import ThreadFollower
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.codecs.json_codec import JsonCodec
from perdure.testing.conformance.threads import make_events as logged, own

SECONDS = 60.0


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


def test_live_request_is_read_and_a_body_without_fields_is_ignored() -> None:
    request, codec = WorkflowEvent.request_info("1", "a", {"key": 1}, str), JsonCodec(lenient=True)
    body = encode_live_event(request, 3)
    assert body is not None
    live_event = decode_live_event(body, codec)
    assert live_event is not None and live_event.event == request
    assert decode_live_event(b"[0, {}]", codec) is None


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


# ---------------------------------------------------------------- fed by a run of this process


def count_reads(storage: StoreCheckpointStorage, monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    reads: list[int | None] = []
    events_after = storage.store.events_after

    async def count(thread_id: str, seq: int | None) -> Any:
        reads.append(seq)
        return await events_after(thread_id, seq)

    monkeypatch.setattr(storage.store, "events_after", count)
    return reads


async def started(follower: asyncio.Task[list[WorkflowEvent]], storage: StoreCheckpointStorage) -> None:
    while not storage.store.has_subscribers("t") and not follower.done():
        await turns(1)


async def test_events_of_a_run_in_this_storage_come_without_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_module, "MIN_POLL_SECONDS", SECONDS)
    storage = InMemoryCheckpointStorage()
    reads = count_reads(storage, monkeypatch)
    following = asyncio.create_task(until_it_rests(storage.follow("t", live=False)))
    await started(following, storage)
    await turns(5)
    before = len(reads)
    await emitting(storage).run(4, thread_id="t")
    received = await following
    assert len(reads) == before
    assert received == await log_of(storage)


async def test_small_live_data_that_cannot_change_is_shared() -> None:
    storage, token = InMemoryCheckpointStorage(), "a token"
    following = asyncio.create_task(until_it_rests(storage.follow("t")))
    await started(following, storage)
    await emitting(storage, data=token).run(1, thread_id="t")
    [event] = [event for event in await following if event.type == "data"]
    assert event.data is token


async def test_followers_do_not_share_live_data_that_can_change() -> None:
    storage, data = InMemoryCheckpointStorage(), ["a", ["b"]]
    both = [asyncio.create_task(until_it_rests(storage.follow("t"))) for _ in range(2)]
    await turns(10)
    await emitting(storage, data=data).run(1, thread_id="t")
    received = [[event.data for event in await following if event.type == "data"] for following in both]
    assert received == [[data], [data]]
    assert len({id(data), *(id(copy) for [copy] in received)}) == 3


async def test_a_slow_follower_reads_from_the_log_what_it_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_module, "MAX_PUSHED", 2)
    storage = InMemoryCheckpointStorage()
    async with aclosing(storage.follow("t", live=False)) as events:  # type: ignore[type-var]
        first = asyncio.ensure_future(anext(events))
        await turns(10)
        await emitting(storage).run(6, thread_id="t")
        async with asyncio.timeout(SECONDS):
            received = [await first]
            log = await log_of(storage)
            while len(received) < len(log):
                received.append(await anext(events))
    assert received == log


async def test_follower_through_another_storage_receives_all_events() -> None:
    storage = InMemoryCheckpointStorage()
    other = StoreCheckpointStorage(storage.store)
    following = asyncio.create_task(until_it_rests(other.follow("t")))
    await started(following, storage)
    await emitting(storage).run(2, thread_id="t")
    received = await following
    assert [event for event in received if event.seq is not None] == await log_of(storage)
    assert "data" in {event.type for event in received}


async def test_a_follower_sees_the_run_that_took_over_the_fed_thread() -> None:
    storage, gate = InMemoryCheckpointStorage(), asyncio.Event()
    following = asyncio.create_task(until_it_rests(storage.follow("t", live=False)))
    await turns(10)
    lost = asyncio.create_task(emitting(storage, gate).run(1, thread_id="t"))
    while not await storage.last_seq("t"):
        await turns(1)
    other = StoreCheckpointStorage(storage.store)
    await emitting(other).run(thread_id="t", takeover=True)
    assert await following == await log_of(storage)
    lost.cancel()
    await asyncio.wait([lost])


async def test_follower_from_the_end_begins_with_the_run_that_feeds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = InMemoryCheckpointStorage()
    await emitting(storage).run(2, thread_id="t")
    last = await storage.last_seq("t")
    reads = count_reads(storage, monkeypatch)
    follower = ThreadFollower(storage, "t", lambda: None, None, from_end=True)
    follower.open()
    await emitting(storage).run(2, thread_id="t")
    received: list[WorkflowEvent] = []
    async with asyncio.timeout(SECONDS):
        while all(event.state != "IDLE" for event in received):
            received += await follower.next() or ()
    await follower.close()
    assert not reads
    assert [event for event in received if event.seq is not None] == (await log_of(storage))[last:]
