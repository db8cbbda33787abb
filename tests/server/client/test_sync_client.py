"""The sync client blocks in the caller's thread: what a program without an event loop relies on."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from tests.server.client.accepting import Accepting
from tests.server.client.scripted import STREAM, ScriptedServer, chunk, data, error, event, started, stream
from tests.server.serving import eventually

from perdure.client import ConnectionLost, Patience, SyncClient

QUICK = Patience(first_wait=0.01, longest_wait=0.05, seconds=0.5)


class SilentServer(Accepting):
    """Sends the beginning of an answer, or nothing, and leaves the connections open."""

    def __init__(self, beginning: bytes = b"") -> None:
        super().__init__()
        self._beginning = beginning
        self._connections: list[socket.socket] = []

    def connected(self, connection: socket.socket) -> None:
        self._connections.append(connection)
        connection.recv(65536)
        connection.sendall(self._beginning)

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        for connection in self._connections:
            connection.close()


@contextmanager
def interrupted_in(method: str) -> Iterator[None]:
    """Interrupts the main thread as soon as it is in this method of BlockingIo."""

    def is_there() -> bool:
        frame = sys._current_frames()[main]
        return any(caller.f_code.co_name == method for caller, _ in traceback.walk_stack(frame))

    def interrupt() -> None:
        eventually(is_there)
        signal.pthread_kill(main, signal.SIGINT)

    main = threading.main_thread().ident or 0
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        yield
    thread.join()


def test_interrupt_ends_a_call_that_waits_and_the_client_stays_usable() -> None:
    with SilentServer() as silent, ScriptedServer(lambda asked: data("pong")) as server:
        with SyncClient([silent.url, server.url], timeout=None) as client:
            with interrupted_in("send"):
                client.ping()
            assert open_connections(client) == 0
            client._client._connection.use_next_server()
            assert client.ping() == "pong"


def test_interrupt_ends_a_stream_and_closes_its_connection() -> None:
    with SilentServer(STREAM + started() + chunk(1, {"type": "started"})) as server, SyncClient(server.url) as client:
        chunks = client.stream("x", thread_id="t")
        assert next(chunks).status == "started"
        assert next(chunks).seq == 1
        with interrupted_in("next_piece"):
            next(chunks)
        assert next(chunks, None) is None
        assert open_connections(client) == 0


def test_interrupt_ends_the_wait_between_two_attempts() -> None:
    with ScriptedServer(lambda asked: error(503, "stopping")) as server:
        with SyncClient(server.url, patience=Patience(first_wait=600, longest_wait=600)) as client:
            with interrupted_in("sleep"):
                client.ping()


def open_connections(client: SyncClient) -> int:
    transport: Any = client._client._connection.io._http._transport  # private parts of httpx
    return len(transport._pool.connections)


@pytest.mark.parametrize("leave", ["close", "drop"])
def test_stream_that_the_caller_leaves_closes_its_connection(leave: str) -> None:
    with SilentServer(STREAM + event(1, "a")) as server, SyncClient(server.url) as client:
        events = client.events("t")
        assert next(events).type == "a"
        assert open_connections(client) == 1
        if leave == "close":
            events.close()
        del events
        gc.collect()
        assert open_connections(client) == 0


def test_several_threads_share_one_client() -> None:
    def reply(asked: object) -> bytes:
        return stream(event(1, "a"), event(2, "b")) if "/events" in str(asked) else data("pong")

    def work(number: int) -> list[object]:
        events = client.events(f"t{number}")
        seen: list[object] = [next(events).seq, client.ping(), next(events).seq]
        events.close()
        return seen

    with ScriptedServer(reply) as server:
        before = set(threading.enumerate())
        with SyncClient(server.url, patience=QUICK) as client:
            with ThreadPoolExecutor(8) as pool:
                assert list(pool.map(work, range(40))) == [[1, "pong", 2]] * 40
            assert set(threading.enumerate()) <= before, "the client started threads of its own"


async def test_sync_client_works_inside_a_running_event_loop() -> None:
    with ScriptedServer(lambda asked: stream(event(1, "a"))) as server, SyncClient(server.url) as client:
        events = client.events("t")
        assert next(events).seq == 1
        assert len(asyncio.all_tasks()) == 1


def test_stream_outlives_the_event_loop_in_which_it_began() -> None:
    async def begin() -> Iterator[object]:
        events = client.events("t", reconnect=False)
        assert next(events).seq == 1
        return events

    with ScriptedServer(lambda asked: stream(event(1, "a"), event(2, "b"))) as server, SyncClient(server.url) as client:
        events = asyncio.run(begin())
        assert next(events).seq == 2  # type: ignore[attr-defined]  # an Event
        with pytest.raises(ConnectionLost):
            next(events)


def test_token_is_made_in_the_callers_thread_and_context() -> None:
    name = contextvars.ContextVar[str]("name")
    threads = []

    def token() -> str:
        threads.append(threading.current_thread())
        return name.get()

    with ScriptedServer(lambda asked: data("pong")) as server, SyncClient(server.url, token=token) as client:
        name.set("ada")
        client.ping()
    assert server.asked[0].headers["authorization"] == "Bearer ada"
    assert threads == [threading.main_thread()]


def test_token_may_be_fetched_with_the_same_client() -> None:
    tokens = iter(["first", None])

    def token() -> str:
        return next(tokens) or client.ping()

    with ScriptedServer(lambda asked: data("pong")) as server, SyncClient(server.url, token=token) as client:
        client.ping()
        tokens = iter([None, "inner"])
        client.ping()
    assert [asked.headers["authorization"] for asked in server.asked] == [
        "Bearer first",
        "Bearer inner",
        "Bearer pong",
    ]


def test_blocking_transport_streams_in_the_callers_thread() -> None:
    threads = []

    class Transport(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            threads.append(threading.current_thread())
            return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=event(1, "a"))

    with SyncClient("http://anywhere", transport=Transport()) as client:
        assert next(client.events("t")).seq == 1
    assert threads == [threading.main_thread()]


def test_closed_client_raises_and_may_be_closed_again() -> None:
    client = SyncClient("http://127.0.0.1:1")
    client.close()
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.ping()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_client_made_before_a_fork_works_in_the_child() -> None:
    with ScriptedServer(lambda asked: data("pong")) as server:
        code = (
            "import os\nfrom perdure.client import SyncClient\n"
            f"client = SyncClient({server.url!r}, timeout=5)\nassert client.ping() == 'pong'\n"
            "child = os.fork()\nassert client.ping() == 'pong'\n"
            "if child:\n    assert os.waitpid(child, 0)[1] == 0\nprint('well')\n"
        )
        assert run(code) == "well\nwell\n"


def test_interpreter_exits_while_a_client_and_a_stream_are_open() -> None:
    with SilentServer(STREAM + event(1, "a")) as server:
        code = (
            "from perdure.client import SyncClient\n"
            f"client = SyncClient({server.url!r})\nevents = client.events('t')\nprint(next(events).seq)\n"
        )
        assert run(code) == "1\n"


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], check=False, capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
