"""`/v1/workflows`: the workflows, their schemas and their drawings."""

from __future__ import annotations

from xml.etree import ElementTree

from tests.server.routes.calling import called, error_of


async def test_workflows_are_listed_by_the_name_that_clients_use() -> None:
    async with called(
        "remembering", workflows={"count it": "counting", "digest": "digest", "team": "reviewing"}
    ) as app:
        by_name = {entry["name"]: entry for entry in (await app.get("/v1/workflows"))["workflows"]}
        assert set(by_name) == {"rememberer", "count it", "digest", "team"}
        assert [name for name, entry in by_name.items() if entry["is_default"]] == ["rememberer"]
        assert by_name["count it"]["workflow_name"] == "counting"
        assert by_name["count it"]["executors"] == ["count", "shout", "reply"]
        assert by_name["count it"]["start"] == "count"
        details = (await app.get("/v1/workflows/count%20it"))["workflow"]
        assert {key: details[key] for key in by_name["count it"]} == by_name["count it"]


async def test_workflow_has_the_schemas_of_its_input_and_output() -> None:
    async with called("counting", workflows={"parcels": "parcels"}) as app:
        text = (await app.get("/v1/workflows/counting"))["workflow"]
        assert (text["input_schema"], text["output_schema"]) == ({"type": "string"}, {"type": "string"})
        parcels = (await app.get("/v1/workflows/parcels"))["workflow"]
        shape = parcels["input_schema"]["$defs"]["Parcel"]
        assert shape["properties"] == {"weight": {"type": "number"}, "to": {"type": "string"}}
        assert shape["required"] == ["weight", "to"]
        assert "weigh" in parcels["mermaid"]
        error_of(await app.ask("GET", "/v1/workflows/nobody"), 404)


async def test_workflow_graph_is_drawn_as_svg() -> None:
    async with called("counting") as app:
        answer = await app.ask("GET", "/v1/workflows/counting/graph.svg")
        assert answer.headers["content-type"].startswith("image/svg+xml")
        drawing = ElementTree.fromstring(answer.text)
        assert drawing.tag.endswith("svg")
        assert "shout" in answer.text and "<script" not in answer.text
        error_of(await app.ask("GET", "/v1/workflows/nobody/graph.svg"), 404)
