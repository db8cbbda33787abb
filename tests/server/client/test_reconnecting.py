"""Streams that break in ways a real server seldom shows: what the client then does, and what it never does."""

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
IDLE = event(3, "status", state="IDLE")
HEARTBEAT = b": \n\n"


async def all_of(items: AsyncIterator[T]) -> list[T]:
    return [one async for one in items]


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
    return len([one for one in server.asked if one.method == "POST"])


def seqs(chunks: list[Any]) -> list[int]:
    return [one.seq for one in chunks if one.seq is not None]


async def test_a_stream_that_ends_early_goes_on_after_the_last_id() -> None:
    with ScriptedServer(turn(stream(started(), *FIRST), stream(IDLE))) as server:
        chunks = await streamed(server)
    assert seqs(chunks) == [1, 2, 3]
    assert chunks[-1].data == {**chunks[-1].data, "status": "done", "state": "IDLE", "cursor": 3}
    assert server.asked[1].path == "/v1/threads/t/events?live=true&after=2"
    assert posts(server) == 1


async def test_what_was_told_already_is_not_told_again() -> None:
    again = [event(seq, "status", state="IN_PROGRESS") for seq in (1, 2)]
    with ScriptedServer(turn(stream(started(), *FIRST), stream(*again, IDLE))) as server:
        assert seqs(await streamed(server)) == [1, 2, 3]


async def test_of_an_output_of_several_messages_only_those_are_told_that_did_not_come() -> None:
    said = [{"type": "message", "role": "assistant", "contents": [{"type": "text", "text": one}]} for one in "abc"]
    first = {"event": "message", "message": {"role": "assistant", "content": [{"type": "text", "text": "a"}]}}
    log = stream(event(3, "output", data=said), event(4, "status", state="IDLE"))
    with ScriptedServer(turn(stream(started(), *FIRST, frame(first, 3)), log)) as server:
        chunks = await streamed(server)
    assert [one.text for one in chunks if one.message] == ["a", "b", "c"]
    assert server.asked[1].path.endswith("after=2")


async def test_a_server_that_stops_or_fails_is_left_for_the_next() -> None:
    closing = frame({"after": 2, "reason": "The server stops."}, event="closing")
    broken = frame(
        {"code": "storage_failed", "message": "The stream failed. Reconnect after the cursor.", "after": 2},
        event="error",
    )
    replies = turn(stream(started(), *FIRST, closing), stream(broken), error(503, "stopping"), None, stream(IDLE))
    with ScriptedServer(replies) as server:
        assert seqs(await streamed(server)) == [1, 2, 3]


async def test_a_turn_that_a_stopping_server_left_is_not_done() -> None:
    left = chunk(None, {"status": "done", "state": "INTERRUPTED", "cursor": 2})
    with ScriptedServer(turn(stream(started(), *FIRST, left), stream(IDLE))) as server:
        chunks = await streamed(server)
    assert [one.data["state"] for one in chunks if one.status == "done"] == ["IDLE"]


async def test_another_run_that_goes_on_with_the_thread_ends_the_stream() -> None:
    resumed = [event(3, "started", "run-2"), event(4, "status", "run-2", state="IDLE")]
    with ScriptedServer(turn(stream(started(), *FIRST), stream(*resumed))) as server:
        chunks = await streamed(server)
    assert seqs(chunks) == [1, 2, 3, 4]
    assert chunks[-1].run_id == "run-2"


async def test_runs_before_ones_own_are_passed_over() -> None:
    before = [event(1, "output", "run-0", data="not mine"), event(2, "status", "run-0", state="IDLE")]
    own = [event(3, "started"), event(4, "status", state="IDLE")]
    found = data({"run": {"run_id": "run-1", "state": "IDLE"}})
    with ScriptedServer(turn(stream(started()), stream(*before, *own), look=lambda asked: found)) as server:
        chunks = await streamed(server)
    assert seqs(chunks) == [3, 4]


async def test_a_turn_without_any_answer_is_looked_for_and_never_begun_again() -> None:
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


async def test_a_turn_without_any_answer_that_was_begun_is_told_from_the_log() -> None:
    def reply(asked: Asked) -> bytes | None:
        if asked.method == "POST":
            return None
        own = json.loads(server.asked[0].body)["config"]["run_id"]
        log = [
            event(8, "status", "run-0", state="IDLE"),
            event(9, "started", own),
            event(10, "status", own, state="IDLE"),
        ]
        return stream(*log) if "/events" in asked.path else data({"run": {"run_id": own, "state": "IN_PROGRESS"}})

    with ScriptedServer(reply) as server:
        chunks = await streamed(server)
    assert seqs(chunks) == [9, 10]
    assert posts(server) == 1


async def test_a_server_that_was_killed_before_it_wrote_anything_of_a_run_is_told_as_that() -> None:
    with ScriptedServer(turn(stream(started()), look=lambda asked: error(404, "run_not_found"))) as server:
        with pytest.raises(ConnectionLost, match="was lost before it wrote anything"):
            await streamed(server)
    assert posts(server) == 1


async def test_a_turn_that_is_refused_is_raised_and_not_sent_again() -> None:
    for reply, kind in ((error(422, "invalid_message"), Invalid), (error(429, "too_many_runs"), TooManyRequests)):
        with ScriptedServer(turn(reply)) as server:
            with pytest.raises(kind):
                await streamed(server)
        assert len(server.asked) == 1


