"""Paths, headers, methods and origins that no well-behaved client sends, and the headers of every answer."""

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
def test_malicious_ids_match_no_thread(server: Server, name: str, rest: str) -> None:
    answer = send_all(server, [head(server, f"GET /v1/threads/{IDS[name]}{rest.format(IDS[name])}")])
    assert answer.status in (400, 404, 405, 414, 422, 431), answer
    assert "set-cookie" not in answer.head.lower()
    assert b"root:" not in answer.body


def test_ids_that_look_alike_are_separate_threads(server: Server) -> None:
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
def test_odd_header_is_ignored_or_rejected_and_never_echoed(server: Server, name: str) -> None:
    answer = send_all(server, [head(server, "GET /ping", *HEADERS[name])])
    assert answer.status in (200, 400), answer
    request_ids = [
        line.partition(": ")[2] for line in answer.head.splitlines() if line.lower().startswith("x-request-id")
    ]
    if answer.status == 200:
        assert len(request_ids) == 1
        assert len(request_ids[0]) == 32
    assert SECRET not in answer.head
    assert SECRET.encode() not in answer.body


def test_secrets_in_a_rejected_request_are_not_in_its_answer(server: Server) -> None:
    answer = posted(server, b'{"messages": 5}', f"Authorization: Bearer {SECRET}", f"X-API-Key: {SECRET}")
    assert answer.status == 422
    assert SECRET.encode() not in answer.body


def test_request_head_that_is_too_large_is_rejected(server: Server) -> None:
    answer = send_all(server, [head(server, "GET /ping", f"X-Large: {'x' * 200_000}")])
    assert answer.status in (0, 400, 431)


@pytest.mark.parametrize("cursor", ["x", "-1", "1.5", "0x10", "9" * 40, "1 2", "\xb2"])
def test_invalid_cursor_is_rejected(server: Server, cursor: str) -> None:
    posted(server, TURN)
    answer = send_all(server, [head(server, "GET /v1/threads/requests/events", f"Last-Event-ID: {cursor}")])
    assert answer.status == 422, answer


@pytest.mark.parametrize("method", ["TRACE", "PATCH", "PUT", "DELETE", "HEAD", "PROPFIND", "get", "X" * 100])
def test_unsupported_method_is_rejected(server: Server, method: str) -> None:
    answer = send_all(server, [head(server, f"{method} /v1/graph/invoke", "Content-Length: 0", "Connection: close")])
    assert answer.status in (400, 404, 405, 501), answer


@pytest.mark.parametrize(
    "kind", ["text/plain", "text/xml", "multipart/form-data", "application/x-www-form-urlencoded", ""]
)
def test_json_of_another_content_type_is_read_as_json_or_rejected(server: Server, kind: str) -> None:
    lines = [f"Content-Type: {kind}", f"Content-Length: {len(TURN)}"]
    answer = send_all(server, [head(server, "POST /v1/graph/invoke", *lines), TURN])
    assert answer.status in (200, 400, 415, 422), answer


# ---------------------------------------------------------------- other origins


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "evil.example:{port}", "localhost.evil.example"]
)
def test_rebound_host_name_is_rejected(server: Server, host: str) -> None:
    answer = send_all(server, [head(server, "GET /v1/threads", f"Host: {host.format(port=server.port)}")])
    assert answer.status == 400
    assert b"unknown_host" in answer.body


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:1", "https://127.0.0.1", "file://"]
)
def test_page_of_another_origin_is_rejected_without_cors_headers(server: Server, origin: str) -> None:
    for first, body in (("GET /v1/threads", b""), ("POST /v1/graph/invoke", TURN)):
        lines = [f"Origin: {origin}", f"Content-Length: {len(body)}", "Content-Type: text/plain"]
        answer = send_all(server, [head(server, first, *lines), body])
        assert answer.status == 403, answer
        assert "access-control" not in answer.head.lower()
    asks = ("Access-Control-Request-Method: POST", "Access-Control-Request-Headers: content-type")
    before = send_all(server, [head(server, "OPTIONS /v1/graph/invoke", f"Origin: {origin}", *asks)])
    assert "access-control-allow" not in before.head.lower()


def test_page_of_the_same_origin_is_served(server: Server) -> None:
    own = (f"Origin: http://127.0.0.1:{server.port}",)
    assert send_all(server, [head(server, "GET /v1/threads", *own)]).status == 200


REQUESTS = ["GET /ping", "GET /v1/threads", "GET /nothing", "GET /v1/threads/nothing", "DELETE /ping", "GET /docs"]


@pytest.mark.parametrize("first", REQUESTS)
def test_every_answer_has_the_safe_headers(server: Server, first: str) -> None:
    answer = send_all(server, [head(server, first)])
    headers = dict(line.lower().split(": ", 1) for line in answer.head.splitlines()[1:])
    assert {name: headers.get(name) for name in SAFE} == {name: value.lower() for name, value in SAFE.items()}
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "server" not in headers


def test_rejections_and_streams_have_the_safe_headers(server: Server) -> None:
    with server.client() as client:
        client.post("/v1/graph/invoke", content=TURN, headers={"Content-Type": "application/json"}).raise_for_status()
        refused = client.get("/ping", headers={"Host": "evil.example"})
        large = client.post("/v1/graph/invoke", content=b" " * 10_000_001)
        assert (refused.status_code, large.status_code) == (400, 413)
        with client.stream("GET", "/v1/threads/requests/events") as stream:
            for answer in (refused, large, stream):
                assert SAFE.items() <= dict(answer.headers).items()


def test_requests_cannot_forge_lines_in_the_log(server: Server) -> None:
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
