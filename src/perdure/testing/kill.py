"""assert_survives_kill: real processes, killed at every write of their storage and at random, and resumed by others.

The processes run this module too. Each reads its order, one line, takes one thread to its end, and reports on the way.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from perdure.checkpoints.any_storage import codec_for
from perdure.checkpoints.encode import tool_codec
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.storages import InMemoryCheckpointStorage
from perdure.stores.memory.store import MemoryStore
from perdure.testing.conformance.clause import run_together
from perdure.testing.crash import (
    MOMENTS,
    POINTS,
    Answers,
    Ending,
    MakeWorkflow,
    Survival,
    build,
    did_not_survive,
    has_begun,
    problems,
    take_to_the_end,
)
from perdure.testing.faults import Faults
from perdure.testing.processes import Importable, JsonLines, JsonProcess, import_path, importable, start_json_process
from perdure.testing.recorded import Doing, RecordedWork

Report: TypeAlias = dict[str, Any]


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
    kind = storage if isinstance(storage, type) else type(storage)
    if issubclass(kind, InMemoryCheckpointStorage):
        raise _in_memory(kind.__name__)
    seed = random.randrange(2**32) if seed is None else seed  # noqa: S311  # protects nothing
    print(f"assert_survives_kill: seed {seed}")  # noqa: T201  # pytest shows it with a failure, to repeat it
    with TemporaryDirectory(prefix="perdure-kill-", ignore_cleanup_errors=True) as folder:
        trials = _Trials(Path(folder), _order(make_workflow, message, storage, answers), seconds)
        await trials.run_undisturbed()
        await trials.kill_everywhere(random.Random(seed), random_kills)  # noqa: S311  # as above
    return Survival(tuple(trials.survived), seed)


def _in_memory(name: str) -> TypeError:
    return TypeError(
        f"assert_survives_kill needs a storage that outlives the process, and {name} does not: what it keeps is gone "
        "with the process that is killed. Pass a function that makes a FileCheckpointStorage, a "
        "SqliteCheckpointStorage or a storage of your own in the folder that it is given; for one in memory there is "
        "assert_survives_crash."
    )


def _order(make_workflow: Any, message: Any, storage: Any, answers: Any) -> Report:
    """The order of every child. Raises TypeError for a function that a child could not import."""
    codec = tool_codec()
    encoded_answers: Any = None
    if isinstance(answers, Mapping):
        encoded_answers = [[codec.encode(part, "answers") for part in pair] for pair in answers.items()]
    elif answers is not None:
        encoded_answers = asdict(importable("answers", answers))
    return {
        "path": import_path(),
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
        works = [
            partial(self._kill_at, {"point": point, "nth": nth, "when": when})
            for point in POINTS
            for nth in range(1, self.counts.get(point, 0) + 1)
            for when in MOMENTS
        ]
        delays = [chance.uniform(0, self.duration) for _ in range(random_kills)]
        works += [partial(self._kill_after, number, delay) for number, delay in enumerate(delays, 1)]
        left = iter(works)

        async def work_in_order() -> None:
            for work in left:
                await work()

        await run_together(*(work_in_order() for _ in range(min(4, os.cpu_count() or 1))))

    async def _kill_at(self, stop_at: Report) -> None:
        point = f"{stop_at['when']} {stop_at['point']} {stop_at['nth']}"
        trial = point.replace(" ", "-")
        async with self._child(trial, stop_at=stop_at) as process:
            await process.expect("started")
            report = await process.expect("reached", "ended")
            if "ended" in report:
                return  # what ended last needed no record this time: there was nothing to be killed at
            if not await process.was_killed():
                raise ChildFailed(f"The process waited to be killed {point}, and ended by itself.")
        await self._resume(trial, point, process)

    async def _kill_after(self, number: int, delay: float) -> None:
        """A process that ended before its kill does not count: another is then killed earlier."""
        was_killed = False
        while not was_killed:
            trial = f"random-{number}-{delay:.9f}"
            async with self._child(trial) as process:
                await process.expect("started")
                await asyncio.sleep(delay)  # a moment left to chance: no signal marks it
                was_killed = await process.was_killed()
            if was_killed:
                await self._resume(trial, f"{delay * 1000:.3f} ms after its start", process)
            delay /= 2

    async def _resume(self, trial: str, point: str, killed: ChildProcess) -> None:
        recorded = _counter_of(killed.recorded)
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
    return Ending(report["rests"], report["parts"], _counter_of(report["calls"]))


def _counter_of(rows: Iterable[Any]) -> Counter[Doing]:
    return Counter({(path, child_id): count for path, child_id, count in rows})


# ---------------------------------------------------------------- the child, seen from the parent


KILLED = (-9, 15)
"""The exit codes of a killed process: of SIGKILL, or as Windows reports it."""


class ChildFailed(AssertionError):
    """The code under test raised in its process, or the process ended by itself."""


class ChildProcess(JsonProcess):
    """One process that lives through one part of a thread's life."""

    errors: Path
    """The file of its stderr."""
    recorded: Sequence[Any] = ()
    """The last report of recorded work."""

    def _take(self, report: Report) -> bool:
        """Whether the report is about recorded work. Raises ChildFailed."""
        if "failed" in report:
            raise ChildFailed(report["failed"])
        self.recorded = report.get("recorded", self.recorded)
        return "recorded" in report

    async def expect(self, *kinds: str) -> Report:
        """The next report but for those of recorded work. It is one of these kinds. Raises ChildFailed if the process
        ends without it."""
        report: Report | None = await self.receive()
        while report is not None and self._take(report):
            report = await self.receive()
        if report is None or not set(kinds) & report.keys():
            await self.process.wait()
            stderr = self.errors.read_text(encoding="utf-8", errors="replace").strip()
            raise ChildFailed(
                f"The process ended with {self.process.returncode} and wrote to stderr: {stderr or 'nothing'}"
            )
        return report

    async def was_killed(self) -> bool:
        """Kill it. Returns whether the kill ended it; otherwise it ended by itself a moment before."""
        for report in await self.kill():
            self._take(report)
        return self.process.returncode in KILLED


