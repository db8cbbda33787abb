"""`/v1/threads/{id}/state`: read, merged into, cleared and edited."""

from __future__ import annotations

from typing import Any

from tests.server.routes.calling import Body, Called, called, conflict_of, error_of, texts
from tests.server.routes.flows import gates, reached


async def state(app: Called, thread_id: str = "t") -> Any:
    return (await app.get(f"/v1/threads/{thread_id}/state"))["state"]


async def test_state_has_the_conversation_the_position_and_the_shared_state() -> None:
    async with called("counting") as app:
        await app.invoke("a b", "t")
        current = await state(app)
    assert set(current) == {"context", "context_summary", "execution_meta", "words", "seen", "loud"}
    assert current["loud"] == {"text": "A B", "times": 1}
    assert texts(current["context"]) == ["a b", "A B (2 words)"]
    meta = current["execution_meta"]
    keys = "current_node step status interrupted_node interrupt_reason interrupt_data thread_id"
    assert set(keys.split()) | {"stop_current_execution", "internal_data"} == set(meta)
    assert (meta["thread_id"], meta["status"], meta["step"]) == ("t", "completed", 3)


async def test_state_of_a_running_thread_has_the_status_running() -> None:
    async with called("waiting") as app:
        await app.run("t", 202, None, input="state-runs")
        await reached["state-runs"].wait()
        meta = (await state(app))["execution_meta"]
        conflict_of(await app.ask("PUT", "/v1/threads/t/state", {"state": {"begun": "x"}}))
        conflict_of(await app.ask("DELETE", "/v1/threads/t/state"))
        gates["state-runs"].set()
    assert (meta["status"], meta["current_node"]) == ("running", "wait")


async def test_put_merges_the_state_and_ignores_null() -> None:
    async with called("counting") as app:
        await app.invoke("a b", "t")
        update = {"loud": {"times": 2, "new": {"deep": [1]}}, "seen": ["x"], "words": None, "extra": "yes"}
        result = (await app.send("PUT", "/v1/threads/t/state", {"state": update, "config": {}}))["state"]
        assert result == await state(app)
        assert result["loud"] == {"text": "A B", "times": 2, "new": {"deep": [1]}}
        assert (result["words"], result["seen"], result["extra"]) == (2, ["x"], "yes")
        deeper = {"loud": {"new": {"more": 1, "deep": None}}}
        result = (await app.send("PUT", "/v1/threads/t/state", {"state": deeper}))["state"]
        assert result["loud"]["new"] == {"deep": [1], "more": 1}
        assert texts((await app.invoke("c", "t"))["messages"]) == ["C (1 words)"]
        assert (await state(app))["seen"] == ["x", "c"], "the run continues from the updated state"


async def test_put_cannot_change_the_position_of_the_thread() -> None:
    async with called("counting") as app:
        await app.invoke("a b", "t")
        before = (await state(app))["execution_meta"]
        forged = {"execution_meta": {"status": "running", "thread_id": "other", "step": 0}}
        result = (await app.send("PUT", "/v1/threads/t/state", {"state": forged}))["state"]
        assert result["execution_meta"] == before
        assert (await app.get("/v1/threads/t"))["thread"]["status"] == "IDLE"


async def test_put_context_is_appended_to_the_conversation() -> None:
    async with called("remembering") as app:
        await app.invoke("one", "t")
        update = {"context": [{"role": "user", "content": "told"}], "topic": "tides", "context_summary": "short"}
        result = (await app.send("PUT", "/v1/threads/t/state", {"state": update}))["state"]
        assert texts(result["context"]) == ["one", "heard: one", "told"]
        assert (result["topic"], result["context_summary"]) == ("tides", "short")
        assert texts((await app.invoke("two", "t"))["messages"]) == ["heard: one, told, two"]


async def test_put_of_the_state_as_read_does_not_change_the_conversation() -> None:
    """A client that edits one field puts back the whole state that it has read."""
    async with called("remembering") as app:
        await app.invoke("one", "t")
        before = await state(app)
        after = (await app.send("PUT", "/v1/threads/t/state", {"state": {**before, "topic": "tides"}}))["state"]
    assert after.pop("topic") == "tides"
    assert texts(after["context"]) == texts(before["context"])


