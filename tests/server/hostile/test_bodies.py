"""Bodies that are too large, have a wrong size, are not text or JSON, or are JSON of another form."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from tests.chance import draw_seed
from tests.server.hostile.raw import RawAnswer, head, posted, send_all
from tests.server.serving import Server

MOST = 10_000_000
JSON = "Content-Type: application/json"
TURN = b'{"messages": [{"role": "user", "content": "%s"}], "config": {"thread_id": "bodies"}}'


def code_of(answer: RawAnswer) -> str:
    code: str = json.loads(answer.body)["error"]["code"]
    return code


def test_body_one_byte_too_large_is_rejected_before_it_is_sent(server: Server) -> None:
    answer = send_all(server, [head(server, "POST /v1/graph/invoke", JSON, f"Content-Length: {MOST + 1}")])
    assert (answer.status, code_of(answer)) == (413, "body_too_large")


@pytest.mark.parametrize("path", ["/v1/graph/invoke", "/v1/threads/import?thread_id=large"])
def test_chunked_body_is_rejected_as_soon_as_it_is_too_large(server: Server, path: str) -> None:
    chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    answer = send_all(
        server, [head(server, f"POST {path}", JSON, "Transfer-Encoding: chunked"), *[chunk] * 10, b"0\r\n\r\n"]
    )
    assert (answer.status, code_of(answer)) == (413, "body_too_large")


def test_body_of_the_largest_allowed_size_is_accepted(server: Server) -> None:
    body = TURN % b"x"
    assert posted(server, body + b" " * (MOST - len(body))).status == 200


@pytest.mark.parametrize("length", ["-1", "1e3", "0x10", "+5", "5, 6", "99999999999999999999", "\xb2", ""])
def test_invalid_content_length_is_rejected(server: Server, length: str) -> None:
    answer = send_all(server, [head(server, "POST /v1/graph/invoke", JSON, f"Content-Length: {length}"), b"{}"])
    assert answer.status in (400, 413), answer


@pytest.mark.parametrize(
    "lines", [("Content-Length: 2", "Content-Length: 40"), ("Content-Length: 2", "Transfer-Encoding: chunked")]
)
def test_two_lengths_do_not_smuggle_a_second_request(server: Server, lines: tuple[str, str]) -> None:
    second = head(server, "DELETE /v1/threads/bodies")
    answer = send_all(server, [head(server, "POST /v1/graph/invoke", JSON, *lines), b"{}", second], half_close=True)
    assert answer.status == 400 or b"The thread was deleted" not in answer.body


def test_body_longer_than_its_content_length_is_cut(server: Server) -> None:
    answer = send_all(server, [head(server, "POST /v1/graph/invoke", JSON, "Content-Length: 2"), b"{}" + b"x" * 5000])
    assert answer.status in (400, 422), "what follows is no request"


def test_body_shorter_than_its_content_length_ends_with_its_connection(server: Server) -> None:
    answer = send_all(
        server, [head(server, "POST /v1/graph/invoke", JSON, "Content-Length: 500"), b"{}"], half_close=True
    )
    assert answer.status in (0, 400, 408)


GARBAGE = {
    "deep lists": b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep objects": b'{"initial_state": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
    "deep in any": b'{"resume": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "unclosed": b"[" * 100_000,
    "long number": b'{"resume": ' + b"9" * 100_000 + b"}",
    "large exponent": b'{"resume": 1e99999}',
    "not a number": b'{"resume": NaN}',
    "bad utf-8": TURN % b"\xff\xfe\x80",
    "overlong utf-8": TURN % b"\xc0\xaf",
    "surrogate in utf-8": TURN % b"\xed\xa0\x80",
    "half a surrogate": TURN % rb"\ud800",
    "nul in json": b'{"messages": "\x00"}',
    "utf-16": '{"messages": []}'.encode("utf-16"),
    "with a mark": b"\xef\xbb\xbf{}",
    "only a mark": b"\xef\xbb\xbf",
    "nothing": b"",
    "a word": b"messages",
    "a list": b"[]",
    "null": b"null",
    "twice": b"{}{}",
    "many keys": b'{"initial_state": {' + b",".join(b'"k%d": 1' % n for n in range(20_000)) + b'}, "messages": 1}',
}


@pytest.mark.parametrize("name", GARBAGE)
@pytest.mark.parametrize("path", ["/v1/graph/invoke", "/v1/threads/garbage/runs", "/v1/threads/import?thread_id=g"])
def test_garbage_is_rejected_with_an_error_code(server: Server, path: str, name: str) -> None:
    answer = posted(server, GARBAGE[name], path=path)
    assert answer.status in (400, 404, 422), answer
    assert code_of(answer)


@pytest.mark.parametrize("text", [r"\u0000", r"a\u0000b", r"\u202e\u0007\u001b[2J", r"\ud83d\ude00", r"\uffff\ufffe"])
def test_text_with_odd_characters_comes_back_unchanged(server: Server, text: str) -> None:
    answer = posted(server, TURN % text.encode())
    assert answer.status == 200
    text_of_reply = json.loads(answer.body)["data"]["messages"][0]["content"][0]["text"]
    assert text_of_reply.endswith(json.loads(f'"{text}"'))


# ---------------------------------------------------------------- every field, with every type

ODD: list[Any] = [None, True, -1, 2**64, 1e308, "", "\x00", "x" * 3000, [], [None], {}, {"": None}, [[{}]]]


def fields(document: Any) -> Iterator[tuple[str, str, str]]:
    """Method, path and field of each body in the document."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            name = content.get("schema", {}).get("$ref", "").rsplit("/", 1)[-1]
            for field in document["components"]["schemas"].get(name, {}).get("properties", {}):
                yield method, path, field


def test_wrong_types_in_any_field_do_not_make_the_server_fail(server: Server) -> None:
    fit: dict[str, Any] = {
        "messages": [{"content": "x"}],
        "config": {"thread_id": "fields"},
        "thread_id": "fields",
        "state": {},
    }
    fit |= {"checkpoint_id": "nothing", "value": True, "input": "x", "workflow": "echo"}
    chance = random.Random(draw_seed())
    with server.client() as client:
        client.post("/v1/graph/invoke", json={"messages": fit["messages"], "config": fit["config"]}).raise_for_status()
        fields_of_bodies = list(fields(client.get("/openapi.json").json()))
        assert len(fields_of_bodies) > 30
        for method, path, field in fields_of_bodies:
            at = path.format(thread_id="fields", request_id="nothing", run_id="nothing", message_id="m0")
            for odd in chance.sample(ODD, 6):
                needed = {
                    name: value
                    for _, its_path, name in fields_of_bodies
                    if its_path == path and (value := fit.get(name))
                }
                body = {**needed, field: odd}
                answer = client.request(
                    method, at, content=json.dumps(body), headers={"Content-Type": "application/json"}
                )
                assert answer.status_code < 500, (method, at, body, answer.text)
