"""assert_survives_crash: a run that is cut off at every write of its storage, and resumed each time.

Each resumed run continues to the end of the workflow. Its result must equal that of an undisturbed run.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from perdure.checkpoints.any_storage import read_lineage
from perdure.checkpoints.encode import encode_checkpoint, tool_codec
from perdure.codec import Tree
from perdure.engine.run.run import WorkflowRunResult
from perdure.events import WorkflowEvent
from perdure.storages import InMemoryCheckpointStorage
from perdure.testing.clock import FakeClock
from perdure.testing.conformance.clause import differences
from perdure.testing.faults import Faults, Point, ProcessGone, When
from perdure.testing.recorded import Doing, RecordedWork
from perdure.workflows.functions import FunctionalWorkflow
from perdure.workflows.workflow import Workflow

POINTS: tuple[Point, ...] = ("commit", "journal")
MOMENTS: tuple[When, ...] = ("before", "after")
"""The writes before and after which an undisturbed run is interrupted."""

THREAD = "survivor"
"""The same in every trial, so that ids and idempotency keys are comparable; each trial has a storage of its own."""

MakeWorkflow: TypeAlias = "Callable[[Any], Workflow] | FunctionalWorkflow[Any, Any]"
"""Makes a new workflow object over a storage. For a function workflow pass `flow`, or `flow.build`."""

Answers: TypeAlias = "Mapping[Any, Any] | Callable[[WorkflowEvent], Any]"
"""Answers by request id or by question; or a function of the `request_info` event."""

_COMPARED = ("executor_id", "state", "executors", "buffers")
"""Parts of the last checkpoint that must be equal; the others hold ids and times, or are compared at each rest."""


@dataclass(frozen=True)
class Survival:
    """The trials of an assertion that holds."""

    points: tuple[str, ...]
    """Where the run was interrupted and reached the same end, such as `after commit 3`."""
    seed: int | None = None
    """The seed of the random moments."""


@dataclass(frozen=True)
class Ending:
    """How a thread ended, as plain JSON."""

    rests: list[Tree]
    """Status, outputs and open questions each time that the thread came to rest, the last one being the end."""
    parts: dict[str, Tree]
    """State and what executors keep, at the end."""
    calls: Counter[Doing]
    """Executors and steps that were called on the way."""


def build(make_workflow: MakeWorkflow, storage: Any) -> Workflow:
    """Raises TypeError if it makes something else."""
    make = make_workflow.build if isinstance(make_workflow, FunctionalWorkflow) else make_workflow
    made = make(storage)
    if not isinstance(made, Workflow):
        raise TypeError(f"make_workflow must take a storage and return a Workflow, got {made!r}.")
    return made


async def has_begun(workflow: Workflow, storage: Any, thread_id: str = THREAD) -> bool:
    return bool(await read_lineage(storage, thread_id, workflow.name))


async def take_to_the_end(
    workflow: Workflow,
    storage: Any,
    message: Any,
    answers: Answers | None,
    *,
    takeover: bool = False,
    thread_id: str = THREAD,
) -> Ending:
    """Begin, or resume the thread, and answer until nothing is open that has an answer."""
    options: dict[str, Any] = {"thread_id": thread_id, "checkpoint_storage": storage, "takeover": takeover}
    begun = await has_begun(workflow, storage, thread_id)
    result = await workflow.new_run(None if begun else message, **options).execute()
    rests, calls = [_rest(result)], Counter(_calls(result))
    while responses := answers_to(result, answers):
        result = await workflow.new_run(responses=responses, **options).execute()
        rests.append(_rest(result))
        calls.update(_calls(result))
    [*_, head] = await read_lineage(storage, thread_id, workflow.name)
    return Ending(rests, _comparable(encode_checkpoint(head, tool_codec())), calls)


def _comparable(tree: dict[str, Tree]) -> dict[str, Tree]:
    """State and what executors keep, of a workflow and of the sub-workflows in it that have not ended."""
    children = {"children": [_comparable(child) for child in tree["children"]]} if "children" in tree else {}
    return {**{part: tree[part] for part in _COMPARED if part in tree}, **children}


def answers_to(result: WorkflowRunResult, answers: Answers | None) -> dict[str, Any]:
    events = result.get_request_info_events()
    if answers is None or callable(answers):
        return {} if answers is None else {str(event.request_id): answers(event) for event in events}
    pairs = [(event, key) for event in events for key in answers if key in (str(event.request_id), event.data)]
    return {str(event.request_id): answers[key] for event, key in pairs}


def _rest(result: WorkflowRunResult) -> Tree:
    codec, requests = tool_codec(), result.get_request_info_events()
    return {
        "status": result.get_final_state().value,
        "outputs": codec.encode(result.get_outputs(), "outputs"),
        "intermediate outputs": codec.encode(result.get_intermediate_outputs(), "outputs"),
        "questions": {str(event.request_id): codec.encode(event.data, "question") for event in requests},
    }


def _calls(result: WorkflowRunResult) -> Iterator[Doing]:
    for event in result:
        if event.type == "executor_invoked" and not event.replayed:
            yield str(event.executor_id), event.child_id


def problems(calm: Ending, resumed: Ending, recorded: Counter[Doing]) -> list[str]:
    """The differences of a run that was interrupted and resumed, in sentences; none if it survived.

    `recorded`: the records in the storage at the interruption; none where the storage keeps no records.
    """
    at_rest = differences(calm.rests[-len(resumed.rests) :], resumed.rests, "at rest")
    sentences = [
        f"{path.removeprefix('.')}: expected {_short(expected)}, got {_short(got)}"
        for path, expected, got in (*at_rest, *differences(calm.parts, resumed.parts))
    ]
    for doing, count in recorded.items():
        if resumed.calls[doing] > max(0, calm.calls[doing] - count):
            path, child_id = doing
            name = repr(path) if child_id is None else f"{path!r} of child {child_id}"
            sentences.append(
                f"{name} is called {calm.calls[doing]} times in an undisturbed run; {count} of these were recorded, "
                f"and yet it was called {resumed.calls[doing]} times after the resume"
            )
    return sentences


def _short(tree: Tree) -> str:
    text = json.dumps(tree, ensure_ascii=False, default=repr)
    return text if len(text) <= 300 else f"{text[:300]}..."


def did_not_survive(workflow_name: str, point: str, sentences: list[str], tried: list[str]) -> AssertionError:
    lines = [f"Workflow {workflow_name!r} does not survive {point}. The resumed run differs from an undisturbed one:"]
    lines += [f"  {problem}" for problem in sentences]
    lines.append(f"Before that it survived {len(tried)} interruptions{': ' if tried else ''}{', '.join(tried)}.")
    return AssertionError("\n".join(lines))


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
    restarted process would; `storage()` an empty storage, in memory by default. `answers` answer
    the requests of the workflow. A `clock` that the workflow uses advances whenever every task waits.

    The crash is simulated in this process. For a storage that outlives processes, `assert_survives_kill` kills real
    ones.
    """
    if storage is not None and not callable(storage):
        raise TypeError(
            f"storage= expects a function that makes an empty storage, such as a class, got {storage!r}: each crash "
            "needs a thread of its own."
        )
    trial = _Trial(make_workflow, message, storage or InMemoryCheckpointStorage, answers, clock)
    faults = Faults()
    calm = await trial.run_undisturbed(faults)
    survived: list[str] = []
    for point in POINTS:
        for nth in range(1, faults.counts[point] + 1):
            for when in MOMENTS:
                shown = f"{when} {point} {nth}"
                wrong = await trial.crash_and_resume(point, nth, when, calm)
                if wrong:
                    raise did_not_survive(trial.name, f"a crash {shown}", wrong, survived)
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
        async with self._open() as made:
            storage = faults.wrap(made)
            workflow = build(self.make_workflow, storage)
            self.name = workflow.name
            try:
                return await take_to_the_end(workflow, storage, self.message, self.answers)
            except Exception as error:
                error.add_note("This was the undisturbed run: nothing has crashed yet.")
                raise

    async def crash_and_resume(self, point: Point, nth: int, when: When, calm: Ending) -> list[str]:
        """The differences after a crash there and a resume."""
        faults = Faults()
        faults.crash(point, nth=nth, when=when)
        async with self._open() as storage:
            dying = faults.wrap(storage)
            workflow = build(self.make_workflow, dying)
            recorded = RecordedWork(workflow.graph)  # nothing, for a storage that keeps no records
            faults.watch(recorded.take)
            with suppress(ProcessGone):
                await take_to_the_end(workflow, dying, self.message, self.answers)
            before = recorded.counts
            second = build(self.make_workflow, storage)
            try:
                resumed = await take_to_the_end(second, storage, self.message, self.answers, takeover=True)
            except Exception as error:  # noqa: BLE001  # whatever it is, it is what the assertion has to report
                return [f"it raised {type(error).__name__}: {error}"]
        return problems(calm, resumed, before)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Any]:
        """A new storage; time passes until it is closed. A server has only so many connections."""
        storage = self.make_storage()
        try:
            async with self.clock.skipping() if self.clock is not None else nullcontext():
                yield storage
        finally:
            if hasattr(storage, "close"):
                await storage.close()
