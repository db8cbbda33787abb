"""Client: a server's threads, runs and conversations, from asyncio."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack
from uuid import uuid4

import httpx
from msgspec import UNSET

from perdure.client import calls, fetch, models
from perdure.client.calls import PAGE, AnyCheckpoint, MessagesIn, OnBusy, TurnArguments
from perdure.client.connection import AsyncIo, Connection, Patience, Token
from perdure.client.event_stream import events
from perdure.client.turns import StreamedTurn
from perdure.names import new_run_id


class WholeFile:
    """A file that appears, or replaces another, only when the block ends without an error."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._part = self.path.with_name(f".{self.path.name}.{uuid4().hex}.part")
        self._file = self._part.open("xb")

    def __enter__(self) -> Self:
        return self

    def write(self, piece: bytes) -> None:
        self._file.write(piece)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._file.flush()
            os.fsync(self._file.fileno())
        self._file.close()
        if kind is None:
            self._part.replace(self.path)
        else:
            self._part.unlink(missing_ok=True)


class Client:
    """Talks to a server, or to several that share a storage: reads and streams then continue at another one.

    Every method raises ClientError: NotFound, Conflict, Invalid, ... The client repeats reads that
    meet no server or a busy one, and never sends anything else twice.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        api_key: str | None = None,
        token: Token | None = None,
        timeout: float | None = 30.0,
        headers: Mapping[str, str] | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        patience: Patience | None = None,
    ) -> None:
        """`timeout`: seconds without a byte, except where a run is waited for. Raises ValueError."""
        self._connection = Connection(
            AsyncIo(transport), url, api_key=api_key, token=token, timeout=timeout, headers=headers, patience=patience
        )

    def __repr__(self) -> str:
        return f"Client({self._connection!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close its connections. Runs continue."""
        await self._connection.io.aclose()

    async def _ask(self, call: calls.HttpCall[calls.T]) -> calls.T:
        return await fetch.fetch(self._connection, call)

    # ------------------------------------------------------------ the server and what it serves

    async def ping(self) -> str:
        return await self._ask(calls.ping())

    async def ready(self) -> models.Ready:
        """Whether the server can work, and which dependency is away."""
        return await self._ask(calls.ready())

    async def workflows(self) -> list[models.Workflow]:
        return await self._ask(calls.workflows())

    async def workflow(self, name: str) -> models.Workflow:
        return await self._ask(calls.workflow(name))

    async def graph(self) -> models.Graph:
        return await self._ask(calls.graph())

    async def tools(self) -> list[models.NodeTools]:
        return await self._ask(calls.tools())

    async def state_schema(self) -> dict[str, Any]:
        return await self._ask(calls.state_schema())

    # ------------------------------------------------------------ turns

    async def invoke(self, messages: MessagesIn | None = None, **options: Unpack[TurnArguments]) -> models.InvokeResult:
        """One turn of a conversation. Raises RunFailed if its run fails, and StillRunning if that takes too long."""
        turn = calls.new_turn(messages, options)
        return await fetch.start_run(self._connection, calls.invoke(turn), turn.thread_id, turn.run_id)

    def stream(
        self, messages: MessagesIn | None = None, **options: Unpack[TurnArguments]
    ) -> AsyncGenerator[models.Chunk, None]:
        """One turn as it happens, up to the chunk whose `status` is `done`.

        After a broken connection it continues with the thread's log: chunks with a `seq` arrive exactly once and in
        order, also from another server and after a restart. The turn starts once: if the client cannot find out
        whether it did, it raises ConnectionLost. Raises RunFailed, after the last chunk, if the run fails.
        """
        turn = calls.new_turn(messages, options)
        return StreamedTurn(self._connection, turn).chunks()

    async def stop(self, thread_id: str) -> models.Stopped:
        """Stop the run that owns the thread."""
        return await self._ask(calls.stop(thread_id))

    # ------------------------------------------------------------ runs

    async def run(
        self,
        thread_id: str,
        input: Any = UNSET,
        *,
        responses: Mapping[str, Any] | None = None,
        workflow: str | None = None,
        on_busy: OnBusy = "reject",
        wait: float | None = None,
    ) -> models.Run:
        """Start with an input, continue with answers, or resume with neither. `wait`: seconds to wait for its end; it
        continues after that. A run that failed is returned like any other, with its `error`."""
        run_id = new_run_id()
        call = calls.run(
            thread_id, run_id, input=input, responses=responses, workflow=workflow, on_busy=on_busy, wait=wait
        )
        return await fetch.start_run(self._connection, call, thread_id, run_id)

    async def get_run(self, thread_id: str, run_id: str) -> models.Run:
        return await self._ask(calls.get_run(thread_id, run_id))

    async def cancel(self, thread_id: str, run_id: str) -> models.Cancelled:
        return await self._ask(calls.cancel(thread_id, run_id))

    def events(
        self, thread_id: str, after: int | None = None, *, live: bool = True, reconnect: bool = True
    ) -> AsyncGenerator[models.Event, None]:
        """The events of a thread, without end: leave the loop when you have enough.

        `after`: the `seq` of the last event that you have; None: all stored events. `live`: also events that are not
        committed yet; they have no `seq` and may arrive again. Raises CursorExpired if the next events were pruned.
        """
        return events(self._connection, thread_id, after, live=live, reconnect=reconnect)

    async def requests(self, thread_id: str | None = None, *, limit: int = PAGE) -> list[models.Request]:
        """Pending requests of all threads or one, the oldest first."""
        return await self._ask(calls.requests(thread_id, limit))

    async def answer(self, thread_id: str, request_id: str, value: Any, *, wait: float | None = None) -> models.Run:
        """Answer a request. The thread continues once no other request is pending; `wait` as in `run`."""
        run_id = new_run_id()
        call = calls.answer(thread_id, request_id, value, run_id, wait)
        return await fetch.start_run(self._connection, call, thread_id, run_id)

    # ------------------------------------------------------------ threads

    def threads(self, search: str | None = None, *, page_size: int = PAGE) -> AsyncGenerator[models.Thread, None]:
        """Threads, the most recently updated first."""
        return fetch.pages(
            self._connection,
            lambda offset, limit: calls.threads(search, offset, limit),
            lambda item: item.thread_id,
            page_size,
        )

    async def thread(self, thread_id: str) -> models.Thread:
        return await self._ask(calls.thread(thread_id))

    async def delete_thread(self, thread_id: str) -> None:
        await self._ask(calls.delete_thread(thread_id))

    async def state(self, thread_id: str) -> dict[str, Any]:
        """`context`, `execution_meta` and the shared state."""
        return await self._ask(calls.state(thread_id))

    async def update_state(self, thread_id: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Merge into the state: messages of `context` are appended, dicts merged, None ignored."""
        return await self._ask(calls.update_state(thread_id, values))

    async def clear_state(self, thread_id: str) -> None:
        """Clear the conversation and the state. The history stays."""
        await self._ask(calls.clear_state(thread_id))

    async def patch_state(
        self, thread_id: str, update_state: Mapping[str, Any] | None = None, *, remove_state: Iterable[str] = ()
    ) -> models.Checkpoint:
        """Set and remove keys of the shared state, as the thread's next checkpoint."""
        return await self._ask(calls.patch_state(thread_id, update_state or {}, remove_state))

    def messages(
        self, thread_id: str, search: str | None = None, *, page_size: int = PAGE
    ) -> AsyncGenerator[models.Message, None]:
        """The messages of a thread, oldest first."""
        return fetch.pages(
            self._connection,
            lambda offset, limit: calls.messages(thread_id, search, offset, limit),
            lambda item: item.message_id,
            page_size,
        )

    async def add_messages(self, thread_id: str, messages: MessagesIn) -> list[str]:
        """Append messages without a turn. Returns their ids."""
        return await self._ask(calls.add_messages(thread_id, messages))

    async def message(self, thread_id: str, message_id: str) -> models.Message:
        return await self._ask(calls.message(thread_id, message_id))

    async def delete_message(self, thread_id: str, message_id: str) -> None:
        await self._ask(calls.delete_message(thread_id, message_id))

    # ------------------------------------------------------------ time travel

    def checkpoints(
        self, thread_id: str, *, before: AnyCheckpoint | None = None, page_size: int = PAGE
    ) -> AsyncGenerator[models.Checkpoint, None]:
        """A thread's history, newest first."""
        return fetch.checkpoints(self._connection, thread_id, calls.find_checkpoint_id(before), page_size)

    async def checkpoint(self, thread_id: str, checkpoint: AnyCheckpoint) -> models.CheckpointState:
        """One checkpoint with its state."""
        return await self._ask(calls.checkpoint(thread_id, checkpoint))

    async def diff(self, thread_id: str, before: AnyCheckpoint, after: AnyCheckpoint) -> models.Diff:
        return await self._ask(calls.diff(thread_id, before, after))

    async def fork(
        self,
        thread_id: str,
        checkpoint: AnyCheckpoint | None = None,
        *,
        to: str | None = None,
        update_state: Mapping[str, Any] | None = None,
        remove_state: Iterable[str] = (),
    ) -> models.Checkpoint:
        """A new thread, `to`, that begins at a checkpoint, or at the head. Returns its first checkpoint."""
        call = calls.fork(thread_id, checkpoint, to=to, update_state=update_state, remove_state=remove_state)
        return await self._ask(call)

    async def rewind(self, thread_id: str, checkpoint: AnyCheckpoint) -> models.Checkpoint:
        """Go back to a checkpoint. Later checkpoints stay as a branch."""
        return await self._ask(calls.rewind(thread_id, checkpoint))

    async def pin(self, thread_id: str, checkpoint: AnyCheckpoint | None = None) -> models.Checkpoint:
        """Protect a checkpoint, or the head, from pruning."""
        return await self._ask(calls.pin(thread_id, checkpoint, is_pinned=True))

    async def unpin(self, thread_id: str, checkpoint: AnyCheckpoint | None = None) -> models.Checkpoint:
        return await self._ask(calls.pin(thread_id, checkpoint, is_pinned=False))

    # ------------------------------------------------------------ transfer

    async def export_thread(self, thread_id: str, path: str | os.PathLike[str]) -> Path:
        """Write a thread with its history to one file: all of it, or no file."""
        with await self._connection.io.call(WholeFile, path) as file:
            await fetch.download(self._connection, calls.export_thread(thread_id), file.write)
        return file.path

    async def import_thread(self, path: str | os.PathLike[str], thread_id: str) -> models.Thread:
        """Store the thread of such a file under this id: all of it, or nothing. Raises OSError."""
        return await self._ask(calls.import_thread(path, thread_id))
