"""A turn that is streamed to its end, whatever happens to the connection: begun once, told without gap or repeat."""

from __future__ import annotations

from typing import Any

from perdure.client import calls
from perdure.client.answers import AT_REST, Chunk
from perdure.client.asking import asked, asked_patiently
from perdure.client.calls import Turn
from perdure.client.chunks import chunk_from, chunks_of, end_of, notice
from perdure.client.errors import (
    ClientError,
    ConnectionLost,
    NotFound,
    NotSent,
    RunFailed,
    RunInterrupted,
)
from perdure.client.line import Line
from perdure.client.steps import TRY_AGAIN, Close, Emit, Returns, Session, Steps, Wait

LOOKS = 3
"""How often a run is looked for that the server may be about to begin."""


class StreamedTurn:
    """One of them."""

    def __init__(self, session: Session, turn: Turn) -> None:
        self._session = session
        self._turn = turn
        self._returns = Returns(session)
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
