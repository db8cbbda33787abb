"""Client: a server's threads, runs and conversations, from asyncio."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar, Unpack

import httpx
from msgspec import UNSET

import perdure.client.models as models
from perdure.client.connection import AsyncIo, ClientOptions, Connection, HttpCall, HttpStream, build_path, omit_none
from perdure.client.event_stream import events
from perdure.client.fetch import fetch, run_call, start_run, state_call, thread_call
from perdure.client.models import Checkpoint, Run
from perdure.client.turns import MessagesIn, OnBusy, StreamedTurn, TurnArguments, new_turn, to_messages
from perdure.names import checkpoint_id_of, new_run_id
from perdure.platform import replace_file

T = TypeVar("T")
AnyCheckpoint: TypeAlias = str | Checkpoint
PAGE = 100


class Client:
    """Talks to a server, or to several that share a storage: reads and streams then continue at another one.

    Every method raises ClientError: NotFound, Conflict, Invalid, ... The client repeats reads that
    meet no server or a busy one, and never sends anything else twice.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """Raises ValueError."""
        self._connection = Connection(AsyncIo(transport), url, **options)

    def __repr__(self) -> str:
        return f"Client({self._connection!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close its connections. Runs continue."""
        await self._connection.io.aclose()

    async def _ask(
        self,
        method: str,
        path: Sequence[str],
        kind: type[T],
        under: str | None = None,
        *,
        body: Any = UNSET,
        **query: str | int | None,
    ) -> T:
        """The answer on a path below /v1: all of `data`, or what it has `under` a key."""
        call = HttpCall[T](method, build_path(*path), kind, under, omit_none(**query), body)
        return await fetch(self._connection, call)

    async def _pages(
        self,
        path: Sequence[str],
        kind: type[T],
        key: str,
        size: int,
        cursor: Callable[[int, T | None], dict[str, Any]],
    ) -> AsyncGenerator[T, None]:
        """All items of a list. `cursor` gets the number of items so far, and the last of them. An item that moves to
        another page meanwhile is yielded once."""
        yielded: set[object] = set()
        count, last = 0, None
        while True:
            items = await self._ask("GET", path, list[kind], path[-1], limit=size, **cursor(count, last))  # type: ignore[valid-type]  # read when the program runs
            for item in items:
                if getattr(item, key) not in yielded:
                    yielded.add(getattr(item, key))
                    yield item
            if len(items) < size:
                return
            count, last = count + len(items), items[-1]

    async def _start(self, thread_id: str, path: Sequence[str], body: Mapping[str, Any], wait: float | None) -> Run:
        """Start a run, which the server answers up to `wait` seconds later."""
        run_id = new_run_id()
        waiting: dict[str, Any] = {} if wait is None else {"query": {"wait": wait}, "seconds": wait + 30}
        url, whole = build_path("threads", thread_id, *path), {"run_id": run_id, **body}
        call = HttpCall[Run]("POST", url, Run, "run", body=whole, **waiting)
        return await start_run(self._connection, call, thread_id, run_id)

    # ------------------------------------------------------------ the server and what it serves

    async def ping(self) -> str:
        return await fetch(self._connection, HttpCall[str]("GET", "/ping", str))

    async def ready(self) -> models.Ready:
        """Whether the server can work, and which dependency is away."""
        call = HttpCall[models.Ready]("GET", "/readyz", models.Ready, also=frozenset({503}))
        return await fetch(self._connection, call)

    async def workflows(self) -> list[models.Workflow]:
        return await self._ask("GET", ["workflows"], list[models.Workflow], "workflows")

    async def workflow(self, name: str) -> models.Workflow:
        return await self._ask("GET", ["workflows", name], models.Workflow, "workflow")

    async def graph(self) -> models.Graph:
        return await self._ask("GET", ["graph"], models.Graph)

    async def tools(self) -> list[models.NodeTools]:
        return await self._ask("GET", ["graph", "tools"], list[models.NodeTools], "nodes")

    async def state_schema(self) -> dict[str, Any]:
        return await self._ask("GET", ["graph:StateSchema"], dict[str, Any])

    # ------------------------------------------------------------ turns

    async def invoke(self, messages: MessagesIn | None = None, **options: Unpack[TurnArguments]) -> models.InvokeResult:
        """One turn of a conversation. Raises RunFailed if its run fails, and StillRunning if that takes too long."""
        body = new_turn(messages, options)
        url, kind = build_path("graph", "invoke"), models.InvokeResult
        # No read timeout: the server answers when its own limit ends.
        call = HttpCall[models.InvokeResult]("POST", url, kind, body=body, seconds=None)
        return await start_run(self._connection, call, body["config"]["thread_id"], body["config"]["run_id"])

    def stream(
        self, messages: MessagesIn | None = None, **options: Unpack[TurnArguments]
    ) -> AsyncGenerator[models.Chunk, None]:
        """One turn as it happens, up to the chunk whose `status` is `done`.

        After a broken connection it continues with the thread's log: chunks with a `seq` arrive exactly once and in
        order, also from another server and after a restart. The turn starts once: if the client cannot find out
        whether it did, it raises ConnectionLost. Raises RunFailed, after the last chunk, if the run fails.
        """
        return StreamedTurn(self._connection, new_turn(messages, options)).chunks()

    async def stop(self, thread_id: str) -> models.Stopped:
        """Stop the run that owns the thread."""
        return await self._ask("POST", ["graph", "stop"], models.Stopped, body={"thread_id": thread_id})

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
    ) -> Run:
        """Start with an input, continue with answers, or resume with neither. `wait`: seconds to wait for its end; it
        continues after that. A run that failed is returned like any other, with its `error`."""
        if input is not UNSET and responses is not None:
            raise ValueError("Give input or responses, not both. Nothing was sent.")
        body = {"on_busy": on_busy, **omit_none(responses=responses, workflow=workflow)}
        if input is not UNSET:
            body["input"] = input
        return await self._start(thread_id, ["runs"], body, wait)

    async def get_run(self, thread_id: str, run_id: str) -> Run:
        return await fetch(self._connection, run_call(thread_id, run_id))

    async def cancel(self, thread_id: str, run_id: str) -> models.Cancelled:
        return await self._ask("POST", ["threads", thread_id, "runs", run_id, "cancel"], models.Cancelled)

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
        return await self._ask("GET", ["requests"], list[models.Request], "requests", thread_id=thread_id, limit=limit)

    async def answer(self, thread_id: str, request_id: str, value: Any, *, wait: float | None = None) -> Run:
        """Answer a request. The thread continues once no other request is pending; `wait` as in `run`."""
        return await self._start(thread_id, ["requests", request_id, "answer"], {"value": value}, wait)

    # ------------------------------------------------------------ threads

    def threads(self, search: str | None = None, *, page_size: int = PAGE) -> AsyncGenerator[models.Thread, None]:
        """Threads, the most recently updated first."""
        return self._pages(["threads"], models.Thread, "thread_id", page_size, _by_offset(search))

    async def thread(self, thread_id: str) -> models.Thread:
        return await fetch(self._connection, thread_call(thread_id))

    async def delete_thread(self, thread_id: str) -> None:
        await self._ask("DELETE", ["threads", thread_id], dict[str, Any])

    async def state(self, thread_id: str) -> dict[str, Any]:
        """`context`, `execution_meta` and the shared state."""
        return await fetch(self._connection, state_call(thread_id))

    async def update_state(self, thread_id: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Merge into the state: messages of `context` are appended, dicts merged, None ignored."""
        body = {"state": values}
        return await self._ask("PUT", ["threads", thread_id, "state"], dict[str, Any], "state", body=body)

    async def clear_state(self, thread_id: str) -> None:
        """Clear the conversation and the state. The history stays."""
        await self._ask("DELETE", ["threads", thread_id, "state"], dict[str, Any])

    async def patch_state(
        self, thread_id: str, update_state: Mapping[str, Any] | None = None, *, remove_state: Iterable[str] = ()
    ) -> Checkpoint:
        """Set and remove keys of the shared state, as the thread's next checkpoint."""
        body = {"update_state": update_state or {}, "remove_state": list(remove_state)}
        return await self._ask("PATCH", ["threads", thread_id, "state"], Checkpoint, "checkpoint", body=body)

    def messages(
        self, thread_id: str, search: str | None = None, *, page_size: int = PAGE
    ) -> AsyncGenerator[models.Message, None]:
        """The messages of a thread, oldest first."""
        path = ["threads", thread_id, "messages"]
        return self._pages(path, models.Message, "message_id", page_size, _by_offset(search))

    async def add_messages(self, thread_id: str, messages: MessagesIn) -> list[str]:
        """Append messages without a turn. Returns their ids."""
        body = {"messages": to_messages(messages)}
        return await self._ask("POST", ["threads", thread_id, "messages"], list[str], "data", body=body)

    async def message(self, thread_id: str, message_id: str) -> models.Message:
        return await self._ask("GET", ["threads", thread_id, "messages", message_id], models.Message, "message")

    async def delete_message(self, thread_id: str, message_id: str) -> None:
        await self._ask("DELETE", ["threads", thread_id, "messages", message_id], dict[str, Any])

    # ------------------------------------------------------------ time travel

    def checkpoints(
        self, thread_id: str, *, before: AnyCheckpoint | None = None, page_size: int = PAGE
    ) -> AsyncGenerator[Checkpoint, None]:
        """A thread's history, newest first."""
        return self._pages(
            ["threads", thread_id, "checkpoints"],
            Checkpoint,
            "checkpoint_id",
            page_size,
            lambda count, last: {"before": _find_id(last or before)},
        )

    async def checkpoint(self, thread_id: str, checkpoint: AnyCheckpoint) -> models.CheckpointState:
        """One checkpoint with its state."""
        path = ["threads", thread_id, "checkpoints", checkpoint_id_of(checkpoint)]
        return await self._ask("GET", path, models.CheckpointState, "checkpoint")

    async def diff(self, thread_id: str, before: AnyCheckpoint, after: AnyCheckpoint) -> models.Diff:
        path = ["threads", thread_id, "checkpoints", checkpoint_id_of(before), "diff", checkpoint_id_of(after)]
        return await self._ask("GET", path, models.Diff, "diff")

    async def fork(
        self,
        thread_id: str,
        checkpoint: AnyCheckpoint | None = None,
        *,
        to: str | None = None,
        update_state: Mapping[str, Any] | None = None,
        remove_state: Iterable[str] = (),
    ) -> Checkpoint:
        """A new thread, `to`, that begins at a checkpoint, or at the head. Returns its first checkpoint."""
        chosen = omit_none(checkpoint_id=_find_id(checkpoint), thread_id=to, update_state=update_state)
        body = {**chosen, "remove_state": list(remove_state)}
        return await self._ask("POST", ["threads", thread_id, "fork"], Checkpoint, "checkpoint", body=body)

    async def rewind(self, thread_id: str, checkpoint: AnyCheckpoint) -> Checkpoint:
        """Go back to a checkpoint. Later checkpoints stay as a branch."""
        body = {"checkpoint_id": checkpoint_id_of(checkpoint)}
        return await self._ask("POST", ["threads", thread_id, "rewind"], Checkpoint, "checkpoint", body=body)

    async def pin(self, thread_id: str, checkpoint: AnyCheckpoint | None = None) -> Checkpoint:
        """Protect a checkpoint, or the head, from pruning."""
        body = {"is_pinned": True, **omit_none(checkpoint_id=_find_id(checkpoint))}
        return await self._ask("POST", ["threads", thread_id, "pin"], Checkpoint, "checkpoint", body=body)

    async def unpin(self, thread_id: str, checkpoint: AnyCheckpoint | None = None) -> Checkpoint:
        body = {"is_pinned": False, **omit_none(checkpoint_id=_find_id(checkpoint))}
        return await self._ask("POST", ["threads", thread_id, "pin"], Checkpoint, "checkpoint", body=body)

    # ------------------------------------------------------------ transfer

    async def export_thread(self, thread_id: str, path: str | os.PathLike[str]) -> Path:
        """Write a thread with its history to one file: all of it, or no file."""
        call = HttpCall[None]("POST", build_path("threads", thread_id, "export"), None)
        with replace_file(Path(path)) as file:
            async with aclosing(HttpStream(self._connection)) as stream:
                await stream.open(call)
                while piece := await stream.read():
                    await self._connection.io.call(file.write, piece)
        return Path(path)

    async def import_thread(self, path: str | os.PathLike[str], thread_id: str) -> models.Thread:
        """Store the thread of such a file under this id: all of it, or nothing. Raises OSError."""
        call = HttpCall[models.Thread](
            "POST",
            build_path("threads", "import"),
            models.Thread,
            "thread",
            query={"thread_id": thread_id},
            file=Path(path),
            headers={"Content-Type": "application/x-ndjson"},
            seconds=None,
        )
        return await fetch(self._connection, call)


def _find_id(checkpoint: AnyCheckpoint | None) -> str | None:
    return None if checkpoint is None else checkpoint_id_of(checkpoint)


def _by_offset(search: str | None) -> Callable[[int, object], dict[str, Any]]:
    return lambda count, last: {"offset": count, "search": search}
