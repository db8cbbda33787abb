"""Serves the app with uvicorn until a signal, and then shuts down gracefully."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from perdure.errors import MissingExtra
from perdure.server.config.schema import ServerConfig
from perdure.server.http.app import create_app
from perdure.server.http.middleware import ServerApp

try:
    import uvicorn
    from uvicorn.server import HANDLED_SIGNALS
except ImportError as error:
    raise MissingExtra("perdure serve", "uvicorn", "server") from error


MAX_HEAD_BYTES = 64 * 1024
_HEAD_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
GRACE_SECONDS = 5
"""Added to `shutdown_seconds`, for streams to close and responses to be sent."""


class _Uvicorn(uvicorn.Server):
    """Stops the app before it closes connections: until then requests get a 503, and streams end with their cursor.

    A second signal stops it immediately.
    """

    def __init__(self, config: uvicorn.Config, app: ServerApp) -> None:
        super().__init__(config)
        self._app = app

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals without raising them again at the end, so that a graceful stop has exit code 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in HANDLED_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        service = self._app.service
        if service.runs.is_stopping or not self.started:
            super().handle_exit(sig, frame)
        else:
            service.begin_stopping(lambda _: setattr(self, "should_exit", True))


def _hide_socket_paths(record: logging.LogRecord) -> bool:
    """Drop uvicorn's lines with socket paths, which may hold tokens, and the stack traces of invalid UTF-8."""
    if str(record.msg).startswith("Invalid UTF-8"):
        record.exc_info, record.exc_text = None, None
    return "WebSocket" not in str(record.msg)


def timed_protocol(seconds: float) -> type[asyncio.Protocol] | str:
    """uvicorn's HTTP protocol with a time limit and a size limit for the head of a request."""
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    except ImportError:  # without httptools uvicorn uses h11
        return "auto"

    class TimedProtocol(HttpToolsProtocol):
        _head_timer: asyncio.TimerHandle | None = None
        _head_bytes = 0
        _heads = 0
        """Complete heads so far."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._await_head()

        def data_received(self, data: bytes) -> None:
            while data and self._head_timer is not None and not self.transport.is_closing():  # inside a head
                before, room = self._heads, MAX_HEAD_BYTES - self._head_bytes
                piece, data = data[:room], data[room:]
                self._head_bytes += len(piece)
                super().data_received(piece)
                if self._heads == before and self._head_bytes >= MAX_HEAD_BYTES:
                    self.transport.write(_HEAD_TOO_LARGE)
                    self.transport.close()
            if data and not self.transport.is_closing():
                super().data_received(data)

        def on_message_begin(self) -> None:
            self._await_head()
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._heads += 1
            self._stop_waiting()
            super().on_headers_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def _await_head(self) -> None:
            self._stop_waiting()
            self._head_bytes = 0
            self._head_timer = self.loop.call_later(seconds, self.transport.close)

        def _stop_waiting(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

    return TimedProtocol


def make_server(app: ServerApp, config: ServerConfig) -> uvicorn.Server:
    return _Uvicorn(
        uvicorn.Config(
            app,
            host=config.host,
            port=config.port,
            http=timed_protocol(config.limits.body_seconds),
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=True,
            h11_max_incomplete_event_size=64 * 1024,
            ws_max_size=config.limits.max_request_bytes,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=int(config.limits.shutdown_seconds) + GRACE_SECONDS,
            lifespan="on",
            proxy_headers=False,  # the configuration names trusted proxies
        ),
        app,
    )


def serve(config: ServerConfig, *, tell: Callable[[str, int], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT. `tell` is called with the address and port once it listens.

    Raises InvalidConfig, NotImportable or NotServable before it listens, and OSError if it cannot listen.
    """
    app = create_app(config)
    listener = _open_listener(config)  # before recovery starts
    if tell is not None:
        tell(config.host, listener.getsockname()[1])
    server = make_server(app, config)
    logging.getLogger("uvicorn.error").addFilter(_hide_socket_paths)
    gc.collect()
    gc.freeze()  # the app lives as long as the process, so the collector need not scan it
    with listener:
        server.run(sockets=[listener])


def _open_listener(config: ServerConfig) -> socket.socket:
    """Raises OSError with the address and the reason."""
    try:
        [address, *_] = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return socket.create_server(address[4][:2], family=address[0], backlog=2048)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(f"{config.host}:{config.port}: listening failed: {reason}.") from error
