"""The connection of a client: its servers, its credentials, its patience, and the I/O of its requests."""

from __future__ import annotations

import asyncio
import functools
import random
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeAlias, TypedDict, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

import httpx
import msgspec
from msgspec import UNSET, UnsetType

from perdure.client.errors import ClientError, ConnectionLost, NotSent, UnreadableAnswer, parse_error

T = TypeVar("T")
P = ParamSpec("P")

Token: TypeAlias = str | Callable[[], str]
"""A token, or a function that returns one. The client calls it for each request, so tokens can be renewed."""


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long a client tries again."""

    attempts: int = 4
    """Attempts of a read at servers that are away or busy. The client repeats nothing else."""
    seconds: float = 60.0
    """How long a broken stream tries to reconnect."""
    first_wait: float | None = None
    """The wait before the second attempt; None: the server's `retry`, or 0.2 s. It doubles with each attempt, with
    jitter, so that clients of a server that stopped do not reconnect all at once."""
    longest_wait: float = 10.0
    """The longest wait between two attempts. A read fails at once if the server asks for more; `retry_after` says how
    much. A stream waits that long, within `seconds`."""


# ---------------------------------------------------------------- I/O


PIECE_BYTES = 256 * 1024
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=20)
"""Every stream is a connection, so their number is not limited."""


class AsyncIo:
    """All I/O of `Client`."""

    def __init__(self, transport: httpx.AsyncBaseTransport | None) -> None:
        self._http = httpx.AsyncClient(transport=transport, limits=LIMITS, verify=load_certificates())
        self.build_request = self._http.build_request
        self.aclose = self._http.aclose
        self.sleep = asyncio.sleep
        self.call = asyncio.to_thread
        """Calls a function that reads or writes a file."""

    async def content(self, path: Path) -> AsyncIterator[bytes]:
        """The content of a file as the body of a request."""
        pieces = read_pieces(path)
        while piece := await asyncio.to_thread(next, pieces, b""):
            yield piece

    async def send(self, request: httpx.Request) -> httpx.Response:
        """The response, before its body."""
        return await self._http.send(request, stream=True)

    def pieces(self, response: httpx.Response) -> Any:
        """An iterator of the body."""
        return response.aiter_bytes()

    async def next_piece(self, pieces: Any) -> bytes:
        """Empty at the end of the body."""
        return await anext(pieces, b"")

    async def close_response(self, response: httpx.Response, pieces: Any) -> None:
        # httpx reads through generators within generators. Those that are dropped half way are closed by the event
        # loop, later and in tasks of its own; a read that is cut short ends all of them here.
        try:
            while True:
                async with asyncio.timeout(0):
                    await anext(pieces)
        except (StopAsyncIteration, TimeoutError, httpx.HTTPError, httpx.StreamError):
            await response.aclose()


class BlockingIo:
    """The same for `SyncClient`: each method blocks in the caller's thread, so its coroutine never suspends."""

    def __init__(self, transport: httpx.BaseTransport | None) -> None:
        self._http = httpx.Client(transport=transport, limits=LIMITS, verify=load_certificates())
        self.build_request = self._http.build_request
        self.content = read_pieces

    async def send(self, request: httpx.Request) -> httpx.Response:
        return self._http.send(request, stream=True)

    def pieces(self, response: httpx.Response) -> Any:
        return response.iter_bytes()

    async def next_piece(self, pieces: Any) -> bytes:
        return next(pieces, b"")

    async def close_response(self, response: httpx.Response, pieces: Any) -> None:
        response.close()

    async def call(self, function: Callable[P, T], /, *arguments: P.args, **options: P.kwargs) -> T:
        return function(*arguments, **options)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251  # it must not suspend

    async def aclose(self) -> None:
        self._http.close()


def read_pieces(path: Path) -> Iterator[bytes]:
    """Pieces of a file. The first `next` opens it and may raise OSError."""
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


