"""Streams that break in ways that are rare at a real server, and how the client reacts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, TypeVar

import pytest
from tests.server.client.scripted import Asked, Reply, ScriptedServer, chunk, data, error, event, frame, started, stream

from perdure.client import (
    Client,
    ConnectionLost,
    CursorExpired,
    Invalid,
    NotFound,
    Patience,
    RunFailed,
    RunInterrupted,
    TooManyRequests,
    UnreadableAnswer,
)

T = TypeVar("T")
QUICK = Patience(first_wait=0.01, longest_wait=0.05, seconds=0.5)
FIRST = [chunk(1, {"type": "started"}), chunk(2, {"type": "status", "state": "IN_PROGRESS"})]
HEARTBEAT = b": \n\n"


def logged(seq: int, kind: str, run_id: str = "run-1", **more: Any) -> bytes:
    """An event of the log, as the chunk that the server makes of it."""
    return chunk(seq, {"type": kind, **more}, run_id)


IDLE = logged(3, "status", state="IDLE")


async def all_of(items: AsyncIterator[T]) -> list[T]:
    return [item async for item in items]


def turn(first: bytes | None, *then: bytes | None, look: Reply | None = None) -> Reply:
    """POST gives `first`; the log's streams are `then`; anything else is looked up."""
    logs = iter(then)

    def reply(asked: Asked) -> bytes | None:
        if asked.method == "POST":
            return first
        if "/events" in asked.path:
            return next(logs)
        if look is None:
            raise AssertionError(f"{asked} was not expected")
        return look(asked)

    return reply


async def streamed(server: ScriptedServer, **options: Any) -> list[Any]:
    async with Client(server.url, patience=QUICK) as client:
        options.setdefault("thread_id", "t")
        return await all_of(client.stream("x", **options))


def posts(server: ScriptedServer) -> int:
    return len([asked for asked in server.asked if asked.method == "POST"])


def seqs(chunks: list[Any]) -> list[int]:
    return [chunk.seq for chunk in chunks if chunk.seq is not None]


async def test_stream_that_ends_early_continues_after_the_last_id() -> None:
    with ScriptedServer(turn(stream(started(), *FIRST), stream(IDLE))) as server:
        chunks = await streamed(server)
    assert seqs(chunks) == [1, 2, 3]
    assert chunks[-1].data == {**chunks[-1].data, "status": "done", "state": "IDLE", "cursor": 3}
    assert server.asked[1].path == "/v1/threads/t/events?live=true&after=2&chunks=true"
    assert posts(server) == 1


async def test_stream_does_not_repeat_events_after_a_reconnect() -> None:
    again = [logged(seq, "status", state="IN_PROGRESS") for seq in (1, 2)]
    with ScriptedServer(turn(stream(started(), *FIRST), stream(*again, IDLE))) as server:
        assert seqs(await streamed(server)) == [1, 2, 3]


async def test_stream_cut_inside_an_output_yields_only_its_missing_messages() -> None:
    messages = [
        frame({"event": "message", "message": {"role": "assistant", "content": [{"type": "text", "text": text}]}}, 3)
        for text in "abc"
    ]
    logs = stream(*messages[:2]), stream(*messages, logged(4, "status", state="IDLE"))
    with ScriptedServer(turn(stream(started(), *FIRST, messages[0]), *logs)) as server:
        chunks = await streamed(server)
    assert [chunk.text for chunk in chunks if chunk.message] == ["a", "b", "c"]
    assert [asked.path.partition("&")[2] for asked in server.asked[1:]] == ["after=2&chunks=true"] * 2


async def test_stream_cut_before_an_output_yields_all_its_messages() -> None:
    messages = [
        frame({"event": "message", "message": {"role": "assistant", "content": [{"type": "text", "text": text}]}}, 3)
        for text in "abc"
    ]
    log = stream(*messages, logged(4, "status", state="IDLE"))
    with ScriptedServer(turn(stream(started(), *FIRST), log)) as server:
        chunks = await streamed(server)
    assert [chunk.text for chunk in chunks if chunk.message] == ["a", "b", "c"]