@asynccontextmanager
async def child(order: Report, errors: Path, seconds: float) -> AsyncIterator[ChildProcess]:
    """A process with this order; it is dead when the block ends. Raises ChildFailed if it takes too long."""
    try:
        with errors.open("wb") as stderr:
            async with start_json_process(ChildProcess, __name__, order, stderr=stderr) as process:
                process.errors = errors
                async with asyncio.timeout(seconds):
                    yield process
    except TimeoutError as error:
        raise ChildFailed(f"The process did not end within {seconds:g} seconds.") from error


# ---------------------------------------------------------------- in the child


async def live(order: dict[str, Any], lines: JsonLines) -> None:
    storage = Importable(**order["storage"]).load()(Path(order["folder"]))
    if isinstance(storage, StoreCheckpointStorage) and type(storage.store) is MemoryStore:
        lines.send({"in_memory": type(storage).__name__})
        return
    faults = Faults()
    watched = faults.wrap(storage)
    workflow = build(Importable(**order["workflow"]).load(), watched)
    recorded = RecordedWork(workflow.graph)

    def report_work(point: str, written: Any) -> None:  # after each write, so that it is known if this process dies
        recorded.take(point, written)
        lines.send({"recorded": [[*doing, count] for doing, count in recorded.counts.items()]})

    faults.watch(report_work)
    stop_at = order["stop_at"]
    if stop_at is not None:

        def stop() -> None:
            lines.send({"reached": stop_at})
            sys.stdin.read()  # blocks everything, the event loop too, until this process is killed, or the parent dead
            os._exit(1)

        faults.call(stop_at["point"], stop, nth=stop_at["nth"], when=stop_at["when"])
    codec = codec_for(storage, workflow._compiled.declared)
    message = codec.decode(order["message"], "message")
    lines.send({"started": True, "has_begun": await has_begun(workflow, storage)})
    began = time.monotonic()
    ending = await take_to_the_end(workflow, watched, message, _answers(order["answers"], codec))
    report = {
        "workflow": workflow.name,
        "rests": ending.rests,
        "parts": ending.parts,
        "calls": [[*doing, count] for doing, count in ending.calls.items()],
        "counts": dict(faults.counts),
        "seconds": time.monotonic() - began,
    }
    lines.send({"ended": report})


def _answers(encoded_answers: Any, codec: Any) -> Any:
    if isinstance(encoded_answers, dict):
        return Importable(**encoded_answers).load()
    return {codec.decode(key, "answers"): codec.decode(value, "answers") for key, value in encoded_answers or ()}


def main() -> None:
    lines = JsonLines()
    order = json.loads(sys.stdin.readline())
    sys.path[:] = order["path"]
    try:
        asyncio.run(live(order, lines))
    except Exception:  # noqa: BLE001  # reported: the parent raises it
        lines.send({"failed": traceback.format_exc()})


if __name__ == "__main__":
    main()
