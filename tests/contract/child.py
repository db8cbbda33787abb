"""Another process that uses a store: does what it is told, line by line, and tells what came of it.

`python -m tests.contract.child`; a line is JSON: `["use", kind, folder]`, then `["open", thread, owner]` and so on.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from tests.conformance.stores import STORES

from perdure.errors import PerdureError
from perdure.records import Lease, OpenedThread
from perdure.store import Store
from perdure.testing.conformance.threads import ThreadOwner, own


class Worker:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.owners: dict[str, ThreadOwner] = {}

    async def open(self, thread_id: str, owner: str) -> int:
        self.owners[thread_id] = await own(self.store, thread_id, owner=owner)
        return self.owners[thread_id].number

    async def lend(self, thread_id: str, owner: str, fence: int) -> None:
        """Hold what another process was given."""
        self.owners[thread_id] = ThreadOwner(
            self.store, OpenedThread(Lease(thread_id, owner, fence), 0, None, None, 0), "w"
        )

    async def save(self, thread_id: str, checkpoint_id: str) -> int:
        return (await self.owners[thread_id].save(checkpoint_id, events=1, chunks={"aa": b"1"})).number

    async def release(self, thread_id: str) -> None:
        await self.owners[thread_id].release()

    async def post(self, thread_id: str, item_id: str) -> None:
        await self.store.post(thread_id, item_id, "message", b"1")

    async def head(self, thread_id: str) -> str | None:
        found = await self.store.head(thread_id)
        return None if found is None else found.info.checkpoint_id


async def answer(worker: Worker, act: str, *given: Any) -> list[Any]:
    try:
        return ["done", await getattr(worker, act)(*given)]
    except PerdureError as error:
        return ["refused", type(error).__name__]


def main() -> None:
    worker: Worker | None = None
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            act, *given = json.loads(line)
            if act == "use":
                if worker is not None:
                    runner.run(worker.store.close())
                worker = Worker(STORES[given[0]](Path(given[1])))
                told = ["done", None]
            else:
                assert worker is not None
                told = runner.run(answer(worker, act, *given))
            print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