async def test_stream_moves_on_from_a_server_that_stops_or_fails() -> None:
    closing = frame({"after": 2, "reason": "The server stops."}, event="closing")
    broken = frame(
        {"code": "storage_failed", "message": "The stream failed. Reconnect after the cursor.", "after": 2},
        event="error",
    )
    replies = turn(stream(started(), *FIRST, closing), stream(broken), error(503, "stopping"), None, stream(IDLE))
    with ScriptedServer(replies) as server:
        assert seqs(await streamed(server)) == [1, 2, 3]


async def test_turn_that_a_stopping_server_interrupts_is_not_done() -> None:
    left = chunk(None, {"status": "done", "state": "INTERRUPTED", "cursor": 2})
    with ScriptedServer(turn(stream(started(), *FIRST, left), stream(IDLE))) as server:
        chunks = await streamed(server)
    assert [chunk.data["state"] for chunk in chunks if chunk.status == "done"] == ["IDLE"]


async def test_stream_ends_with_another_run_that_continues_the_thread() -> None:
    resumed = [logged(3, "started", "run-2"), logged(4, "status", "run-2", state="IDLE")]
    with ScriptedServer(turn(stream(started(), *FIRST), stream(*resumed))) as server:
        chunks = await streamed(server)
    assert seqs(chunks) == [1, 2, 3, 4]
    assert chunks[-1].run_id == "run-2"


async def test_stream_skips_runs_before_its_own() -> None:
    before = [logged(1, "output", "run-0", data="not mine"), logged(2, "status", "run-0", state="IDLE")]
    own = [logged(3, "started"), logged(4, "status", state="IDLE")]
    run = data({"run": {"run_id": "run-1", "state": "IDLE"}})
    with ScriptedServer(turn(stream(started()), stream(*before, *own), look=lambda asked: run)) as server:
        chunks = await streamed(server)
    assert seqs(chunks) == [3, 4]


async def test_turn_without_an_answer_is_looked_up_and_never_sent_again() -> None:
    def look(asked: Asked) -> bytes:
        if "/runs/" in asked.path:
            return error(404, "run_not_found")
        raise AssertionError(f"{asked} was not expected")

    with ScriptedServer(turn(None, look=look)) as server:
        with pytest.raises(
            ConnectionLost, match=r"Most likely it did not start\. The client did not send it again"
        ) as raised:
            await streamed(server)
    sent = json.loads(server.asked[0].body)["config"]
    assert raised.value.thread_id == sent["thread_id"] == "t"
    assert raised.value.run_id == sent["run_id"]
    assert posts(server) == 1


async def test_started_turn_without_an_answer_is_streamed_from_the_log() -> None:
    def reply(asked: Asked) -> bytes | None:
        if asked.method == "POST":
            return None
        own = json.loads(server.asked[0].body)["config"]["run_id"]
        log = [
            logged(8, "status", "run-0", state="IDLE"),
            logged(9, "started", own),
            logged(10, "status", own, state="IDLE"),
        ]
        return stream(*log) if "/events" in asked.path else data({"run": {"run_id": own, "state": "IN_PROGRESS"}})

    with ScriptedServer(reply) as server:
        chunks = await streamed(server)
    assert seqs(chunks) == [9, 10]
    assert posts(server) == 1


async def test_run_lost_before_its_first_write_raises_connection_lost() -> None:
    with ScriptedServer(turn(stream(started()), look=lambda asked: error(404, "run_not_found"))) as server:
        with pytest.raises(ConnectionLost, match="was lost before it wrote anything"):
            await streamed(server)
    assert posts(server) == 1


async def test_rejected_turn_raises_and_is_not_sent_again() -> None:
    for reply, kind in ((error(422, "invalid_message"), Invalid), (error(429, "too_many_runs"), TooManyRequests)):
        with ScriptedServer(turn(reply)) as server:
            with pytest.raises(kind):
                await streamed(server)
        assert len(server.asked) == 1


async def test_stream_gives_up_when_no_server_continues_it() -> None:
    with ScriptedServer(turn(stream(started(), *FIRST), *[error(503, "stopping")] * 1000)) as server:
        with pytest.raises(ConnectionLost, match=r"no server continued it for 0\.5 s") as raised:
            await streamed(server)
    assert raised.value.run_id == "run-1"
    assert len(server.asked) > 1  # how often in this time depends on the machine


