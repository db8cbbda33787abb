"""HTTP for both clients: addresses, credentials, requests, files, and errors of connections."""

from __future__ import annotations

import functools
import os
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import httpx
import msgspec
from msgspec import UNSET

from perdure.client.calls import HttpCall
from perdure.client.errors import ClientError, ConnectionLost, NotSent, UnreadableAnswer
from perdure.client.steps import ClientSession, Patience

# ---------------------------------------------------------------- files


PIECE_BYTES = 256 * 1024


class WholeFile:
    """A file that appears, or replaces another, only when the block ends without an error."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._part = self.path.with_name(f".{self.path.name}.{uuid4().hex}.part")
        self._file = self._part.open("xb")

    def __enter__(self) -> Self:
        return self

    def write(self, piece: bytes) -> None:
        self._file.write(piece)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._file.flush()
            os.fsync(self._file.fileno())
        self._file.close()
        if kind is None:
            self._part.replace(self.path)
        else:
            self._part.unlink(missing_ok=True)


def read_pieces(path: Path) -> Iterator[bytes]:
    """Pieces of a file. The first `next` opens it and may raise OSError."""
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


Token: TypeAlias = str | Callable[[], str]
"""A token, or a function that returns one. The client calls it for each request, so tokens can be renewed."""

LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=20)
"""Every stream is a connection, so their number is not limited."""


@functools.cache
def load_certificates() -> ssl.SSLContext:
    """Loaded once: it takes longer than everything else in a client's constructor."""
    return httpx.create_ssl_context()


class Connecting:
    """Builds requests. Its repr shows no credentials."""

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        api_key: str | None,
        token: Token | None,
        timeout: float | None,
        headers: Mapping[str, str] | None,
        patience: Patience | None,
    ) -> None:
        if api_key is not None and token is not None:
            raise ValueError("Give an api_key or a token, not both.")
        self.patience = patience or Patience()
        if self.patience.attempts < 1:
            raise ValueError(f"patience.attempts must be at least 1, got {self.patience.attempts}.")
        urls = (url,) if isinstance(url, str) else tuple(url)
        if not urls:
            raise ValueError("Give the address of at least address server.")
        self.session = ClientSession([normalize_url(address) for address in urls], self.patience)
        self._timeout = timeout
        extra = {name: check_header_value(name, value) for name, value in (headers or {}).items()}
        self._headers = {"Accept": "application/json", **extra}
        self._token = token if token is None or callable(token) else check_header_value("token", token)
        if api_key is not None:
            self._headers["X-API-Key"] = check_header_value("api_key", api_key)

    def __repr__(self) -> str:
        return ", ".join(repr(redact_url(address)) for address in self.session.urls)

    def request(self, call: HttpCall[Any], content: Any = None) -> dict[str, Any]:
        """What `httpx.build_request` takes. Raises TypeError if the body cannot be encoded as JSON."""
        headers = {**self._headers, **call.headers}
        if self._token is not None:
            token = self._token if isinstance(self._token, str) else check_header_value("token", self._token())
            headers["Authorization"] = f"Bearer {token}"
        if call.kind is None:
            headers["Accept"] = "*/*"
        if call.body is not UNSET:
            content = msgspec.json.encode(call.body)
            headers["Content-Type"] = "application/json"
        seconds = self._timeout if call.seconds is UNSET else call.seconds
        timeout = httpx.Timeout(self._timeout, read=seconds)
        request = {
            "method": call.method,
            "url": f"{self.session.url}{call.path}",
            "headers": headers,
            "timeout": timeout,
        }
        return {**request, "params": dict(call.query), "content": content}

    def failure(self, call: HttpCall[Any] | None, error: httpx.HTTPError | httpx.StreamError) -> ClientError:
        """The ClientError for a failed connection. NotSent means that the server cannot have seen the request."""
        where = (
            redact_url(self.session.url) if call is None else f"{call.method} {redact_url(self.session.url)}{call.path}"
        )
        why = f"{type(error).__name__}{f': {error}' if str(error) else ''}"
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
            return NotSent(f"{where}: no server could be reached, nothing was sent ({why}).")
        if isinstance(error, httpx.DecodingError | httpx.StreamError):
            return UnreadableAnswer(f"{where}: the answer cannot be read ({why}).")
        if isinstance(error, httpx.TimeoutException):
            return ConnectionLost(f"{where}: no answer in time ({why}).", code="timeout")
        return ConnectionLost(f"{where}: the connection broke ({why}).")


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
