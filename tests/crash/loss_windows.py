"""How much of a thread's work a kill can take with it, for each durability: measured on a thread that counts rounds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from tests.crash import notes
from tests.crash.lives import PLACES, prepared
from tests.crash.trials import Tally
from tests.crash.zygote import Zygote

from perdure import Executor, Workflow, WorkflowBuilder, WorkflowContext, handler, response_handler
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.engine.run.request import RunOptions
from perdure.records import Commit

THREAD = "rounds"
PAUSE_AFTER = 10
ROUNDS = 14


class Rounds(Executor):
    """Counts by sending to itself, one round a superstep; asks in the middle."""

    @handler
    async def count(self, number: int, ctx: WorkflowContext[int, int]) -> None:
        await notes.work(f"{THREAD}.{number}")
        ctx.set_state("done", number)
        if number == PAUSE_AFTER:
            await ctx.request_info("go on?", bool, request_id="go-on")
        elif number == ROUNDS:
            await ctx.yield_output(number)
        else:
            await ctx.send_message(number + 1)

    @response_handler
    async def take_answer(self, question: str, answer: bool, ctx: WorkflowContext[int, int]) -> None:
        await ctx.send_message(PAUSE_AFTER + 1)


def rounds(storage: Any) -> Workflow:
    counter = Rounds("counter")
    return (
        WorkflowBuilder(name="rounds", start_executor=counter, checkpoint_storage=storage)
        .add_edge(counter, counter)
        .build()
    )


class SlowStore:
    """Any store, whose commits take their time."""

    def __init__(self, store: Any, seconds: float) -> None:
        self._store = store
        self._seconds = seconds

    async def commit(self, commit: Commit) -> None:
        await asyncio.sleep(self._seconds)
        await self._store.commit(commit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Counting(TypedDict):
    place: str
    folder: str
    options: RunOptions
    slow_seconds: float


def live(order: Counting, report_ready: Callable[[], object]) -> None:
    written = notes.begin_notes(Path(order["folder"]) / "notes")
    asyncio.run(_live(order, written, report_ready))


async def _live(order: Counting, written: notes.Notes, report_ready: Callable[[], object]) -> None:
    storage = PLACES[order["place"]](Path(order["folder"]))
    slow: Any = SlowStore(storage.store, order["slow_seconds"])
    report_ready()
    workflow = rounds(StoreCheckpointStorage(slow))
    options: dict[str, Any] = {"thread_id": THREAD, **order["options"]}
    has_begun = bool(await storage.list_threads())
    result = await workflow.run(None if has_begun else 1, **options)
    written.put("rested", 0)
    if result.get_request_info_events():
        result = await workflow.run(responses={"go-on": True}, **options)
    assert result.get_outputs() == [ROUNDS]
    await storage.close()


# ---------------------------------------------------------------- from outside


@dataclass
class Window:
    """What was measured: over all kills, the most that was lost."""

    tally: Tally
    most: int = 0
    """Rounds that were done, and on which others were built, and that were not saved at the kill."""
    saved: set[int] | None = None
    """Where threads were found."""


async def measure(
    zygote: Zygote, folder: Path, place: str, options: RunOptions, kills: int, seed: int, slow_seconds: float = 0.002
) -> Window:
    chance = random.Random(seed)
    kind = ", ".join(f"{key}={value}" for key, value in options.items())
    window = Window(Tally(kind, place, seed), saved=set())

    def life(trial: str, kill_after: float | None = None) -> Any:
        order = Counting(
            place=place, folder=str(prepared(place, folder / trial)), options=options, slow_seconds=slow_seconds
        )
        return zygote.life("tests.crash.loss_windows:live", order, kill_after)

    seconds = life("calm").seconds
    trial = 0
    while window.tally.kills < kills:
        trial += 1
        if life(f"trial-{trial}", chance.uniform(0, seconds)).was_killed:
            window.tally.kills += 1
            await _look(window, folder / f"trial-{trial}", PLACES[place])
            life(f"trial-{trial}")
    return window


async def _look(window: Window, folder: Path, place: Callable[[Path], StoreCheckpointStorage]) -> None:
    lines = (folder / "notes").read_text(encoding="utf-8").splitlines()
    begun = max((int(line.rpartition(".")[2]) for line in lines if line.startswith("begin")), default=0)
    async with place(folder) as storage:
        head = await storage.get_latest(thread_id=THREAD)
    saved = 0 if head is None else head.state.get("done", 0)
    assert window.saved is not None
    window.saved.add(saved)
    window.most = max(window.most, begun - 1 - saved)  # the one that was begun last was in flight
    if "rested 0" in lines and saved < PAUSE_AFTER:
        window.tally.lost += 1
        window.tally.problems.append(f"a run had come to rest after {PAUSE_AFTER} rounds, and {saved} were found")
