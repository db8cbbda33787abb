"""SyncClient: the same as Client, for programs without an event loop."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from perdure.client.async_client import Client
from perdure.client.connection import LIMITS, Connection, Patience, Token, load_certificates, read_pieces

T = TypeVar("T")
P = ParamSpec("P")


class BlockingIo:
    """The I/O of `SyncClient`: each method blocks in the caller's thread, so its coroutine never suspends."""

    def __init__(self, transport: httpx.BaseTransport | None) -> None:
        self._http = httpx.Client(transport=transport, limits=LIMITS, verify=load_certificates())
        self.build_request = self._http.build_request
        self.content = read_pieces

    async def send(self, request: httpx.Request) -> httpx.Response:
        return self._http.send(request, stream=True)

    def pieces(self, response: httpx.Response) -> Iterator[bytes]:
        return response.iter_bytes()

    async def next_piece(self, pieces: Iterator[bytes]) -> bytes:
        return next(pieces, b"")

    async def close_response(self, response: httpx.Response, pieces: Iterator[bytes]) -> None:
        response.close()

    async def call(self, function: Callable[P, T], /, *arguments: P.args, **options: P.kwargs) -> T:
        return function(*arguments, **options)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251  # it must not suspend

    async def aclose(self) -> None:
        self._http.close()


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that does not suspend."""
    hooks = sys.get_asyncgen_hooks()
    try:
        sys.set_asyncgen_hooks(None, None)  # an event loop in this thread would close the streams when it ends
        coroutine.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        sys.set_asyncgen_hooks(*hooks)
    raise RuntimeError("A coroutine of the sync client suspended, but there is no event loop to resume it.")


def _iterate(items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    try:
        while True:
            yield _run(_next(items))
    except StopAsyncIteration:
        return
    finally:
        _run(items.aclose())


async def _next(items: AsyncGenerator[T, None]) -> T:
    return await anext(items)


def _blocking(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncClient, P], T]:
    """The method of `Client` for callers that block."""

    @functools.wraps(method)
    def call(self: SyncClient, /, *arguments: P.args, **options: P.kwargs) -> T:
        return _run(method(self._client, *arguments, **options))

    return call


def _iterating(
    method: Callable[Concatenate[Client, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[SyncClient, P], Generator[T, None, None]]:
    """The same for a method that returns a generator."""

    @functools.wraps(method)
    def call(self: SyncClient, /, *arguments: P.args, **options: P.kwargs) -> Generator[T, None, None]:
        return _iterate(method(self._client, *arguments, **options))

    return call


class _BlockingClient(Client):
    def __init__(self, connection: Connection) -> None:
        self._connection = connection


class SyncClient:
    """Client without async: what its methods promise, these do."""

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        api_key: str | None = None,
        token: Token | None = None,
        timeout: float | None = 30.0,
        headers: Mapping[str, str] | None = None,
        transport: httpx.BaseTransport | None = None,
        patience: Patience | None = None,
    ) -> None:
        """`timeout`: seconds without a byte, except where a run is waited for. Raises ValueError."""
        self._client = _BlockingClient(
            Connection(
                BlockingIo(transport),
                url,
                api_key=api_key,
                token=token,
                timeout=timeout,
                headers=headers,
                patience=patience,
            )
        )

    def __repr__(self) -> str:
        return f"Sync{self._client!r}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections. Runs continue."""
        _run(self._client.aclose())

    ping = _blocking(Client.ping)
    ready = _blocking(Client.ready)
    workflows = _blocking(Client.workflows)
    workflow = _blocking(Client.workflow)
    graph = _blocking(Client.graph)
    tools = _blocking(Client.tools)
    state_schema = _blocking(Client.state_schema)

    invoke = _blocking(Client.invoke)
    stream = _iterating(Client.stream)
    stop = _blocking(Client.stop)

    run = _blocking(Client.run)
    get_run = _blocking(Client.get_run)
    cancel = _blocking(Client.cancel)
    events = _iterating(Client.events)
    requests = _blocking(Client.requests)
    answer = _blocking(Client.answer)

    threads = _iterating(Client.threads)
    thread = _blocking(Client.thread)
    delete_thread = _blocking(Client.delete_thread)
    state = _blocking(Client.state)
    update_state = _blocking(Client.update_state)
    clear_state = _blocking(Client.clear_state)
    patch_state = _blocking(Client.patch_state)
    messages = _iterating(Client.messages)
    add_messages = _blocking(Client.add_messages)
    message = _blocking(Client.message)
    delete_message = _blocking(Client.delete_message)

    checkpoints = _iterating(Client.checkpoints)
    checkpoint = _blocking(Client.checkpoint)
    diff = _blocking(Client.diff)
    fork = _blocking(Client.fork)
    rewind = _blocking(Client.rewind)
    pin = _blocking(Client.pin)
    unpin = _blocking(Client.unpin)

    export_thread = _blocking(Client.export_thread)
    import_thread = _blocking(Client.import_thread)
