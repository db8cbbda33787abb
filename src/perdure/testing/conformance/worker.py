"""Another process that uses a store: obeys commands, one a line, and replies to each.

It reads lines of JSON, `["use", order]` and then `["open", thread, owner]` and so on; each is answered with a line. The
acts that begin with `keep_` never end: they reply with each write that the store acknowledged, until they are killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from itertools import count
from pathlib import Path
from typing import Any

from perdure.records import Lease, OpenedThread
from perdure.store import Store
from perdure.testing.conformance.location import load_factory
from perdure.testing.conformance.threads import ThreadOwner, own
from perdure.testing.survival.processes import Importable


class Worker:
    def __init__(self, order: dict[str, Any]) -> None:
        sys.path[:] = order["path"]
        self.store: Store = load_factory(Importable(**order["factory"]).load())(Path(order["folder"]))
        self.owners: dict[str, ThreadOwner] = {}
        self._fd = os.dup(1)
        os.dup2(2, 1)  # what a store prints is not a reply

    def reply(self, *parts: Any) -> None:
        """Write a line to the parent process; it has left this process on return."""
        line = json.dumps(parts).encode() + b"\n"
        while line:
            line = line[os.write(self._fd, line) :]

    async def open(self, thread_id: str, owner: str) -> int:
        self.owners[thread_id] = await own(self.store, thread_id, owner=owner)
        return self.owners[thread_id].number

    async def lend(self, thread_id: str, owner: str, fence: int) -> None:
        """Hold what another process was given, of a thread without a commit."""
        opened = OpenedThread(Lease(thread_id, owner, fence), 0, None, None, 0)
        self.owners[thread_id] = ThreadOwner(self.store, opened, "w")

    async def save(self, thread_id: str, checkpoint_id: str) -> int:
        return (await self.owners[thread_id].save(checkpoint_id, events=1, brings=[checkpoint_id])).number

    async def save_many(self, thread_id: str, number: int) -> None:
        owner = await own(self.store, thread_id)
        for _ in range(number):
            await owner.save(events=1, brings=[f"{thread_id} at {owner.number}"])
        await owner.release()

    # ------------------------------------------------------------ until it is killed

    async def keep_committing(self, thread_id: str) -> None:
        owner = await own(self.store, thread_id)
        for number in count(owner.number + 1):
            text = f"{thread_id} at {number}"
            await owner.save(events=2, brings=[text, f"all of {text}"], drops=[f"{thread_id} at {number - 1}"])
            self.reply("done", number)

    async def keep_posting(self, thread_id: str) -> None:
        owner = await own(self.store, thread_id)
        for number in count(1):
            await self.store.post(thread_id, f"item {number}", "message", b"%d" % number)
            self.reply("done", ["post", number])
            await owner.record(number, b"%d" % number)
            self.reply("done", ["journal", number])

    async def keep_pruning(self, thread_id: str) -> None:
        for info in (await self.store.infos(thread_id=thread_id))[:-1]:
            await self.store.prune(thread_id, [info.checkpoint_id])
            self.reply("done", info.checkpoint_id)

    async def keep_copying(self, thread_id: str) -> None:
        for number in count(1):
            await self.store.copy_thread(thread_id, f"{thread_id} copy {number}")
            self.reply("done", number)


async def answer(worker: Worker, act: str, arguments: list[Any]) -> None:
    try:
        worker.reply("done", await getattr(worker, act)(*arguments))
    except Exception as error:  # noqa: BLE001  # the reply; the clause decides
        worker.reply("refused", type(error).__name__, str(error))


def main() -> None:
    worker: Worker | None = None
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            act, *arguments = json.loads(line)
            if worker is None:
                worker = Worker(arguments[0])
            else:
                runner.run(answer(worker, act, arguments))


if __name__ == "__main__":
    main()
