"""The graph, tools and state schema of the default workflow, and how to stop a run."""

from __future__ import annotations

from pathlib import Path

from tests.server.routes.calling import called, error_of
from tests.server.routes.flows import gates, reached


async def test_graph_has_its_nodes_and_edges() -> None:
    async with called("counting") as app:
        graph = await app.get("/v1/graph")
    keys = "node_count edge_count is_realtime checkpointer checkpointer_type publisher store interrupt_before"
    keys += " interrupt_after context_type id_generator id_type state_type state_fields"
    assert set(keys.split()) <= set(graph["info"])
    assert [node["id"] for node in graph["nodes"]] == ["__start__", "count", "shout", "reply", "__end__"]
    assert [(edge["source"], edge["target"]) for edge in graph["edges"]] == [
        ("__start__", "count"),
        ("count", "shout"),
        ("shout", "reply"),
        ("reply", "__end__"),
    ]
    assert len({edge["id"] for edge in graph["edges"]}) == 4
    assert graph["info"]["node_count"] == 5 and graph["info"]["edge_count"] == 4
    assert graph["info"]["checkpointer"] is True
    assert all(node["name"] for node in graph["nodes"])


async def test_tools_of_agents_have_their_parameters() -> None:
    async with called("equipped") as app:
        tools = await app.get("/v1/graph/tools")
    [node] = tools["nodes"]
    [tool] = node["tools"]
    assert node["node"] == "equipped"
    assert (tool["name"], tool["description"], tool["source"]) == ("forecast", "The weather of a place.", "local")
    assert tool["parameters"]["properties"]["place"] == {"type": "string"}
    assert tool["parameters"]["properties"]["days"]["type"] == "integer"
    assert tool["parameters"]["required"] == ["place"], "days has a default"


async def test_workflow_without_agents_has_no_tools() -> None:
    async with called("counting") as app:
        assert await app.get("/v1/graph/tools") == {"nodes": []}


async def test_state_matches_the_state_schema() -> None:
    async with called("counting") as app:
        await app.invoke("a b", "t")
        state = (await app.get("/v1/threads/t/state"))["state"]
        schema = await app.get("/v1/graph:StateSchema")
    assert schema["type"] == "object"
    assert {"context", "context_summary", "execution_meta"} <= set(schema["properties"])
    assert set(schema["properties"]) <= set(state)
    message = schema["$defs"]["Message"]
    assert all(set(message["required"]) <= set(entry) for entry in state["context"])


async def test_stopped_thread_can_continue() -> None:
    async with called("waiting") as app:
        run = await app.run("t", 202, None, input="stop")
        await reached["stop"].wait()
        assert await app.post("/v1/graph/stop", {"thread_id": "t"}) == {"ok": True, "running": True}
        assert (await app.get(f"/v1/threads/t/runs/{run['run_id']}"))["run"]["state"] == "CANCELLED"
        meta = (await app.get("/v1/threads/t/state"))["state"]["execution_meta"]
        assert meta["stop_current_execution"] == "stopped"
        gates["stop"].set()
        assert (await app.run("t"))["outputs"] == ["passed stop"]


async def test_stop_of_an_idle_thread_reports_that_nothing_runs() -> None:
    async with called("remembering") as app:
        await app.invoke("hi", "t")
        result = await app.post("/v1/graph/stop", {"thread_id": "t", "config": {}})
        assert (result["ok"], result["running"]) == (True, False)
        assert result["reason"]
        error_of(await app.ask("POST", "/v1/graph/stop", {"thread_id": "nobody"}), 404)
        error_of(await app.ask("POST", "/v1/graph/stop", {}), 422)


async def test_stop_reaches_a_run_of_another_instance(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'threads.db'}"
    async with called("waiting", checkpointer=url) as first, called("waiting", checkpointer=url) as second:
        run = await first.run("t", 202, None, input="elsewhere")
        await reached["elsewhere"].wait()
        result = await second.post("/v1/graph/stop", {"thread_id": "t"})
        assert result == {"ok": True, "running": True}
        assert (await second.get("/v1/threads/t"))["thread"]["status"] == "CANCELLED"
        assert (await second.get(f"/v1/threads/t/runs/{run['run_id']}"))["run"]["state"] == "CANCELLED"
        gates["elsewhere"].set()
        assert (await second.run("t"))["outputs"] == ["passed elsewhere"]
