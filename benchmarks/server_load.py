"""Clients in a process of their own, over plain sockets, so that their cost does not count. Prints JSON.

server.py starts it with the name of a measure, the port of the server, and the parameters as JSON.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from statistics import quantiles
from typing import Any

Values = dict[str, float]
TEXT = "hello"


class Client(asyncio.Protocol):
    """A persistent connection. It sends a request and waits for its answer, or reads a stream."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._buffer = bytearray()
        self._answer: asyncio.Future[bytes] | None = None
        self.on_bytes: Callable[[bytes], None] | None = None
        """Receives all bytes of a stream."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self.on_bytes is not None:
            self.on_bytes(data)
            return
        self._buffer += data
        head, separator, body = bytes(self._buffer).partition(b"\r\n\r\n")
        if not separator or self._answer is None or len(body) < _length(head):
            return
        self._buffer.clear()
        if not head.startswith(b"HTTP/1.1 200"):
            self._answer.set_exception(RuntimeError(f"{head[:40]!r}: {body[:600]!r}"))
        else:
            self._answer.set_result(body)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError(f"the server hung up: {exc}"))

    async def ask(self, request: bytes) -> bytes:
        self._answer = asyncio.get_running_loop().create_future()
        self.send(request)
        return await self._answer

    def send(self, request: bytes) -> None:
        self._transport.write(request)

    def close(self) -> None:
        self._transport.abort()


def _length(head: bytes) -> int:
    _, _, after = head.lower().partition(b"content-length:")
    return int(after.split(b"\r\n", 1)[0])


async def connect(port: int) -> Client:
    _, client = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", port)
    return client


def turn(port: int, thread_id: str, route: str = "invoke") -> bytes:
    """A message to a thread. Its content is a list of blocks, because AgentFlow rejects plain text."""
    message = {"role": "user", "content": [{"type": "text", "text": TEXT}]}
    body = json.dumps({"messages": [message], "config": {"thread_id": thread_id}}).encode()
    head = f"POST /v1/graph/{route} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def get(port: int, path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()


def percentiles(seconds: list[float]) -> Values:
    """p50 and p99, in milliseconds."""
    cuts = quantiles(seconds, n=100, method="inclusive")
    return {"p50": cuts[49] * 1e3, "p99": cuts[98] * 1e3}


# ---------------------------------------------------------------- requests


async def hammer(port: int, requests: list[Iterator[bytes]], seconds: float) -> Values:
    """The rate and times of requests. Each client sends one request after the other, and the first third warms up."""
    clients = [await connect(port) for _ in requests]
    await clients[0].ask(next(requests[0]))  # the first request may create files or tables
    begin = time.perf_counter() + seconds / 2
    end = begin + seconds
    spent: list[float] = []

    async def work(client: Client, sent: Iterator[bytes]) -> None:
        while (started := time.perf_counter()) < end:
            await client.ask(next(sent))
            if started >= begin:
                spent.append(time.perf_counter() - started)

    await asyncio.gather(*map(work, clients, requests))
    taken = time.perf_counter() - begin
    for client in clients:
        client.close()
    return {"rate": len(spent) / taken, **percentiles(spent)}


async def invoke_new(port: int, *, clients: int, seconds: float, name: str) -> Values:
    def threads(number: int) -> Iterator[bytes]:
        return (turn(port, f"{name}-{number}-{at}") for at in count())

    return await hammer(port, [threads(number) for number in range(clients)], seconds)


async def invoke_own(port: int, *, clients: int, seconds: float, name: str) -> Values:
    def turns(number: int) -> Iterator[bytes]:
        request = turn(port, f"{name}-{number}")
        return (request for _ in count())

    return await hammer(port, [turns(number) for number in range(clients)], seconds)


async def read(port: int, *, clients: int, seconds: float, name: str, path: str, turns: int) -> Values:
    """Reads of a thread with this many turns."""
    client = await connect(port)
    for _ in range(turns):
        await client.ask(turn(port, name))
    client.close()
    request = get(port, path.format(thread=name))
    return await hammer(port, [(request for _ in count()) for _ in range(clients)], seconds)


async def first_event(port: int, *, times: int, name: str) -> Values:
    """The time from the request of a stream, on an open connection, to the first event of its answer."""
    spent = []
    for number in range(times):
        client = await connect(port)
        seen = Arrivals(client)
        started = time.perf_counter()
        client.send(turn(port, f"{name}-{number}", "stream"))
        await seen.of(lambda got: b'{"' in got)
        spent.append(time.perf_counter() - started)
        client.close()
    return percentiles(spent)


# ---------------------------------------------------------------- streams


class Arrivals:
    """The time when a client of a stream has received the wanted bytes."""

    def __init__(self, client: Client) -> None:
        self._got = bytearray()
        self._wanted: Callable[[bytearray], bool] | None = None
        self._seen: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        client.on_bytes = self._more

    def _more(self, data: bytes) -> None:
        self._got += data
        self._look()

    def _look(self) -> None:
        if self._wanted is not None and not self._seen.done() and self._wanted(self._got):
            self._seen.set_result(time.perf_counter())

    def of(self, wanted: Callable[[bytearray], bool]) -> asyncio.Future[float]:
        self._seen = asyncio.get_running_loop().create_future()
        self._wanted = wanted
        self._look()
        return self._seen

    def forget(self) -> None:
        self._got.clear()


async def readers(port: int, *, count: int, times: int, name: str) -> Values:
    """The time from a message to a thread until each of its readers has the first event of its first commit."""
    sender = await connect(port)
    await sender.ask(turn(port, name))
    clients = [await connect(port) for _ in range(count)]
    seen = [Arrivals(client) for client in clients]
    for client in clients:
        client.send(get(port, f"/v1/threads/{name}/events"))
    await asyncio.gather(*(arrivals.of(lambda got: b"IDLE" in got) for arrivals in seen))
    spent: list[float] = []
    last: list[float] = []
    for _ in range(times):
        for arrivals in seen:
            arrivals.forget()
        arrived = [arrivals.of(lambda got: b"id: " in got) for arrivals in seen]
        started = time.perf_counter()
        answer = asyncio.ensure_future(sender.ask(turn(port, name)))
        delays = [at - started for at in await asyncio.gather(*arrived)]
        spent += delays
        last.append(max(delays))
        await asyncio.gather(*(arrivals.of(lambda got: b"IDLE" in got) for arrivals in seen))
        await answer
        await asyncio.sleep(0.2)  # for the bytes after the last event
    for client in [*clients, sender]:
        client.close()
    return {**percentiles(spent), "all": max(last) * 1e3}


async def idle(port: int, *, count: int, name: str, pid: int) -> Values:
    """The memory of the server for each open stream without events, in bytes."""
    sender = await connect(port)
    await sender.ask(turn(port, name))
    opened = [await connect(port) for _ in range(20)]  # the modules that the first streams load do not count
    before = 0
    clients = []
    for some in (opened, None):
        more = some if some is not None else [await connect(port) for _ in range(count)]
        seen = [Arrivals(client) for client in more]
        for client in more:
            client.send(get(port, f"/v1/threads/{name}/events"))
        await asyncio.gather(*(arrivals.of(lambda got: b"IDLE" in got) for arrivals in seen))
        await asyncio.sleep(1)
        clients += more
        before, now = (memory_of(pid), 0) if some is not None else (before, memory_of(pid))
    for client in [*clients, sender]:
        client.close()
    return {"bytes": (now - before) / count}


def memory_of(pid: int) -> int:
    """The resident bytes of a process, from /proc of Linux."""
    with open(f"/proc/{pid}/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


MEASURES: dict[str, Any] = {
    "invoke_new": invoke_new,
    "invoke_own": invoke_own,
    "read": read,
    "first_event": first_event,
    "readers": readers,
    "idle": idle,
}


def main() -> None:
    measure, port, parameters = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
    try:
        import uvloop
    except ImportError:  # the clients are slower without it
        values = asyncio.run(MEASURES[measure](port, **parameters))
    else:
        values = uvloop.run(MEASURES[measure](port, **parameters))
    json.dump(values, sys.stdout)


if __name__ == "__main__":
    main()
