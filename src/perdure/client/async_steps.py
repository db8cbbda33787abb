"""Steps, done with asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any, TypeVar

import httpx

from perdure.client.calls import HttpCall
from perdure.client.connecting import LIMITS, Connecting, load_certificates, read_pieces
from perdure.client.errors import ClientError
from perdure.client.steps import Answered, Close, Emit, Open, Read, Send, Steps, Wait

T = TypeVar("T")


class AsyncSteps:
    """The connections of one client."""

    def __init__(self, connecting: Connecting, transport: httpx.AsyncBaseTransport | None) -> None:
        self._connecting = connecting
        self._http = httpx.AsyncClient(transport=transport, limits=LIMITS, verify=load_certificates())

    async def aclose(self) -> None:
        await self._http.aclose()

    async def do(self, steps: Steps[T]) -> T:
        """To the end. Raises what they raise."""
        opened = _AsyncOpened(self._http, self._connecting)
        try:
            step = steps.send(None)
            while True:
                try:
                    got = await opened.do(step)
                except ClientError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(got)
        except StopIteration as end:
            value: T = end.value
            return value

    async def emit_all(self, steps: Steps[None]) -> AsyncGenerator[Any, None]:
        """What they emit."""
        opened = _AsyncOpened(self._http, self._connecting)
        try:
            step = steps.send(None)
            while True:
                if isinstance(step, Emit):
                    yield step.value
                    step = steps.send(None)
                    continue
                try:
                    got = await opened.do(step)
                except ClientError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(got)
        except StopIteration:
            return
        finally:
            steps.close()
            await opened.close()


class _AsyncOpened:
    """The stream that is open, if one is."""

    def __init__(self, http: httpx.AsyncClient, connecting: Connecting) -> None:
        self._http = http
        self._connecting = connecting
        self._call: HttpCall[Any] | None = None
        self._response: httpx.Response | None = None
        self._pieces: AsyncIterator[bytes] | None = None

    async def do(self, step: Any) -> Any:
        """Raises NotSent, ConnectionLost or UnreadableAnswer."""
        if isinstance(step, Wait):
            return await asyncio.sleep(step.seconds)
        if isinstance(step, Close):
            return await self.close()
        call = self._call if isinstance(step, Read) else step.call
        try:
            if isinstance(step, Send):
                return _to_answered(await self._http.send(self._request(step.call)))
            if isinstance(step, Open):
                return await self._open(step.call)
            return await self._read()
        except (httpx.HTTPError, httpx.StreamError) as error:
            await self.close()
            raise self._connecting.failure(call, error) from error

    def _request(self, call: HttpCall[Any]) -> httpx.Request:
        content = None if call.file is None else _read_file(call.file)
        return self._http.build_request(**self._connecting.request(call, content))

    async def _open(self, call: HttpCall[Any]) -> Answered:
        await self.close()
        response = await self._http.send(self._request(call), stream=True)
        self._call, self._response = call, response
        if response.is_success:
            self._pieces = response.aiter_bytes()
            return Answered(response.status_code, dict(response.headers))
        await response.aread()
        await self.close()
        return _to_answered(response)

    async def _read(self) -> bytes:
        if self._pieces is None:
            return b""
        return await anext(self._pieces, b"")

    async def close(self) -> None:
        response, pieces = self._response, self._pieces
        self._response = self._pieces = None
        if pieces is not None:
            await _close_pieces(pieces)
        if response is not None:
            await response.aclose()


def _to_answered(response: httpx.Response) -> Answered:
    return Answered(response.status_code, dict(response.headers), response.content)


async def _close_pieces(pieces: AsyncIterator[bytes]) -> None:
    # httpx reads through generators within generators. Those that are dropped half way are closed by the event loop,
    # later and in tasks of its own; a read that is cut short ends all of them here.
    try:
        while True:
            async with asyncio.timeout(0):
                await anext(pieces)
    except (StopAsyncIteration, TimeoutError, httpx.HTTPError, httpx.StreamError):
        return


async def _read_file(path: Path) -> AsyncIterator[bytes]:
    pieces = read_pieces(path)
    while piece := await asyncio.to_thread(next, pieces, b""):
        yield piece
