"""A proxy that cuts connections after some bytes of the answer."""

from __future__ import annotations

import random
import socket
import struct
import threading

from tests.server.client.accepting import Accepting

RESET = struct.pack("ii", 1, 0)
"""The value of SO_LINGER that closes a connection with a reset."""


class CuttingProxy(Accepting):
    """Between clients and the server on `port`. `cuts`: connections that are cut; those after them are left alone."""

    def __init__(self, port: int, chance: random.Random, *, cuts: int = 0, most_bytes: int = 3000) -> None:
        self._to = port
        self._chance = chance
        self.cuts = cuts
        self._most = most_bytes
        self.has_cut = 0
        super().__init__()

    def connected(self, connection: socket.socket) -> None:
        left = None
        if self.cuts > 0:
            self.cuts -= 1
            left = self._chance.choice((0, self._chance.randrange(1, 200), self._chance.randrange(self._most)))
        is_rude = self._chance.random() < 0.5
        threading.Thread(target=self._connect, args=(connection, left, is_rude), daemon=True).start()

    def _connect(self, client: socket.socket, left: int | None, is_rude: bool) -> None:
        with client, socket.create_connection(("127.0.0.1", self._to)) as server:
            pump = threading.Thread(target=_pump, args=(client, server), daemon=True)
            pump.start()
            try:
                self._answer(client, server, left)
                if is_rude and left is not None:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    client.shutdown(socket.SHUT_RD)
                else:
                    client.shutdown(socket.SHUT_RDWR)
            except OSError:  # the client left
                pass
            pump.join(5)  # while it reads, closing would close nothing

    def _answer(self, client: socket.socket, server: socket.socket, left: int | None) -> None:
        """All of it, or only so many bytes."""
        while piece := server.recv(4096):
            if left is not None and len(piece) >= left:
                client.sendall(piece[:left])
                self.has_cut += 1
                return
            client.sendall(piece)
            left = None if left is None else left - len(piece)


def _pump(client: socket.socket, server: socket.socket) -> None:
    try:
        while piece := client.recv(4096):
            server.sendall(piece)
        server.shutdown(socket.SHUT_WR)
    except OSError:  # one of them left
        return
