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
    ClientError,
    ConnectionLost,
    NotFound,
    NotSent,
    RunFailed,
    RunInterrupted,
    UnreadableAnswer,
)
from perdure.client.event_stream import EventStream
from perdure.client.fetch import TRY_AGAIN, fetch, fetch_patiently
from perdure.client.models import AT_REST, Chunk, Message

# ---------------------------------------------------------------- chunks


_MEDIA = ("image", "audio", "video", "document")
_OWN = ("thread_id", "run_id", "timestamp", "seq")


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


def to_chunks(event: Mapping[str, Any], seq: int | None, outputs_before: int = 0) -> list[Chunk]:
    """The chunks of an event: an output of several messages is several chunks.

    `outputs_before` counts the messages of earlier outputs of the run. A message without an id is numbered by it.
    """
    kind, data = event.get("type"), event.get("data")
    if kind == "data" and isinstance(data, Mapping) and data.get("type") == "agent_response_update":
        delta = to_message(data, str(data.get("message_id") or ""), delta=True)
        return [_chunk(event, None, "message", message=delta)]
    if kind == "output":
        messages = enumerate(output_messages(data, event.get("executor_id")), outputs_before)
        run_id = event.get("run_id")
        return [
            _chunk(event, seq, "message", message=to_message(content, f"{run_id}-out{at}")) for at, content in messages
        ]
    if kind == "failed":
        return [_chunk(event, seq, "error", data=event.get("details"))]
    if kind == "request_info":
        return [_chunk(event, seq, "updates", data={"status": "interrupted", "request": to_request(event)})]
    data = {key: value for key, value in event.items() if key not in _OWN}
    return [_chunk(event, seq, "updates", data=data)]


def _chunk(event: Mapping[str, Any], seq: int | None, name: str, **more: Any) -> Chunk:
    thread_id, run_id = event.get("thread_id"), event.get("run_id")
    return Chunk(event=name, seq=seq, thread_id=thread_id, run_id=run_id, metadata={}, timestamp=time.time(), **more)


def final_state(chunk: Chunk) -> str | None:
    """The final state of the run, if this chunk has it."""
    data = chunk.data
    if chunk.seq is None or not isinstance(data, Mapping) or data.get("type") != "status":
        return None
    state = data.get("state")
    return state if state in AT_REST else None


def to_request(event: Mapping[str, Any]) -> dict[str, Any]:
    """A request without its schema, which the log does not have."""
    terms = event.get("terms") or {}
    return {
        "request_id": event.get("request_id"),
        "executor_id": event.get("source_executor_id"),
        "data": event.get("data"),
        "response_type": event.get("response_type"),
        "response_schema": None,
        "deadline": terms.get("deadline"),
        "assignee": terms.get("assignee"),
    }


# ---------------------------------------------------------------- messages


def output_messages(data: Any, author: Any) -> list[Mapping[str, Any]]:
    if isinstance(data, Mapping) and data.get("type") == "agent_response":
        return list(data.get("messages") or ())
    if _is_message(data):
        return [data]
    if isinstance(data, list) and data and all(_is_message(content) for content in data):
        return data
    text = data if isinstance(data, str) else msgspec.json.encode(data).decode()
    return [{"role": "assistant", "contents": [{"type": "text", "text": text}], "author_name": author}]


def _is_message(data: Any) -> bool:
    return isinstance(data, Mapping) and data.get("type") == "message" and "role" in data


def to_message(data: Mapping[str, Any], message_id: str, *, delta: bool = False) -> Message:
    contents = [content for content in data.get("contents") or () if isinstance(content, Mapping)]
    calls = [_to_block(content) for content in contents if content.get("type") == "function_call"]
    usages = [content.get("usage_details") for content in contents if content.get("type") == "usage"]
    return Message(
        message_id=(data.get("message_id") or message_id) if not delta else data.get("message_id"),
        role=data.get("role") or "assistant",
        content=[_to_block(content) for content in contents if content.get("type") != "usage"],
        delta=delta,
        tools_calls=calls or None,
        reasoning="".join(content.get("text") or "" for content in contents if content.get("type") == "text_reasoning"),
        metadata=dict(data.get("additional_properties") or {}),
        usages=usages[-1] if usages else None,
        author_name=data.get("author_name"),
    )


