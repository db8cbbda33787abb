"""`/v1/threads/{id}/messages`: list, add and delete the messages of a conversation."""

from __future__ import annotations

from tests.server.routes.calling import Body, Called, called, conflict_of, error_of, texts


async def message_texts(app: Called, thread_id: str = "t", **parameters: object) -> list[str]:
    return texts((await app.get(f"/v1/threads/{thread_id}/messages", **parameters))["messages"])


async def test_messages_are_listed_oldest_first_in_pages() -> None:
    async with called("remembering") as app:
        for text in ("one", "two"):
            await app.invoke(text, "t")
        assert await message_texts(app) == ["one", "heard: one", "two", "heard: one, two"]
        assert await message_texts(app, limit=2) == ["one", "heard: one"]
        assert await message_texts(app, offset=1, limit=2) == ["heard: one", "two"]
        assert await message_texts(app, offset=9) == []


async def test_a_search_finds_messages_by_their_text() -> None:
    async with called("remembering") as app:
        for text in ("One", "two"):
            await app.invoke(text, "t")
        assert await message_texts(app, search="oNE") == ["One", "heard: One", "heard: One, two"]
        assert await message_texts(app, search="one", offset=1, limit=1) == ["heard: One"]
        assert await message_texts(app, search="three") == []


async def test_conversation_without_agents_is_the_inputs_and_outputs() -> None:
    async with called("counting") as app:
        for text in ("a b", "c"):
            await app.invoke(text, "t")
        messages = (await app.get("/v1/threads/t/messages"))["messages"]
        assert texts(messages) == ["a b", "A B (2 words)", "c", "C (1 words)"]
        assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant"]
        assert len({message["message_id"] for message in messages}) == 4
        message = (await app.get(f"/v1/threads/t/messages/{messages[2]['message_id']}"))["message"]
        assert message == messages[2]
        body = {"messages": [{"content": "x"}]}
        conflict_of(await app.ask("POST", "/v1/threads/t/messages", body))
        conflict_of(await app.ask("DELETE", f"/v1/threads/t/messages/{messages[0]['message_id']}"))


async def test_agent_sees_messages_that_were_added_without_a_turn() -> None:
    async with called("remembering") as app:
        await app.invoke("one", "t")
        body = {"messages": [{"role": "user", "content": "noted"}, {"role": "assistant", "content": "so it is"}]}
        result = await app.post("/v1/threads/t/messages", {**body, "metadata": {"by": "import"}, "config": {}})
        assert result["success"] is True
        assert await message_texts(app) == ["one", "heard: one", "noted", "so it is"]
        listed = (await app.get("/v1/threads/t/messages"))["messages"]
        assert [message["message_id"] for message in listed[2:]] == result["data"]
        assert texts((await app.invoke("two", "t"))["messages"]) == ["heard: one, noted, two"]


async def test_metadata_for_all_messages_is_stored_with_each() -> None:
    async with called("remembering") as app:
        await app.invoke("one", "t")
        body = {"messages": [{"content": "noted", "metadata": {"own": 1}}], "metadata": {"by": "import"}}
        [message_id] = (await app.post("/v1/threads/t/messages", body))["data"]
        message = (await app.get(f"/v1/threads/t/messages/{message_id}"))["message"]
    assert message["metadata"] == {"by": "import", "own": 1}


async def test_invalid_messages_are_rejected_and_change_nothing() -> None:
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
        assert await message_texts(app) == ["one", "heard: one"]


async def test_message_replaces_the_message_with_the_same_id() -> None:
    async with called("remembering") as app:
        await app.invoke("one", "t")
        await app.post("/v1/threads/t/messages", {"messages": [{"content": "first", "message_id": "x"}]})
        await app.post("/v1/threads/t/messages", {"messages": [{"content": "mended", "message_id": "x"}]})
        listed = (await app.get("/v1/threads/t/messages"))["messages"]
    assert texts(listed) == ["one", "heard: one", "mended"], "reducer add_messages: dedupe by id"


async def test_agent_forgets_a_deleted_message_and_the_others_keep_their_ids() -> None:
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
        for message in after:
            assert (await app.get(f"/v1/threads/t/messages/{message['message_id']}"))["message"] == message
        assert texts((await app.invoke("four", "t"))["messages"]) == ["heard: one, three, four"]
        grown = (await app.get("/v1/threads/t/messages"))["messages"]
        assert grown[: len(after)] == after
        assert len({message["message_id"] for message in grown}) == len(grown)
