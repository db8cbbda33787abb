"""Lives without enough of something: a disk that is full, a folder that may not be written."""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

from tests.crash import notes
from tests.crash.flows import FLOWS, Flow
from tests.crash.lives import PLACES

from perdure import Executor, Workflow, WorkflowBuilder, WorkflowContext, handler
from perdure.errors import StorageFailed
from perdure.testing.crash import take_to_the_end

UNPRIVILEGED_USER = 65534


class Heap(Executor):
    """Puts some ten thousand characters on a heap, again and again, that no two have in common."""

    @handler
    async def grow(self, number: int, ctx: WorkflowContext[int, int]) -> None:
        page = await notes.work(f"heap.{number}") + random.Random(number).randbytes(16_000).hex()
        ctx.state.setdefault("heap", []).append(page)
        await (ctx.send_message(number + 1) if number < 10 else ctx.yield_output(number))


def heap(storage: Any) -> Workflow:
    growing = Heap("growing")
    builder = WorkflowBuilder(name="heap", start_executor=growing, checkpoint_storage=storage)
    return builder.add_edge(growing, growing).build()


HEAP = Flow("heap", heap, 1, 1)


class Shortage(TypedDict):
    place: str
    folder: str
    flow: str
    most_bytes: int | None
    """The size that no file may exceed, as on a disk that is full."""
    goes_on: bool
    """Whether this very process tries again when there is space."""
    as_unprivileged: bool
    """Whether the process runs as a user that may write nothing."""


def live(order: Shortage, report_ready: Callable[[], object]) -> None:
    """What becomes of it is noted: `refused` with the error, `ended` with the end."""
    written = notes.begin_notes(Path(order["folder"]) / "notes")
    if order["as_unprivileged"] and os.getuid() == 0:
        os.setgroups([])
        os.setgid(UNPRIVILEGED_USER)
        os.setuid(UNPRIVILEGED_USER)
    report_ready()
    asyncio.run(_live(order, written))


async def _live(order: Shortage, written: notes.Notes) -> None:
    flow = HEAP if order["flow"] == HEAP.name else FLOWS[order["flow"]]
    limit, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    storage = PLACES[order["place"]](Path(order["folder"]))
    workflow = flow.build(storage)
    if order["most_bytes"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["most_bytes"], most))
    try:
        await _to_the_end(flow, workflow, storage, written)
    except StorageFailed as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
        written.put("refused", str(error).replace("\n", " "))
        if order["goes_on"]:
            await _to_the_end(flow, workflow, storage, written)


async def _to_the_end(flow: Flow, workflow: Workflow, storage: Any, written: notes.Notes) -> None:
    ending = await take_to_the_end(workflow, storage, flow.message, flow.answers, thread_id=flow.name)
    written.put("ended", json.dumps([ending.rests[-1], ending.parts]))
