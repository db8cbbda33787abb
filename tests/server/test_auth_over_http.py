"""Auth over HTTP: keys, tokens and custom code admit known users. Production hides internal details."""

from __future__ import annotations

import json
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from tests.server.hostile.in_process import HERE, app_of, bearer, client_of, config, talk
from tests.server.hostile.served import SECRET, token

from perdure.server import ServerApp, create_app
from perdure.server.auth.api_keys import KeyFile, make_key
from perdure.server.config.files import config_from

JWT_SECRET = random.Random(1).randbytes(48).hex()
CHAT = {"messages": [{"content": "hello"}], "config": {"thread_id": "t"}}


@asynccontextmanager
async def app_in(folder: Path, **more: Any) -> AsyncIterator[ServerApp]:
    app = create_app(config_from(config(**more), folder=folder))
    try:
        yield app
    finally:
        await app.aclose()


async def status_of(app: ServerApp, headers: dict[str, str], path: str = "/v1/threads") -> int:
    async with client_of(app) as client:
        answer = await client.get(path, headers=headers)
        if answer.status_code == 401:
            assert answer.headers["www-authenticate"] == "Bearer"
            assert not any(value in answer.text for value in headers.values() if len(value) > 8)
        return answer.status_code


# ---------------------------------------------------------------- keys


