"""Checkpoints, their differences, forks, rewinds and pins."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from tests.server.routes.calling import Body, Called, called, error_of, texts
from tests.server.routes.flows import gates, reached


async def checkpoints(app: Called, thread_id: str = "t", **parameters: Any) -> list[Body]:
    listed: list[Body] = (await app.get(f"/v1/threads/{thread_id}/checkpoints", **parameters))["checkpoints"]
    return listed


async def test_checkpoints_are_listed_newest_first_in_pages() -> None:
    async with called("counting") as app:
        await app.invoke("a b", "t")
        history = await checkpoints(app)
        assert [checkpoint["number"] for checkpoint in history] == [4, 3, 2, 1]
        assert [checkpoint["iteration_count"] for checkpoint in history] == [3, 2, 1, 0]
        for newer, older in pairwise(history):
            assert newer["previous_checkpoint_id"] == older["checkpoint_id"]
        assert {checkpoint["thread_id"] for checkpoint in history} == {"t"}
        first = await checkpoints(app, limit=3)
        rest = await checkpoints(app, limit=3, before=first[-1]["checkpoint_id"])
        assert first + rest == history
        assert await checkpoints(app, before=history[-1]["checkpoint_id"]) == []
        error_of(await app.ask("GET", "/v1/threads/t/checkpoints?before=nothing"), 404)
        error_of(await app.ask("GET", "/v1/threads/t/checkpoints?limit=0"), 422)


async def test_checkpoint_shows_state_messages_outputs_and_pending_requests() -> None:
    async with called("counting", workflows={"asking": "asking"}) as app:
        await app.invoke("a b", "t")
        history = await checkpoints(app)
        middle = (await app.get(f"/v1/threads/t/checkpoints/{history[2]['checkpoint_id']}"))["checkpoint"]
        assert middle["state"] == {"words": 2, "seen": ["a b"]}
        assert [message["target_id"] for message in middle["messages"]] == ["shout"]
        assert middle["outputs"] == [] and middle["pending_requests"] == []
        last = (await app.get(f"/v1/threads/t/checkpoints/{history[0]['checkpoint_id']}"))["checkpoint"]
        assert last["outputs"] == ["A B (2 words)"]
        await app.run("u", input="colour", workflow="asking")
        asked = await checkpoints(app, "u")
        waiting = (await app.get(f"/v1/threads/u/checkpoints/{asked[0]['checkpoint_id']}"))["checkpoint"]
        [request] = waiting["pending_requests"]
        assert (request["request_id"], request["response_type"]) == ("colour", "Colour")
        error_of(await app.ask("GET", f"/v1/threads/u/checkpoints/{history[0]['checkpoint_id']}"), 404)
        error_of(await app.ask("GET", "/v1/threads/t/checkpoints/nothing"), 404)


async def test_diff_shows_the_changes_between_two_checkpoints() -> None:
    async with called("counting") as app:
        await app.invoke("a b", "t")
        newest, _, middle, oldest = (checkpoint["checkpoint_id"] for checkpoint in await checkpoints(app))
        diff = (await app.get(f"/v1/threads/t/checkpoints/{middle}/diff/{newest}"))["diff"]
        assert "loud" in str(diff)
        assert "words" in str((await app.get(f"/v1/threads/t/checkpoints/{oldest}/diff/{middle}"))["diff"])
        await app.invoke("x", "u")
        other = (await checkpoints(app, "u"))[0]["checkpoint_id"]
        assert (await app.get(f"/v1/threads/t/checkpoints/{newest}/diff/{other}"))["diff"], "of another thread"
        error_of(await app.ask("GET", f"/v1/threads/t/checkpoints/{other}/diff/{newest}"), 404)
        error_of(await app.ask("GET", f"/v1/threads/t/checkpoints/{newest}/diff/nothing"), 404)


async def test_fork_is_a_new_thread_that_continues_with_a_changed_state() -> None:
    async with called("counting") as app:
        await app.invoke("a b", "t")
        middle = (await checkpoints(app))[2]["checkpoint_id"]
        body = {"checkpoint_id": middle, "thread_id": "fork", "update_state": {"words": 7}, "remove_state": ["seen"]}
        made = (await app.post("/v1/threads/t/fork", body, 201))["checkpoint"]
        assert made["thread_id"] == "fork"
        assert (await app.run("fork"))["outputs"] == ["A B (7 words)"]
        assert "seen" not in (await app.get("/v1/threads/fork/state"))["state"]
        assert (await app.get("/v1/threads/t/state"))["state"]["words"] == 2, "the thread itself stays as it is"


async def test_fork_of_a_conversation_remembers_only_up_to_its_checkpoint() -> None:
    async with called("remembering") as app:
        for text in ("one", "two"):
            await app.invoke(text, "t")
        after_one = (await checkpoints(app))[2]["checkpoint_id"]
        made = (await app.post("/v1/threads/t/fork", {"checkpoint_id": after_one}, 201))["checkpoint"]
        assert texts((await app.invoke("three", made["thread_id"]))["messages"]) == ["heard: one, three"]
        head = (await app.post("/v1/threads/t/fork", {"thread_id": "head"}, 201))["checkpoint"]
        assert texts((await app.invoke("three", head["thread_id"]))["messages"]) == ["heard: one, two, three"]


async def test_invalid_fork_creates_no_thread() -> None:
    async with called("counting") as app:
        await app.invoke("a b", "t")
        await app.invoke("a b", "u")
        other = (await checkpoints(app, "u"))[0]["checkpoint_id"]
        for body, status in (
            ({"checkpoint_id": other, "thread_id": "new"}, 404),
            ({"checkpoint_id": "nothing", "thread_id": "new"}, 404),
            ({"thread_id": "new", "update_state": {"words": "two"}}, 422),
            ({"thread_id": "new", "remove_state": ["nothing"]}, 422),
            ({"thread_id": "new/slash"}, 422),
            ({"thread_id": "u"}, 409),
        ):
            error_of(await app.ask("POST", "/v1/threads/t/fork", body), status)
        error_of(await app.ask("POST", "/v1/threads/nobody/fork", {}), 404)
        error_of(await app.ask("GET", "/v1/threads/new"), 404)


async def test_rewind_keeps_the_later_checkpoints_as_a_branch() -> None:
    async with called("counting") as app:
        await app.invoke("a b", "t")
        await app.invoke("c", "t")
        before = await checkpoints(app)
        at = before[-4]["checkpoint_id"]  # the end of the first turn
        made = (await app.post("/v1/threads/t/rewind", {"checkpoint_id": at}))["checkpoint"]
        assert made["thread_id"] == "t"
        state = (await app.get("/v1/threads/t/state"))["state"]
        assert state["seen"] == ["a b"]
        assert texts(state["context"]) == ["a b", "A B (2 words)"], "what was said after that is of another branch"
        ids = {checkpoint["checkpoint_id"] for checkpoint in await checkpoints(app)}
        assert {checkpoint["checkpoint_id"] for checkpoint in before} <= ids
        await app.invoke("d", "t")
        assert (await app.get("/v1/threads/t/state"))["state"]["seen"] == ["a b", "d"]


async def test_rewound_conversation_forgets_the_later_messages() -> None:
    async with called("remembering") as app:
        for text in ("one", "two"):
            await app.invoke(text, "t")
        after_one = (await checkpoints(app))[2]["checkpoint_id"]
        await app.post("/v1/threads/t/rewind", {"checkpoint_id": after_one})
        assert texts((await app.get("/v1/threads/t/messages"))["messages"]) == ["one", "heard: one"]
        assert texts((await app.invoke("three", "t"))["messages"]) == ["heard: one, three"]


async def test_invalid_rewind_is_rejected() -> None:
    async with called("waiting") as app:
        gates["rewind-u"].set()
        await app.run("u", input="rewind-u")
        await app.run("t", 202, None, input="rewind")
        await reached["rewind"].wait()
        own, other = (await checkpoints(app))[-1]["checkpoint_id"], (await checkpoints(app, "u"))[-1]["checkpoint_id"]
        assert error_of(await app.ask("POST", "/v1/threads/t/rewind", {"checkpoint_id": own}), 409)["code"] == (
            "thread_busy"
        )
        error_of(await app.ask("POST", "/v1/threads/t/rewind", {"checkpoint_id": other}), 404)
        error_of(await app.ask("POST", "/v1/threads/t/rewind", {"checkpoint_id": "nothing"}), 404)
        error_of(await app.ask("POST", "/v1/threads/t/rewind", {}), 422)
        error_of(await app.ask("POST", "/v1/threads/nobody/rewind", {"checkpoint_id": own}), 404)
        gates["rewind"].set()


async def test_prune_keeps_a_pinned_checkpoint_until_it_is_unpinned() -> None:
    async with called("counting") as app:
        await app.invoke("a b", "t")
        middle = (await checkpoints(app))[2]["checkpoint_id"]
        pinned = (await app.post("/v1/threads/t/pin", {"checkpoint_id": middle}))["checkpoint"]
        assert (pinned["checkpoint_id"], pinned["is_pinned"]) == (middle, True)
        await app.service.storage.prune(keep_last=1)
        assert middle in [checkpoint["checkpoint_id"] for checkpoint in await checkpoints(app)]
        result = await app.post("/v1/threads/t/pin", {"checkpoint_id": middle, "is_pinned": False})
        assert result["checkpoint"]["is_pinned"] is False
        await app.service.storage.prune(keep_last=1)
        assert middle not in [checkpoint["checkpoint_id"] for checkpoint in await checkpoints(app)]
        head = (await app.post("/v1/threads/t/pin", {}))["checkpoint"]
        assert head["checkpoint_id"] == (await app.get("/v1/threads/t"))["thread"]["checkpoint_id"]
        error_of(await app.ask("POST", "/v1/threads/t/pin", {"checkpoint_id": middle}), 404)
        error_of(await app.ask("POST", "/v1/threads/nobody/pin", {}), 404)
