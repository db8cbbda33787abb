"""`POST /v1/graph/stream`: one turn, streamed as it happens."""

from __future__ import annotations

from tests.server.routes.calling import Event, called, conflict_of, error_of, is_done, texts, turn
from tests.server.routes.flows import gates, reached


def checked(events: list[Event], thread_id: str) -> list[Event]:
    """Asserts that each event is a StreamChunk of the thread and that committed events have ordered ids."""
    for event in events:
        assert event.event == event.data["event"]
        assert event.event in {"message", "state", "updates", "error"}
        keys = {"event", "message", "state", "data", "thread_id", "run_id", "metadata", "timestamp"}
        assert set(event.data) == keys
        assert event.data["thread_id"] == thread_id
    ids = [event.id for event in events if event.id is not None]
    assert ids == sorted(set(ids))
    assert len({event.data["run_id"] for event in events}) == 1
    assert is_done(events[-1].data)
    return events


async def test_stream_has_the_headers_of_server_sent_events_for_proxies() -> None:
    async with called("remembering") as app, app.stream("POST", "/v1/graph/stream", turn("hi", "t")) as stream:
        assert stream.status == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.headers["cache-control"] == "no-store"
        assert stream.headers["x-accel-buffering"] == "no"
        checked(await stream.all(), "t")


async def test_only_committed_events_have_ids_and_these_match_the_log() -> None:
    async with called("counting") as app:
        async with app.stream("POST", "/v1/graph/stream", turn("a b", "t")) as stream:
            events = checked(await stream.all(), "t")
        last = events[-1].data["data"]["cursor"]
        async with app.stream("GET", "/v1/threads/t/events") as log:
            logged = {event.id: event for event in await log.until(last) if event.id is not None}
    streamed = {event.id: event for event in events if event.id is not None}
    assert list(streamed) == list(logged) == list(range(1, last + 1))
    kinds = {"output": "message"}
    assert all(streamed[at].event == kinds.get(str(logged[at].event), "updates") for at in streamed)
    progress = [event for event in events if (event.data["data"] or {}).get("type") == "progress"]
    assert [event.data["data"]["data"] for event in progress] == [{"done": 0.5}]
    assert (events[0].id, events[-1].id) == (None, None)


async def test_tokens_arrive_at_once_and_the_whole_message_after_its_commit() -> None:
    async with called("talking") as app, app.stream("POST", "/v1/graph/stream", turn("gate-s", "t")) as stream:
        while (event := await stream.next_event()) is not None and event.event != "message":
            pass
        assert event is not None
        assert texts([event.data["message"]]) == ["good "]
        assert event.data["message"]["delta"] is True
        assert event.id is None, "a client cannot resume from an uncommitted event"
        gates["gate-s"].set()  # the agent continues only now
        messages = [
            item for item in await stream.all() if item.event == "message" and texts([item.data["message"]]) != [""]
        ]
    assert [(texts([item.data["message"]])[0], item.data["message"]["delta"]) for item in messages] == [
        ("evening", True),
        ("good evening", False),
    ]
    assert messages[-1].id is not None
    assert messages[-1].data["message"]["message_id"] == event.data["message"]["message_id"] == "said-gate-s"


async def test_stream_sends_the_state_with_full_granularity() -> None:
    async with called("counting") as app:
        body = turn("a b", "t", response_granularity="full")
        async with app.stream("POST", "/v1/graph/stream", body) as stream:
            events = checked(await stream.all(), "t")
        [state] = [event for event in events if event.event == "state"]
        assert state.data["state"] == (await app.get("/v1/threads/t/state"))["state"]


