"""Helpers for tests of function workflows: steps that note their calls, and runs that new objects resume."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from perdure import FunctionalWorkflow, InMemoryCheckpointStorage, StepWrapper, WorkflowEvent, WorkflowRunResult, step
from perdure.clock import Clock
from perdure.records import JournalEntry, Lease
from perdure.stores.memory.store import MemoryStore

THREAD = "t"


class Calls(list[Any]):
    """What steps were called with, in order. Like the world, it is never put back."""

    def step(self, give: Callable[..., Any] | None = None, **options: Any) -> StepWrapper[Any, Any]:
        """An async step that notes its argument and gives it back, or what `give` makes of it."""

        async def noted(value: Any = None) -> Any:
            self.append(value)
            return value if give is None else give(value)

        return step(name=options.pop("name", "noted"), **options)(noted)


def raising(error: Exception) -> Callable[[Any], Any]:
    """A result for `Calls.step`: the error."""

    def give(_: Any) -> Any:
        raise error

    return give


async def begin(
    flow: FunctionalWorkflow[Any, Any], storage: Any, message: Any = "go", *, clock: Clock | None = None, **options: Any
) -> WorkflowRunResult:
    options.setdefault("thread_id", THREAD)
    result: WorkflowRunResult = await flow.build(storage, clock=clock).run(message, **options)
    return result


async def resume(
    flow: FunctionalWorkflow[Any, Any], storage: Any, *, clock: Clock | None = None, **options: Any
) -> WorkflowRunResult:
    """As another process would: with a workflow object of its own."""
    options.setdefault("thread_id", THREAD)
    result: WorkflowRunResult = await flow.build(storage, clock=clock).run(**options)
    return result


async def answer(
    flow: FunctionalWorkflow[Any, Any],
    storage: Any,
    asked: WorkflowRunResult,
    answers: Mapping[Any, Any],
    **options: Any,
) -> WorkflowRunResult:
    """Answer questions by what they ask, with a workflow object of its own."""
    ids = questions(asked)
    return await resume(flow, storage, responses={ids[data]: value for data, value in answers.items()}, **options)


def questions(result: WorkflowRunResult) -> dict[Any, str]:
    """Pending questions: the data of each question -> its request id."""
    return {event.data: str(event.request_id) for event in result.get_request_info_events()}


async def paused_and_resumed(flow: FunctionalWorkflow[Any, Any], message: Any = "go") -> Any:
    """The output of a flow that asks a last question before it ends. Another object answers the question."""
    storage = InMemoryCheckpointStorage()
    asked = await begin(flow, storage, message)
    assert list(questions(asked)) == ["go on?"]
    return (await answer(flow, storage, asked, {"go on?": "yes"})).get_outputs()[0]


async def state_of(storage: InMemoryCheckpointStorage, thread_id: str = THREAD) -> dict[str, Any]:
    head = await storage.get_latest(thread_id=thread_id)
    assert head is not None
    return dict(head.state)


def outline(events: list[WorkflowEvent], *kinds: str) -> list[Any]:
    """(type, executor id) of the events of these kinds, in order."""
    return [(event.type, event.executor_id) for event in events if event.type in kinds]


class Cancelling(MemoryStore):
    """Cancels the run as soon as something is in the journal."""

    run: asyncio.Task[Any] | None = None

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        await super().append_journal(lease, entry)
        if self.run is not None:
            self.run.cancel()
