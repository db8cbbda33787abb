"""The process that assert_survives_kill starts and kills: it takes one thread to its end, and reports on the way.

It reads its order, one line of JSON, from stdin, and writes reports, one line each, to what was its stdout; whatever
the code under test prints goes to stderr instead.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from perdure.checkpoints.open_thread import codec_for
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.stores.memory.store import MemoryStore
from perdure.testing.faults import Faults
from perdure.testing.survival.compare import Answers, build, has_begun, take_to_the_end
from perdure.testing.survival.processes import Importable
from perdure.testing.survival.recorded import RecordedWork
from perdure.workflows.workflow import Workflow


class Reports:
    """The way back to the parent: each report has left this process when `send` returns."""

    def __init__(self) -> None:
        self._fd = os.dup(1)
        os.dup2(2, 1)

    def send(self, **report: Any) -> None:
        line = json.dumps(report).encode() + b"\n"
        while line:
            line = line[os.write(self._fd, line) :]


def wait_to_be_killed() -> None:
    """Blocks everything, the event loop too. Ends the process if the parent is dead."""
    sys.stdin.read()
    os._exit(1)


async def live(order: dict[str, Any], reports: Reports) -> None:
    storage = Importable(**order["storage"]).load()(Path(order["folder"]))
    if isinstance(storage, StoreCheckpointStorage) and type(storage.store) is MemoryStore:
        return reports.send(in_memory=type(storage).__name__)
    faults = Faults()
    watched = faults.wrap(storage)
    workflow = build(Importable(**order["workflow"]).load(), watched)
    _watch(faults, workflow, storage, reports)
    stop_at = order["stop_at"]
    if stop_at is not None:

        def stop() -> None:
            reports.send(reached=stop_at)
            wait_to_be_killed()

        faults.call(stop_at["point"], stop, nth=stop_at["nth"], when=stop_at["when"])
    codec = codec_for(storage, workflow._compiled.declared)
    message = codec.decode(order["message"], "message")
    reports.send(started=True, has_begun=await has_begun(workflow, storage))
    began = time.monotonic()
    ending = await take_to_the_end(workflow, watched, message, _answers(order["answers"], codec))
    reports.send(
        ended={
            "workflow": workflow.name,
            "rests": ending.rests,
            "parts": ending.parts,
            "calls": [[*doing, count] for doing, count in ending.calls.items()],
            "counts": dict(faults.counts),
            "seconds": time.monotonic() - began,
        }
    )
    return None


def _watch(faults: Faults, workflow: Workflow, storage: Any, reports: Reports) -> None:
    """Report to the parent what is recorded after each write of the store, so that it is known if this process dies."""
    if isinstance(storage, StoreCheckpointStorage):
        recorded = RecordedWork(workflow.graph)

        def report_work(point: str, written: Any) -> None:
            recorded.take(point, written)
            reports.send(recorded=[[*doing, count] for doing, count in recorded.counts.items()])

        faults.watch(report_work)


def _answers(encoded_answers: Any, codec: Any) -> Answers | None:
    if encoded_answers is None:
        return None
    if isinstance(encoded_answers, dict):
        answer: Answers = Importable(**encoded_answers).load()
        return answer
    return {codec.decode(key, "answers"): codec.decode(value, "answers") for key, value in encoded_answers}


def main() -> None:
    reports = Reports()
    order = json.loads(sys.stdin.readline())
    sys.path[:] = order["path"]
    try:
        asyncio.run(live(order, reports))
    except Exception:  # noqa: BLE001  # reported: the parent raises it
        reports.send(failed=traceback.format_exc())


if __name__ == "__main__":
    main()
