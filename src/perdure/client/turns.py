"""A turn streamed to its end across broken connections: started once, without gap or repetition."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.client import calls
from perdure.client.calls import TurnCall
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
from perdure.client.models import AT_REST, Chunk, Message
from perdure.client.retries import fetch, fetch_patiently
from perdure.client.steps import TRY_AGAIN, ClientSession, Close, Emit, Reconnects, Steps, Wait

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
    """The steps of one streamed turn."""

    def __init__(self, session: ClientSession, turn: TurnCall) -> None:
        self._session = session
        self._turn = turn
        self._returns = Reconnects(session)
        self._stream = EventStream(self._returns)
        self._thread_id = turn.thread_id
        self._run_id = turn.run_id
        """The run that moves the thread for this turn."""
        self._has_begun = False
        """Whether the server confirmed the start."""
        self._after: int | None = None
        """The last `seq` before the turn; None: unknown."""
        self._seq: int | None = None
        """The last `seq` that was emitted."""
        self._chunk_count = 0
        """Emitted chunks of that event: an event may be several."""
        self._output_count = 0
        """Emitted messages of outputs."""
        self._last_is_message = False
        self._state: str | None = None
        """The final state of the run."""
        self._failure: Any = None
        self._idle_lookups = 0

    def steps(self) -> Steps[None]:
        try:
            yield from self._begin()
            is_complete = yield from self._read_stream()
        except NotSent:
            raise
        except ConnectionLost as error:
            is_complete = False
            if self._seq is None:
                yield from self._find_run(error)
        if not is_complete:
            yield from self._rejoin()
            yield from self._emit_end()
        yield Close()
        if self._state == "FAILED":
            raise self._run_error()

    # ------------------------------------------------------------ the first connection

    def _begin(self) -> Steps[None]:
        """Sends the turn once. Only a request that was not sent is repeated."""
        # A queued turn starts when its thread is free, however long that takes.
        seconds = None if self._turn.on_busy == "enqueue" else self._session.stream_seconds
        call = calls.stream(self._turn, seconds)
        for attempt in range(1, self._session.patience.attempts + 1):
            try:
                yield from self._stream.open(call)
            except NotSent as error:
                if attempt == self._session.patience.attempts:
                    raise
                wait = self._session.wait_after(attempt, error)
                self._session.use_next_server()
                yield Wait(wait)
            else:
                return

    def _read_stream(self) -> Steps[bool]:
        """Whether the stream is complete. Raises ConnectionLost."""
        while True:
            entry = yield from self._stream.next()
            if entry is None:
                continue
            chunk = decode_chunk(*entry)
            if chunk.status == "started" and not self._has_begun:
                self._has_begun, self._run_id = True, chunk.run_id or self._run_id
                self._after = chunk.data.get("cursor")
            if chunk.status == "done" and chunk.seq is None:
                state = chunk.data.get("state")
                if state not in AT_REST:
                    raise ConnectionLost("The server stopped; another one resumes the run.")
                self._state = state
                yield Emit(chunk)
                return True
            yield from self._emit_chunk(chunk)

    def _emit_chunk(self, chunk: Chunk) -> Steps[None]:
        if chunk.seq is not None:
            self._chunk_count = self._chunk_count + 1 if chunk.seq == self._seq else 1
            self._seq = chunk.seq
            self._last_is_message = chunk.event == "message"
            self._output_count += chunk.event == "message"
            self._state = final_state(chunk) or self._state
            if chunk.event == "error":
                self._failure = chunk.data
        yield Emit(chunk)

    # ------------------------------------------------------------ what became of it

    def _find_run(self, lost: ConnectionLost) -> Steps[None]:
        """Looks the run up, because no event of it arrived. Never starts it again. Raises ConnectionLost."""
        for look in range(MAX_RUN_LOOKUPS):
            try:
                yield from fetch_patiently(self._session, calls.get_run(self._thread_id, self._run_id))
            except NotFound:
                yield Wait(min(self._session.patience.longest_wait, 0.1 * 4**look))
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

    def _rejoin(self) -> Steps[None]:
        """Continues with the thread's log until the run has ended."""
        while self._state is None:
            try:
                call = calls.events(self._thread_id, self._cursor, live=True, seconds=self._session.stream_seconds)
                yield from self._stream.open(call)
                yield Emit(stream_notice(self._thread_id, self._run_id, {"status": "reconnected", "cursor": self._seq}))
                while self._state is None:
                    entry = yield from self._stream.next()
                    if entry is None:
                        yield from self._check_progress()
                    else:
                        yield from self._emit_entry(*entry)
            except TRY_AGAIN as error:
                error.thread_id, error.run_id = self._thread_id, self._run_id
                yield from self._returns.pause(error, self._stream.retry_seconds)
        yield Close()

    @property
    def _cursor(self) -> int | None:
        if self._seq is None:
            return self._after
        # An output of several messages may have arrived in part: read the event again and skip those.
        return self._seq - 1 if self._last_is_message else self._seq

    def _emit_entry(self, seq: int | None, event: dict[str, Any]) -> Steps[None]:
        """Skips events of earlier runs. A later run continues the work of this one."""
        self._idle_lookups = 0
        run_id = event.get("run_id")
        if self._seq is None and run_id != self._run_id:
            return
        if seq is not None and self._seq is not None and seq < self._seq:
            return
        self._run_id = run_id or self._run_id
        is_begun = seq is not None and seq == self._seq
        chunks = to_chunks(event, seq, self._output_count - (self._chunk_count if is_begun else 0))
        if event.get("type") == "request_info":
            yield from self._load_schema(chunks[0])
        for chunk in chunks[self._chunk_count :] if is_begun else chunks:
            yield from self._emit_chunk(chunk)
        if seq is not None:
            self._last_is_message = False

    def _load_schema(self, chunk: Chunk) -> Steps[None]:
        """Adds the schema of the answer from the list of pending requests."""
        wanted = chunk.data["request"]
        try:
            pending = yield from fetch(self._session, calls.requests(self._thread_id))
        except ClientError:  # the request can be answered without it
            return
        for content in pending:
            if content.request_id == wanted["request_id"]:
                wanted.update(response_schema=content.response_schema, response_type=content.response_type)

    def _check_progress(self) -> Steps[None]:
        """After a heartbeat: checks whether a run still owns the thread."""
        if self._seq is None:
            yield from fetch_patiently(self._session, calls.get_run(self._thread_id, self._run_id))
            return
        thread = yield from fetch_patiently(self._session, calls.thread(self._thread_id))
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

    def _emit_end(self) -> Steps[None]:
        """Emits the final chunks that the lost connection would have carried."""
        if self._turn.response_granularity == "full":
            state = yield from fetch_patiently(self._session, calls.state(self._thread_id))
            yield Emit(Chunk(event="state", state=state, thread_id=self._thread_id, run_id=self._run_id, metadata={}))
        pending: list[str] = []
        if self._state == "IDLE_WITH_PENDING_REQUESTS":
            run = yield from fetch_patiently(self._session, calls.get_run(self._thread_id, self._run_id))
            pending = [content.request_id for content in run.requests]
        about = {"thread_id": self._thread_id, "run_id": self._run_id, "state": self._state}
        done = {**about, "pending_requests": pending, "status": "done", "cursor": self._seq}
        yield Emit(stream_notice(self._thread_id, self._run_id, done))

    def _run_error(self) -> RunFailed:
        details = self._failure if isinstance(self._failure, dict) else {}
        why = f": {details.get('error_type')}: {details.get('message')}" if details else ""
        return RunFailed(
            f"Run {self._run_id} of thread {self._thread_id!r} failed{why}. Committed work is kept; "
            "run(thread_id) resumes it.",
            thread_id=self._thread_id,
            run_id=self._run_id,
        )
