"""Serving: uvicorn with the app, until it is told to stop; and then in good order."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from holdfast.errors import MissingExtra
from holdfast.server.config import ServerConfig

try:
    import uvicorn
    from uvicorn.server import HANDLED_SIGNALS
except ImportError as error:
    raise MissingExtra("holdfast serve", "uvicorn", "server") from error

if TYPE_CHECKING:
    from holdfast.server.http.app import ServerApp

GRACE_SECONDS = 5
"""Beyond what supersteps may take: streams end at once, and answers are sent."""


class _Uvicorn(uvicorn.Server):
    """Tells the app that it is to stop before it waits for connections: streams would keep them open."""

    def __init__(self, config: uvicorn.Config, app: ServerApp) -> None:
        super().__init__(config)
        self._app = app

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Not sent again at the end, as uvicorn does: a server that stopped in good order says so by its exit code."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, self.handle_exit) for one in HANDLED_SIGNALS}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._app.service.begin_stopping()
        super().handle_exit(sig, frame)


def make_server(app: ServerApp, config: ServerConfig) -> uvicorn.Server:
    return _Uvicorn(
        uvicorn.Config(
            app,
            host=config.host,
            port=config.port,
            root_path=config.root_path,
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=True,
            h11_max_incomplete_event_size=64 * 1024,
            ws_max_size=config.limits.max_request_bytes,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=int(config.limits.shutdown_seconds) + GRACE_SECONDS,
            lifespan="on",
            proxy_headers=False,  # only what the configuration trusts is believed
        ),
        app,
    )


def serve(config: ServerConfig) -> None:
    """Until SIGTERM or SIGINT. Raises InvalidConfig, NotImportable or NotServable before it listens."""
    from holdfast.server.http.app import create_app

    server = make_server(create_app(config), config)
    server.run()
    if not server.started:
        raise OSError(f"{config.host}:{config.port} could not be listened on (process {os.getpid()}).")
