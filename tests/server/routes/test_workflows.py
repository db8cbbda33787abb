"""`/v1/workflows`: what can run, its schema and its drawing."""

from __future__ import annotations

from xml.etree import ElementTree

from tests.server.routes.calling import called, error_of


async def test_all_that_can_run_is_listed_by_the_name_that_clients_use() -> None:
    async with called(
        "remembering", workflows={"count it": "counting", "digest": "digest", "team": "reviewing"}
    ) as app:
        found = {one["name"]: one for one in (await app.get("/v1/workflows"))["workflows"]}
        assert set(found) == {"rememberer", "count it", "digest", "team"}
        assert [name for name, one in found.items() if one["is_default"]] == ["rememberer"]
        assert found["count it"]["workflow_name"] == "counting"
        assert found["count it"]["executors"] == ["count", "shout", "reply"]
        assert found["count it"]["start"] == "count"
        told = (await app.get("/v1/workflows/count%20it"))["workflow"]
        assert {key: told[key] for key in found["count it"]} == found["count it"]


async def test_a_workflow_tells_the_schema_of_its_input_and_its_output() -> None:
    async with called("counting", workflows={"parcels": "parcels"}) as app:
        text = (await app.get("/v1/workflows/counting"))["workflow"]
        assert (text["input_schema"], text["output_schema"]) == ({"type": "string"}, {"type": "string"})
        parcels = (await app.get("/v1/workflows/parcels"))["workflow"]
        shape = parcels["input_schema"]["$defs"]["Parcel"]
        assert shape["properties"] == {"weight": {"type": "number"}, "to": {"type": "string"}}
        assert shape["required"] == ["weight", "to"]
        assert "weigh" in parcels["mermaid"]
        error_of(await app.ask("GET", "/v1/workflows/nobody"), 404)


async def test_a_workflow_is_drawn() -> None:
    async with called("counting") as app:
        answer = await app.ask("GET", "/v1/workflows/counting/graph.svg")
        assert answer.headers["content-type"].startswith("image/svg+xml")
        drawing = ElementTree.fromstring(answer.text)
        assert drawing.tag.endswith("svg")
        assert "shout" in answer.text and "<script" not in answer.text
        error_of(await app.ask("GET", "/v1/workflows/nobody/graph.svg"), 404)