def _to_block(content: Mapping[str, Any]) -> dict[str, Any]:
    kind = content.get("type")
    if kind == "text":
        return {"type": "text", "text": content.get("text") or "", "annotations": []}
    if kind == "text_reasoning":
        return {"type": "reasoning", "summary": content.get("text") or ""}
    if kind == "function_call":
        args = _decode_arguments(content.get("arguments"))
        return {"type": "tool_call", "id": content.get("call_id"), "name": content.get("name"), "args": args}
    if kind == "function_result":
        failure = content.get("exception")
        return {
            "type": "tool_result",
            "call_id": content.get("call_id"),
            "output": content.get("result") if failure is None else failure,
            "is_error": failure is not None,
            "status": "completed" if failure is None else "failed",
        }
    if kind == "error":
        return {"type": "error", "message": content.get("message") or ""}
    if content.get("uri") is not None:
        media_type = content.get("media_type")
        family = (media_type or "").split("/", 1)[0]
        media = {"kind": "url", "url": content["uri"], "mime_type": media_type}
        return {"type": family if family in _MEDIA else "document", "media": media}
    return {"type": "data", "data": dict(content)}


def _decode_arguments(arguments: Any) -> Any:
    if arguments is None or arguments == "":
        return {}
    if not isinstance(arguments, str):
        return arguments
    try:
        decoded = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return arguments
    return decoded if isinstance(decoded, dict) else arguments


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
        self._output_count = 0
        """Yielded messages of outputs."""
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
            self._output_count += chunk.event == "message"
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
                await self._stream.open(calls.events(self._thread_id, self._cursor, live=True, seconds=seconds))
                yield stream_notice(self._thread_id, self._run_id, {"status": "reconnected", "cursor": self._seq})
                while self._state is None:
                    entry = await self._stream.next()
                    if entry is None:
                        await self._check_progress()
                        continue
                    self._idle_lookups = 0
                    if self._is_earlier(*entry):
                        continue
                    for chunk in await self._chunks_of_event(*entry):
                        yield self._record(chunk)
                    if entry[0] is not None:
                        self._last_is_message = False
            except TRY_AGAIN as error:
                error.thread_id, error.run_id = self._thread_id, self._run_id
                await self._stream.pause(error)

    @property
    def _cursor(self) -> int | None:
        if self._seq is None:
            return self._after
        # An output of several messages may have arrived in part: read the event again and skip those.
        return self._seq - 1 if self._last_is_message else self._seq

    def _is_earlier(self, seq: int | None, event: dict[str, Any]) -> bool:
        """Whether the event belongs to an earlier run or was yielded. A later run continues the work of this one."""
        if self._seq is None:
            return event.get("run_id") != self._run_id
        return seq is not None and seq < self._seq

    async def _chunks_of_event(self, seq: int | None, event: dict[str, Any]) -> list[Chunk]:
        """Without those that the broken stream brought."""
        self._run_id = event.get("run_id") or self._run_id
        is_begun = seq is not None and seq == self._seq
        chunks = to_chunks(event, seq, self._output_count - (self._chunk_count if is_begun else 0))
        if event.get("type") == "request_info":
            await self._load_schema(chunks[0])
        return chunks[self._chunk_count :] if is_begun else chunks

    async def _load_schema(self, chunk: Chunk) -> None:
        """Adds the schema of the answer from the list of pending requests."""
        wanted = chunk.data["request"]
        try:
            pending = await fetch(self._connection, calls.requests(self._thread_id))
        except ClientError:  # the request can be answered without it
            return
        for content in pending:
            if content.request_id == wanted["request_id"]:
                wanted.update(response_schema=content.response_schema, response_type=content.response_type)

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
