"""Names of threads: given by clients, or made for them."""

from __future__ import annotations

from tests.server.routes.calling import HERE, Called, called, turn


async def name_of(app: Called, thread_id: str = "t") -> str | None:
    name: str | None = (await app.get(f"/v1/threads/{thread_id}"))["thread"]["thread_name"]
    return name


async def test_client_sets_the_name_and_metadata_of_a_thread() -> None:
    async with called("remembering") as app:
        config = {"thread_name": "Tides", "thread_meta": {"topic": "sea"}}
        assert (await app.invoke("one", "t", config=config))["meta"]["thread_name"] == "Tides"
        assert (await app.invoke("two", "t"))["meta"]["thread_name"] == "Tides", "it keeps its name"
        thread = (await app.get("/v1/threads/t"))["thread"]
        assert (thread["thread_name"], thread["metadata"]) == ("Tides", {"topic": "sea"})
        [listed] = (await app.get("/v1/threads"))["threads"]
        assert (listed["thread_name"], listed["metadata"]) == ("Tides", {"topic": "sea"})


async def test_new_thread_gets_a_name_once_however_it_starts() -> None:
    async with called("remembering", thread_name_generator=f"{HERE}:Namer") as app:
        result = await app.invoke("one", "t")
        assert result["meta"]["thread_name"] == "about one | heard: one"
        await app.invoke("two", "t")
        assert await name_of(app) == "about one | heard: one"
        async with app.stream("POST", "/v1/graph/stream", turn("one", "s")) as stream:
            done = (await stream.all())[-1].data["data"]
        assert done["thread_name"] == await name_of(app, "s") == "about one | heard: one"
        async with app.socket() as socket:
            chunks = await socket.turn(turn("one", "w"))
        assert chunks[-1]["data"]["thread_name"] == await name_of(app, "w") == "about one | heard: one"
        own = await app.invoke("one", "u", config={"thread_name": "Mine"})
        assert own["meta"]["thread_name"] == await name_of(app, "u") == "Mine"


async def test_name_generator_can_be_a_function() -> None:
    async with called("remembering", thread_name_generator=f"{HERE}:named") as app:
        assert (await app.invoke("one", "t"))["meta"]["thread_name"] == "about one"


async def test_failed_name_generation_changes_nothing_else() -> None:
    async with called("remembering", thread_name_generator=f"{HERE}:Namer") as app:
        result = await app.invoke("nothing", "t")
        assert result["meta"]["thread_name"] is None
        assert result["messages"]
        assert await name_of(app) is None


async def test_thread_name_or_metadata_of_the_wrong_type_is_rejected() -> None:
    async with called("remembering") as app:
        for config in ({"thread_name": 5}, {"thread_meta": "sea"}):
            error = await app.refused("POST", "/v1/graph/invoke", turn("one", "t", config=config), status=422)
            assert next(iter(config)) in error["details"][0]["field"]
        assert await app.get("/v1/threads") == {"threads": []}


async def test_without_a_generator_threads_have_no_name() -> None:
    async with called("remembering") as app:
        await app.invoke("one", "t")
        assert await name_of(app) is None
