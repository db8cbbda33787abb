"""Server-sent events as a client reads them, line by line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx
from tests.server.serving import Server

AT_REST = ("IDLE", "IDLE_WITH_PENDING_REQUESTS", "FAILED", "CANCELLED")


class Frame(NamedTuple):
    seq: int | None
    """The id of the frame."""
    event: str
    data: Any


def frames(response: httpx.Response) -> Iterator[Frame]:
    """Yields the frames until the server ends the stream."""
    seq, event, data = None, "", ""
    for line in response.iter_lines():
        name, _, value = line.partition(": ")
        if name == "id":
            seq = int(value)
        elif name == "event":
            event = value
        elif name == "data":
            data += value
        elif not line and event:
            yield Frame(seq, event, json.loads(data))
            seq, event, data = None, "", ""


@contextmanager
def following(server: Server, thread_id: str, last_event_id: int | None = None) -> Iterator[Iterator[Frame]]:
    """Streams the events of a thread after the last event of the client."""
    headers = {} if last_event_id is None else {"Last-Event-ID": str(last_event_id)}
    with (
        server.client() as client,
        client.stream("GET", f"/v1/threads/{thread_id}/events", headers=headers) as response,
    ):
        assert response.status_code == 200, response.read()
        yield frames(response)


def until_rest(stream: Iterator[Frame]) -> list[Frame]:
    """Returns all frames up to the status frame with which the thread comes to rest."""
    read = []
    for frame in stream:
        read.append(frame)
        if frame.event == "status" and frame.data["state"] in AT_REST:
            return read
    raise AssertionError(f"The stream ended before the thread came to rest: {read[-1:]}")


def log_of(server: Server, thread_id: str) -> list[Frame]:
    """Returns all committed events of a thread, once the thread has come to rest."""
    with following(server, thread_id) as stream:
        return [frame for frame in until_rest(stream) if frame.seq is not None]
