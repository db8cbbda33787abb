"""Requests: which of them the client retries, which errors it raises, and which secrets it never shows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.server.client.scripted import Asked, ScriptedServer, answer, data, error

from perdure.client import (
    Client,
    ClientError,
    Conflict,
    ConnectionLost,
    CursorExpired,
    Invalid,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    NotSent,
    Patience,
    RunFailed,
    ServerError,
    StillRunning,
    SyncClient,
    TooManyRequests,
    Unavailable,
    UnreadableAnswer,
)
from perdure.errors import PerdureError

QUICK = Patience(first_wait=0.01, longest_wait=2, seconds=5)
THREAD = data({"thread": {"thread_id": "t", "added_by_a_newer_server": [1]}})


def in_turn(*replies: bytes | None) -> Any:
    left: Iterator[bytes | None] = iter(replies)
    return lambda fetch: next(left)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "bad_request", Invalid),
        (401, "not_authenticated", NotAuthenticated),
        (403, "not_allowed", NotAllowed),
        (404, "thread_not_found", NotFound),
        (409, "thread_busy", Conflict),
        (410, "cursor_expired", CursorExpired),
        (413, "body_too_large", Invalid),
        (422, "invalid_id", Invalid),
        (429, "rate_limited", TooManyRequests),
        (500, "internal_error", ServerError),
        (502, "run_failed", RunFailed),
        (503, "stopping", Unavailable),
        (504, "run_takes_longer", StillRunning),
    ],
)
def test_each_error_code_raises_its_own_exception(status: int, code: str, kind: type[ClientError]) -> None:
    details = [{"message": "too long", "field": "thread_id", "new": 1}]
    body = {"error": {"code": code, "message": "Why.", "details": details}, "metadata": {"request_id": "r7"}}
    with ScriptedServer(lambda fetch: answer(status, body, X_Run_Id="run-9")) as server:
        with SyncClient(server.url, patience=Patience(attempts=1)) as client, pytest.raises(kind) as raised:
            client.delete_thread("t")
    error = raised.value
    assert type(error) is kind
    assert isinstance(error, PerdureError)
    assert (error.status, error.code, error.message, error.request_id) == (status, code, "Why.", "r7")
    assert [(detail.message, detail.field) for detail in error.details] == [("too long", "thread_id")]
    assert error.run_id == "run-9"
    assert str(error) == f"Why. ({status} {code}, request r7)"


def test_client_reads_agentflow_conflicts_and_error_pages_of_proxies() -> None:
    conflict = {"error": "state_conflict", "detail": "Somebody runs it.", "thread_id": "t"}
    page = b"<html>502 Bad Gateway</html>"
    with ScriptedServer(in_turn(answer(409, conflict), answer(502, page), answer(200, page))) as server:
        with SyncClient(server.url, patience=Patience(attempts=1)) as client:
            with pytest.raises(Conflict, match="Somebody runs it") as raised:
                client.thread("t")
            assert raised.value.code == "state_conflict"
            assert raised.value.thread_id == "t"
            with pytest.raises(Unavailable, match="502 Bad Gateway"):
                client.thread("t")
            with pytest.raises(UnreadableAnswer, match="this client does not understand"):
                client.thread("t")


async def test_client_retries_a_read() -> None:
    busy = error(429, "rate_limited", Retry_After="0")
    with ScriptedServer(in_turn(busy, error(503, "stopping"), None, THREAD)) as server:
        async with Client(server.url, patience=QUICK) as client:
            assert (await client.thread("t")).thread_id == "t"
    assert len(server.asked) == 4


async def test_read_waits_as_long_as_retry_after_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait(seconds: float) -> None:
        waits.append(seconds)

    for urls, expected in (["http://one"], [7.0] * 3), (["http://one", "http://two"], [0.0, 7.0, 7.0]):
        waits: list[float] = []
        busy = httpx.MockTransport(lambda request: httpx.Response(429, headers={"retry-after": "7"}))
        async with Client(urls, transport=busy) as client:
            monkeypatch.setattr(client._connection.io, "sleep", wait)
            with pytest.raises(TooManyRequests):
                await client.thread("t")
        assert waits == expected, "the other server may have time"


async def test_read_gives_up_after_its_attempts_or_when_retry_after_is_too_long() -> None:
    with ScriptedServer(lambda fetch: error(503, "stopping")) as server:
        async with Client(server.url, patience=QUICK) as client:
            with pytest.raises(Unavailable):
                await client.thread("t")
    assert len(server.asked) == QUICK.attempts
    with ScriptedServer(lambda fetch: error(429, "rate_limited", Retry_After="30")) as server:
        async with Client(server.url, patience=QUICK) as client:
            with pytest.raises(TooManyRequests) as raised:
                await client.thread("t")
    assert raised.value.retry_after == 30
    assert len(server.asked) == 1


async def test_requests_that_start_or_change_something_are_never_sent_twice() -> None:
    def reply(fetch: Asked) -> bytes | None:
        return error(404, "run_not_found") if fetch.method == "GET" else replies.pop()

    replies: list[bytes | None] = [error(503, "stopping"), error(429, "too_many_runs"), None] * 4
    with ScriptedServer(reply) as server:
        async with Client(server.url, patience=QUICK) as client:
            for kind in (ConnectionLost, TooManyRequests, Unavailable):
                with pytest.raises(kind):
                    await client.invoke("x", thread_id="t")
                with pytest.raises(ClientError):
                    await client.delete_thread("t")
                with pytest.raises(ClientError):
                    await client.patch_state("t", {"a": 1})
                with pytest.raises(ClientError):
                    await client.run("t", "x")
    assert len([asked for asked in server.asked if asked.method != "GET"]) == 12


async def test_connection_lost_error_reports_the_known_state_of_the_run() -> None:
    run = {"run": {"run_id": "run-1", "thread_id": "t", "state": "IN_PROGRESS"}}
    known: list[bytes] = [error(404, "run_not_found"), data(run), data(run)]
    with ScriptedServer(lambda fetch: None if fetch.method == "POST" else known.pop(0)) as server:
        async with Client(server.url, patience=QUICK) as client:
            with pytest.raises(
                ConnectionLost, match=r"most likely it did not start\. The client did not send it again"
            ) as raised:
                await client.invoke("x", thread_id="t")
            with pytest.raises(ConnectionLost, match="is IN_PROGRESS; get_run returns its result"):
                await client.invoke("x", thread_id="t")
            assert (await client.run("t", "x")).state == "IN_PROGRESS"
    sent = json.loads(server.asked[0].body)["config"]
    assert server.asked[1].path == f"/v1/threads/t/runs/{sent['run_id']}"
    assert raised.value.run_id == sent["run_id"]


async def test_request_that_was_never_sent_goes_to_another_server() -> None:
    dead = "http://127.0.0.1:1"
    with ScriptedServer(lambda fetch: data({"ok": True})) as server:
        async with Client([dead, server.url], patience=QUICK) as client:
            assert (await client.stop("t")).ok
    async with Client([dead, "http://127.0.0.1:2"], patience=QUICK) as client:
        with pytest.raises(NotSent, match="no server could be reached, nothing was sent"):
            await client.stop("t")


def test_credentials_are_sent_but_never_shown() -> None:
    fresh = iter(["first", "second"])
    with ScriptedServer(lambda fetch: error(401, "not_authenticated")) as server:
        address = server.url.replace("http://", "http://me:hunter2@")
        clients = [
            SyncClient(address, api_key="pd_secret", headers={"X-Own": "yes"}),
            SyncClient(server.url, token=lambda: next(fresh)),
        ]
        for client in clients:
            with client:
                for _ in range(2):
                    with pytest.raises(NotAuthenticated) as raised:
                        client.thread("t")
                    shown = repr(client) + str(client.__dict__) + str(raised.value) + repr(raised.value)
                    assert "secret" not in shown and "hunter2" not in shown and "first" not in shown
    assert [asked.headers.get("x-api-key") for asked in server.asked] == ["pd_secret", "pd_secret", None, None]
    assert [asked.headers["authorization"] for asked in server.asked[2:]] == ["Bearer first", "Bearer second"]
    assert server.asked[0].headers["x-own"] == "yes"


@pytest.mark.parametrize("secret", ["", "hunter2\n", "hunter2\r\nX-Other: 1", " hunter2", "hünter2"])
def test_secret_that_no_header_can_carry_is_rejected_without_being_shown(secret: str) -> None:
    with ScriptedServer(lambda fetch: THREAD) as server:
        for options in ({"api_key": secret}, {"token": secret}, {"headers": {"X-Own": secret}}):
            with pytest.raises(ValueError, match="no header can carry") as raised:
                SyncClient(server.url, **options)
            assert "nter2" not in str(raised.value)
        with SyncClient(server.url, token=lambda: secret) as client:
            with pytest.raises(ValueError, match="no header can carry"):
                client.thread("t")
    assert not server.asked


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://x", "http://", "http://x?y=1", []])
def test_invalid_address_is_rejected_at_once(url: Any) -> None:
    with pytest.raises(ValueError, match="address"):
        SyncClient(url)


def test_invalid_arguments_are_rejected_before_anything_is_sent() -> None:
    with SyncClient("http://127.0.0.1:1") as client:
        for wrong in ("", "..", "a/b"):
            with pytest.raises(ValueError, match="Nothing was sent"):
                client.thread(wrong)
        with pytest.raises(ValueError, match="one of them"):
            client.invoke()
        with pytest.raises(ValueError, match="one of them"):
            client.stream("x", resume=1)
        with pytest.raises(ValueError, match="needs a thread_id"):
            client.invoke(resume=1)
        with pytest.raises(ValueError, match="not both"):
            client.run("t", "x", responses={})
    with pytest.raises(ValueError, match="not both"):
        SyncClient("http://127.0.0.1:1", api_key="a", token="b")


def test_ids_are_quoted() -> None:
    with ScriptedServer(lambda fetch: THREAD) as server, SyncClient(server.url) as client:
        client.thread("a b?c#d%ä")
    assert server.asked[0].path == "/v1/threads/a%20b%3Fc%23d%25%C3%A4"


def test_thread_that_moves_to_another_page_is_listed_once() -> None:
    pages = [data({"threads": [{"thread_id": thread_id} for thread_id in page]}) for page in ("ab", "bc", "d")]
    with ScriptedServer(in_turn(*pages)) as server, SyncClient(server.url) as client:
        assert [thread.thread_id for thread in client.threads(page_size=2)] == ["a", "b", "c", "d"]


def test_client_uses_a_custom_transport() -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json={"data": "pong"}))
    with SyncClient("http://anywhere", transport=transport) as client:
        assert client.ping() == "pong"


def test_the_two_clients_have_the_same_methods() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")} - {"close", "aclose"}

    assert public(Client) == public(SyncClient)
    assert len(public(Client)) > 35


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout


def test_importing_the_client_loads_neither_engine_nor_server() -> None:
    loaded = set(run("import sys, perdure.client\nprint(*sys.modules)").split())
    rooms = {name.split(".")[1] for name in loaded if name.startswith("perdure.")}
    assert rooms <= {"client", "errors", "names", "platform", "log"}
    assert not loaded & {"litestar", "uvicorn", "pydantic"}


def test_import_without_httpx_names_the_extra_to_install() -> None:
    output = run(
        "import sys; sys.modules['httpx'] = None\n"
        "try:\n    import perdure.client\nexcept ImportError as error:\n    print(type(error).__name__, error)"
    )
    assert "MissingExtra perdure.client needs the package 'httpx'" in output
    assert "perdure[client]" in output
