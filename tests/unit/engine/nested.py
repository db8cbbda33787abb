"""Sub-workflows for tests: chains that report to a stage, parents that split their input over children, and askers."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Never

import pytest
from tests.promises.stages import Relay, Stage
from tests.six_methods import SixMethods

from perdure import (
    Executor,
    InMemoryCheckpointStorage,
    SubWorkflowRequestMessage,
    SubWorkflowResponseMessage,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowContext,
    WorkflowEvent,
    WorkflowExecutor,
    handler,
    response_handler,
)
from perdure.records import ChildCheckpoint

THREAD = "t"


def no_storage() -> None:
    """In place of a storage, where none is needed."""


on_any_storage = pytest.mark.parametrize("make_storage", [no_storage, InMemoryCheckpointStorage, SixMethods])
"""For what must hold without a storage, with one of ours, and with one of which only the six methods are known."""


# ---------------------------------------------------------------- executors


class Give(Executor):
    """Yields what it gets, with its own id added."""

    def __init__(self, id: str, stage: Stage) -> None:
        super().__init__(id)
        self.stage = stage

    @handler
    async def give(self, message: str, ctx: WorkflowContext[Never, str]) -> None:
        await self.stage.play(self.id, message)
        await ctx.yield_output(f"{message}-{self.id}")


class Split(Executor):
    """Sends on each word."""

    @handler
    async def split(self, message: str, ctx: WorkflowContext[str]) -> None:
        for word in message.split():
            await ctx.send_message(word)


class Take(Executor):
    """Yields each text."""

    @handler
    async def take(self, message: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(message)


class Counter(Executor):
    """Counts in `self`, without hooks, and yields the count."""

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.count = 0

    @handler
    async def add(self, message: str, ctx: WorkflowContext[Never, str]) -> None:
        self.count += 1
        await ctx.yield_output(f"{message}{self.count}")


class KeptCounter(Counter):
    """The same, carried by the checkpoint."""

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"count": self.count}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


# ---------------------------------------------------------------- questions


@dataclass
class Question:
    text: str


class Ask(Executor):
    """Asks about each message, and yields question and answer."""

    def __init__(self, id: str = "ask", response_type: Any = str, request_id: str | None = None, **terms: Any) -> None:
        super().__init__(id)
        self.response_type = response_type
        self.request_id = request_id
        self.terms = terms

    @handler
    async def ask(self, message: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.request_info(Question(message), self.response_type, request_id=self.request_id, **self.terms)

    @response_handler
    async def receive_text(self, question: Question, answer: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"{question.text}={answer}")

    @response_handler
    async def receive_number(self, question: Question, answer: int, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"{question.text}={answer + 1}")


class Clerk(Executor):
    """An executor of the parent that answers by itself: `yes <question>`."""

    @handler
    async def answer(
        self, request: SubWorkflowRequestMessage, ctx: WorkflowContext[SubWorkflowResponseMessage]
    ) -> None:
        answer = request.create_response(f"yes {request.source_event.data.text}")
        await ctx.send_message(answer, target_id=request.executor_id)


class Desk(Executor):
    """An executor of the parent that hands the question to a person, and the person's answer to the child."""

    @handler
    async def forward(
        self, request: SubWorkflowRequestMessage, ctx: WorkflowContext[SubWorkflowResponseMessage]
    ) -> None:
        await ctx.request_info(request, str)

    @response_handler
    async def answered(
        self, request: SubWorkflowRequestMessage, answer: str, ctx: WorkflowContext[SubWorkflowResponseMessage]
    ) -> None:
        await ctx.send_message(request.create_response(answer), target_id=request.executor_id)


# ---------------------------------------------------------------- workflows


def line(stage: Stage, ids: Sequence[str] = "abc", **options: Any) -> Workflow:
    """A child of one superstep a letter: each executor adds its id, the last one yields. `"x"` gives `"x-a-b-c"`."""
    executors = [*(Relay(executor_id, stage) for executor_id in ids[:-1]), Give(ids[-1], stage)]
    options = {"name": "line", **options}
    builder = WorkflowBuilder(start_executor=executors[0], **options)
    return (builder.add_chain(executors) if len(executors) > 1 else builder).build()


def asking(**terms: Any) -> Workflow:
    """A child that asks about its message. Without `propagate_request` a parent has to answer."""
    return WorkflowBuilder(name="asking", start_executor=Ask(**terms)).build()


def around(child: Any, storage: Any = None, *, id: str = "sub", name: str = "around", **options: Any) -> Workflow:
    """first -> sub -> last: each word of the message is an input of its own for the sub-workflow."""
    first, last = Split("first"), Take("last")
    sub = WorkflowExecutor(child, id, **options)
    builder = WorkflowBuilder(name=name, start_executor=first, checkpoint_storage=storage)
    return builder.add_edge(first, sub).add_edge(sub, last).build()


def answered_by(answerer: Executor, child: Any, storage: Any = None, **options: Any) -> Workflow:
    """The same, with an executor of the parent that gets the child's questions."""
    first, last = Split("first"), Take("last")
    sub = WorkflowExecutor(child, "sub")
    builder = WorkflowBuilder(name="answered", start_executor=first, checkpoint_storage=storage, **options)
    builder.add_edge(first, sub).add_edge(sub, last)
    return builder.add_edge(sub, answerer).add_edge(answerer, sub).build()


def deep(innermost: Any, depth: int, storage: Any = None, **options: Any) -> Workflow:
    """Workflows in each other, each begun by an executor `in`: the innermost stands at `l1/l2/...`, and what it yields
    is yielded by all of them."""
    flow = innermost
    for level in range(depth, 0, -1):
        start, sub = Split("in"), WorkflowExecutor(flow, f"l{level}", allow_direct_output=True, **options)
        kept = {"checkpoint_storage": storage} if level == 1 else {}
        flow = WorkflowBuilder(name=f"around {level}", start_executor=start, **kept).add_edge(start, sub).build()
    assert isinstance(flow, Workflow)
    return flow


# ---------------------------------------------------------------- looking


async def seen(stream: AsyncIterable[WorkflowEvent]) -> list[WorkflowEvent]:
    return [event async for event in stream]


def outline(events: Iterable[WorkflowEvent], *kinds: str) -> list[tuple[str, str | None]]:
    """Kind and path of events, in order."""
    return [(event.type, event.executor_id) for event in events if event.type in kinds]


def due(level: WorkflowCheckpoint | ChildCheckpoint, path: str = "") -> list[str]:
    """The targets of due messages, at any depth, by path."""
    targets = [f"{path}{message.target_id}" for message in level.deliveries]
    for child in level.children.values():
        targets += due(child, f"{path}{child.executor_id}/")
    return targets


async def committed(storage: Any, thread_id: str = THREAD) -> list[WorkflowCheckpoint]:
    checkpoints: list[WorkflowCheckpoint] = await storage.list_checkpoints(thread_id=thread_id)
    return checkpoints


def requests_of(result: Iterable[WorkflowEvent]) -> dict[str, str]:
    """Text of the question -> id of the request."""
    return {event.data.text: str(event.request_id) for event in result if event.type == "request_info"}
