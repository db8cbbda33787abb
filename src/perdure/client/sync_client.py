"""SyncClient: the same as Client, for programs without an event loop."""

from __future__ import annotations

import functools
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

import httpx

from perdure.client.async_client import Client
from perdure.client.connection import BlockingIo, ClientOptions, Connection

T = TypeVar("T")
P = ParamSpec("P")


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
        transport: httpx.BaseTransport | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """Raises ValueError."""
        self._client = _BlockingClient(Connection(BlockingIo(transport), url, **options))

    def __repr__(self) -> str:
        return f"Sync{self._client!r}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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