async def test_a_stream_gives_up_when_no_server_goes_on_with_it() -> None:
    with ScriptedServer(turn(stream(started(), *FIRST), *[error(503, "stopping")] * 1000)) as server:
        with pytest.raises(ConnectionLost, match=r"no server continued it for 0\.5 s") as raised:
            await streamed(server)
    assert raised.value.run_id == "run-1"
    assert len(server.asked) > 5


async def test_a_thread_that_was_deleted_meanwhile_ends_the_stream() -> None:
    with ScriptedServer(turn(stream(started(), *FIRST), error(404, "thread_not_found"))) as server:
        with pytest.raises(NotFound):
            await streamed(server)


async def test_a_run_that_nobody_goes_on_with_is_told_as_interrupted() -> None:
    left = data({"thread": {"thread_id": "t", "status": "IN_PROGRESS"}})
    log = [stream(HEARTBEAT), stream(HEARTBEAT)]
    with ScriptedServer(turn(stream(started(), *FIRST), *log, look=lambda asked: left)) as server:
        with pytest.raises(RunInterrupted, match="no server continues it"):
            await streamed(server)


async def test_a_run_whose_end_is_not_in_the_log_ends_with_its_thread() -> None:
    rest = data({"thread": {"thread_id": "t", "status": "FAILED"}})
    replies = turn(stream(started(), *FIRST), stream(HEARTBEAT), look=lambda asked: rest)
    with ScriptedServer(replies) as server:
        with pytest.raises(RunFailed):
            await streamed(server)


async def test_a_request_is_told_with_the_schema_of_its_answer() -> None:
    asked_event = event(3, "request_info", data="Title?", request_id="q1", source_executor_id="e", response_type="str")
    log = stream(asked_event, event(4, "status", state="IDLE_WITH_PENDING_REQUESTS"))

    def look(asked: Asked) -> bytes:
        request = {"request_id": "q1", "response_schema": {"type": "string"}, "response_type": "str"}
        if "/requests" in asked.path:
            return data({"requests": [request]})
        return data({"run": {"run_id": "run-1", "state": "IDLE_WITH_PENDING_REQUESTS", "requests": [request]}})

    with ScriptedServer(turn(stream(started(), *FIRST), log, look=look)) as server:
        chunks = await streamed(server)
    (told,) = [one.data["request"] for one in chunks if one.status == "interrupted"]
    assert told["response_schema"] == {"type": "string"}
    assert chunks[-1].data["pending_requests"] == ["q1"]


# ---------------------------------------------------------------- events


async def test_events_go_on_after_every_break_until_the_caller_leaves() -> None:
    logs = [stream(event(1, "a")), None, stream(event(1, "a"), event(2, "b")), stream(event(None, "p"), event(3, "c"))]
    with ScriptedServer(lambda asked: logs.pop(0)) as server:
        async with Client(server.url, patience=QUICK) as client, aclosing(client.events("t")) as events:
            found = [await anext(events) for _ in range(4)]
    assert [one.type for one in found] == ["a", "b", "p", "c"]
    paths = [one.path.removeprefix("/v1/threads/t/events?live=true") for one in server.asked]
    assert paths == ["", "&after=1", "&after=1", "&after=2"]


async def test_events_without_reconnect_end_with_the_connection() -> None:
    with ScriptedServer(lambda asked: stream(event(1, "a"))) as server:
        async with Client(server.url, patience=QUICK) as client:
            with pytest.raises(ConnectionLost):
                await all_of(client.events("t", reconnect=False))
    assert len(server.asked) == 1


@pytest.mark.parametrize("late", [False, True])
async def test_a_cursor_that_has_expired_is_raised_at_once(late: bool) -> None:
    gone = frame({"code": "cursor_expired", "message": "Start from 7."}, event="error")
    reply = stream(gone) if late else error(410, "cursor_expired", "Start from 7.")
    with ScriptedServer(lambda asked: reply) as server:
        async with Client(server.url, patience=QUICK) as client:
            with pytest.raises(CursorExpired, match="Start from 7"):
                await all_of(client.events("t", after=3))
    assert len(server.asked) == 1


async def test_what_is_no_stream_of_events_is_not_read_for_ever() -> None:
    for wrong in (data("pong"), stream(b"data: no json\n\n"), stream(b"data: \xff\n\n")):
        with ScriptedServer(lambda asked, wrong=wrong: wrong) as server:  # type: ignore[misc]  # bound at once
            async with Client(server.url, patience=QUICK) as client:
                with pytest.raises(UnreadableAnswer):
                    await all_of(client.events("t"))


async def test_the_wait_that_the_server_asks_for_is_kept() -> None:
    logs = [stream(b"retry: 500\n\n", event(1, "a")), stream(event(2, "b"))]
    with ScriptedServer(lambda asked: logs.pop(0)) as server:
        async with Client(server.url) as client, aclosing(client.events("t")) as events:
            await anext(events)
            began = asyncio.get_running_loop().time()
            await anext(events)
            assert asyncio.get_running_loop().time() - began >= 0.25  # spread over the second half of it
