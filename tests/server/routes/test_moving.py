"""A thread moved: out as a file, and in again."""

from __future__ import annotations

import httpx
from tests.server.routes.calling import Called, called, data_of, error_of, texts


async def exported(app: Called, thread_id: str = "t") -> bytes:
    answer = await app.ask("POST", f"/v1/threads/{thread_id}/export")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert "attachment" in answer.headers["content-disposition"]
    return answer.content


async def imported(app: Called, content: bytes, parameters: str = "") -> httpx.Response:
    return await app.ask("POST", f"/v1/threads/import{parameters}", content=content)


async def test_thread_moves_to_another_server_with_conversation_and_history() -> None:
    async with called("remembering") as first, called("remembering") as second:
        for text in ("one", "two"):
            await first.invoke(text, "t")
        file = await exported(first)
        thread = data_of(await imported(second, file, "?thread_id=moved"), 201)["thread"]
        assert thread["thread_id"] == "moved"
        history = [
            (await app.get(f"/v1/threads/{name}/checkpoints"))["checkpoints"]
            for app, name in ((first, "t"), (second, "moved"))
        ]
        assert [len(entries) for entries in history] == [4, 4]
        assert texts((await second.invoke("three", "moved"))["messages"]) == ["heard: one, two, three"]
        assert texts((await first.invoke("four", "t"))["messages"]) == ["heard: one, two, four"]


async def test_imported_thread_gets_a_new_id_and_keeps_its_pending_request() -> None:
    async with called("asking") as first, called("asking") as second:
        await first.invoke("bool", "t")
        new_id = data_of(await imported(second, await exported(first)), 201)["thread"]["thread_id"]
        assert new_id != "t"
        run = (await second.post(f"/v1/threads/{new_id}/requests/bool/answer", {"value": True}, wait=10))["run"]
    assert run["outputs"] == ["bool True"]


async def test_import_does_not_overwrite_an_existing_thread() -> None:
    async with called("remembering") as app:
        await app.invoke("one", "t")
        file = await exported(app)
        await app.invoke("two", "t")
        assert error_of(await imported(app, file, "?thread_id=t"), 409)["code"] == "thread_exists"
        assert texts((await app.get("/v1/threads/t/messages"))["messages"])[2:] == ["two", "heard: one, two"]


async def test_damaged_file_is_rejected_and_nothing_of_it_is_stored() -> None:
    async with called("remembering") as app:
        await app.invoke("one", "t")
        file = await exported(app)
        middle = len(file) // 2
        for damaged in (b"", b"{}", b"no file", file[:middle], file[:middle] + b"x" + file[middle:], b"\xff" * 100):
            error = error_of(await imported(app, damaged, "?thread_id=new"), 422)
            assert error["code"], damaged[:20]
            error_of(await app.ask("GET", "/v1/threads/new"), 404)
        error_of(await imported(app, file, "?thread_id=a/b"), 422)


async def test_file_that_is_too_large_is_rejected() -> None:
    async with called("remembering", limits={"max_request_bytes": 1000}) as app:
        error = error_of(await imported(app, b"x" * 1001, "?thread_id=new"), 413)
    assert error["code"] == "body_too_large"
