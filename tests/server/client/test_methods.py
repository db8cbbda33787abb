"""Each method of both clients, at a real server."""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.server.serving import Server, eventually

from perdure.client import Client, Conflict, Invalid, NotFound, SyncClient, Thread


class Either:
    """Wraps one of the clients, so that a test reads the same for both. It collects generators into lists."""

    def __init__(self, client: Client | SyncClient) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        async def call(*args: Any, **options: Any) -> Any:
            returned = method(*args, **options)
            if inspect.isawaitable(returned):
                return await returned
            if inspect.isasyncgen(returned):
                return [item async for item in returned]
            return list(returned) if inspect.isgenerator(returned) else returned

        return call


@pytest.fixture(params=[Client, SyncClient], ids=["async", "sync"])
async def client(request: pytest.FixtureRequest, server: Server) -> AsyncIterator[Any]:
    made = request.param(server.url)
    yield Either(made)
    await (made.aclose() if isinstance(made, Client) else _closed(made))


async def _closed(made: SyncClient) -> None:
    made.close()


@pytest.fixture
def thread_id() -> str:
    return f"thread {uuid4().hex}"


async def test_client_reads_health_workflows_graph_tools_and_state_schema(client: Any) -> None:
    assert await client.ping() == "pong"
    ready = await client.ready()
    assert ready.is_ready and ready.checks["storage"] == "ok"
    default, other = await client.workflows()
    assert (default.name, default.is_default, other.name) == ("parade", True, "asking")
    assert (await client.workflow("asking")).input_schema == {"type": "string"}
    assert {node["id"] for node in (await client.graph()).nodes} >= {"opening", "middle", "closing"}
    assert await client.tools() == []
    assert "context" in (await client.state_schema())["properties"]


async def test_invoke_returns_the_messages_and_state_of_the_turn(client: Any, thread_id: str) -> None:
    result = await client.invoke("hi", thread_id=thread_id, initial_state={"n": 1}, response_granularity="full")
    assert result.messages[-1].text == "hi is over"
    assert result.text.endswith("hi is over")
    assert (result.thread_id, result.meta.is_new_thread, result.meta.state) == (thread_id, True, "IDLE")
    assert result.state["n"] == 1
    assert result.context[0].text == "hi"
    again = await client.invoke([{"role": "user", "content": "again"}], thread_id=thread_id)
    assert not again.meta.is_new_thread
    new = await client.invoke({"role": "user", "content": "new"})
    assert (await client.thread(new.thread_id)).status == "IDLE"


async def test_threads_are_searched_paged_and_deleted(client: Any) -> None:
    mark = uuid4().hex
    for place in range(3):
        await client.run(f"{mark} {place}", "x", workflow="asking", wait=5)
    threads: list[Thread] = await client.threads(mark, page_size=2)
    assert [thread.thread_id for thread in threads] == [f"{mark} {place}" for place in (2, 1, 0)]
    assert threads[0].status == "IDLE_WITH_PENDING_REQUESTS"
    assert threads[0].updated_at is not None
    await client.delete_thread(f"{mark} 1")
    assert len(await client.threads(mark)) == 2
    with pytest.raises(NotFound):
        await client.thread(f"{mark} 1")


async def test_request_is_listed_and_answered(client: Any, thread_id: str) -> None:
    run = await client.run(thread_id, "boats", workflow="asking", wait=5)
    assert (run.state, run.has_ended) == ("IDLE_WITH_PENDING_REQUESTS", True)
    (request,) = await client.requests(thread_id)
    assert (request.data, request.response_schema) == ("A title for boats?", {"type": "string"})
    assert request.request_id in [pending.request_id for pending in await client.requests()]
    with pytest.raises(Invalid) as raised:
        await client.answer(thread_id, request.request_id, 7)
    assert raised.value.details[0].field == "value"
    ended = await client.answer(thread_id, request.request_id, "Afloat", wait=5)
    assert ended.outputs == ["Afloat, about boats"]
    assert (await client.get_run(thread_id, ended.run_id)).outputs == ended.outputs
    with pytest.raises(Conflict):
        await client.answer(thread_id, request.request_id, "Sunk")


