"""assert_survives_kill: real processes, killed at every write of their storage and at random, and resumed by others."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from perdure.checkpoints.encoding.checkpoint import tool_codec
from perdure.storages import InMemoryCheckpointStorage
from perdure.testing.survival.compare import (
    MOMENTS,
    POINTS,
    Answers,
    Ending,
    MakeWorkflow,
    Survival,
    did_not_survive,
    problems,
)
from perdure.testing.survival.processes import ChildFailed, ChildProcess, Report, at_most, child, importable


async def assert_survives_kill(
    make_workflow: MakeWorkflow | str,
    message: Any = None,
    *,
    storage: Callable[[Path], Any] | str,
    answers: Answers | str | None = None,
    random_kills: int = 4,
    seed: int | None = None,
    seconds: float = 20.0,
) -> Survival:
    """Run the workflow in child processes, kill them with SIGKILL, and resume each time in a new process.

    A child is killed before and after each commit and journal entry of an undisturbed run, and `random_kills` times
    at moments drawn from `seed`, which is printed. Asserts what `assert_survives_crash` asserts, and that a new process
    finds the thread by its id alone.

    `make_workflow(storage)` and `storage(folder)` are called in the children, so these must be importable: functions
    on top of a module, or `"module:function"`. `folder` is a `Path` of an empty folder, one for each thread.
    `seconds` is how long one process may take. Raises TypeError for a storage that lives in memory.
    """
    _refuse_memory(storage)
    seed = random.randrange(2**32) if seed is None else seed  # noqa: S311  # protects nothing
    print(f"assert_survives_kill: seed {seed}")  # noqa: T201  # pytest shows it with a failure, to repeat it
    with TemporaryDirectory(prefix="perdure-kill-", ignore_cleanup_errors=True) as folder:
        trials = _Trials(Path(folder), _order(make_workflow, message, storage, answers), seconds)
        await trials.run_undisturbed()
        await trials.kill_everywhere(random.Random(seed), random_kills)  # noqa: S311  # as above
    return Survival(tuple(trials.survived), seed)


def _refuse_memory(storage: Any) -> None:
    kind = storage if isinstance(storage, type) else type(storage)
    if issubclass(kind, InMemoryCheckpointStorage):
        raise _in_memory(kind.__name__)


def _in_memory(name: str) -> TypeError:
    return TypeError(
        f"assert_survives_kill needs a storage that outlives the process, and {name} does not: what it keeps is gone "
        "with the process that is killed. Pass a function that makes a FileCheckpointStorage, a "
        "SqliteCheckpointStorage or a storage of your own in the folder that it is given; for one in memory there is "
        "assert_survives_crash."
    )


def _order(make_workflow: Any, message: Any, storage: Any, answers: Any) -> Report:
    """The order of every child. Raises TypeError for what a child could not import."""
    codec = tool_codec()
    encoded_answers: Any = None
    if isinstance(answers, Mapping):
        encoded_answers = [
            [codec.encode(key, "answers"), codec.encode(value, "answers")] for key, value in answers.items()
        ]
    elif answers is not None:
        encoded_answers = asdict(importable("answers", answers))
    return {
        "path": [os.path.abspath(entry) for entry in sys.path],
        "workflow": asdict(importable("make_workflow", make_workflow)),
        "storage": asdict(importable("storage", storage)),
        "message": codec.encode(message, "message"),
        "answers": encoded_answers,
    }


@dataclass
class _Trials:
    """One thread each, in a folder of its own."""

    folder: Path
    order: Report
    seconds: float
    calm: Ending = field(init=False)
    name: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    duration: float = 0.0
    survived: list[str] = field(default_factory=list)

    def _child(self, trial: str, **more: Any) -> Any:
        folder = self.folder / trial
        folder.mkdir(exist_ok=True)
        order = {**self.order, "folder": str(folder), "stop_at": None, **more}
        return child(order, self.folder / f"{trial}.stderr", self.seconds)

    async def run_undisturbed(self) -> None:
        """Raises TypeError if the storage turns out to live in memory only."""
        async with self._child("undisturbed") as process:
            began = await process.expect("started", "in_memory")
            if "in_memory" in began:
                raise _in_memory(began["in_memory"])
            report = (await process.expect("ended"))["ended"]
        self.calm = _ending(report)
        self.name, self.counts, self.duration = report["workflow"], report["counts"], report["seconds"]
        async with self._child("undisturbed") as process:
            if not (await process.expect("started"))["has_begun"]:
                raise _in_memory(self.order["storage"]["name"])

    async def kill_everywhere(self, chance: random.Random, random_kills: int) -> None:
        stops = [
            {"point": point, "nth": nth, "when": when}
            for point in POINTS
            for nth in range(1, self.counts.get(point, 0) + 1)
            for when in MOMENTS
        ]
        delays = [chance.uniform(0, self.duration) for _ in range(random_kills)]
        works = [partial(self._kill_at, stop) for stop in stops]
        works += [partial(self._kill_after, number, delay) for number, delay in enumerate(delays, 1)]
        await at_most(min(4, os.cpu_count() or 1), works)

    async def _kill_at(self, stop_at: Report) -> None:
        point = f"{stop_at['when']} {stop_at['point']} {stop_at['nth']}"
        trial = point.replace(" ", "-")
        async with self._child(trial, stop_at=stop_at) as process:
            await process.expect("started")
            report = await process.expect("reached", "ended")
            if "ended" in report:
                return  # what ended last needed no record this time: there was nothing to be killed at
            if not await process.kill():
                raise ChildFailed(f"The process waited to be killed {point}, and ended by itself.")
        await self._resume(trial, point, process)

    async def _kill_after(self, number: int, delay: float) -> None:
        """A process that ended before is not a kill: then another is killed earlier."""
        was_killed = False
        while not was_killed:
            trial = f"random-{number}-{delay:.9f}"
            async with self._child(trial) as process:
                await process.expect("started")
                await asyncio.sleep(delay)  # a moment left to chance: no signal marks it
                was_killed = await process.kill()
            if was_killed:
                await self._resume(trial, f"{delay * 1000:.3f} ms after its start", process)
            delay /= 2

    async def _resume(self, trial: str, point: str, killed: ChildProcess) -> None:
        recorded = Counter({(path, child_id): count for path, child_id, count in killed.recorded})
        try:
            async with self._child(trial) as process:
                await process.expect("started")
                resumed = _ending((await process.expect("ended"))["ended"])
            differences = problems(self.calm, resumed, recorded)
        except ChildFailed as error:
            differences = [f"it failed: {error}"]
        if differences:
            raise did_not_survive(self.name, f"a kill {point}", differences, self.survived)
        self.survived.append(point)


def _ending(report: Report) -> Ending:
    calls = Counter({(path, child_id): count for path, child_id, count in report["calls"]})
    return Ending(report["rests"], report["parts"], calls)