async def test_only_a_valid_key_with_the_scope_admits_its_user(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    good, narrow = make_key("alice", created=now), make_key("alice", created=now, scopes=["graph:read"])
    ended = make_key("alice", created=now - timedelta(days=2), expires=now - timedelta(days=1))
    KeyFile(tmp_path / ".perdure-keys.json").change(lambda known: (*known, good.stored, narrow.stored, ended.stored))
    async with app_in(tmp_path, auth={"method": "api_key"}) as app:
        assert await status_of(app, {"X-API-Key": good.key}) == 200
        assert await status_of(app, {"Authorization": f"Bearer {good.key}"}) == 200
        assert await status_of(app, {"X-API-Key": narrow.key}) == 403
        assert await status_of(app, {"X-API-Key": narrow.key}, "/v1/graph") == 200
        wrong = [good.key[:-1], good.key + "x", good.key.upper(), "", "pd_", "x" * 5000, f"{good.key}, {good.key}"]
        for text in (ended.key, *wrong):
            assert await status_of(app, {"X-API-Key": text}) == 401, text
        assert await status_of(app, {"Authorization": f"Basic {good.key}"}) == 401
        assert await status_of(app, {"Cookie": f"key={good.key}"}) == 401
        assert await status_of(app, {}, f"/v1/threads?token={good.key}") == 401


async def test_revoked_key_is_rejected_at_the_next_request(tmp_path: Path) -> None:
    made = make_key("alice", created=datetime.now(UTC))
    file = KeyFile(tmp_path / ".perdure-keys.json")
    file.change(lambda known: (*known, made.stored))
    async with app_in(tmp_path, auth={"method": "api_key"}) as app:
        assert await status_of(app, {"X-API-Key": made.key}) == 200
        file.change(lambda known: ())
        assert await status_of(app, {"X-API-Key": made.key}) == 401


# ---------------------------------------------------------------- tokens


def signed(secret: str = JWT_SECRET, algorithm: str = "HS256", **claims: Any) -> str:
    return jwt.encode({"user_id": "alice", "exp": time.time() + 60, **claims}, secret, algorithm)


@pytest.fixture
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JWT_SECRET_KEY", JWT_SECRET)


@pytest.mark.usefixtures("_secret")
async def test_only_a_token_with_valid_claims_and_signature_admits_its_user() -> None:
    async with app_of(auth={"method": "jwt", "issuer": "us", "audience": "here"}) as app:
        good = signed(iss="us", aud="here")
        assert await status_of(app, {"Authorization": f"Bearer {good}"}) == 200
        without_end = jwt.encode({"user_id": "alice", "iss": "us", "aud": "here"}, JWT_SECRET, "HS256")
        none = jwt.encode({"user_id": "alice", "exp": time.time() + 60, "iss": "us", "aud": "here"}, "", "none")
        wrong = {
            "expired": signed(iss="us", aud="here", exp=time.time() - 600),
            "never ends": without_end,
            "unsigned": none,
            "another secret": signed(JWT_SECRET + "x", iss="us", aud="here"),
            "another algorithm": signed(algorithm="HS512", iss="us", aud="here"),
            "another issuer": signed(iss="them", aud="here"),
            "another audience": signed(iss="us", aud="there"),
            "no user": signed(iss="us", aud="here", user_id=""),
            "changed": good[:-4] + "AAAA",
            "cut": good.rpartition(".")[0],
            "garbage": "a.b.c",
        }
        for name, text in wrong.items():
            assert await status_of(app, {"Authorization": f"Bearer {text}"}) == 401, name


@pytest.mark.usefixtures("_secret")
async def test_users_of_two_tokens_have_separate_threads() -> None:
    async with app_of(auth={"method": "jwt"}) as app, client_of(app) as client:
        alice, bob = ({"Authorization": f"Bearer {signed(user_id=name)}"} for name in ("alice", "bob"))
        assert (await client.post("/v1/graph/invoke", json=CHAT, headers=alice)).status_code == 200
        assert (await client.get("/v1/threads/t", headers=alice)).json()["data"]["thread"]["user_id"] == "alice"
        assert (await client.get("/v1/threads/t", headers=bob)).status_code == 404


# ---------------------------------------------------------------- sockets


async def test_socket_reads_its_token_from_the_subprotocol_and_never_echoes_it() -> None:
    offered = {"Sec-WebSocket-Protocol": f"agentflow-bearer, {token('alice')}"}
    async with app_of() as app:
        accepted, *frames = await talk(app, [CHAT], offered)
        assert (accepted["type"], accepted["subprotocol"]) == ("websocket.accept", "agentflow-bearer")
        assert frames[-1]["data"]["status"] == "done"
        async with client_of(app, "alice") as alice:
            assert (await alice.get("/v1/threads/t")).status_code == 200
        for protocols in ("agentflow-bearer", token("alice"), f"other, {token('alice')}", ""):
            [closed] = await talk(app, [CHAT], {"Sec-WebSocket-Protocol": protocols})
            assert (closed["type"], closed["code"]) == ("websocket.close", 1008)


# ---------------------------------------------------------------- users' own code


async def fails(credentials: Any) -> Any:
    raise RuntimeError(f"no database at {SECRET}, asked with {credentials.token}")


async def only_odd_threads(user: Any, resource: str, action: str, thread_id: str | None) -> bool:
    """A custom authorization that denies the thread `secret` to all users."""
    return thread_id != "secret"


async def test_failing_custom_auth_gives_503_and_its_error_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    async with app_of(auth={"method": "custom", "path": f"{__name__}:fails"}) as app, client_of(app) as client:
        answer = await client.get("/v1/threads", headers={"Authorization": "Bearer open-sesame"})
        assert answer.status_code == 503
        assert "retry-after" in answer.headers
    assert SECRET not in answer.text
    assert SECRET not in caplog.text
    assert "open-sesame" not in caplog.text


async def test_custom_authorization_gets_the_thread_id_from_every_route() -> None:
    authorization = {"backend": "custom", "path": f"{__name__}:only_odd_threads", "isolation": "none"}
    named = {"messages": [{"content": "x"}], "config": {"thread_id": "secret"}}
    async with app_of(authorization=authorization) as app, client_of(app, "alice") as alice:
        assert (await alice.post("/v1/graph/invoke", json=CHAT)).status_code == 200
        statuses = {
            "path": (await alice.get("/v1/threads/secret")).status_code,
            "invoke": (await alice.post("/v1/graph/invoke", json=named)).status_code,
            "stream": (await alice.post("/v1/graph/stream", json=named)).status_code,
            "stop": (await alice.post("/v1/graph/stop", json={"thread_id": "secret"})).status_code,
            "fork": (await alice.post("/v1/threads/t/fork", json={"thread_id": "secret"})).status_code,
            "import": (await alice.post("/v1/threads/import?thread_id=secret", content=b"x")).status_code,
            "requests": (await alice.get("/v1/requests?thread_id=secret")).status_code,
        }
        assert set(statuses.values()) == {403}, statuses
        frames = await talk(app, [named], bearer("alice"))
        assert next(frame for frame in frames if frame.get("event") == "error")["data"]["status"] == 403


# ---------------------------------------------------------------- production


async def test_production_hides_the_error_text_of_a_workflow() -> None:
    failing = {"agent": f"{HERE}:failing", "workflows": {}}
    async with app_of(mode="production", **failing) as app, client_of(app, "alice") as alice:
        seen = []
        invoked = await alice.post("/v1/graph/invoke", json=CHAT)
        assert (invoked.status_code, invoked.json()["error"]["code"]) == (502, "run_failed")
        streamed = await alice.post("/v1/graph/stream", json={**CHAT, "config": {"thread_id": "s"}})
        ran = await alice.post("/v1/threads/r/runs?wait=10", json={"input": "x"})
        run_id = ran.json()["data"]["run"]["run_id"]
        paths = [f"/v1/threads/r/runs/{run_id}", "/v1/threads/r/events", "/v1/threads/r/state", "/v1/threads/r"]
        paths += ["/v1/threads", "/v1/threads/r/checkpoints", "/v1/requests", "/metrics", "/v1/threads/s/events"]
        seen += [invoked, streamed, ran, *[await alice.get(path) for path in paths]]
        for checkpoint in (await alice.get("/v1/threads/r/checkpoints")).json()["data"]["checkpoints"]:
            seen.append(await alice.get(f"/v1/threads/r/checkpoints/{checkpoint['checkpoint_id']}"))
        frames = await talk(app, [{**CHAT, "config": {"thread_id": "w"}}], bearer("alice"))
    assert SECRET not in json.dumps(frames)
    for answer in seen:
        assert SECRET not in answer.text, answer.request.url
        assert "Traceback" not in answer.text
    assert "RuntimeError" in ran.text, "the type of the error is shown"


async def test_development_shows_the_error_text_of_a_workflow() -> None:
    async with app_of(agent=f"{HERE}:failing", workflows={}) as app, client_of(app, "alice") as alice:
        assert SECRET in (await alice.post("/v1/graph/invoke", json=CHAT)).text