@functools.cache
def load_certificates() -> ssl.SSLContext:
    """Loaded once: it takes longer than everything else in a client's constructor."""
    return httpx.create_ssl_context()


# ---------------------------------------------------------------- servers and requests


class HttpCall(msgspec.Struct, Generic[T], frozen=True):
    """One request, and the type of its answer."""

    method: str
    path: str
    kind: Any
    """The type of the answer: `T`."""
    under: str | None = None
    """The key of `data` that holds it; None: all of `data`."""
    query: Mapping[str, str | int | float] = {}
    body: Any = UNSET
    file: Path | None = None
    """Sent in place of a body."""
    headers: Mapping[str, str] = {}
    seconds: float | UnsetType | None = UNSET
    """The read timeout; None: no limit; unset: the client's."""
    also: frozenset[int] = frozenset()
    """Statuses beside success that carry such an answer."""


def build_path(*parts: str) -> str:
    """A path below /v1, with quoted parts. Raises ValueError for a part that is not an id."""
    for part in parts:
        if part in ("", ".", "..") or "/" in part:
            raise ValueError(f"An id is text without slashes, other than '.' and '..', got {part!r}. Nothing was sent.")
    return "/".join(("/v1", *(quote(part, safe=":") for part in parts)))


def omit_none(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


STREAM_SECONDS = 45.0
"""A stream without a heartbeat for this long is broken."""


class ClientOptions(TypedDict, total=False):
    """Options of both clients, beside `transport`."""

    api_key: str | None
    token: Token | None
    timeout: float | None
    """Seconds without a byte, except where a run is waited for; 30 if omitted."""
    headers: Mapping[str, str] | None
    patience: Patience | None


class Connection:
    """Builds the requests of one client. Its repr shows no credentials."""

    def __init__(
        self,
        io: AsyncIo | BlockingIo,
        url: str | Sequence[str],
        *,
        api_key: str | None = None,
        token: Token | None = None,
        timeout: float | None = 30.0,
        headers: Mapping[str, str] | None = None,
        patience: Patience | None = None,
    ) -> None:
        if api_key is not None and token is not None:
            raise ValueError("Give an api_key or a token, not both.")
        self.patience = patience or Patience()
        if self.patience.attempts < 1:
            raise ValueError(f"patience.attempts must be at least 1, got {self.patience.attempts}.")
        urls = (url,) if isinstance(url, str) else tuple(url)
        if not urls:
            raise ValueError("Give the address of at least one server.")
        self.io = io
        self.urls = tuple(normalize_url(address) for address in urls)
        self._at = 0
        self._timeout = timeout
        extra = {name: check_header_value(name, value) for name, value in (headers or {}).items()}
        self._headers = {"Accept": "application/json", **extra}
        self._token = token if token is None or callable(token) else check_header_value("token", token)
        if api_key is not None:
            self._headers["X-API-Key"] = check_header_value("api_key", api_key)

    def __repr__(self) -> str:
        return ", ".join(repr(redact_url(address)) for address in self.urls)

    @property
    def url(self) -> str:
        """The current server."""
        return self.urls[self._at]

    def use_next_server(self) -> None:
        self._at = (self._at + 1) % len(self.urls)

    def wait_after(self, attempt: int, error: ClientError, asked_for: float | None = None) -> float:
        """Seconds to wait after this attempt, counted from 1."""
        if attempt < len(self.urls):  # the next server may answer at once
            return 0.0
        if error.retry_after is not None:
            return error.retry_after
        longest = self.patience.longest_wait
        first = self.patience.first_wait if self.patience.first_wait is not None else asked_for or 0.2
        wait = min(longest, first * 2.0 ** min(attempt - 1, 16))
        return wait * (0.5 + random.random() / 2)  # noqa: S311  # jitter, not a secret

    def build_request(self, call: HttpCall[Any]) -> httpx.Request:
        """Raises TypeError if the body cannot be encoded as JSON."""
        headers = {**self._headers, **call.headers}
        if self._token is not None:
            token = self._token if isinstance(self._token, str) else check_header_value("token", self._token())
            headers["Authorization"] = f"Bearer {token}"
        if call.kind is None:
            headers["Accept"] = "*/*"
        content: Any = None if call.file is None else self.io.content(call.file)
        if call.body is not UNSET:
            content = msgspec.json.encode(call.body)
            headers["Content-Type"] = "application/json"
        seconds = self._timeout if call.seconds is UNSET else call.seconds
        return self.io.build_request(
            method=call.method,
            url=f"{self.url}{call.path}",
            headers=headers,
            timeout=httpx.Timeout(self._timeout, read=seconds),
            params=dict(call.query),
            content=content,
        )

    def failure(self, call: HttpCall[Any], error: httpx.HTTPError | httpx.StreamError) -> ClientError:
        """The ClientError for a failed connection. NotSent means that the server cannot have seen the request."""
        where = f"{call.method} {redact_url(self.url)}{call.path}"
        why = f"{type(error).__name__}{f': {error}' if str(error) else ''}"
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
            return NotSent(f"{where}: no server could be reached, nothing was sent ({why}).")
        if isinstance(error, httpx.DecodingError | httpx.StreamError):
            return UnreadableAnswer(f"{where}: the answer cannot be read ({why}).")
        if isinstance(error, httpx.TimeoutException):
            return ConnectionLost(f"{where}: no answer in time ({why}).", code="timeout")
        return ConnectionLost(f"{where}: the connection broke ({why}).")


class HttpStream(msgspec.Struct, eq=False):
    """The body of one answer, piece by piece. It can be opened again, for another answer."""

    _connection: Connection
    _call: HttpCall[Any] | None = None
    _response: httpx.Response | None = None
    _pieces: Any = None

    async def open(self, call: HttpCall[Any]) -> httpx.Response:
        """Close the answer before and send the request. The result is without its body, which `read` returns.

        Raises ClientError, also if the server rejects the request.
        """
        await self.aclose()
        io = self._connection.io
        self._response = response = await self._do(call, io.send(self._connection.build_request(call)))
        self._call, self._pieces = call, io.pieces(response)
        status = response.status_code
        if response.is_success or status in call.also:
            return response
        body = await self.read_all()
        if 300 <= status < 400:
            raise UnreadableAnswer(
                f"{call.method} {call.path} is redirected. Use the address that answers: the client sends "
                "credentials to no other address.",
                status=status,
            )
        raise parse_error(status, response.headers, body)

    async def read(self) -> bytes:
        """The next bytes; empty at the end. Raises ConnectionLost or UnreadableAnswer."""
        if self._call is None:
            return b""
        return await self._do(self._call, self._connection.io.next_piece(self._pieces))

    async def read_all(self) -> bytes:
        """The rest of the body. Closes the stream."""
        pieces = []
        while piece := await self.read():
            pieces.append(piece)
        await self.aclose()
        return b"".join(pieces)

    async def _do(self, call: HttpCall[Any], step: Awaitable[T]) -> T:
        try:
            return await step
        except (httpx.HTTPError, httpx.StreamError) as error:
            await self.aclose()
            raise self._connection.failure(call, error) from error

    async def aclose(self) -> None:
        response, pieces = self._response, self._pieces
        self._call = self._response = self._pieces = None
        if response is not None:
            await self._connection.io.close_response(response, pieces)


def normalize_url(url: str) -> str:
    """The address without a final slash. Raises ValueError if it is not an address."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"The address of a server looks like http://127.0.0.1:8000, got {redact_url(url)!r}.")
    return url.rstrip("/")


def check_header_value(name: str, value: str) -> str:
    """The value, checked for use in a header. The ValueError does not show it: it may be a secret."""
    if not value or not value.isascii() or not value.isprintable() or value != value.strip():
        raise ValueError(f"{name} is empty, or has characters that no header can carry. Nothing was sent.")
    return value


def redact_url(url: str) -> str:
    """The address without its password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rsplit("@", 1)[-1]))
