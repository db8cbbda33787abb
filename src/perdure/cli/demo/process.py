"""One process of `perdure demo`: it runs the thread and reports events to its parent, one line of JSON each."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.cli.demo.release_notes import CHANGES, QUICK, THREAD, VERSION, Desk, build
from perdure.records import JournalEntry, Lease
from perdure.stores.sqlite.store import SqliteStore

FILE = "perdure.db"


def report(who: str, what: str, **more: Any) -> None:
    line = {"at": time.time(), "pid": os.getpid(), "who": who, "what": what, **more}
    os.write(1, json.dumps(line).encode() + b"\n")


class ReportingStore(SqliteStore):
    """Says so when what a delivery came to is on the disk: from then on it is not run again."""

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        await super().append_journal(lease, entry)
        report(QUICK, "recorded")  # the only one that can have finished while others are at work


async def begin(folder: Path) -> None:
    """Start the thread. Never ends: two of the writers wait for the lights to go out."""
    storage = StoreCheckpointStorage(ReportingStore(folder / FILE))
    desk = Desk(folder, report, kill_barrier=asyncio.Barrier(len(CHANGES)))
    await build(desk, storage).run(VERSION, thread_id=THREAD)


async def resume(folder: Path, answers: dict[str, bool] | None) -> None:
    """Resume the thread. This process knows nothing but its id."""
    async with StoreCheckpointStorage(SqliteStore(folder / FILE)) as storage:
        stream = build(Desk(folder, report), storage).run(thread_id=THREAD, responses=answers, stream=True)
        async for event in stream:
            if event.type == "executor_bypassed":
                report(str(event.executor_id), "replayed")
            elif event.type == "request_info" and not event.replayed:
                report(str(event.executor_id), "asks", request_id=event.request_id, text=event.data.text)
            elif event.type == "output":
                report(str(event.executor_id), "output", text=event.data)


def end_with_the_parent() -> None:
    """Nothing of the demo outlives it, in whatever way it ends: this end of the pipe closes then."""
    sys.stdin.read()
    os._exit(1)


def main() -> None:
    threading.Thread(target=end_with_the_parent, daemon=True).start()
    folder, act, *answer = sys.argv[1:]
    if act == "begin":
        asyncio.run(begin(Path(folder)))
    else:
        asyncio.run(resume(Path(folder), {answer[0]: answer[1] == "yes"} if answer else None))


if __name__ == "__main__":
    main()
