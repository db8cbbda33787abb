"""`POST /v1/graph/invoke`: one turn of a conversation, answered when it has ended."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.server.routes.calling import Body, called, conflict_of, error_of, texts, turn
from tests.server.routes.flows import gates, reached


async def test_agent_remembers_only_the_messages_of_its_own_thread() -> None:
    async with called("remembering") as app:
        first = await app.invoke("one", "t")
        second = await app.invoke("two", "t")
        other = await app.invoke("three", "other")
    assert texts(first["messages"]) == ["heard: one"]
    assert texts(second["messages"]) == ["heard: one, two"]
    assert texts(other["messages"]) == ["heard: three"]
    assert (first["meta"]["is_new_thread"], second["meta"]["is_new_thread"]) == (True, False)
    assert first["meta"]["thread_id"] == "t"
    assert first["meta"]["thread_name"] is None
    assert set(first) == {"messages", "state", "context", "summary", "meta"}


async def test_message_has_all_fields_of_agentflow() -> None:
    async with called("remembering") as app:
        [message] = (await app.invoke("one", "t"))["messages"]
    assert message["role"] == "assistant"
    assert message["content"] == [{"type": "text", "text": "heard: one", "annotations": []}]
    assert message["delta"] is False
    assert message["tools_calls"] is None
    assert {"message_id", "reasoning", "metadata", "usages", "timestamp"} <= set(message)


async def test_answer_has_a_unique_id_that_finds_it_again() -> None:
    async with called("remembering") as app:
        ids = [(await app.invoke(text, "t"))["messages"][0]["message_id"] for text in ("one", "two")]
        listed = (await app.get("/v1/threads/t/messages"))["messages"]
        assert [entry["message_id"] for entry in listed if entry["role"] == "assistant"] == ids
        message = (await app.get(f"/v1/threads/t/messages/{ids[1]}"))["message"]
    assert texts([message]) == ["heard: one, two"]
    assert len({entry["message_id"] for entry in listed}) == 4


async def test_response_granularity_selects_state_and_context() -> None:
    async with called("counting") as app:
        low = await app.invoke("a b", "t")
        partial = await app.invoke("c d", "t", response_granularity="partial")
        full = await app.invoke("e f", "t", response_granularity="full")
        state = (await app.get("/v1/threads/t/state"))["state"]
    assert (low["state"], low["context"]) == (None, None)
    assert partial["state"] is None
    assert texts(partial["context"]) == ["a b", "A B (2 words)", "c d", "C D (2 words)"]
    assert full["state"] == state
    assert full["context"] == state["context"]
    assert state["seen"] == ["a b", "c d", "e f"]
    assert all(texts(result["messages"])[0].endswith("(2 words)") for result in (low, partial, full))


async def test_each_turn_without_a_thread_id_gets_and_returns_a_new_thread() -> None:
    async with called("remembering") as app:
        first, second = await app.invoke("one"), await app.invoke("two")
        assert texts(second["messages"]) == ["heard: two"]
        ids = {first["meta"]["thread_id"], second["meta"]["thread_id"]}
        assert ids == {thread["thread_id"] for thread in (await app.get("/v1/threads"))["threads"]}
    assert len(ids) == 2


@pytest.mark.parametrize("thread_id", ["", "a/b", "a\\b", "..", "a\nb", "\x00", "x" * 256, True, 1.5, [], {}])
async def test_invalid_thread_id_is_rejected_and_starts_nothing(thread_id: Any) -> None:
    async with called("remembering") as app:
        body = {"messages": [{"content": "hi"}], "config": {"thread_id": thread_id}}
        error = await app.refused("POST", "/v1/graph/invoke", body, status=422)
        assert await app.get("/v1/threads") == {"threads": []}
    assert "thread_id" in f"{error['message']} {error['details']}"


async def test_number_is_a_valid_thread_id() -> None:
    async with called("remembering") as app:
        body = {"messages": [{"content": "hi"}], "config": {"thread_id": 12}}
        assert (await app.post("/v1/graph/invoke", body))["meta"]["thread_id"] == "12"
        assert texts((await app.get("/v1/threads/12/messages"))["messages"]) == ["hi", "heard: hi"]


async def test_started_thread_can_be_read_whatever_its_id() -> None:
    async with called("remembering") as app:
        for name in ("import", "ünïcode", "a b", "100%", "a+b", "?x=1#y"):
            answer = await app.ask("POST", "/v1/graph/invoke", turn("hi", name))
            if answer.status_code == 422:
                assert name == "import"
                continue
            quoted = name.replace("%", "%25").replace("?", "%3F").replace("#", "%23")
            assert (await app.get(f"/v1/threads/{quoted}"))["thread"]["thread_id"] == name


async def test_body_needs_exactly_one_of_messages_and_resume() -> None:
    async with called("remembering") as app:
        wrong: list[Body] = [{}, {"messages": []}, {**turn("hi", "t"), "resume": True}]
        for body in wrong:
            error = await app.refused("POST", "/v1/graph/invoke", body, status=422)
            assert error["code"] == "invalid_body"
        assert await app.get("/v1/threads") == {"threads": []}


async def test_initial_state_is_set_before_turns_of_new_and_known_threads() -> None:
    async with called("counting") as app:
        new = await app.invoke("one", "t", initial_state={"seen": ["zero"], "extra": {"a": 1}})
        assert new["meta"]["is_new_thread"] is True
        known = await app.invoke("two", "t", initial_state={"extra": {"b": 2}, "words": None})
        assert known["meta"]["is_new_thread"] is False
        state = (await app.get("/v1/threads/t/state"))["state"]
    assert state["seen"] == ["zero", "one", "two"]
    assert state["extra"] == {"a": 1, "b": 2}


async def test_messages_in_the_initial_state_are_part_of_the_conversation() -> None:
    async with called("remembering") as app:
        for thread_id, expected in (("t", "heard: before, one"), ("t", "heard: before, one, before, one")):
            state = {"context": [{"role": "user", "content": "before"}]}
            result = await app.invoke("one", thread_id, initial_state=state)
            assert texts(result["messages"]) == [expected]


async def test_an_initial_state_of_the_wrong_type_starts_nothing() -> None:
    async with called("counting") as app:
        await app.invoke("one", "t")
        error = await app.refused(
            "POST", "/v1/graph/invoke", turn("two", "t", initial_state={"seen": "text"}), status=422
        )
        assert error["code"] == "wrong_state_type"
        assert (await app.get("/v1/threads/t/state"))["state"]["seen"] == ["one"]


async def test_turn_that_cannot_start_does_not_change_the_state() -> None:
    async with called("waiting") as app:
        await app.run("t", 202, None, input="initial")
        await reached["initial"].wait()
        body = turn("again", "t", initial_state={"begun": "changed"})
        conflict_of(await app.ask("POST", "/v1/graph/invoke", body))
        gates["initial"].set()
        assert (await app.invoke("initial", "t", config={"on_busy": "enqueue"}))["meta"]["state"] == "IDLE"
        assert (await app.get("/v1/threads/t/state"))["state"]["begun"] == "initial"


async def test_turn_that_a_full_server_rejects_does_not_change_the_state() -> None:
    async with called("waiting", limits={"max_runs": 1, "max_waiting": 0}) as app:
        gates["known"].set()
        await app.invoke("known", "known")
        await app.run("t", 202, None, input="filled")
        await reached["filled"].wait()
        for thread_id in ("known", "new"):
            body = turn("again", thread_id, initial_state={"begun": "changed"})
            error_of(await app.ask("POST", "/v1/graph/invoke", body), 429)
        assert (await app.get("/v1/threads/known/state"))["state"]["begun"] == "known"
        error_of(await app.ask("GET", "/v1/threads/new"), 404)
        gates["filled"].set()


async def test_queued_turn_sets_its_initial_state() -> None:
    async with called("waiting") as app:
        await app.run("t", 202, None, input="before")
        await reached["before"].wait()
        gates["after"].set()
        body = turn("after", "t", initial_state={"extra": 1}, config={"on_busy": "enqueue"})
        queued = asyncio.ensure_future(app.post("/v1/graph/invoke", body))
        gates["before"].set()
        assert texts((await queued)["messages"]) == ["passed after"]
        assert (await app.get("/v1/threads/t/state"))["state"]["extra"] == 1


async def test_thread_of_another_workflow_accepts_turns() -> None:
    async with called("remembering", workflows={"counting": "counting"}) as app:
        await app.run("t", input="a b", workflow="counting")
        assert texts((await app.invoke("c", "t"))["messages"]) == ["C (1 words)"]


async def test_client_chooses_a_run_id_that_no_other_run_can_use() -> None:
    async with called("remembering") as app:
        result = await app.invoke("one", "t", config={"run_id": "mine"})
        assert result["meta"]["run_id"] == "mine"
        assert (await app.get("/v1/threads/t/runs/mine"))["run"]["state"] == "IDLE"
        again = conflict_of(await app.ask("POST", "/v1/graph/invoke", turn("one", "t", config={"run_id": "mine"})))
        assert "mine" in again["detail"]
        assert (await app.run("u", input="x", run_id="mine-too"))["run_id"] == "mine-too"
        for wrong in ("", "a/b", 5):
            body = turn("two", "t", config={"run_id": wrong})
            error_of(await app.ask("POST", "/v1/graph/invoke", body), 422)
        assert len((await app.get("/v1/threads/t/messages"))["messages"]) == 2


async def test_turn_on_a_busy_thread_conflicts_unless_it_is_enqueued() -> None:
    async with called("waiting") as app:
        begun = asyncio.ensure_future(app.invoke("busy-1", "t"))
        await reached["busy-1"].wait()
        conflict = conflict_of(await app.ask("POST", "/v1/graph/invoke", turn("busy-2", "t")))
        assert conflict["thread_id"] == "t"
        queued = asyncio.ensure_future(app.invoke("busy-2", "t", config={"on_busy": "enqueue"}))
        gates["busy-1"].set()
        gates["busy-2"].set()
        assert texts((await begun)["messages"]) == ["passed busy-1"]
        assert texts((await queued)["messages"]) == ["passed busy-2"]
        error = await app.refused("POST", "/v1/graph/invoke", turn("x", "t", config={"on_busy": "steal"}), status=422)
    assert error["details"][0]["field"] == "config.on_busy"


async def test_failed_turn_reports_its_error_and_the_thread_can_resume() -> None:
    async with called("failing") as app:
        answer = await app.ask("POST", "/v1/graph/invoke", turn("luck", "t"))
        error = error_of(answer, 502)
        assert error["code"] == "run_failed"
        assert "ValueError: no luck today" in error["message"]
        assert (await app.get("/v1/threads/t"))["thread"]["status"] == "FAILED"
        state = (await app.get("/v1/threads/t/state"))["state"]
        assert state["execution_meta"]["status"] == "error"
        assert state["begun"] == "luck", "the superstep before was committed"
        await app.send("PATCH", "/v1/threads/t/state", {"update_state": {"mended": True}})
        assert (await app.run("t"))["outputs"] == ["mended luck"]


async def test_production_answers_hide_the_error_text() -> None:
    async with called("failing", mode="production") as app:
        answer = await app.ask("POST", "/v1/graph/invoke", turn("luck", "t"))
        run_id = answer.headers["x-run-id"]
        run_answer = await app.ask("GET", f"/v1/threads/t/runs/{run_id}")
    assert error_of(answer, 502)["code"] == "run_failed"
    assert "no luck" not in answer.text and "no luck" not in run_answer.text


async def test_turn_longer_than_the_request_limit_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    async with called("waiting", limits={"request_seconds": 0.05}) as app:
        answer = await app.ask("POST", "/v1/graph/invoke", turn("long", "t"))
        error = error_of(answer, 504)
        assert error["code"] == "run_takes_longer"
        run_id = answer.headers["x-run-id"]
        assert run_id in error["message"]
        assert (await app.get(f"/v1/threads/t/runs/{run_id}"))["run"]["state"] == "IN_PROGRESS"
        gates["long"].set()
        run = await app.ended("t", run_id)
    assert (run["state"], run["outputs"]) == ("IDLE", ["passed long"])


async def test_turn_with_more_supersteps_than_its_recursion_limit_fails() -> None:
    async with called("looping") as app:
        assert texts((await app.invoke("20", "t"))["messages"]) == ["round"]
        answer = await app.ask("POST", "/v1/graph/invoke", turn("20", "t", recursion_limit=5))
        assert "5" in error_of(answer, 502)["message"]
        # The limit counts from the message on: it spoils nothing.
        assert texts((await app.invoke("20", "u", recursion_limit=100))["messages"]) == ["round"]
        assert texts((await app.invoke("40", "v"))["messages"]) == ["round"], "the workflow's own where none is given"


async def test_workflow_without_text_input_names_the_runs_route() -> None:
    async with called("parcels") as app:
        error = await app.refused("POST", "/v1/graph/invoke", turn("hi", "t"), status=422)
        assert error["code"] == "wrong_input_type"
        assert "/v1/threads/{thread_id}/runs" in error["message"]
        assert await app.get("/v1/threads") == {"threads": []}


async def test_function_and_agent_workflows_accept_turns() -> None:
    async with called("reviewing") as app:
        assert "a text" in texts((await app.invoke("tides", "t"))["messages"])[0]
    async with called("digest") as app:
        asked = await app.invoke("tides", "t")
        assert asked["meta"]["pending_requests"] == ["title"]
        result = await app.post("/v1/graph/invoke", {"resume": "News", "config": {"thread_id": "t"}})
    assert texts(result["messages"]) == ["News: tides tides"]


async def test_server_without_a_default_workflow_rejects_turns() -> None:
    async with called(workflows={"counting": "counting", "asking": "asking"}) as app:
        error = await app.refused("POST", "/v1/graph/invoke", turn("hi", "t"), status=422)
    assert error["code"] == "no_default_workflow"
