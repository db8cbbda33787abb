"""`POST /v1/graph/stream`: one turn, told as it happens."""

from __future__ import annotations

from tests.server.routes.calling import Event, called, conflict_of, error_of, is_done, texts, turn
from tests.server.routes.flows import gates, reached


def checked(events: list[Event], thread_id: str) -> list[Event]:
    """Each is a StreamChunk of the thread, and what is committed has the ids of the log, in order."""
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


async def test_it_is_made_of_server_sent_events_and_says_that_to_proxies() -> None:
    async with called("remembering") as app, app.stream("POST", "/v1/graph/stream", turn("hi", "t")) as stream:
        assert stream.status == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.headers["cache-control"] == "no-store"
        assert stream.headers["x-accel-buffering"] == "no"
        checked(await stream.all(), "t")


async def test_committed_events_have_the_ids_that_the_log_knows_them_by_and_others_have_none() -> None:
    async with called("counting") as app:
        async with app.stream("POST", "/v1/graph/stream", turn("a b", "t")) as stream:
            events = checked(await stream.all(), "t")
        last = events[-1].data["data"]["cursor"]
        async with app.stream("GET", "/v1/threads/t/events") as log:
            logged = {event.id: event for event in await log.until(last) if event.id is not None}
    told = {event.id: event for event in events if event.id is not None}
    assert list(told) == list(logged) == list(range(1, last + 1))
    kinds = {"output": "message"}
    assert all(told[at].event == kinds.get(str(logged[at].event), "updates") for at in told)
    progress = [event for event in events if (event.data["data"] or {}).get("type") == "progress"]
    assert [event.data["data"]["data"] for event in progress] == [{"done": 0.5}]
    assert (events[0].id, events[-1].id) == (None, None)


async def test_tokens_come_as_they_are_told_and_the_whole_message_once_it_is_committed() -> None:
    async with called("talking") as app, app.stream("POST", "/v1/graph/stream", turn("gate-s", "t")) as stream:
        while (event := await stream.told()) is not None and event.event != "message":
            pass
        assert event is not None
        assert texts([event.data["message"]]) == ["good "]
        assert event.data["message"]["delta"] is True
        assert event.id is None, "what is not committed cannot be come back to"
        gates["gate-s"].set()  # only now does the agent go on
        said = [one for one in await stream.all() if one.event == "message" and texts([one.data["message"]]) != [""]]
    assert [(texts([one.data["message"]])[0], one.data["message"]["delta"]) for one in said] == [
        ("evening", True),
        ("good evening", False),
    ]
    assert said[-1].id is not None
    assert said[-1].data["message"]["message_id"] == event.data["message"]["message_id"] == "said-gate-s"


async def test_the_state_is_told_where_all_is_asked_for() -> None:
    async with called("counting") as app:
        body = turn("a b", "t", response_granularity="full")
        async with app.stream("POST", "/v1/graph/stream", body) as stream:
            events = checked(await stream.all(), "t")
        [state] = [event for event in events if event.event == "state"]
        assert state.data["state"] == (await app.get("/v1/threads/t/state"))["state"]


async def test_the_last_chunk_says_how_it_ended() -> None:
    async with called("asking") as app:
        async with app.stream("POST", "/v1/graph/stream", turn("colour", "t")) as stream:
            events = checked(await stream.all(), "t")
        done = events[-1].data["data"]
        assert (done["status"], done["is_new_thread"], done["pending_requests"]) == ("done", True, ["colour"])
        [asked] = [one.data["data"] for one in events if (one.data["data"] or {}).get("status") == "interrupted"]
        assert asked["request"]["request_id"] == "colour"
        assert asked["request"]["data"] == {"text": "colour?"}
        body = {"resume": "blue", "config": {"thread_id": "t"}}
        async with app.stream("POST", "/v1/graph/stream", body) as stream:
            resumed = checked(await stream.all(), "t")
    assert [texts([one.data["message"]]) for one in resumed if one.event == "message"] == [["Colour BLUE"]]
    assert resumed[-1].data["data"]["state"] == "IDLE"


async def test_a_failure_is_a_chunk_of_its_own_and_the_stream_ends_well() -> None:
    async with called("failing") as app, app.stream("POST", "/v1/graph/stream", turn("luck", "t")) as stream:
        events = checked(await stream.all(), "t")
    [error] = [event for event in events if event.event == "error"]
    assert error.data["data"]["error_type"] == "ValueError"
    assert error.data["data"]["message"] == "no luck today"
    assert events[-1].data["data"]["state"] == "FAILED"


async def test_in_production_the_chunk_of_a_failure_does_not_say_what_the_error_said() -> None:
    async with called("failing", mode="production") as app:
        async with app.stream("POST", "/v1/graph/stream", turn("luck", "t")) as stream:
            events = checked(await stream.all(), "t")
    assert not [event for event in events if "no luck" in str(event.data)]


async def test_what_is_wrong_is_told_by_the_status_before_anything_is_streamed() -> None:
    async with called("waiting") as app:
        error_of(await app.ask("POST", "/v1/graph/stream", {}), 422)
        error_of(await app.ask("POST", "/v1/graph/stream", {"resume": 1, "config": {"thread_id": "t"}}), 404)
        await app.run("t", 202, None, input="stream-busy")
        await reached["stream-busy"].wait()
        assert conflict_of(await app.ask("POST", "/v1/graph/stream", turn("x", "t")))["thread_id"] == "t"
        gates["stream-busy"].set()


async def test_a_client_that_goes_away_leaves_the_run_going() -> None:
    async with called("waiting") as app:
        async with app.stream("POST", "/v1/graph/stream", turn("left", "t")) as stream:
            event = await stream.told()
            assert event is not None
            run_id = event.data["run_id"]
            await reached["left"].wait()
        assert (await app.get(f"/v1/threads/t/runs/{run_id}"))["run"]["state"] == "IN_PROGRESS"
        gates["left"].set()
        run = await app.ended("t", run_id)
    assert (run["state"], run["outputs"]) == ("IDLE", ["passed left"])


async def test_two_turns_that_stream_one_after_the_other_do_not_tell_of_each_other() -> None:
    async with called("remembering") as app:
        for text, answer in (("one", "heard: one"), ("two", "heard: one, two")):
            async with app.stream("POST", "/v1/graph/stream", turn(text, "t")) as stream:
                events = checked(await stream.all(), "t")
            said = [texts([one.data["message"]])[0] for one in events if one.event == "message" and one.id is not None]
            assert said == [answer]


async def test_a_thread_whose_events_are_followed_can_be_streamed_too() -> None:
    async with called("counting") as app:
        await app.invoke("one two", "t")
        async with app.stream("GET", "/v1/threads/t/events") as follower:
            async with app.stream("POST", "/v1/graph/stream", turn("three four", "t")) as stream:
                last = checked(await stream.all(), "t")[-1].data["data"]["cursor"]
            followed = await follower.until(last)
    assert [event.id for event in followed if event.id is not None] == list(range(1, last + 1))


async def test_too_many_streams_are_refused_for_now() -> None:
    async with called("waiting", limits={"max_streams": 1}) as app:
        async with app.stream("POST", "/v1/graph/stream", turn("many", "t")):
            answer = await app.ask("POST", "/v1/graph/stream", turn("more", "u"))
            assert error_of(answer, 429)["code"] == "too_many_streams"
            assert int(answer.headers["retry-after"]) > 0
            gates["many"].set()
        assert [one["thread_id"] for one in (await app.get("/v1/threads"))["threads"]] == ["t"], "it did not begin"