async def test_turn_resumes_with_an_answer(client: Any, thread_id: str) -> None:
    await client.run(thread_id, "boats", workflow="asking", wait=5)
    chunks = await client.stream(resume="Afloat", thread_id=thread_id)
    assert chunks[-1].data["state"] == "IDLE"
    assert [chunk.text for chunk in chunks if chunk.message] == ["Afloat, about boats"]


async def test_client_cancels_a_run_and_stops_a_thread(client: Any, server: Server) -> None:
    for place in range(2):
        text = f"gate {uuid4().hex}"
        run = await client.run(text, text)
        assert run.state in ("IN_PROGRESS", "QUEUED")
        eventually((server.folder / f"{text}.here").exists)
        if place:
            assert (await client.stop(text)).running
        else:
            assert (await client.cancel(text, run.run_id)).was_running
        ended = await client.get_run(text, run.run_id)
        assert ended.state == "CANCELLED"


async def test_state_is_read_merged_patched_and_cleared(client: Any, thread_id: str) -> None:
    await client.invoke("x", thread_id=thread_id)
    merged = await client.update_state(thread_id, {"a": {"b": 1}, "c": None})
    assert merged["a"] == {"b": 1}
    made = await client.patch_state(thread_id, {"d": 2}, remove_state=["a"])
    state = await client.state(thread_id)
    assert "a" not in state and state["d"] == 2
    assert (await client.thread(thread_id)).checkpoint_id == made.checkpoint_id
    await client.clear_state(thread_id)
    assert "d" not in await client.state(thread_id)


async def test_messages_are_listed_in_pages_and_read_by_id(client: Any, thread_id: str) -> None:
    await client.invoke("one", thread_id=thread_id)
    await client.invoke("two", thread_id=thread_id)
    messages = await client.messages(thread_id, page_size=3)
    assert messages == await client.messages(thread_id)
    assert [message.text for message in messages if message.role == "user"] == ["one", "two"]
    assert await client.message(thread_id, messages[1].message_id) == messages[1]
    assert [message.text for message in await client.messages(thread_id, "TWO IS")] == ["two is over"]
    for change in (client.add_messages(thread_id, "x"), client.delete_message(thread_id, "id-1")):
        with pytest.raises(Conflict, match="no conversation"):
            await change


async def test_client_lists_diffs_forks_pins_and_rewinds_checkpoints(client: Any, thread_id: str) -> None:
    await client.invoke("x", thread_id=thread_id)
    history = await client.checkpoints(thread_id, page_size=2)
    assert [checkpoint.number for checkpoint in history] == [4, 3, 2, 1]
    assert [checkpoint.number for checkpoint in await client.checkpoints(thread_id, before=history[1])] == [2, 1]
    then = await client.checkpoint(thread_id, history[2])
    assert then.messages and then.number == 2
    assert "status" in [change.path for change in (await client.diff(thread_id, history[1], history[0])).changes]
    forked = await client.fork(thread_id, history[2], to=f"{thread_id} fork", update_state={"n": 1})
    assert forked.thread_id == f"{thread_id} fork"
    assert (await client.run(forked.thread_id, wait=5)).outputs[-1] == "x is over"
    assert (await client.pin(thread_id, history[3])).is_pinned
    assert not (await client.unpin(thread_id, history[3])).is_pinned
    back = await client.rewind(thread_id, history[0])
    assert back.previous_checkpoint_id == history[0].checkpoint_id


async def test_thread_moves_through_an_exported_file(client: Any, thread_id: str, tmp_path: Path) -> None:
    await client.invoke("x", thread_id=thread_id)
    path = await client.export_thread(thread_id, tmp_path / "thread.jsonl")
    moved = await client.import_thread(path, f"{thread_id} moved")
    assert moved.number == 4
    assert [message.text for message in await client.messages(moved.thread_id)][-1] == "x is over"
    with pytest.raises(Conflict):
        await client.import_thread(path, f"{thread_id} moved")
    with pytest.raises(NotFound):
        await client.export_thread("nobody", tmp_path / "none.jsonl")
    assert os.listdir(tmp_path) == ["thread.jsonl"], "a file of a failed export was left"