async def test_last_chunk_has_the_state_and_the_pending_requests() -> None:
    async with called("asking") as app:
        async with app.stream("POST", "/v1/graph/stream", turn("colour", "t")) as stream:
            events = checked(await stream.all(), "t")
        done = events[-1].data["data"]
        assert (done["status"], done["is_new_thread"], done["pending_requests"]) == ("done", True, ["colour"])
        [asked] = [item.data["data"] for item in events if (item.data["data"] or {}).get("status") == "interrupted"]
        assert asked["request"]["request_id"] == "colour"
        assert asked["request"]["data"] == {"text": "colour?"}
        body = {"resume": "blue", "config": {"thread_id": "t"}}
        async with app.stream("POST", "/v1/graph/stream", body) as stream:
            resumed = checked(await stream.all(), "t")
    assert [texts([item.data["message"]]) for item in resumed if item.event == "message"] == [["Colour BLUE"]]
    assert resumed[-1].data["data"]["state"] == "IDLE"


async def test_failure_is_a_separate_chunk_and_the_stream_ends_normally() -> None:
    async with called("failing") as app, app.stream("POST", "/v1/graph/stream", turn("luck", "t")) as stream:
        events = checked(await stream.all(), "t")
    [error] = [event for event in events if event.event == "error"]
    assert error.data["data"]["error_type"] == "ValueError"
    assert error.data["data"]["message"] == "no luck today"
    assert events[-1].data["data"]["state"] == "FAILED"


async def test_production_chunks_hide_the_error_text() -> None:
    async with called("failing", mode="production") as app:
        async with app.stream("POST", "/v1/graph/stream", turn("luck", "t")) as stream:
            events = checked(await stream.all(), "t")
    assert not [event for event in events if "no luck" in str(event.data)]


async def test_invalid_turn_gets_an_error_status_before_the_stream_starts() -> None:
    async with called("waiting") as app:
        error_of(await app.ask("POST", "/v1/graph/stream", {}), 422)
        error_of(await app.ask("POST", "/v1/graph/stream", {"resume": 1, "config": {"thread_id": "t"}}), 404)
        await app.run("t", 202, None, input="stream-busy")
        await reached["stream-busy"].wait()
        assert conflict_of(await app.ask("POST", "/v1/graph/stream", turn("x", "t")))["thread_id"] == "t"
        gates["stream-busy"].set()


async def test_run_continues_after_its_client_disconnects() -> None:
    async with called("waiting") as app:
        async with app.stream("POST", "/v1/graph/stream", turn("left", "t")) as stream:
            event = await stream.next_event()
            assert event is not None
            run_id = event.data["run_id"]
            await reached["left"].wait()
        assert (await app.get(f"/v1/threads/t/runs/{run_id}"))["run"]["state"] == "IN_PROGRESS"
        gates["left"].set()
        run = await app.ended("t", run_id)
    assert (run["state"], run["outputs"]) == ("IDLE", ["passed left"])


async def test_stream_of_a_turn_has_only_messages_of_its_own_turn() -> None:
    async with called("remembering") as app:
        for text, answer in (("one", "heard: one"), ("two", "heard: one, two")):
            async with app.stream("POST", "/v1/graph/stream", turn(text, "t")) as stream:
                events = checked(await stream.all(), "t")
            messages = [
                texts([item.data["message"]])[0] for item in events if item.event == "message" and item.id is not None
            ]
            assert messages == [answer]


async def test_thread_can_be_streamed_while_its_events_are_followed() -> None:
    async with called("counting") as app:
        await app.invoke("one two", "t")
        async with app.stream("GET", "/v1/threads/t/events") as follower:
            async with app.stream("POST", "/v1/graph/stream", turn("three four", "t")) as stream:
                last = checked(await stream.all(), "t")[-1].data["data"]["cursor"]
            followed = await follower.until(last)
    assert [event.id for event in followed if event.id is not None] == list(range(1, last + 1))


async def test_stream_over_the_limit_is_rejected_with_retry_after() -> None:
    async with called("waiting", limits={"max_streams": 1}) as app:
        async with app.stream("POST", "/v1/graph/stream", turn("many", "t")):
            answer = await app.ask("POST", "/v1/graph/stream", turn("more", "u"))
            assert error_of(answer, 429)["code"] == "too_many_streams"
            assert int(answer.headers["retry-after"]) > 0
            gates["many"].set()
        assert [thread["thread_id"] for thread in (await app.get("/v1/threads"))["threads"]] == ["t"], (
            "it did not begin"
        )
