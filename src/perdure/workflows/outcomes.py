"""The outcome of each executor in a thread, for drawings: from its event log and its head."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

from perdure.checkpoints.any_storage import read_events, read_lineage
from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.checkpoints.level import ChildCheckpoint
from perdure.engine.thread.compiled import Compiled
from perdure.errors import NoEventLog, ThreadNotFound
from perdure.graph.drawing.outcomes import DUE, WAITING, outcomes_of


async def thread_outcomes(storage: Any, thread_id: str, compiled: Compiled) -> dict[str, str]:
    """By path. A storage without an event log has only due and waiting executors. Raises ThreadNotFound."""
    lineage = await read_lineage(storage, thread_id, compiled.graph.name)
    if not lineage:
        raise ThreadNotFound(thread_id)
    try:
        events = [event async for event in read_events(storage, thread_id, None, compiled.declared)]
    except NoEventLog:
        events = []
    return outcomes_of(events) | _unfinished(lineage[-1], "")


def _unfinished(level: WorkflowCheckpoint | ChildCheckpoint, path: str) -> dict[str, str]:
    """Executors that are due or wait at the head: the log has no event for an answered request."""
    requests = level.pending_request_info_events.values()
    outcomes = {f"{path}{message.target_id}": DUE for message in level.deliveries}
    outcomes |= {f"{path}{delivery.message.target_id}": WAITING for delivery in level.suspended.values()}
    outcomes |= {f"{path}{event.source_executor_id}": WAITING for event in requests}
    for child in level.children.values():
        inner = _unfinished(child, f"{path}{child.executor_id}/")
        outcomes[f"{path}{child.executor_id}"] = DUE if DUE in inner.values() else WAITING
        outcomes |= inner
    return outcomes


def run_in_worker_thread(work: Coroutine[Any, Any, Any]) -> Any:
    """The result, for code that is not async, even inside an event loop: a worker thread runs its own loop."""
    results: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(asyncio.run(work))
        except BaseException as error:  # noqa: BLE001  # raised again in the caller
            errors.append(error)

    worker = threading.Thread(target=run, name="perdure drawing")
    worker.start()
    worker.join()
    if errors:
        raise errors[0]
    return results[0]
