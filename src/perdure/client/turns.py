"""Turns: as they are sent, and streamed across broken connections, started once, without gap or repetition."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal, TypeAlias, TypedDict

import msgspec
from msgspec import UNSET

from perdure.client.connection import STREAM_SECONDS, Connection, HttpCall, build_path, omit_none
from perdure.client.errors import ConnectionLost, NotFound, NotSent, RunFailed, RunInterrupted, UnreadableAnswer
from perdure.client.event_stream import EventStream
from perdure.client.fetch import TRY_AGAIN, events_call, fetch_patiently, repeat, run_call, state_call, thread_call
from perdure.client.models import AT_REST, Chunk
from perdure.names import check_options, new_run_id, new_thread_id

Granularity: TypeAlias = Literal["full", "partial", "low"]
OnBusy: TypeAlias = Literal["reject", "enqueue"]
MessagesIn: TypeAlias = str | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A text of the user, one message, or several: `{"role": "user", "content": "Hello"}`."""


def to_messages(messages: MessagesIn) -> list[dict[str, Any]]:
    """Messages as they are sent."""
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    if isinstance(messages, Mapping):
        return [dict(messages)]
    return [dict(message) for message in messages]


class TurnArguments(TypedDict, total=False):
    """Options of a turn, beside its messages."""

    thread_id: str | None
    """None: a new one."""
    resume: Any
    """The answer to the one pending request, or answers by request id; in place of messages."""
    initial_state: Mapping[str, Any] | None
    """Merged into the shared state before the turn."""
    response_granularity: Granularity
    """`partial` also returns the conversation, `full` the state."""
    on_busy: OnBusy
    """For a thread that is busy: fail with Conflict, or wait."""
    config: Mapping[str, Any]
    """`thread_name`, `thread_meta`."""


def new_turn(messages: MessagesIn | None, options: TurnArguments) -> dict[str, Any]:
    """A turn to send. The client chooses its ids, so that it can find the run if the answer is lost.

    Raises ValueError if the arguments do not make a turn, and TypeError for an unknown option.
    """
    check_options("A turn", options, TurnArguments.__annotations__)
    thread_id, resume = options.get("thread_id"), options.get("resume", UNSET)
    if (messages is None) != (resume is not UNSET):
        raise ValueError("Give messages, or resume: one of them. Nothing was sent.")
    if messages is None and thread_id is None:
        raise ValueError("resume needs a thread_id. Nothing was sent.")
    thread_id = new_thread_id() if thread_id is None else thread_id
    own = {"thread_id": thread_id, "run_id": new_run_id(), "on_busy": options.get("on_busy", "reject")}
    return {
        "config": {**options.get("config", {}), **own},
        "response_granularity": options.get("response_granularity", "low"),
        **omit_none(initial_state=options.get("initial_state")),
        **({"resume": resume} if messages is None else {"messages": to_messages(messages)}),
    }


# ---------------------------------------------------------------- the stream


def decode_chunk(seq: int | None, data: Mapping[str, Any]) -> Chunk:
    """A streamed chunk. Raises UnreadableAnswer."""
    try:
        return msgspec.convert({**data, "seq": seq}, Chunk)
    except msgspec.ValidationError as error:
        raise UnreadableAnswer(f"A chunk of the stream cannot be read: {error}") from error


MAX_RUN_LOOKUPS = 3
"""Lookups of a run that the server may be about to start."""


