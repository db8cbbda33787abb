"""One user never sees, answers, forks or deletes another's thread: every route of the route table is tried."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from urllib.parse import quote

import httpx
import pytest
from tests.server.hostile.in_process import app_of, bearer, client_of, talk
from tests.server.hostile.owners import Owner, done
from tests.server.hostile.table import TABLE, Call, Ids, path_of, routes_of, sent_by

from perdure.server import ServerApp

ALIKE = [
    ("alice", "al"),
    ("a", "a/b"),
    ("a/b", "a"),
    ("a%2Fb", "a/b"),
    ("..", "."),
    ("café", "cafe\u0301"),
    ("%", "%25"),
]
"""Pairs of user ids that look alike: the owner of the thread, and another user."""


@pytest.fixture
async def app() -> AsyncIterator[ServerApp]:
    async with app_of() as made:
        yield made


async def called(client: httpx.AsyncClient, key: str, call: Call, ids: Ids) -> httpx.Response:
    return await client.request(key.split(maxsplit=1)[0], path_of(key, call, ids), **sent_by(call, ids))


async def test_no_route_reads_or_changes_the_thread_of_another_user(app: ServerApp) -> None:
    assert set(routes_of(app)) - set(TABLE) == set(), "a route without an entry in the table"
    owner = Owner(app, "alice")
    await owner.settle()
    before = await owner.stored()
    await try_all(app, owner, owner.chat, "bob")
    await try_all(app, owner, owner.asking, "bob")
    assert await owner.stored() == before
    await owner.leave()


async def test_users_with_similar_ids_are_separate(app: ServerApp) -> None:
    for number, (owner_id, other_id) in enumerate(ALIKE):
        owner = Owner(app, owner_id)
        await owner.settle(*(f"{kind}-{number}" for kind in ("chat", "asking", "running")))
        before = await owner.stored()
        await try_all(app, owner, owner.chat, other_id)
        assert await owner.stored() == before
        await owner.leave()


async def try_all(app: ServerApp, owner: Owner, ids: Ids, other_id: str) -> None:
    """Calls each route of the table as the other user, with these ids of the owner."""
    for key, calls in TABLE.items():
        for call in calls:
            if key.startswith("WS "):
                received = json.dumps(await talk(app, [sent_by(call, ids)["json"]], bearer(other_id)))
                assert '"done"' in received
                assert owner.mark not in received
            else:
                foreign = ids._replace(file="no file") if call.content else ids
                async with client_of(app, other_id) as other:
                    answer = await called(other, key, call, foreign)
                assert_nothing_of(owner, answer, key)
                if call.outcome == "missing":
                    assert answer.status_code == 404, (key, call, answer.status_code, answer.text)
            if call.outcome == "own":
                await forget(app, other_id, ids.thread)


async def forget(app: ServerApp, user_id: str, thread_id: str) -> None:
    """Deletes the thread that a route made for this user, so that the next route does not find it."""
    async with client_of(app, user_id) as client:
        assert (await client.delete(f"/v1/threads/{thread_id}")).status_code in (200, 404)


def assert_nothing_of(owner: Owner, answer: httpx.Response, key: str) -> None:
    seen = f"{answer.headers} {answer.text}"
    assert owner.mark not in seen, key
    assert f"{quote(owner.user_id, safe='')}/{owner.chat.thread}" not in seen, key


def names(key: str, call: Call, part: str) -> bool:
    return f"{{{part}_id:str}}" in key or f"{{{part}}}" in f"{call.body}{call.query}"


async def test_ids_of_another_users_thread_are_unknown_in_a_thread_of_that_name(app: ServerApp) -> None:
    owner, other = Owner(app, "alice"), Owner(app, "bob")
    await owner.settle()
    await other.settle()
    before = await owner.stored()
    for theirs, own in ((owner.chat, other.chat), (owner.asking, other.asking)):
        tries: list[tuple[str, Call, Ids]] = []
        for key, calls in TABLE.items():
            for part in ("checkpoint", "run", "request", "message"):
                if getattr(theirs, part) != getattr(own, part):
                    foreign = own._replace(**{part: getattr(theirs, part)})
                    tries += [(key, call, foreign) for call in calls if names(key, call, part)]
        assert len(tries) >= 8
        for key, call, ids in tries:
            answer = await called(other.client, key, call, ids)
            assert answer.status_code == 404, (key, call, answer.text)
            assert_nothing_of(owner, answer, key)
    diff = f"/v1/threads/chat/checkpoints/{other.chat.checkpoint}/diff/{owner.chat.checkpoint}"
    assert (await other.client.get(diff)).status_code == 404
    cancelled = await other.client.post(f"/v1/threads/running/runs/{owner.running}/cancel")
    assert cancelled.status_code == 404
    assert await owner.stored() == before
    await owner.leave()
    await other.leave()


async def test_two_users_with_the_same_thread_id_have_separate_threads(app: ServerApp) -> None:
    owner, other = Owner(app, "alice"), Owner(app, "bob")
    await owner.settle()
    before = await owner.stored()
    await other.settle()
    for user in (owner, other):
        [asked] = done(await user.client.get("/v1/requests?limit=1"))["requests"]
        assert asked["request_id"] == user.asking.request, "the request of the other user is older"
        [moved] = done(await user.client.get("/v1/threads?limit=1"))["threads"]
        assert moved["thread_id"] == "running"
    answered = await other.client.post(
        f"/v1/threads/asking/requests/{other.asking.request}/answer?wait=10", json={"value": True}
    )
    assert done(answered)["run"]["outputs"] == [f"{other.mark}: True"]
    for path in ("chat/state", "asking/checkpoints", "chat/messages", "chat/events", "asking/events?after=0"):
        mine, theirs = await other.client.get(f"/v1/threads/{path}"), await owner.client.get(f"/v1/threads/{path}")
        assert mine.status_code == theirs.status_code == 200
        assert owner.mark not in mine.text
        assert other.mark not in theirs.text
    done(await other.client.post("/v1/graph/stop", json={"thread_id": "running"}))
    for thread in ("chat", "asking"):
        done(await other.client.delete(f"/v1/threads/{thread}"))
    assert await owner.stored() == before
    await owner.leave()
    await other.leave()


async def test_forks_and_imports_belong_to_the_caller_whatever_their_id(app: ServerApp) -> None:
    owner, other = Owner(app, "alice"), Owner(app, "bob")
    await owner.settle()
    await other.settle("mine", "my-question", "my-run")
    before = await owner.stored()
    done(await other.client.post("/v1/threads/mine/fork", json={"thread_id": "chat"}))
    done(await other.client.delete("/v1/threads/my-question"))
    brought = await other.client.post("/v1/threads/import?thread_id=asking", content=other.asking.file.encode())
    done(brought)
    again = await other.client.post("/v1/threads/import?thread_id=chat", content=other.asking.file.encode())
    assert again.status_code == 409, "their own of that name is kept"
    assert {thread["thread_id"] for thread in done(await other.client.get("/v1/threads"))["threads"]} == {
        *("mine", "my-run", "chat", "asking")
    }
    assert await owner.stored() == before
    await owner.leave()
    await other.leave()


async def test_thread_id_cannot_name_another_user(app: ServerApp) -> None:
    owner = Owner(app, "alice")
    await owner.settle()
    before = await owner.stored()
    names_of_alices = ["alice/chat", "alice%2Fchat", "../alice/chat", "alice%252Fchat", "..%2Falice%2Fchat"]
    async with client_of(app, "bob") as other:
        for thread_id in names_of_alices:
            for rest in ("", "/state", "/messages", "/checkpoints", "/events"):
                answer = await other.get(f"/v1/threads/{thread_id}{rest}")
                assert answer.status_code in (404, 422), (thread_id, rest, answer.text)
                assert_nothing_of(owner, answer, rest)
            assert (await other.delete(f"/v1/threads/{thread_id}")).status_code in (404, 405, 422)
        for thread_id in names_of_alices:
            named = {"messages": [{"role": "user", "content": "x"}], "config": {"thread_id": thread_id}}
            invoked = await other.post("/v1/graph/invoke", json=named)
            assert invoked.status_code == (422 if "/" in thread_id else 200)
        assert (await other.post("/v1/graph/stop", json={"thread_id": "alice/chat"})).status_code == 422
    assert await owner.stored() == before
    await owner.leave()


async def test_metrics_contain_no_user_or_thread(app: ServerApp) -> None:
    owner = Owner(app, "alice-of-the-metrics")
    await owner.settle("thread-of-the-metrics", "asking-of-the-metrics", "running-of-the-metrics")
    shown = (await owner.client.get("/metrics")).text
    assert "of-the-metrics" not in shown
    assert owner.mark not in shown
    await owner.leave()
