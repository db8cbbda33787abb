"""SyncClient: the same as Client, for programs without an event loop."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import httpx
from msgspec import UNSET

from perdure.client import calls, following, models
from perdure.client.calls import PAGE, AnyCheckpoint, HttpCall, MessagesIn, OnBusy, TurnArguments
from perdure.client.connecting import LIMITS, Connecting, Token, WholeFile, load_certificates, read_pieces
from perdure.client.errors import ClientError
from perdure.client.retries import fetch, start_run
from perdure.client.steps import Answered, Close, Emit, Open, Patience, Read, Send, Steps, Wait
from perdure.client.turns import StreamedTurn
from perdure.names import new_run_id

# ---------------------------------------------------------------- sync steps


T = TypeVar("T")


class SyncSteps:
    """The connections of one client."""

    def __init__(self, connecting: Connecting, transport: httpx.BaseTransport | None) -> None:
        self._connecting = connecting
        self._http = httpx.Client(transport=transport, limits=LIMITS, verify=load_certificates())

    def close(self) -> None:
        self._http.close()

    def do(self, steps: Steps[T]) -> T:
        """To the end. Raises what they raise."""
        opened = _SyncOpened(self._http, self._connecting)
        try:
            step = steps.send(None)
            while True:
                try:
                    got = opened.do(step)
                except ClientError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(got)
        except StopIteration as end:
            value: T = end.value
            return value

    def emit_all(self, steps: Steps[None]) -> Generator[Any, None, None]:
        """What they emit."""
        opened = _SyncOpened(self._http, self._connecting)
        try:
            step = steps.send(None)
            while True:
                if isinstance(step, Emit):
                    yield step.value
                    step = steps.send(None)
                    continue
                try:
                    got = opened.do(step)
                except ClientError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(got)
        except StopIteration:
            return
        finally:
            steps.close()
            opened.close()


class _SyncOpened:
    """The stream that is open, if one is."""

    def __init__(self, http: httpx.Client, connecting: Connecting) -> None:
        self._http = http
        self._connecting = connecting
        self._call: HttpCall[Any] | None = None
        self._response: httpx.Response | None = None
        self._pieces: Iterator[bytes] | None = None

    def do(self, step: Any) -> Any:
        """Raises NotSent, ConnectionLost or UnreadableAnswer."""
        if isinstance(step, Wait):
            return time.sleep(step.seconds)
        if isinstance(step, Close):
            return self.close()
        call = self._call if isinstance(step, Read) else step.call
        try:
            if isinstance(step, Send):
                return _to_answered(self._http.send(self._request(step.call)))
            if isinstance(step, Open):
                return self._open(step.call)
            return self._read()
        except (httpx.HTTPError, httpx.StreamError) as error:
            self.close()
            raise self._connecting.failure(call, error) from error

    def _request(self, call: HttpCall[Any]) -> httpx.Request:
        content = None if call.file is None else read_pieces(call.file)
        return self._http.build_request(**self._connecting.request(call, content))

    def _open(self, call: HttpCall[Any]) -> Answered:
        self.close()
        response = self._http.send(self._request(call), stream=True)
        self._call, self._response = call, response
        if response.is_success:
            self._pieces = response.iter_bytes()
            return Answered(response.status_code, dict(response.headers))
        response.read()
        self.close()
        return _to_answered(response)

    def _read(self) -> bytes:
        return b"" if self._pieces is None else next(self._pieces, b"")

    def close(self) -> None:
        response, self._response, self._pieces = self._response, None, None
        if response is not None:
            response.close()


def _to_answered(response: httpx.Response) -> Answered:
    return Answered(response.status_code, dict(response.headers), response.content)


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
        self._connecting = Connecting(
            url, api_key=api_key, token=token, timeout=timeout, headers=headers, patience=patience
        )
        self._session = self._connecting.session
        self._steps = SyncSteps(self._connecting, transport)

    def __repr__(self) -> str:
        return f"SyncClient({self._connecting!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections. Runs continue."""
        self._steps.close()

    def _ask(self, call: calls.HttpCall[calls.T]) -> calls.T:
        return self._steps.do(fetch(self._session, call))

    # ------------------------------------------------------------ the server and what it serves

    def ping(self) -> str:
        return self._ask(calls.ping())

    def ready(self) -> models.Ready:
        return self._ask(calls.ready())

    def workflows(self) -> list[models.Workflow]:
        return self._ask(calls.workflows())

    def workflow(self, name: str) -> models.Workflow:
        return self._ask(calls.workflow(name))

    def graph(self) -> models.Graph:
        return self._ask(calls.graph())

    def tools(self) -> list[models.NodeTools]:
        return self._ask(calls.tools())

    def state_schema(self) -> dict[str, Any]:
        return self._ask(calls.state_schema())

    # ------------------------------------------------------------ turns

    def invoke(self, messages: MessagesIn | None = None, **options: Unpack[TurnArguments]) -> models.InvokeResult:
        turn = calls.new_turn(messages, options)
        return self._steps.do(start_run(self._session, calls.invoke(turn), turn.thread_id, turn.run_id))

    def stream(
        self, messages: MessagesIn | None = None, **options: Unpack[TurnArguments]
    ) -> Generator[models.Chunk, None, None]:
        turn = calls.new_turn(messages, options)
        return self._steps.emit_all(StreamedTurn(self._session, turn).steps())

    def stop(self, thread_id: str) -> models.Stopped:
        return self._ask(calls.stop(thread_id))

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
        run_id = new_run_id()
        call = calls.run(
            thread_id, run_id, input=input, responses=responses, workflow=workflow, on_busy=on_busy, wait=wait
        )
        return self._steps.do(start_run(self._session, call, thread_id, run_id))

    def get_run(self, thread_id: str, run_id: str) -> models.Run:
        return self._ask(calls.get_run(thread_id, run_id))

    def cancel(self, thread_id: str, run_id: str) -> models.Cancelled:
        return self._ask(calls.cancel(thread_id, run_id))

    def events(
        self, thread_id: str, after: int | None = None, *, live: bool = True, reconnect: bool = True
    ) -> Generator[models.Event, None, None]:
        return self._steps.emit_all(following.events(self._session, thread_id, after, live=live, reconnect=reconnect))

    def requests(self, thread_id: str | None = None, *, limit: int = PAGE) -> list[models.Request]:
        return self._ask(calls.requests(thread_id, limit))

    def answer(self, thread_id: str, request_id: str, value: Any, *, wait: float | None = None) -> models.Run:
        run_id = new_run_id()
        call = calls.answer(thread_id, request_id, value, run_id, wait)
        return self._steps.do(start_run(self._session, call, thread_id, run_id))

    # ------------------------------------------------------------ threads

    def threads(self, search: str | None = None, *, page_size: int = PAGE) -> Generator[models.Thread, None, None]:
        return self._steps.emit_all(
            following.pages(
                self._session,
                lambda offset, limit: calls.threads(search, offset, limit),
                lambda item: item.thread_id,
                page_size,
            )
        )

    def thread(self, thread_id: str) -> models.Thread:
        return self._ask(calls.thread(thread_id))

    def delete_thread(self, thread_id: str) -> None:
        self._ask(calls.delete_thread(thread_id))

    def state(self, thread_id: str) -> dict[str, Any]:
        return self._ask(calls.state(thread_id))

    def update_state(self, thread_id: str, values: Mapping[str, Any]) -> dict[str, Any]:
        return self._ask(calls.update_state(thread_id, values))

    def clear_state(self, thread_id: str) -> None:
        self._ask(calls.clear_state(thread_id))

    def patch_state(
        self, thread_id: str, update_state: Mapping[str, Any] | None = None, *, remove_state: Iterable[str] = ()
    ) -> models.Checkpoint:
        return self._ask(calls.patch_state(thread_id, update_state or {}, remove_state))

    def messages(
        self, thread_id: str, search: str | None = None, *, page_size: int = PAGE
    ) -> Generator[models.Message, None, None]:
        return self._steps.emit_all(
            following.pages(
                self._session,
                lambda offset, limit: calls.messages(thread_id, search, offset, limit),
                lambda item: item.message_id,
                page_size,
            )
        )

    def add_messages(self, thread_id: str, messages: MessagesIn) -> list[str]:
        return self._ask(calls.add_messages(thread_id, messages))

    def message(self, thread_id: str, message_id: str) -> models.Message:
        return self._ask(calls.message(thread_id, message_id))

    def delete_message(self, thread_id: str, message_id: str) -> None:
        self._ask(calls.delete_message(thread_id, message_id))

    # ------------------------------------------------------------ time travel

    def checkpoints(
        self, thread_id: str, *, before: AnyCheckpoint | None = None, page_size: int = PAGE
    ) -> Generator[models.Checkpoint, None, None]:
        return self._steps.emit_all(
            following.checkpoints(self._session, thread_id, calls.find_checkpoint_id(before), page_size)
        )

    def checkpoint(self, thread_id: str, checkpoint: AnyCheckpoint) -> models.CheckpointState:
        return self._ask(calls.checkpoint(thread_id, checkpoint))

    def diff(self, thread_id: str, before: AnyCheckpoint, after: AnyCheckpoint) -> models.Diff:
        return self._ask(calls.diff(thread_id, before, after))

    def fork(
        self,
        thread_id: str,
        checkpoint: AnyCheckpoint | None = None,
        *,
        to: str | None = None,
        update_state: Mapping[str, Any] | None = None,
        remove_state: Iterable[str] = (),
    ) -> models.Checkpoint:
        call = calls.fork(thread_id, checkpoint, to=to, update_state=update_state, remove_state=remove_state)
        return self._ask(call)

    def rewind(self, thread_id: str, checkpoint: AnyCheckpoint) -> models.Checkpoint:
        return self._ask(calls.rewind(thread_id, checkpoint))

    def pin(self, thread_id: str, checkpoint: AnyCheckpoint | None = None) -> models.Checkpoint:
        return self._ask(calls.pin(thread_id, checkpoint, is_pinned=True))

    def unpin(self, thread_id: str, checkpoint: AnyCheckpoint | None = None) -> models.Checkpoint:
        return self._ask(calls.pin(thread_id, checkpoint, is_pinned=False))

    # ------------------------------------------------------------ transfer

    def export_thread(self, thread_id: str, path: str | os.PathLike[str]) -> Path:
        with WholeFile(path) as file:
            with closing(self._steps.emit_all(following.pieces(calls.export_thread(thread_id)))) as pieces:
                for piece in pieces:
                    file.write(piece)
        return file.path

    def import_thread(self, path: str | os.PathLike[str], thread_id: str) -> models.Thread:
        return self._ask(calls.import_thread(path, thread_id))