class StreamedTurn:
    def __init__(self, connection: Connection, body: dict[str, Any]) -> None:
        self._connection = connection
        self._body = body
        self._stream = EventStream(connection)
        self._thread_id: str = body["config"]["thread_id"]
        self._run_id: str = body["config"]["run_id"]
        """The run that moves the thread for this turn."""
        self._has_begun = False
        """Whether the server confirmed the start."""
        self._after: int | None = None
        """The last `seq` before the turn; None: unknown."""
        self._seq: int | None = None
        """The last `seq` that was yielded."""
        self._chunk_count = 0
        """Yielded chunks of that event: an event may be several."""
        self._last_is_message = False
        self._state: str | None = None
        """The final state of the run."""
        self._failure: Any = None
        self._idle_lookups = 0

    async def chunks(self) -> AsyncGenerator[Chunk, None]:
        is_complete = False
        async with aclosing(self._stream):
            try:
                await self._begin()
                while not is_complete:
                    chunk = await self._next_chunk()
                    is_complete = chunk.status == "done" and chunk.seq is None
                    yield chunk
            except NotSent:
                raise
            except ConnectionLost as error:
                if self._seq is None:
                    await self._find_run(error)
            if not is_complete:
                async with aclosing(self._chunks_of_log()) as chunks:
                    async for chunk in chunks:
                        yield chunk
        if not is_complete:
            for chunk in await self._end_chunks():
                yield chunk
        if self._state == "FAILED":
            details = self._failure if isinstance(self._failure, dict) else {}
            why = f": {details.get('error_type')}: {details.get('message')}" if details else ""
            raise RunFailed(
                f"Run {self._run_id} of thread {self._thread_id!r} failed{why}. Committed work is kept; "
                "run(thread_id) resumes it.",
                thread_id=self._thread_id,
                run_id=self._run_id,
            )

    # ------------------------------------------------------------ the first connection

    async def _begin(self) -> None:
        """Sends the turn once. Only a request that was not sent is repeated."""
        # A queued turn starts when its thread is free, however long that takes.
        body = self._body
        seconds = None if body["config"]["on_busy"] == "enqueue" else STREAM_SECONDS
        call = HttpCall[None]("POST", build_path("graph", "stream"), None, body=body, seconds=seconds)
        await repeat(self._connection, lambda: self._stream.open(call), only_reads=False)

    async def _next_chunk(self) -> Chunk:
        """Raises ConnectionLost, also if the server stops before the run ends."""
        while (entry := await self._stream.next()) is None:
            pass
        chunk = decode_chunk(*entry)
        if chunk.status == "started" and not self._has_begun:
            self._has_begun, self._run_id = True, chunk.run_id or self._run_id
            self._after = chunk.data.get("cursor")
        if chunk.status == "done" and chunk.seq is None:
            state = chunk.data.get("state")
            if state not in AT_REST:
                raise ConnectionLost("The server stopped; another one resumes the run.")
            self._state = state
        return self._record(chunk)

    def _record(self, chunk: Chunk) -> Chunk:
        if chunk.seq is not None:
            self._chunk_count = self._chunk_count + 1 if chunk.seq == self._seq else 1
            self._seq = chunk.seq
            self._last_is_message = chunk.event == "message"
            data = chunk.data if isinstance(chunk.data, Mapping) else {}
            if data.get("type") == "status" and data.get("state") in AT_REST:
                self._state = data["state"]
            if chunk.event == "error":
                self._failure = chunk.data
        return chunk

    # ------------------------------------------------------------ what became of it

    async def _find_run(self, lost: ConnectionLost) -> None:
        """Looks the run up, because no event of it arrived. Never starts it again. Raises ConnectionLost."""
        connection = self._connection
        for look in range(MAX_RUN_LOOKUPS):
            try:
                await fetch_patiently(connection, run_call(self._thread_id, self._run_id))
            except NotFound:
                await connection.io.sleep(min(connection.patience.longest_wait, 0.1 * 4**look))
            else:
                return
        began = "The server had started it and was lost before it wrote anything." if self._has_begun else ""
        raise ConnectionLost(
            f"The connection broke before the first event of the turn ({lost.message}), and the server has no "
            f"run {self._run_id} of thread {self._thread_id!r}. {began or 'Most likely it did not start.'} The "
            "client did not send it again: read the thread's messages before you do.",
            thread_id=self._thread_id,
            run_id=self._run_id,
        ) from lost

    async def _chunks_of_log(self) -> AsyncGenerator[Chunk, None]:
        """Continues with the thread's log until the run has ended."""
        while self._state is None:
            try:
                await self._stream.open(events_call(self._thread_id, self._cursor, chunks=True))
                yield self._chunk("updates", data={"status": "reconnected", "cursor": self._seq})
                begun, repeated = self._seq, self._chunk_count
                while self._state is None:
                    entry = await self._stream.next()
                    if entry is None:
                        await self._check_progress()
                        continue
                    self._idle_lookups = 0
                    chunk = decode_chunk(*entry)
                    if self._is_earlier(chunk):
                        continue
                    if chunk.seq is not None and chunk.seq == begun and repeated > 0:
                        repeated -= 1
                        continue
                    self._run_id = chunk.run_id or self._run_id
                    yield self._record(chunk)
            except TRY_AGAIN as error:
                error.thread_id, error.run_id = self._thread_id, self._run_id
                await self._stream.reconnects.pause(error)

    @property
    def _cursor(self) -> int | None:
        if self._seq is None:
            return self._after
        # An output of several messages may have arrived in part: read the event again and skip those.
        return self._seq - 1 if self._last_is_message else self._seq

    def _is_earlier(self, chunk: Chunk) -> bool:
        """Whether it belongs to an earlier run or was yielded. A later run continues the work of this one."""
        if self._seq is None:
            return chunk.run_id != self._run_id
        return chunk.seq is not None and chunk.seq < self._seq

    async def _check_progress(self) -> None:
        """After a heartbeat: checks whether a run still owns the thread."""
        if self._seq is None:
            await fetch_patiently(self._connection, run_call(self._thread_id, self._run_id))
            return
        thread = await fetch_patiently(self._connection, thread_call(self._thread_id))
        if thread.status in AT_REST:
            self._state = thread.status
        self._idle_lookups = 0 if thread.run_id else self._idle_lookups + 1
        if self._state is None and self._idle_lookups > 1:
            raise RunInterrupted(
                f"Run {self._run_id} of thread {self._thread_id!r} was interrupted, and no server continues it. "
                "Committed work is kept: run(thread_id) resumes it.",
                thread_id=self._thread_id,
                run_id=self._run_id,
            )

    # ------------------------------------------------------------ the end

    async def _end_chunks(self) -> list[Chunk]:
        """The final chunks that the lost connection would have carried."""
        chunks = []
        if self._body["response_granularity"] == "full":
            state = await fetch_patiently(self._connection, state_call(self._thread_id))
            chunks.append(self._chunk("state", state=state))
        pending: list[str] = []
        if self._state == "IDLE_WITH_PENDING_REQUESTS":
            run = await fetch_patiently(self._connection, run_call(self._thread_id, self._run_id))
            pending = [content.request_id for content in run.requests]
        about = {"thread_id": self._thread_id, "run_id": self._run_id, "state": self._state}
        done = {**about, "pending_requests": pending, "status": "done", "cursor": self._seq}
        return [*chunks, self._chunk("updates", data=done)]

    def _chunk(self, event: str, **content: Any) -> Chunk:
        """A chunk of the client itself."""
        about: dict[str, Any] = {"thread_id": self._thread_id, "run_id": self._run_id, "timestamp": time.time()}
        return Chunk(event=event, metadata={}, **about, **content)
