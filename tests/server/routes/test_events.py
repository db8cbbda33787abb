"""`GET /v1/threads/{id}/events`: the events of a thread, with a cursor to resume from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.server.routes.calling import Event, called, error_of, turn
from tests.server.routes.flows import gates

from perdure.server.threads import hub


def ids(events: list[Event]) -> list[int]:
    return [event.id for event in events if event.id is not None]


async def last_id(app: object, thread_id: str = "t") -> int:
    seq: int = await app.service.storage.last_seq(thread_id)  # type: ignore[attr-defined]  # a Called
    return seq


async def test_events_of_the_log_come_with_their_ids_in_order() -> None:
    async with called("counting") as app:
        await app.invoke("a b", "t")
        last = await last_id(app)
        async with app.stream("GET", "/v1/threads/t/events") as stream:
            assert stream.status == 200
            assert stream.headers["content-type"].startswith("text/event-stream")
            events = await stream.until(last)
    assert ids(events) == list(range(1, last + 1))
    assert [event.event for event in events] == [event.data["type"] for event in events]
    assert events[0].event == "started"
    assert events[-1].data["state"] == "IDLE"
    assert {event.data["thread_id"] for event in events} == {"t"}
    [output] = [event for event in events if event.event == "output"]
    assert (output.data["executor_id"], output.data["data"]) == ("reply", "A B (2 words)")


async def test_a_cursor_continues_without_gap_or_repeat() -> None:
    async with called("counting") as app:
        await app.invoke("a b", "t")
        last = await last_id(app)
        for path, headers in (
            ("/v1/threads/t/events?after=4", {}),
            ("/v1/threads/t/events", {"Last-Event-ID": "4"}),
            ("/v1/threads/t/events?after=2", {"Last-Event-ID": "4"}),  # as a browser that connects again
        ):
            async with app.stream("GET", path, headers=headers) as stream:
                assert ids(await stream.until(last)) == list(range(5, last + 1))


async def test_client_that_reconnects_to_another_instance_misses_no_event(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'threads.db'}"
    async with called("counting", checkpointer=url) as first, called("counting", checkpointer=url) as second:
        async with first.stream("POST", "/v1/graph/stream", turn("a b", "t")) as stream:
            seen: list[int] = []
            while len(seen) < 5:  # then the connection breaks
                event = await stream.next_event()
                assert event is not None
                seen += [event.id] if event.id is not None else []
        async with second.stream("GET", "/v1/threads/t/events", headers={"Last-Event-ID": str(seen[-1])}) as stream:
            events: list[Event] = []
            while not events or events[-1].data.get("state") != "IDLE":
                event = await stream.next_event()
                assert event is not None
                events.append(event)
        assert seen + ids(events) == list(range(1, await last_id(first) + 1))


async def test_live_events_have_no_id_and_can_be_left_out() -> None:
    async with called("talking") as app:
        gates["events-0"].set()
        await app.invoke("events-0", "t")
        before = await last_id(app)
        paths = [f"/v1/threads/t/events?after={before}{more}" for more in ("", "&live=false")]
        async with app.stream("GET", paths[0]) as all_of_it, app.stream("GET", paths[1]) as committed:
            async with app.stream("POST", "/v1/graph/stream", turn("events-1", "t")) as turn_stream:
                while (event := await all_of_it.next_event()) is not None and event.event != "data":
                    pass
                assert event is not None and event.id is None, "a token, before the turn has ended"
                gates["events-1"].set()
                await turn_stream.all()
            last = await last_id(app)
            live, logged = await all_of_it.until(last), await committed.until(last)
    assert any(event.id is None for event in live)
    assert ids(logged) == list(range(before + 1, last + 1)) == [event.id for event in logged]


async def test_chunks_of_the_log_are_those_of_the_streams_from_any_cursor() -> None:
    def committed(events: list[Event]) -> list[tuple[int, Any]]:
        return [(event.id, {**event.data, "timestamp": 0}) for event in events if event.id is not None]

    answers = {"verdict": {"approved": True}, "colour": "blue", "bool": False}
    turns = [turn("verdict colour bool", "t"), {"resume": answers, "config": {"thread_id": "t"}}]
    async with called("asking") as app:
        streamed: list[tuple[int, Any]] = []
        for body in turns:
            async with app.stream("POST", "/v1/graph/stream", body) as stream:
                streamed += committed(await stream.all())
        last = await last_id(app)
        for cursor in range(last):
            async with app.stream("GET", f"/v1/threads/t/events?chunks=true&after={cursor}") as stream:
                assert committed(await stream.until(last)) == [chunk for chunk in streamed if chunk[0] > cursor]
    outputs = [chunk["message"]["message_id"] for _, chunk in streamed if chunk["event"] == "message"]
    assert [name.partition("-out")[2] for name in outputs] == ["0", "1", "2"]


async def test_later_events_reach_all_open_streams() -> None:
    async with called("counting") as app:
        await app.invoke("a b", "t")
        before = await last_id(app)
        path = f"/v1/threads/t/events?after={before}"
        async with app.stream("GET", path) as first, app.stream("GET", path) as second:
            await app.invoke("c d", "t")
            last = await last_id(app)
            received = [ids(await stream.until(last)) for stream in (first, second)]
    assert received == [list(range(before + 1, last + 1))] * 2


async def test_slow_client_receives_all_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "MAX_UNREAD", 3)
    async with called("counting") as app:
        await app.invoke("a b", "t")
        async with app.stream("GET", "/v1/threads/t/events?live=false", unread=1) as slow:
            for text in ("c", "d", "e"):
                await app.invoke(text, "t")
            last = await last_id(app)
            assert ids(await slow.until(last)) == list(range(1, last + 1))


@pytest.mark.parametrize("cursor", ["-1", "x", "1.5", "99999999999999999999", "١"])
async def test_invalid_cursor_is_rejected(cursor: str) -> None:
    async with called("counting") as app:
        await app.invoke("a b", "t")
        error_of(await app.ask("GET", f"/v1/threads/t/events?after={cursor}"), 422)
        headers = {"Last-Event-ID": cursor.encode()}
        error_of(await app.ask("GET", "/v1/threads/t/events", headers=headers), 422)


async def test_cursor_before_the_pruned_events_gets_410() -> None:
    async with called("counting") as app:
        for text in ("a", "b", "c"):
            await app.invoke(text, "t")
        last = await last_id(app)
        await app.service.storage.prune(keep_last=1)
        for path, headers in (("?after=1", {}), ("", {"Last-Event-ID": "1"})):
            error = error_of(await app.ask("GET", f"/v1/threads/t/events{path}", headers=headers), 410)
            assert error["code"] == "cursor_expired"
        async with app.stream("GET", "/v1/threads/t/events") as stream:
            assert ids(await stream.until(last))[-1] == last, "without a cursor: all that are kept"
        await app.get("/v1/threads/t/messages")  # what is kept of the conversation, and no error
        await app.get("/v1/threads/t/state")


async def test_idle_stream_sends_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "HEARTBEAT_SECONDS", 0.01)
    async with called("counting") as app:
        await app.invoke("a b", "t")
        last = await last_id(app)
        async with app.stream("GET", f"/v1/threads/t/events?after={last}") as stream:
            first = await stream.next()
            assert first is not None and first.retry == "1000"
            for _ in range(2):
                beat = await stream.next()
                assert beat is not None and beat.is_comment
            await app.invoke("c d", "t")
            assert ids(await stream.until(last + 1)) == [last + 1]


async def test_stream_ends_with_its_cursor_when_the_server_stops() -> None:
    async with called("counting") as app:
        await app.invoke("a b", "t")
        last = await last_id(app)
        async with app.stream("GET", "/v1/threads/t/events") as stream:
            await stream.until(last)
            app.service.begin_stopping()
            [closing] = await stream.all()
        assert (closing.event, closing.id, closing.data["after"]) == ("closing", None, last)
        answer = await app.ask("GET", "/v1/threads/t/events")
        assert error_of(answer, 503)["code"] == "stopping"
        assert int(answer.headers["retry-after"]) > 0


async def test_events_of_a_failure_in_production_hide_the_error_text() -> None:
    async with called("failing", mode="production") as app:
        await app.ask("POST", "/v1/graph/invoke", turn("luck", "t"))
        async with app.stream("GET", "/v1/threads/t/events") as stream:
            events = await stream.until(await last_id(app))
    assert any(event.event == "failed" for event in events)
    assert "no luck" not in str([event.data for event in events])