async def test_invalid_put_changes_nothing() -> None:
    async with called("counting") as app:
        await app.invoke("a b", "t")
        before = await state(app)
        error = await app.refused("PUT", "/v1/threads/t/state", {"state": {"words": "two", "extra": 1}}, status=422)
        assert error["code"] == "wrong_state_type"
        assert "state.words" in error["details"][0]["field"]
        wrong: list[Body] = [{}, {"state": []}, {"state": {"context": "x"}}, {"state": {"context": [{"role": "tool"}]}}]
        for body in wrong:
            error_of(await app.ask("PUT", "/v1/threads/t/state", body), 422)
        conflict_of(await app.ask("PUT", "/v1/threads/t/state", {"state": {"context": [{"content": "x"}]}}))
        error_of(await app.ask("PUT", "/v1/threads/nobody/state", {"state": {"a": 1}}), 404)
        assert await state(app) == before


async def test_cleared_state_is_gone_and_the_agent_does_not_remember_it() -> None:
    async with called("remembering") as app:
        await app.invoke("one", "t", initial_state={"topic": "tides"})
        result = await app.send("DELETE", "/v1/threads/t/state", {"config": {}})
        assert result["success"] is True
        for _ in range(2):  # nothing brings it back
            current = await state(app)
            assert current["context"] == []
            assert "topic" not in current
        assert (await app.get("/v1/threads/t/messages"))["messages"] == []
        assert texts((await app.invoke("two", "t"))["messages"]) == ["heard: two"]
        assert len((await app.get("/v1/threads/t/checkpoints"))["checkpoints"]) > 2, "the history stays"


async def test_cleared_state_without_agents_has_no_conversation() -> None:
    async with called("counting") as app:
        await app.invoke("a b", "t")
        await app.send("DELETE", "/v1/threads/t/state")
        current = await state(app)
        assert current["context"] == []
        assert "words" not in current
        await app.invoke("c", "t")
        assert texts((await state(app))["context"]) == ["c", "C (1 words)"]


async def test_cleared_thread_has_no_pending_requests() -> None:
    async with called("asking") as app:
        await app.invoke("bool", "t")
        await app.send("DELETE", "/v1/threads/t/state")
        assert (await app.get("/v1/requests"))["requests"] == []
        assert (await app.get("/v1/threads/t"))["thread"]["status"] == "IDLE"
        conflict_of(await app.ask("POST", "/v1/graph/invoke", {"resume": True, "config": {"thread_id": "t"}}))
        error_of(await app.ask("DELETE", "/v1/threads/nobody/state"), 404)


async def test_keys_outside_the_shared_state_cannot_be_patched() -> None:
    async with called("remembering") as app:
        await app.invoke("one", "t")
        before = await state(app)
        for key in ("context", "execution_meta"):
            for method, path in (("PATCH", "/v1/threads/t/state"), ("POST", "/v1/threads/t/fork")):
                body = {"update_state": {key: {"status": "running"}}}
                error = await app.refused(method, path, body, status=422)
                assert key in error["details"][0]["field"]
        assert await state(app) == before
        assert len((await app.get("/v1/threads"))["threads"]) == 1


async def test_patch_changes_and_removes_keys_as_the_next_checkpoint() -> None:
    async with called("counting") as app:
        await app.invoke("a b", "t")
        before = (await app.get("/v1/threads/t"))["thread"]
        body = {"update_state": {"seen": ["y"], "new": 1}, "remove_state": ["loud"]}
        made = (await app.send("PATCH", "/v1/threads/t/state", body))["checkpoint"]
        assert made["previous_checkpoint_id"] == before["checkpoint_id"]
        assert made["number"] == before["number"] + 1
        current = await state(app)
        assert (current["seen"], current["new"], "loud" in current) == (["y"], 1, False)
        wrong = await app.refused("PATCH", "/v1/threads/t/state", {"update_state": {"seen": 5}}, status=422)
        assert wrong["code"] == "wrong_state_type"
        assert wrong["message"].endswith("Nothing was written.") or "Nothing" in wrong["message"]
        error_of(await app.ask("PATCH", "/v1/threads/t/state", {"update_state": []}), 422)
        error_of(await app.ask("PATCH", "/v1/threads/nobody/state", {"update_state": {}}), 404)
        assert (await app.get("/v1/threads/t"))["thread"]["checkpoint_id"] == made["checkpoint_id"]
