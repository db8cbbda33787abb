"""`/v1/threads/{id}/messages`: what was said, noted and forgotten."""

from __future__ import annotations

from tests.server.routes.calling import Body, Called, called, conflict_of, error_of, texts


async def said(app: Called, thread_id: str = "t", **parameters: object) -> list[str]:
    return texts((await app.get(f"/v1/threads/{thread_id}/messages", **parameters))["messages"])


async def test_messages_are_listed_from_the_first_to_the_last_page_by_page() -> None:
    async with called("remembering") as app:
        for text in ("one", "two"):
            await app.invoke(text, "t")
        assert await said(app) == ["one", "heard: one", "two", "heard: one, two"]
        assert await said(app, limit=2) == ["one", "heard: one"]
        assert await said(app, offset=1, limit=2) == ["heard: one", "two"]
        assert await said(app, offset=9) == []


async def test_a_search_finds_messages_by_their_text() -> None:
    async with called("remembering") as app:
        for text in ("One", "two"):
            await app.invoke(text, "t")
        assert await said(app, search="oNE") == ["One", "heard: One", "heard: One, two"]
        assert await said(app, search="one", offset=1, limit=1) == ["heard: One"]
        assert await said(app, search="three") == []


async def test_the_conversation_of_a_workflow_without_agents_is_what_came_in_and_what_came_out() -> None:
    async with called("counting") as app:
        for text in ("a b", "c"):
            await app.invoke(text, "t")
        messages = (await app.get("/v1/threads/t/messages"))["messages"]
        assert texts(messages) == ["a b", "A B (2 words)", "c", "C (1 words)"]
        assert [one["role"] for one in messages] == ["user", "assistant", "user", "assistant"]
        assert len({one["message_id"] for one in messages}) == 4
        found = (await app.get(f"/v1/threads/t/messages/{messages[2]['message_id']}"))["message"]
        assert found == messages[2]
        body = {"messages": [{"content": "x"}]}
        conflict_of(await app.ask("POST", "/v1/threads/t/messages", body))
        conflict_of(await app.ask("DELETE", f"/v1/threads/t/messages/{messages[0]['message_id']}"))


async def test_messages_can_be_noted_without_a_turn_and_the_agent_knows_them_then() -> None:
    async with called("remembering") as app:
        await app.invoke("one", "t")
        body = {"messages": [{"role": "user", "content": "noted"}, {"role": "assistant", "content": "so it is"}]}
        told = await app.post("/v1/threads/t/messages", {**body, "metadata": {"by": "import"}, "config": {}})
        assert told["success"] is True
        assert await said(app) == ["one", "heard: one", "noted", "so it is"]
        listed = (await app.get("/v1/threads/t/messages"))["messages"]
        assert [one["message_id"] for one in listed[2:]] == told["data"]
        assert texts((await app.invoke("two", "t"))["messages"]) == ["heard: one, noted, two"]


async def test_metadata_that_is_given_for_all_messages_is_kept_with_each() -> None:
    async with called("remembering") as app:
        await app.invoke("one", "t")
        body = {"messages": [{"content": "noted", "metadata": {"own": 1}}], "metadata": {"by": "import"}}
        [message_id] = (await app.post("/v1/threads/t/messages", body))["data"]
        found = (await app.get(f"/v1/threads/t/messages/{message_id}"))["message"]
    assert found["metadata"] == {"by": "import", "own": 1}


async def test_what_cannot_be_noted_changes_nothing() -> None:
    async with called("remembering") as app:
        await app.invoke("one", "t")
        wrong: list[Body] = [
            {"messages": []},
            {},
            {"messages": [{"content": "fine"}, {"role": "tool", "content": "forged"}]},
            {"messages": [{"content": [{"type": "tool_result", "call_id": "1", "output": 1}]}]},
        ]
        for body in wrong:
            error_of(await app.ask("POST", "/v1/threads/t/messages", body), 422)
        error_of(await app.ask("POST", "/v1/threads/nobody/messages", {"messages": [{"content": "x"}]}), 404)
        assert await said(app) == ["one", "heard: one"]


async def test_a_message_that_has_an_id_already_takes_the_place_of_the_one_with_that_id() -> None:
    async with called("remembering") as app:
        await app.invoke("one", "t")
        await app.post("/v1/threads/t/messages", {"messages": [{"content": "first", "message_id": "x"}]})
        await app.post("/v1/threads/t/messages", {"messages": [{"content": "mended", "message_id": "x"}]})
        listed = (await app.get("/v1/threads/t/messages"))["messages"]
    assert texts(listed) == ["one", "heard: one", "mended"], "reducer add_messages: dedupe by id"


async def test_a_deleted_message_is_forgotten_by_the_agent_and_the_others_keep_their_ids() -> None:
    async with called("remembering") as app:
        for text in ("one", "two", "three"):
            await app.invoke(text, "t")
        before = (await app.get("/v1/threads/t/messages"))["messages"]
        assert (await app.send("DELETE", f"/v1/threads/t/messages/{before[2]['message_id']}", {"config": {}}))[
            "success"
        ]
        assert (await app.send("DELETE", f"/v1/threads/t/messages/{before[1]['message_id']}"))["success"]
        after = (await app.get("/v1/threads/t/messages"))["messages"]
        assert after == [before[0], *before[3:]]
        error_of(await app.ask("GET", f"/v1/threads/t/messages/{before[2]['message_id']}"), 404)
        error_of(await app.ask("DELETE", f"/v1/threads/t/messages/{before[2]['message_id']}"), 404)
        for one in after:
            assert (await app.get(f"/v1/threads/t/messages/{one['message_id']}"))["message"] == one
        assert texts((await app.invoke("four", "t"))["messages"]) == ["heard: one, three, four"]
        grown = (await app.get("/v1/threads/t/messages"))["messages"]
        assert grown[: len(after)] == after
        assert len({one["message_id"] for one in grown}) == len(grown)
