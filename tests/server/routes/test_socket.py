"""`/v1/graph/ws`: turns over one socket, fresh and resumed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.routes.calling import Body, called, is_done, texts, turn
from tests.server.routes.flows import gates, reached


def message_texts(chunks: list[Body]) -> list[str]:
    return [
        texts([chunk["message"]])[0]
        for chunk in chunks
        if chunk["event"] == "message" and not chunk["message"]["delta"]
    ]


def fresh(text: str, thread_id: str = "t") -> Body:
    return {"invoke_type": "fresh", **turn(text, thread_id)}


async def test_one_socket_carries_several_turns() -> None:
    async with called("remembering") as app, app.socket() as socket:
        first = await socket.turn(fresh("one"))
        second = await socket.turn(turn("two", "t"))  # fresh unless it says otherwise
        other = await socket.turn(fresh("three", "other"))
    assert (message_texts(first), message_texts(second), message_texts(other)) == (
        ["heard: one"],
        ["heard: one, two"],
        ["heard: three"],
    )
    for chunks in (first, second, other):
        assert chunks[0]["data"]["status"] == "started"
        assert is_done(chunks[-1])
        assert {chunk["thread_id"] for chunk in chunks} == {chunks[-1]["data"]["thread_id"]}
    assert (first[-1]["data"]["is_new_thread"], second[-1]["data"]["is_new_thread"]) == (True, False)


async def test_thread_with_a_pending_request_resumes_over_the_socket() -> None:
    async with called("asking") as app, app.socket() as socket:
        asked = await socket.turn(fresh("verdict"))
        assert asked[-1]["data"]["pending_requests"] == ["verdict"]
        wrong = await socket.turn({"invoke_type": "resume", "resume": "perhaps", "config": {"thread_id": "t"}})
        assert wrong[0]["event"] == "error" and wrong[0]["data"]["code"] == "answer_rejected"
        answer = {"approved": True, "comment": "by ada"}
        done = await socket.turn({"invoke_type": "resume", "resume": answer, "config": {"thread_id": "t"}})
    assert message_texts(done) == ["Verdict True by ada"]
    assert done[-1]["data"]["state"] == "IDLE"


async def test_thread_paused_over_http_or_a_socket_resumes_over_the_other() -> None:
    async with called("asking") as app:
        await app.invoke("bool colour", "t")
        async with app.socket() as socket:
            frame = {"invoke_type": "resume", "resume": {"bool": True}, "config": {"thread_id": "t"}}
            assert message_texts(await socket.turn(frame)) == ["bool True"]
        result = await app.post("/v1/graph/invoke", {"resume": "red", "config": {"thread_id": "t"}})
    assert texts(result["messages"]) == ["Colour RED"]


@pytest.mark.parametrize(
    "frame",
    [
        "garbage",
        "[]",
        "5",
        "[" * 100_000,
        {"messages": "hi"},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"invoke_type": "stale", **turn("x")},
        {"invoke_type": "resume", **turn("x")},
        {"invoke_type": "fresh", "resume": 1, "config": {"thread_id": "t"}},
        {"invoke_type": "resume", "resume": 1, "config": {"thread_id": "nobody"}},
        {"invoke_type": "resume", "tool_result": {"call_id": "1"}, "config": {"thread_id": "t"}},
        {"invoke_type": "fresh", "messages": []},
        {**turn("x"), "recursion_limit": 0},
        turn("x", "a/b"),
    ],
    ids=lambda frame: str(frame)[:50],
)
async def test_invalid_frame_gets_an_error_and_the_socket_stays_open(frame: Any) -> None:
    async with called("remembering") as app, app.socket() as socket:
        [error] = await socket.turn(frame)
        assert error["event"] == "error"
        assert error["data"]["code"] and error["data"]["message"]
        assert error["data"]["status"] in (404, 422)
        assert message_texts(await socket.turn(fresh("one"))) == ["heard: one"]


async def test_failure_is_sent_and_ends_the_turn() -> None:
    async with called("failing") as app, app.socket() as socket:
        chunks = await socket.turn(fresh("luck"))
        assert [chunk["data"]["message"] for chunk in chunks if chunk["event"] == "error"] == ["no luck today"]
        assert chunks[-1]["data"]["state"] == "FAILED"
        assert is_done((await socket.turn(fresh("luck", "other")))[-1])


async def test_tokens_are_sent_as_they_are_emitted() -> None:
    async with called("talking") as app, app.socket() as socket:
        await socket.send(fresh("gate-ws"))
        while (chunk := await socket.receive())["event"] != "message":
            pass
        assert chunk["message"]["delta"] is True and texts([chunk["message"]]) == ["good "]
        gates["gate-ws"].set()
        while not is_done(chunk):
            chunk = await socket.receive()


async def test_run_continues_after_its_client_disconnects() -> None:
    async with called("waiting") as app:
        async with app.socket() as socket:
            await socket.send(fresh("ws-left"))
            run_id = (await socket.receive())["run_id"]
            await reached["ws-left"].wait()
            gates["ws-left"].set()
        assert (await app.ended("t", run_id))["outputs"] == ["passed ws-left"]


async def test_byte_frames_are_read_like_text_frames() -> None:
    async with called("remembering") as app, app.socket() as socket:
        await socket._from_client.put({"type": "websocket.receive", "bytes": b"\xff\xfe"})
        assert (await socket.receive())["event"] == "error"
        assert message_texts(await socket.turn(fresh("one"))) == ["heard: one"]
