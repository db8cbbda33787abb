"""A listening socket of a test, with a thread that accepts connections until the test leaves it."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Self


class Accepting:
    """A subclass implements `connected`, which handles one connection."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connected(connection)

    def connected(self, connection: socket.socket) -> None:
        raise NotImplementedError(f"{type(self).__name__} must say what it does with a connection.")
