"""A turn that is streamed to its end, whatever happens to the connection: begun once, told without gap or repeat."""

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
from perdure.client.event_stream import Line
from perdure.client.models import AT_REST, Chunk, Message
from perdure.client.retries import asked, asked_patiently
from perdure.client.steps import TRY_AGAIN, ClientSession, Close, Emit, StepReturns, Steps, Wait

# ---------------------------------------------------------------- chunks


_MEDIA = ("image", "audio", "video", "document")
_OWN = ("thread_id", "run_id", "timestamp", "seq")


def chunk_from(seq: int | None, told: Mapping[str, Any]) -> Chunk:
    """What a server streamed. Raises UnreadableAnswer."""
    try:
        return msgspec.convert({**told, "seq": seq}, Chunk)
    except msgspec.ValidationError as error:
        raise UnreadableAnswer(f"A chunk of the stream cannot be read: {error}") from error


def notice(thread_id: str, run_id: str | None, data: Mapping[str, Any]) -> Chunk:
    """Something about the stream itself."""
    return Chunk(
        event="updates", data=dict(data), thread_id=thread_id, run_id=run_id, metadata={}, timestamp=time.time()
    )


def chunks_of(event: Mapping[str, Any], seq: int | None, said_before: int = 0) -> list[Chunk]:
    """What an event says to those who follow a turn: an output of several messages is several chunks. `said_before`:
    messages of the run's outputs before it; one without an id is known by its place among them."""
    kind, data = event.get("type"), event.get("data")
    if kind == "data" and isinstance(data, Mapping) and data.get("type") == "agent_response_update":
        delta = message_from(data, str(data.get("message_id") or ""), delta=True)
        return [_chunk(event, None, "message", message=delta)]
    if kind == "output":
        said = enumerate(_said(data, event.get("executor_id")), said_before)
        run_id = event.get("run_id")
        return [_chunk(event, seq, "message", message=message_from(one, f"{run_id}-out{at}")) for at, one in said]
    if kind == "failed":
        return [_chunk(event, seq, "error", data=event.get("details"))]
    if kind == "request_info":
        return [_chunk(event, seq, "updates", data={"status": "interrupted", "request": request_from(event)})]
    shown = {key: value for key, value in event.items() if key not in _OWN}
    return [_chunk(event, seq, "updates", data=shown)]


def _chunk(event: Mapping[str, Any], seq: int | None, name: str, **more: Any) -> Chunk:
    thread_id, run_id = event.get("thread_id"), event.get("run_id")
    return Chunk(event=name, seq=seq, thread_id=thread_id, run_id=run_id, metadata={}, timestamp=time.time(), **more)


def end_of(chunk: Chunk) -> str | None:
    """The state in which the run ended, if this is what says so."""
    data = chunk.data
    if chunk.seq is None or not isinstance(data, Mapping) or data.get("type") != "status":
        return None
    state = data.get("state")
    return state if state in AT_REST else None


def request_from(event: Mapping[str, Any]) -> dict[str, Any]:
    """A request, of which the log does not know what an answer looks like."""
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


def _said(data: Any, author: Any) -> list[Mapping[str, Any]]:
    if isinstance(data, Mapping) and data.get("type") == "agent_response":
        return list(data.get("messages") or ())
    if _is_message(data):
        return [data]
    if isinstance(data, list) and data and all(_is_message(one) for one in data):
        return data
    text = data if isinstance(data, str) else msgspec.json.encode(data).decode()
    return [{"role": "assistant", "contents": [{"type": "text", "text": text}], "author_name": author}]


def _is_message(data: Any) -> bool:
    return isinstance(data, Mapping) and data.get("type") == "message" and "role" in data


def message_from(told: Mapping[str, Any], message_id: str, *, delta: bool = False) -> Message:
    contents = [one for one in told.get("contents") or () if isinstance(one, Mapping)]
    calls = [_block(one) for one in contents if one.get("type") == "function_call"]
    usages = [one.get("usage_details") for one in contents if one.get("type") == "usage"]
    return Message(
        message_id=(told.get("message_id") or message_id) if not delta else told.get("message_id"),
        role=told.get("role") or "assistant",
        content=[_block(one) for one in contents if one.get("type") != "usage"],
        delta=delta,
        tools_calls=calls or None,
        reasoning="".join(one.get("text") or "" for one in contents if one.get("type") == "text_reasoning"),
        metadata=dict(told.get("additional_properties") or {}),
        usages=usages[-1] if usages else None,
        author_name=told.get("author_name"),
    )


