"""Steps, done by the thread that asks for them."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from typing import Any, TypeVar

import httpx

from perdure.client.calls import HttpCall
from perdure.client.connecting import LIMITS, Connecting, load_certificates, read_pieces
from perdure.client.errors import ClientError
from perdure.client.steps import Answered, Close, Emit, Open, Read, Send, Steps, Wait

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
