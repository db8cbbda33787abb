"""Paths, headers, methods and origins that nobody well-behaved sends; and what every answer has."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from tests.server.hostile.conftest import SECRET
from tests.server.hostile.raw import head, posted, send_all
from tests.server.serving import Server

TURN = b'{"messages": [{"role": "user", "content": "x"}], "config": {"thread_id": "requests"}}'
SAFE = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}

IDS = {
    "dots": "%2e%2e",
    "climbing": "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "slash": "a%2fb",
    "backslash": "a%5cb",
    "nul": "a%00b",
    "line": "a%0d%0aSet-Cookie:%20x=1",
    "escape": "%1b%5b2J",
    "half encoded": "%",
    "wrongly encoded": "%zz",
    "not utf-8": "%ff%fe",
    "surrogate": "%ed%a0%80",
    "overlong": "%c0%ae%c0%ae",
    "long": "x" * 256,
    "very long": "x" * 60_000,
    "right to left": "%e2%80%ae",
    "reserved": "%20",
}


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("rest", ["", "/state", "/checkpoints/{}", "/runs/{}", "/messages/{}", "/events"])
def test_an_id_with_a_trick_in_it_names_nothing(server: Server, name: str, rest: str) -> None:
    heard = send_all(server, [head(server, f"GET /v1/threads/{IDS[name]}{rest.format(IDS[name])}")])
    assert heard.status in (400, 404, 405, 414, 422, 431), heard
    assert "set-cookie" not in heard.head.lower()
    assert b"root:" not in heard.body


def test_ids_that_look_alike_are_two_threads(server: Server) -> None:
    with server.client() as client:
        for thread in ("caf%C3%A9", "cafe%CC%81", "%C5%BF", "s"):
            made = client.post(f"/v1/threads/{thread}/runs?wait=10", json={"input": thread, "workflow": "ask"})
            assert made.status_code == 200
            asked = made.json()["data"]["run"]
            assert asked["requests"][0]["data"] == f"May I say {thread}?"
            assert client.get(f"/v1/threads/{thread}").json()["data"]["thread"]["number"] == 2, "a thread of its own"


HEADERS = {
    "request id with a space": ("X-Request-Id: a b",),
    "request id that is long": (f"X-Request-Id: {'a' * 65}",),
    "request id in latin-1": ("X-Request-Id: \xe9",),
    "request id with markup": ("X-Request-Id: <script>",),
    "two request ids": ("X-Request-Id: a", "X-Request-Id: b"),
    "folded": ("X-Request-Id: a\r\n b",),
    "cookie": (f"Cookie: session={SECRET}",),
    "bearer": (f"Authorization: Bearer {SECRET}",),
    "basic": (f"Authorization: Basic {SECRET}",),
    "two bearers": (f"Authorization: Bearer {SECRET}", f"Authorization: Bearer {SECRET}2"),
    "key": (f"X-API-Key: {SECRET}",),
    "forwarded": (f"X-Forwarded-For: {SECRET}", "Forwarded: for=evil", "X-Forwarded-Host: evil"),
    "many": tuple(f"X-{number}: {number}" for number in range(200)),
    "upgrade": ("Connection: upgrade", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"),
    "expect": ("Expect: 200-ok",),
    "range": ("Range: bytes=0-1",),
}


@pytest.mark.parametrize("name", HEADERS)
def test_an_odd_header_is_passed_over_or_refused_and_never_echoed(server: Server, name: str) -> None:
    heard = send_all(server, [head(server, "GET /ping", *HEADERS[name])])
    assert heard.status in (200, 400), heard
    told = [line.partition(": ")[2] for line in heard.head.splitlines() if line.lower().startswith("x-request-id")]
    if heard.status == 200:
        assert len(told) == 1
        assert len(told[0]) == 32
    assert SECRET not in heard.head
    assert SECRET.encode() not in heard.body


def test_secrets_in_a_refused_request_are_not_in_its_answer(server: Server) -> None:
    heard = posted(server, b'{"messages": 5}', f"Authorization: Bearer {SECRET}", f"X-API-Key: {SECRET}")
    assert heard.status == 422
    assert SECRET.encode() not in heard.body


def test_a_head_that_is_too_large_is_refused(server: Server) -> None:
    heard = send_all(server, [head(server, "GET /ping", f"X-Large: {'x' * 200_000}")])
    assert heard.status in (0, 400, 431)


@pytest.mark.parametrize("given", ["x", "-1", "1.5", "0x10", "9" * 40, "1 2", "\xb2"])
def test_a_cursor_that_is_none_is_refused(server: Server, given: str) -> None:
    posted(server, TURN)
    heard = send_all(server, [head(server, "GET /v1/threads/requests/events", f"Last-Event-ID: {given}")])
    assert heard.status == 422, heard


@pytest.mark.parametrize("method", ["TRACE", "PATCH", "PUT", "DELETE", "HEAD", "PROPFIND", "get", "X" * 100])
def test_another_method_is_refused(server: Server, method: str) -> None:
    heard = send_all(server, [head(server, f"{method} /v1/graph/invoke", "Content-Length: 0", "Connection: close")])
    assert heard.status in (400, 404, 405, 501), heard


@pytest.mark.parametrize(
    "kind", ["text/plain", "text/xml", "multipart/form-data", "application/x-www-form-urlencoded", ""]
)
def test_json_under_another_name_is_taken_as_json_or_refused(server: Server, kind: str) -> None:
    lines = [f"Content-Type: {kind}", f"Content-Length: {len(TURN)}"]
    heard = send_all(server, [head(server, "POST /v1/graph/invoke", *lines), TURN])
    assert heard.status in (200, 400, 415, 422), heard


# ---------------------------------------------------------------- other origins


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "evil.example:{port}", "localhost.evil.example"]
)
def test_a_name_that_was_made_to_point_here_is_refused(server: Server, host: str) -> None:
    heard = send_all(server, [head(server, "GET /v1/threads", f"Host: {host.format(port=server.port)}")])
    assert heard.status == 400
    assert b"unknown_host" in heard.body


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:1", "https://127.0.0.1", "file://"]
)
def test_a_page_of_another_origin_is_refused_and_told_of_no_cors(server: Server, origin: str) -> None:
    for first, body in (("GET /v1/threads", b""), ("POST /v1/graph/invoke", TURN)):
        lines = [f"Origin: {origin}", f"Content-Length: {len(body)}", "Content-Type: text/plain"]
        heard = send_all(server, [head(server, first, *lines), body])
        assert heard.status == 403, heard
        assert "access-control" not in heard.head.lower()
    asks = ("Access-Control-Request-Method: POST", "Access-Control-Request-Headers: content-type")
    before = send_all(server, [head(server, "OPTIONS /v1/graph/invoke", f"Origin: {origin}", *asks)])
    assert "access-control-allow" not in before.head.lower()


def test_a_page_of_its_own_origin_is_served(server: Server) -> None:
    own = (f"Origin: http://127.0.0.1:{server.port}",)
    assert send_all(server, [head(server, "GET /v1/threads", *own)]).status == 200


REQUESTS = ["GET /ping", "GET /v1/threads", "GET /nothing", "GET /v1/threads/nothing", "DELETE /ping", "GET /docs"]


@pytest.mark.parametrize("first", REQUESTS)
def test_every_answer_has_the_safe_headers(server: Server, first: str) -> None:
    heard = send_all(server, [head(server, first)])
    told = dict(line.lower().split(": ", 1) for line in heard.head.splitlines()[1:])
    assert {name: told.get(name) for name in SAFE} == {name: value.lower() for name, value in SAFE.items()}
    assert "default-src 'none'" in told["content-security-policy"]
    assert "server" not in told


def test_refusals_and_streams_have_the_safe_headers_too(server: Server) -> None:
    with server.client() as client:
        client.post("/v1/graph/invoke", content=TURN, headers={"Content-Type": "application/json"}).raise_for_status()
        refused = client.get("/ping", headers={"Host": "evil.example"})
        large = client.post("/v1/graph/invoke", content=b" " * 10_000_001)
        assert (refused.status_code, large.status_code) == (400, 413)
        with client.stream("GET", "/v1/threads/requests/events") as stream:
            for answer in (refused, large, stream):
                assert SAFE.items() <= dict(answer.headers).items()


def test_nobody_writes_lines_of_their_own_into_the_log(server: Server) -> None:
    forged = "\nERROR perdure.server: forged \x1b[31m\r\nforged"
    with server.client() as client:
        asked = client.post("/v1/threads/log/runs?wait=10", json={"input": forged, "workflow": "ask"})
        request_id = asked.json()["data"]["run"]["requests"][0]["request_id"]
        bodies: list[tuple[str, object]] = [
            ("runs", {"responses": {forged: True}}),
            ("runs", {"responses": {request_id: forged}}),
            ("runs", {"input": forged, "workflow": forged}),
            (f"requests/{quote(forged, safe='')}/answer", {"value": True}),
            (f"requests/{request_id}/answer", {"value": {forged: forged}}),
            ("rewind", {"checkpoint_id": forged}),
            ("messages", {"messages": [{"content": "x", "role": forged}]}),
        ]
        for path, body in bodies:
            assert 400 <= client.post(f"/v1/threads/log/{path}", json=body).status_code < 500
    lines = server.log.splitlines()
    assert not [line for line in lines if line.startswith(("ERROR perdure.server: forged", "forged"))]
    assert "\x1b[31m" not in server.log