async def test_stream_raises_not_found_when_its_thread_is_deleted() -> None:
    with ScriptedServer(turn(stream(started(), *FIRST), error(404, "thread_not_found"))) as server:
        with pytest.raises(NotFound):
            await streamed(server)


async def test_run_that_no_server_continues_raises_run_interrupted() -> None:
    left = data({"thread": {"thread_id": "t", "status": "IN_PROGRESS"}})
    log = [stream(HEARTBEAT), stream(HEARTBEAT)]
    with ScriptedServer(turn(stream(started(), *FIRST), *log, look=lambda asked: left)) as server:
        with pytest.raises(RunInterrupted, match="no server continues it"):
            await streamed(server)


async def test_run_without_an_end_in_the_log_ends_with_the_status_of_its_thread() -> None:
    rest = data({"thread": {"thread_id": "t", "status": "FAILED"}})
    replies = turn(stream(started(), *FIRST), stream(HEARTBEAT), look=lambda asked: rest)
    with ScriptedServer(replies) as server:
        with pytest.raises(RunFailed):
            await streamed(server)


async def test_pending_requests_of_a_broken_stream_are_looked_up() -> None:
    run = {"run_id": "run-1", "state": "IDLE_WITH_PENDING_REQUESTS", "requests": [{"request_id": "q1"}]}
    replies = turn(
        stream(started(), *FIRST),
        stream(logged(3, "status", state="IDLE_WITH_PENDING_REQUESTS")),
        look=lambda asked: data({"run": run}),
    )
    with ScriptedServer(replies) as server:
        chunks = await streamed(server)
    assert chunks[-1].data["pending_requests"] == ["q1"]


# ---------------------------------------------------------------- events


async def test_events_continue_after_every_break_until_the_caller_leaves() -> None:
    logs = [stream(event(1, "a")), None, stream(event(1, "a"), event(2, "b")), stream(event(None, "p"), event(3, "c"))]
    with ScriptedServer(lambda asked: logs.pop(0)) as server:
        async with Client(server.url, patience=QUICK) as client, aclosing(client.events("t")) as events:
            received = [await anext(events) for _ in range(4)]
    assert [item.type for item in received] == ["a", "b", "p", "c"]
    paths = [asked.path.removeprefix("/v1/threads/t/events?live=true") for asked in server.asked]
    assert paths == ["", "&after=1", "&after=1", "&after=2"]


async def test_events_without_reconnect_end_with_the_connection() -> None:
    with ScriptedServer(lambda asked: stream(event(1, "a"))) as server:
        async with Client(server.url, patience=QUICK) as client:
            with pytest.raises(ConnectionLost):
                await all_of(client.events("t", reconnect=False))
    assert len(server.asked) == 1


@pytest.mark.parametrize("late", [False, True])
async def test_expired_cursor_raises_at_once(late: bool) -> None:
    gone = frame({"code": "cursor_expired", "message": "Start from 7."}, event="error")
    reply = stream(gone) if late else error(410, "cursor_expired", "Start from 7.")
    with ScriptedServer(lambda asked: reply) as server:
        async with Client(server.url, patience=QUICK) as client:
            with pytest.raises(CursorExpired, match="Start from 7"):
                await all_of(client.events("t", after=3))
    assert len(server.asked) == 1


async def test_answer_that_is_not_an_event_stream_raises_unreadable_answer() -> None:
    for wrong in (data("pong"), stream(b"data: no json\n\n"), stream(b"data: \xff\n\n")):
        with ScriptedServer(lambda asked, wrong=wrong: wrong) as server:  # type: ignore[misc]  # bound at once
            async with Client(server.url, patience=QUICK) as client:
                with pytest.raises(UnreadableAnswer):
                    await all_of(client.events("t"))


async def test_events_wait_as_long_as_the_retry_field_asks() -> None:
    logs = [stream(b"retry: 500\n\n", event(1, "a")), stream(event(2, "b"))]
    with ScriptedServer(lambda asked: logs.pop(0)) as server:
        async with Client(server.url) as client, aclosing(client.events("t")) as events:
            await anext(events)
            began = asyncio.get_running_loop().time()
            await anext(events)
            assert asyncio.get_running_loop().time() - began >= 0.25  # spread over the second half of it
