"""`/v1/threads`: list, search and delete threads."""

from __future__ import annotations

from tests.server.routes.calling import Called, called, conflict_of, error_of, texts
from tests.server.routes.flows import gates, reached


async def ids(app: Called, **parameters: object) -> list[str]:
    return [thread["thread_id"] for thread in (await app.get("/v1/threads", **parameters))["threads"]]


async def test_thread_has_the_fields_of_agentflow_and_its_status() -> None:
    async with called("asking") as app:
        await app.invoke("bool", "t")
        [listed] = (await app.get("/v1/threads"))["threads"]
        thread = (await app.get("/v1/threads/t"))["thread"]
    assert listed == thread
    assert {"thread_id", "thread_name", "user_id", "metadata", "updated_at", "run_id"} <= set(thread)
    assert (thread["thread_id"], thread["workflow_name"]) == ("t", "asking")
    assert thread["status"] == "IDLE_WITH_PENDING_REQUESTS"


async def test_threads_are_listed_newest_first_in_pages() -> None:
    async with called("remembering") as app:
        assert await ids(app) == []
        for number in range(5):
            await app.invoke("hi", f"t{number}")
        await app.invoke("again", "t1")
        assert await ids(app) == ["t1", "t4", "t3", "t2", "t0"]
        assert await ids(app, limit=2) == ["t1", "t4"]
        assert await ids(app, limit=2, offset=2) == ["t3", "t2"]
        assert await ids(app, limit=2, offset=4) == ["t0"]
        assert await ids(app, offset=5) == []


async def test_a_search_finds_threads_by_id_name_and_workflow_with_paging() -> None:
    async with called("remembering", workflows={"counting": "counting"}) as app:
        for name in ("apple", "pineapple", "pear"):
            await app.invoke("hi", name)
        await app.run("plum", input="a b", workflow="counting")
        await app.invoke("hi", "cherry", config={"thread_name": "About Apples"})
        assert await ids(app, search="APPLE") == ["cherry", "pineapple", "apple"]
        assert await ids(app, search="apple", limit=1, offset=1) == ["pineapple"]
        assert await ids(app, search="counting") == ["plum"]
        assert await ids(app, search="nothing") == []
        assert await ids(app, search="%") == []


async def test_deleted_thread_is_gone_with_its_messages() -> None:
    async with called("remembering") as app:
        await app.invoke("one", "t")
        await app.invoke("one", "other")
        result = await app.send("DELETE", "/v1/threads/t", {"config": {}})
        assert set(result) == {"success", "message", "data"} and result["success"] is True
        assert await ids(app) == ["other"]
        error_of(await app.ask("GET", "/v1/threads/t/messages"), 404)
        error_of(await app.ask("DELETE", "/v1/threads/t"), 404)
        again = await app.invoke("two", "t")
    assert texts(again["messages"]) == ["heard: two"]
    assert again["meta"]["is_new_thread"] is True


async def test_running_thread_cannot_be_deleted() -> None:
    async with called("waiting") as app:
        run = await app.run("t", 202, None, input="deleted")
        await reached["deleted"].wait()
        conflict_of(await app.ask("DELETE", "/v1/threads/t"))
        gates["deleted"].set()
        assert (await app.ended("t", run["run_id"]))["outputs"] == ["passed deleted"]


async def test_thread_of_an_unserved_workflow_can_be_read_but_not_run(tmp_path: object) -> None:
    url = f"sqlite:{tmp_path}/threads.db"
    async with called("counting", checkpointer=url) as app:
        await app.invoke("a b", "t")
    async with called("remembering", checkpointer=url) as app:
        assert (await app.get("/v1/threads/t"))["thread"]["workflow_name"] == "counting"
        checkpoints = (await app.get("/v1/threads/t/checkpoints"))["checkpoints"]
        shown = (await app.get(f"/v1/threads/t/checkpoints/{checkpoints[0]['checkpoint_id']}"))["checkpoint"]
        assert shown["state"]["words"] == 2
        assert error_of(await app.ask("POST", "/v1/threads/t/runs", {"input": "x"}), 409)["code"] == (
            "workflow_not_served"
        )
        conflict_of(
            await app.ask("POST", "/v1/graph/invoke", {"messages": [{"content": "x"}], "config": {"thread_id": "t"}})
        )
