"""A program that puts a store under a new key, and is killed after so many payloads."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from tests.encryption.places import NEW, OLD

from perdure.codecs.aes_gcm import AesGcm
from perdure.storages import open_store

KEYS = {"old": OLD, "new": NEW}


class Deadly(AesGcm):
    """Ends the process in the middle of an encryption."""

    left = 0

    def encrypt(self, thread_id: str, place: str, data: bytes) -> bytes:
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().encrypt(thread_id, place, data)


async def work(url: str, count: int) -> None:
    encryption = Deadly(KEYS, current="new")
    encryption.left = count
    storage = open_store(url, encryption=encryption)
    await storage.rekey()
    await storage.close()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], int(sys.argv[2])))
