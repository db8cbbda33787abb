"""SyncClient: the same as Client, for programs without an event loop."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, Unpack

import httpx
from msgspec import UNSET

from perdure.client import models
from perdure.client.async_client import Client
from perdure.client.calls import PAGE, AnyCheckpoint, MessagesIn, OnBusy, TurnArguments
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

    # ------------------------------------------------------------ the server and what it serves

    def ping(self) -> str:
        return _run(self._client.ping())

    def ready(self) -> models.Ready:
        return _run(self._client.ready())

    def workflows(self) -> list[models.Workflow]:
        return _run(self._client.workflows())

    def workflow(self, name: str) -> models.Workflow:
        return _run(self._client.workflow(name))

    def graph(self) -> models.Graph:
        return _run(self._client.graph())

    def tools(self) -> list[models.NodeTools]:
        return _run(self._client.tools())

    def state_schema(self) -> dict[str, Any]:
        return _run(self._client.state_schema())

    # ------------------------------------------------------------ turns

    def invoke(self, messages: MessagesIn | None = None, **options: Unpack[TurnArguments]) -> models.InvokeResult:
        return _run(self._client.invoke(messages, **options))

    def stream(
        self, messages: MessagesIn | None = None, **options: Unpack[TurnArguments]
    ) -> Generator[models.Chunk, None, None]:
        return _iterate(self._client.stream(messages, **options))

    def stop(self, thread_id: str) -> models.Stopped:
        return _run(self._client.stop(thread_id))

    # ------------------------------------------------------------ runs

    def run(
        self,
        thread_id: str,
        input: Any = UNSET,
        *,
        responses: Mapping[str, Any] | None = None,
        workflow: str | None = None,
        on_busy: OnBusy = "reject",
        wait: float | None = None,
    ) -> models.Run:
        return _run(
            self._client.run(thread_id, input, responses=responses, workflow=workflow, on_busy=on_busy, wait=wait)
        )

    def get_run(self, thread_id: str, run_id: str) -> models.Run:
        return _run(self._client.get_run(thread_id, run_id))

    def cancel(self, thread_id: str, run_id: str) -> models.Cancelled:
        return _run(self._client.cancel(thread_id, run_id))

    def events(
        self, thread_id: str, after: int | None = None, *, live: bool = True, reconnect: bool = True
    ) -> Generator[models.Event, None, None]:
        return _iterate(self._client.events(thread_id, after, live=live, reconnect=reconnect))

    def requests(self, thread_id: str | None = None, *, limit: int = PAGE) -> list[models.Request]:
        return _run(self._client.requests(thread_id, limit=limit))

    def answer(self, thread_id: str, request_id: str, value: Any, *, wait: float | None = None) -> models.Run:
        return _run(self._client.answer(thread_id, request_id, value, wait=wait))

    # ------------------------------------------------------------ threads

    def threads(self, search: str | None = None, *, page_size: int = PAGE) -> Generator[models.Thread, None, None]:
        return _iterate(self._client.threads(search, page_size=page_size))

    def thread(self, thread_id: str) -> models.Thread:
        return _run(self._client.thread(thread_id))

    def delete_thread(self, thread_id: str) -> None:
        _run(self._client.delete_thread(thread_id))

    def state(self, thread_id: str) -> dict[str, Any]:
        return _run(self._client.state(thread_id))

    def update_state(self, thread_id: str, values: Mapping[str, Any]) -> dict[str, Any]:
        return _run(self._client.update_state(thread_id, values))

    def clear_state(self, thread_id: str) -> None:
        _run(self._client.clear_state(thread_id))

    def patch_state(
        self, thread_id: str, update_state: Mapping[str, Any] | None = None, *, remove_state: Iterable[str] = ()
    ) -> models.Checkpoint:
        return _run(self._client.patch_state(thread_id, update_state, remove_state=remove_state))

    def messages(
        self, thread_id: str, search: str | None = None, *, page_size: int = PAGE
    ) -> Generator[models.Message, None, None]:
        return _iterate(self._client.messages(thread_id, search, page_size=page_size))

    def add_messages(self, thread_id: str, messages: MessagesIn) -> list[str]:
        return _run(self._client.add_messages(thread_id, messages))

    def message(self, thread_id: str, message_id: str) -> models.Message:
        return _run(self._client.message(thread_id, message_id))

    def delete_message(self, thread_id: str, message_id: str) -> None:
        _run(self._client.delete_message(thread_id, message_id))

    # ------------------------------------------------------------ time travel

    def checkpoints(
        self, thread_id: str, *, before: AnyCheckpoint | None = None, page_size: int = PAGE
    ) -> Generator[models.Checkpoint, None, None]:
        return _iterate(self._client.checkpoints(thread_id, before=before, page_size=page_size))

    def checkpoint(self, thread_id: str, checkpoint: AnyCheckpoint) -> models.CheckpointState:
        return _run(self._client.checkpoint(thread_id, checkpoint))

    def diff(self, thread_id: str, before: AnyCheckpoint, after: AnyCheckpoint) -> models.Diff:
        return _run(self._client.diff(thread_id, before, after))

    def fork(
        self,
        thread_id: str,
        checkpoint: AnyCheckpoint | None = None,
        *,
        to: str | None = None,
        update_state: Mapping[str, Any] | None = None,
        remove_state: Iterable[str] = (),
    ) -> models.Checkpoint:
        return _run(
            self._client.fork(thread_id, checkpoint, to=to, update_state=update_state, remove_state=remove_state)
        )

    def rewind(self, thread_id: str, checkpoint: AnyCheckpoint) -> models.Checkpoint:
        return _run(self._client.rewind(thread_id, checkpoint))

    def pin(self, thread_id: str, checkpoint: AnyCheckpoint | None = None) -> models.Checkpoint:
        return _run(self._client.pin(thread_id, checkpoint))

    def unpin(self, thread_id: str, checkpoint: AnyCheckpoint | None = None) -> models.Checkpoint:
        return _run(self._client.unpin(thread_id, checkpoint))

    # ------------------------------------------------------------ transfer

    def export_thread(self, thread_id: str, path: str | os.PathLike[str]) -> Path:
        return _run(self._client.export_thread(thread_id, path))

    def import_thread(self, path: str | os.PathLike[str], thread_id: str) -> models.Thread:
        return _run(self._client.import_thread(path, thread_id))
