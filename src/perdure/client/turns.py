"""A turn streamed to its end across broken connections: started once, without gap or repetition."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import msgspec

from perdure.client import calls
from perdure.client.calls import TurnCall
from perdure.client.connection import Connection
from perdure.client.errors import (
    ConnectionLost,
    NotFound,
    NotSent,
    RunFailed,
    RunInterrupted,
    UnreadableAnswer,
)
from perdure.client.event_stream import EventStream
from perdure.client.fetch import TRY_AGAIN, fetch_patiently
from perdure.client.models import AT_REST, Chunk


def decode_chunk(seq: int | None, data: Mapping[str, Any]) -> Chunk:
    """A streamed chunk. Raises UnreadableAnswer."""
    try:
        return msgspec.convert({**data, "seq": seq}, Chunk)
    except msgspec.ValidationError as error:
        raise UnreadableAnswer(f"A chunk of the stream cannot be read: {error}") from error


def stream_notice(thread_id: str, run_id: str | None, data: Mapping[str, Any]) -> Chunk:
    """A chunk about the stream itself."""
    return Chunk(
        event="updates", data=dict(data), thread_id=thread_id, run_id=run_id, metadata={}, timestamp=time.time()
    )


def final_state(chunk: Chunk) -> str | None:
    """The final state of the run, if this chunk has it."""
    data = chunk.data
    if chunk.seq is None or not isinstance(data, Mapping) or data.get("type") != "status":
        return None
    state = data.get("state")
    return state if state in AT_REST else None


MAX_RUN_LOOKUPS = 3
"""Lookups of a run that the server may be about to start."""


class StreamedTurn:
    """One streamed turn."""

    def __init__(self, connection: Connection, turn: TurnCall) -> None:
        self._connection = connection
        self._turn = turn
        self._stream = EventStream(connection)
        self._thread_id = turn.thread_id
        self._run_id = turn.run_id
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
        async with self._stream:
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
            raise self._run_error()

    # ------------------------------------------------------------ the first connection

    async def _begin(self) -> None:
        """Sends the turn once. Only a request that was not sent is repeated."""
        # A queued turn starts when its thread is free, however long that takes.
        connection = self._connection
        seconds = None if self._turn.on_busy == "enqueue" else connection.stream_seconds
        call = calls.stream(self._turn, seconds)
        for attempt in range(1, connection.patience.attempts + 1):
            try:
                await self._stream.open(call)
            except NotSent as error:
                if attempt == connection.patience.attempts:
                    raise
                wait = connection.wait_after(attempt, error)
                connection.use_next_server()
                await connection.io.sleep(wait)
            else:
                return

    async def _next_chunk(self) -> Chunk:
        """Raises ConnectionLost, also if the server stops before the run ends."""
        while True:
            entry = await self._stream.next()
            if entry is not None:
                break
        chunk = decode_chunk(*entry)
        if chunk.status == "started" and not self._has_begun:
            self._has_begun, self._run_id = True, chunk.run_id or self._run_id
            self._after = chunk.data.get("cursor")
        if chunk.status == "done" and chunk.seq is None:
            state = chunk.data.get("state")
            if state not in AT_REST:
                raise ConnectionLost("The server stopped; another one resumes the run.")
            self._state = state
            return chunk
        return self._record(chunk)

    def _record(self, chunk: Chunk) -> Chunk:
        if chunk.seq is not None:
            self._chunk_count = self._chunk_count + 1 if chunk.seq == self._seq else 1
            self._seq = chunk.seq
            self._last_is_message = chunk.event == "message"
            self._state = final_state(chunk) or self._state
            if chunk.event == "error":
                self._failure = chunk.data
        return chunk

    # ------------------------------------------------------------ what became of it

    async def _find_run(self, lost: ConnectionLost) -> None:
        """Looks the run up, because no event of it arrived. Never starts it again. Raises ConnectionLost."""
        connection = self._connection
        for look in range(MAX_RUN_LOOKUPS):
            try:
                await fetch_patiently(connection, calls.get_run(self._thread_id, self._run_id))
            except NotFound:
                await connection.io.sleep(min(connection.patience.longest_wait, 0.1 * 4**look))
            else:
                return
        began = "The server had started it and was lost before it wrote anything." if self._has_begun else ""
        raise ConnectionLost(
            f"The connection broke before the first event of the turn ({lost.message}), and the server has no "
            f"run {self._turn.run_id} of thread {self._thread_id!r}. {began or 'Most likely it did not start.'} The "
            "client did not send it again: read the thread's messages before you do.",
            thread_id=self._thread_id,
            run_id=self._turn.run_id,
        ) from lost

    async def _chunks_of_log(self) -> AsyncGenerator[Chunk, None]:
        """Continues with the thread's log until the run has ended."""
        while self._state is None:
            try:
                seconds = self._connection.stream_seconds
                call = calls.events(self._thread_id, self._cursor, seconds=seconds, chunks=True)
                await self._stream.open(call)
                yield stream_notice(self._thread_id, self._run_id, {"status": "reconnected", "cursor": self._seq})
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
                await self._stream.pause(error)

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
            await fetch_patiently(self._connection, calls.get_run(self._thread_id, self._run_id))
            return
        thread = await fetch_patiently(self._connection, calls.thread(self._thread_id))
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
        if self._turn.response_granularity == "full":
            state = await fetch_patiently(self._connection, calls.state(self._thread_id))
            chunks.append(
                Chunk(event="state", state=state, thread_id=self._thread_id, run_id=self._run_id, metadata={})
            )
        pending: list[str] = []
        if self._state == "IDLE_WITH_PENDING_REQUESTS":
            run = await fetch_patiently(self._connection, calls.get_run(self._thread_id, self._run_id))
            pending = [content.request_id for content in run.requests]
        about = {"thread_id": self._thread_id, "run_id": self._run_id, "state": self._state}
        done = {**about, "pending_requests": pending, "status": "done", "cursor": self._seq}
        return [*chunks, stream_notice(self._thread_id, self._run_id, done)]

    def _run_error(self) -> RunFailed:
        details = self._failure if isinstance(self._failure, dict) else {}
        why = f": {details.get('error_type')}: {details.get('message')}" if details else ""
        return RunFailed(
            f"Run {self._run_id} of thread {self._thread_id!r} failed{why}. Committed work is kept; "
            "run(thread_id) resumes it.",
            thread_id=self._thread_id,
            run_id=self._run_id,
        )
