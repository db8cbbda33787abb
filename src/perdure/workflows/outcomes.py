"""What happened to each executor in a thread, for drawings: from its event log and from where it stands."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

from perdure.checkpoints.checkpoint import ChildCheckpoint, WorkflowCheckpoint
from perdure.checkpoints.storage import read_events, read_lineage
from perdure.engine.thread.compiled import Compiled
from perdure.errors import NoEventLog, ThreadNotFound
from perdure.graph.drawing.outcomes import DUE, WAITING, outcomes_of


async def thread_outcomes(storage: Any, thread_id: str, compiled: Compiled) -> dict[str, str]:
    """By path. Raises ThreadNotFound. A storage without an event log only tells what is due and what waits."""
    lineage = await read_lineage(storage, thread_id, compiled.graph.name)
    if not lineage:
        raise ThreadNotFound(thread_id)
    try:
        events = [event async for event in read_events(storage, thread_id, None, compiled.declared)]
    except NoEventLog:
        events = []
    return outcomes_of(events) | _standing(lineage[-1], "")


def _standing(level: WorkflowCheckpoint | ChildCheckpoint, path: str) -> dict[str, str]:
    """What is due or waits at the head: the log does not say when a request was answered."""
    found = {f"{path}{one.target_id}": DUE for one in level.deliveries}
    found |= {f"{path}{one.message.target_id}": WAITING for one in level.suspended.values()}
    found |= {f"{path}{one.source_executor_id}": WAITING for one in level.pending_request_info_events.values()}
    for child in level.children.values():
        inner = _standing(child, f"{path}{child.executor_id}/")
        found[f"{path}{child.executor_id}"] = DUE if DUE in inner.values() else WAITING
        found |= inner
    return found


def awaited_elsewhere(work: Coroutine[Any, Any, Any]) -> Any:
    """The result, from code that is not async, even where an event loop runs: by an OS thread with its own loop."""
    done: list[Any] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(asyncio.run(work))
        except BaseException as error:  # noqa: BLE001  # raised again where it was asked for
            failed.append(error)

    worker = threading.Thread(target=run, name="perdure drawing")
    worker.start()
    worker.join()
    if failed:
        raise failed[0]
    return done[0]
