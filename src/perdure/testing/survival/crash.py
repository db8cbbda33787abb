"""assert_survives_crash: a run that is cut off at every write of its storage, and resumed each time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.storages import InMemoryCheckpointStorage
from perdure.testing.clock import FakeClock
from perdure.testing.faults import Faults, Point, ProcessGone, When
from perdure.testing.survival.compare import (
    MOMENTS,
    POINTS,
    Answers,
    Ending,
    MakeWorkflow,
    Survival,
    build,
    did_not_survive,
    problems,
    take_to_the_end,
)
from perdure.testing.survival.recorded import RecordedWork


async def assert_survives_crash(
    make_workflow: MakeWorkflow,
    message: Any,
    *,
    storage: Callable[[], Any] | None = None,
    answers: Answers | None = None,
    clock: FakeClock | None = None,
) -> Survival:
    """Crash before and after every commit and every journal entry of an undisturbed run, and resume each time.

    Asserts that the resumed run ends as the undisturbed one, with the same outputs, questions and state, and that no
    executor or step ran again whose end was recorded. `make_workflow(storage)` makes a new workflow object, as a
    restarted process would; `storage()` an empty storage, in memory by default. `answers` are given to
    whatever the workflow asks. A `clock` that the workflow uses advances whenever every task waits.

    The crash is played in this process. Where the storage outlives a process, `assert_survives_kill` kills real ones.
    """
    trial = _Trial(make_workflow, message, _factory(storage), answers, clock)
    faults = Faults()
    calm = await trial.run_undisturbed(faults)
    survived: list[str] = []
    for point in POINTS:
        for nth in range(1, faults.counts[point] + 1):
            for when in MOMENTS:
                shown = f"{when} {point} {nth}"
                differences = await trial.crash_and_resume(point, nth, when, calm)
                if differences:
                    raise did_not_survive(trial.name, f"a crash {shown}", differences, survived)
                survived.append(shown)
    return Survival(tuple(survived))


@dataclass
class _Trial:
    make_workflow: MakeWorkflow
    message: Any
    make_storage: Callable[[], Any]
    answers: Answers | None
    clock: FakeClock | None
    name: str = ""

    async def run_undisturbed(self, faults: Faults) -> Ending:
        made = self.make_storage()
        storage = faults.wrap(made)
        workflow = build(self.make_workflow, storage)
        self.name = workflow.name
        async with self._time_passes(), _close_after(made):
            try:
                return await take_to_the_end(workflow, storage, self.message, self.answers)
            except Exception as error:
                error.add_note("This was the undisturbed run: nothing has crashed yet.")
                raise

    async def crash_and_resume(self, point: Point, nth: int, when: When, calm: Ending) -> list[str]:
        """What is wrong after a crash there and a resume."""
        faults = Faults()
        faults.crash(point, nth=nth, when=when)
        storage = self.make_storage()
        dying = faults.wrap(storage)
        workflow = build(self.make_workflow, dying)
        recorded = RecordedWork(workflow.graph) if isinstance(storage, StoreCheckpointStorage) else None
        if recorded is not None:
            faults.watch(recorded.take)
        async with self._time_passes(), _close_after(storage):
            try:
                await take_to_the_end(workflow, dying, self.message, self.answers)
            except ProcessGone:
                pass
            before = None if recorded is None else recorded.counts
            second = build(self.make_workflow, storage)
            try:
                resumed = await take_to_the_end(second, storage, self.message, self.answers, takeover=True)
            except Exception as error:  # noqa: BLE001  # whatever it is, it is what the assertion has to report
                return [f"it raised {type(error).__name__}: {error}"]
        return problems(calm, resumed, before)

    @asynccontextmanager
    async def _time_passes(self) -> AsyncIterator[None]:
        async with self.clock.skipping() if self.clock is not None else nullcontext():
            yield


def _factory(storage: Callable[[], Any] | None) -> Callable[[], Any]:
    if storage is None:
        return InMemoryCheckpointStorage
    if not callable(storage):
        raise TypeError(
            f"storage= expects something that makes an empty storage each time it is called, such as a class, got "
            f"{storage!r}: every crash needs a thread of its own to happen to."
        )
    return storage


@asynccontextmanager
async def _close_after(storage: Any) -> AsyncIterator[None]:
    """There is one for each trial, and a server has only so many connections."""
    try:
        yield
    finally:
        close = getattr(storage, "close", None)
        if close is not None:
            await close()