def _block(content: Mapping[str, Any]) -> dict[str, Any]:
    kind = content.get("type")
    if kind == "text":
        return {"type": "text", "text": content.get("text") or "", "annotations": []}
    if kind == "text_reasoning":
        return {"type": "reasoning", "summary": content.get("text") or ""}
    if kind == "function_call":
        args = _arguments(content.get("arguments"))
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


def _arguments(given: Any) -> Any:
    if given is None or given == "":
        return {}
    if not isinstance(given, str):
        return given
    try:
        found = msgspec.json.decode(given)
    except msgspec.DecodeError:
        return given
    return found if isinstance(found, dict) else given


LOOKS = 3
"""How often a run is looked for that the server may be about to begin."""


class StreamedTurn:
    """One of them."""

    def __init__(self, session: ClientSession, turn: TurnCall) -> None:
        self._session = session
        self._turn = turn
        self._returns = StepReturns(session)
        self._line = Line(self._returns)
        self._thread_id = turn.thread_id
        self._run_id = turn.run_id
        """The run that moves the thread for this turn."""
        self._has_begun = False
        """The server said so."""
        self._after: int | None = None
        """Where the log stood before; None: unknown."""
        self._seq: int | None = None
        """The last event of the log that was given."""
        self._given = 0
        self._said = 0
        """Messages of outputs that were given."""
        """Chunks of it: an event may be several."""
        self._last_is_message = False
        self._state: str | None = None
        """In which the run ended."""
        self._failure: Any = None
        self._looks_in_vain = 0

    def steps(self) -> Steps[None]:
        try:
            yield from self._begin()
            is_told = yield from self._listen()
        except NotSent:
            raise
        except ConnectionLost as error:
            is_told = False
            if self._seq is None:
                yield from self._find_run(error)
        if not is_told:
            yield from self._rejoin()
            yield from self._tell_end()
        yield Close()
        if self._state == "FAILED":
            raise self._failed()

    # ------------------------------------------------------------ the first connection

    def _begin(self) -> Steps[None]:
        """Sent once. Only what never left this machine is tried again."""
        # A turn that waits for its thread is answered when its time comes, however long that takes.
        seconds = None if self._turn.on_busy == "enqueue" else self._session.stream_seconds
        call = calls.stream(self._turn, seconds)
        for attempt in range(1, self._session.patience.attempts + 1):
            try:
                yield from self._line.open(call)
            except NotSent as error:
                if attempt == self._session.patience.attempts:
                    raise
                wait = self._session.wait_after(attempt, error)
                self._session.go_on_elsewhere()
                yield Wait(wait)
            else:
                return

    def _listen(self) -> Steps[bool]:
        """Whether all was told. Raises ConnectionLost."""
        while True:
            told = yield from self._line.next()
            if told is None:
                continue
            chunk = chunk_from(*told)
            if chunk.status == "started" and not self._has_begun:
                self._has_begun, self._run_id = True, chunk.run_id or self._run_id
                self._after = chunk.data.get("cursor")
            if chunk.status == "done" and chunk.seq is None:
                state = chunk.data.get("state")
                if state not in AT_REST:
                    raise ConnectionLost("The server stopped, and left the run for another one.")
                self._state = state
                yield Emit(chunk)
                return True
            yield from self._give(chunk)

    def _give(self, chunk: Chunk) -> Steps[None]:
        if chunk.seq is not None:
            self._given = self._given + 1 if chunk.seq == self._seq else 1
            self._seq = chunk.seq
            self._last_is_message = chunk.event == "message"
            self._said += chunk.event == "message"
            self._state = end_of(chunk) or self._state
            if chunk.event == "error":
                self._failure = chunk.data
        yield Emit(chunk)

    # ------------------------------------------------------------ what became of it

    def _find_run(self, lost: ConnectionLost) -> Steps[None]:
        """Nothing of the run was told. It is never begun again: the server is asked whether it knows it.

        Raises ConnectionLost if not.
        """
        for look in range(LOOKS):
            try:
                yield from asked_patiently(self._session, calls.get_run(self._thread_id, self._run_id))
            except NotFound:
                yield Wait(min(self._session.patience.longest_wait, 0.1 * 4**look))
            else:
                return
        began = "The server had begun it and was lost before anything of it was written." if self._has_begun else ""
        raise ConnectionLost(
            f"The connection broke before anything of the turn was told ({lost.message}), and the server knows of no "
            f"run {self._turn.run_id} of thread {self._thread_id!r}. {began or 'Most likely it was not begun.'} It was "
            "not sent again: look at the thread's messages before you do.",
            thread_id=self._thread_id,
            run_id=self._turn.run_id,
        ) from lost

    def _rejoin(self) -> Steps[None]:
        """Go on with the thread's log, until the run has ended."""
        while self._state is None:
            try:
                call = calls.events(self._thread_id, self._cursor, live=True, seconds=self._session.stream_seconds)
                yield from self._line.open(call)
                yield Emit(notice(self._thread_id, self._run_id, {"status": "reconnected", "cursor": self._seq}))
                while self._state is None:
                    told = yield from self._line.next()
                    if told is None:
                        yield from self._look()
                    else:
                        yield from self._tell(*told)
            except TRY_AGAIN as error:
                error.thread_id, error.run_id = self._thread_id, self._run_id
                yield from self._returns.pause(error, self._line.retry_seconds)
        yield Close()

    @property
    def _cursor(self) -> int | None:
        if self._seq is None:
            return self._after
        # Of an output of several messages only some may have come: the event is read again, and those are left out.
        return self._seq - 1 if self._last_is_message else self._seq

    def _tell(self, seq: int | None, event: dict[str, Any]) -> Steps[None]:
        """Events of runs before this one are passed over; a run after it goes on with what this one left."""
        self._looks_in_vain = 0
        run_id = event.get("run_id")
        if self._seq is None and run_id != self._run_id:
            return
        if seq is not None and self._seq is not None and seq < self._seq:
            return
        self._run_id = run_id or self._run_id
        is_begun = seq is not None and seq == self._seq
        found = chunks_of(event, seq, self._said - (self._given if is_begun else 0))
        if event.get("type") == "request_info":
            yield from self._ask_schema(found[0])
        for chunk in found[self._given :] if is_begun else found:
            yield from self._give(chunk)
        if seq is not None:
            self._last_is_message = False

    def _ask_schema(self, chunk: Chunk) -> Steps[None]:
        """The log does not say what an answer looks like; the list of requests does, while it is pending."""
        wanted = chunk.data["request"]
        try:
            pending = yield from asked(self._session, calls.requests(self._thread_id))
        except ClientError:  # it can be answered without
            return
        for one in pending:
            if one.request_id == wanted["request_id"]:
                wanted.update(response_schema=one.response_schema, response_type=one.response_type)

    def _look(self) -> Steps[None]:
        """Nothing has happened for a while: is there still somebody who moves the thread?"""
        if self._seq is None:
            yield from asked_patiently(self._session, calls.get_run(self._thread_id, self._run_id))
            return
        thread = yield from asked_patiently(self._session, calls.thread(self._thread_id))
        if thread.status in AT_REST:
            self._state = thread.status
        self._looks_in_vain = 0 if thread.run_id else self._looks_in_vain + 1
        if self._state is None and self._looks_in_vain > 1:
            raise RunInterrupted(
                f"Run {self._run_id} of thread {self._thread_id!r} was interrupted, and nobody goes on with it. What "
                "was committed is kept: run(thread_id) resumes it.",
                thread_id=self._thread_id,
                run_id=self._run_id,
            )

    # ------------------------------------------------------------ the end

    def _tell_end(self) -> Steps[None]:
        """What a server says at the end of a turn, for one that nobody could say it of."""
        if self._turn.response_granularity == "full":
            state = yield from asked_patiently(self._session, calls.state(self._thread_id))
            yield Emit(Chunk(event="state", state=state, thread_id=self._thread_id, run_id=self._run_id, metadata={}))
        pending: list[str] = []
        if self._state == "IDLE_WITH_PENDING_REQUESTS":
            run = yield from asked_patiently(self._session, calls.get_run(self._thread_id, self._run_id))
            pending = [one.request_id for one in run.requests]
        about = {"thread_id": self._thread_id, "run_id": self._run_id, "state": self._state}
        done = {**about, "pending_requests": pending, "status": "done", "cursor": self._seq}
        yield Emit(notice(self._thread_id, self._run_id, done))

    def _failed(self) -> RunFailed:
        details = self._failure if isinstance(self._failure, dict) else {}
        why = f": {details.get('error_type')}: {details.get('message')}" if details else ""
        return RunFailed(
            f"Run {self._run_id} of thread {self._thread_id!r} failed{why}. What was committed is kept; "
            "run(thread_id) resumes it.",
            thread_id=self._thread_id,
            run_id=self._run_id,
        )
