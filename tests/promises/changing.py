"""The same situations under two versions of a workflow: everything in the second is called otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

from tests.promises.stages import Boom, Stage

from perdure import (
    Executor,
    SubWorkflowRequestMessage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    WorkflowRunResult,
    handler,
    response_handler,
)
from perdure.checkpoints.migration.stored_form import StoredForm
from perdure.testing import FakeClock


@dataclass
class Ticket:
    """What the first version calls a piece of work."""

    text: str


@dataclass
class Case:
    """What the second version calls it."""

    text: str


# Of no package that an executor is in: what is not declared cannot be loaded.
Ticket.__module__ = Case.__module__ = "shop"


def rename_everything(stored: StoredForm) -> None:
    """From the first version to the second."""
    for path in _paths(stored.signature):
        *outer, executor_id = path.split("/")
        stored.rename_executor(
            "/".join([*(f"new-{outer_id}" for outer_id in outer), executor_id]), f"new-{executor_id}"
        )
    stored.rename_type("shop:Ticket", Case)


def _paths(signature: Any, path: str = "") -> list[str]:
    """The outer ones first, as they have to be renamed."""
    inner = [
        inner_path
        for key, child in signature.get("children", {}).items()
        for inner_path in _paths(child, f"{path}{key}/")
    ]
    return [*(f"{path}{key}" for key in signature["executors"]), *inner]


@dataclass
class Version:
    """A version of the workflow, and the world around it."""

    kind: type[Any]
    prefix: str
    stage: Stage
    clock: FakeClock
    migrations: list[Any] = field(default_factory=list)

    def id(self, name: str) -> str:
        return f"{self.prefix}{name}"

    def path(self, *names: str) -> str:
        return "/".join(map(self.id, names))

    def start(self, executor: Executor, storage: Any = None, **options: Any) -> WorkflowBuilder:
        return WorkflowBuilder(
            name="work",
            start_executor=executor,
            checkpoint_storage=storage,
            allowed_types=[self.kind],
            migrations=self.migrations,
            clock=self.clock,
            **options,
        )


def first(stage: Stage | None = None) -> Version:
    return Version(Ticket, "", stage or Stage(), FakeClock())


def second(before: Version, *migrations: Any) -> Version:
    """Returns the second version, in the world that the first has left."""
    chosen = list(migrations) or [rename_everything]
    return Version(Case, "new-", before.stage, before.clock, chosen)


# ---------------------------------------------------------------- executors


class Part(Executor):
    """Base of those below: knows its version, and plays on its stage."""

    def __init__(self, version: Version, name: str, **options: Any) -> None:
        super().__init__(version.id(name), **options)
        self.version = version
        self.role = name

    async def play(self, work: Any) -> None:
        assert type(work) is self.version.kind, work
        await self.version.stage.play(self.role, work.text)

    def more(self, work: Any) -> Any:
        return self.version.kind(f"{work.text}-{self.role}")


class Passes(Part):
    @handler
    async def work(self, work: Any, ctx: WorkflowContext[Any, Any]) -> None:
        await self.play(work)
        await ctx.send_message(self.more(work))


class Directs(Part):
    """Names the executor that gets its message."""

    @handler
    async def work(self, work: Any, ctx: WorkflowContext[Any, Any]) -> None:
        await self.play(work)
        await ctx.send_message(self.more(work), target_id=self.version.id("sink"))


class Keeps(Part):
    """Has a memory of every kind, and writes into the state."""

    def __init__(self, version: Version, name: str, *, reports: bool = False) -> None:
        super().__init__(version, name)
        self.seen: list[Any] = []
        self.reports = reports

    @handler
    async def work(self, work: Any, ctx: WorkflowContext[Any, Any]) -> None:
        await self.play(work)
        self.seen.append(work)
        ctx.private["last"] = work
        ctx.set_state("works", {**ctx.get_state("works", {}), work.text: work})
        if self.reports:
            await ctx.yield_output(work)
        await ctx.send_message(self.version.kind(f"{work.text}-{len(self.seen)}"))

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"seen": self.seen}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


class Yields(Part):
    @handler
    async def work(self, work: Any, ctx: WorkflowContext[Any, Any]) -> None:
        await ctx.yield_output("+".join(item.text for item in work) if isinstance(work, list) else work.text)


class Asks(Part):
    """Asks about what it gets, and sends the answer on."""

    def __init__(self, version: Version, name: str, *, hours: float | None = None, default: Any = ...) -> None:
        super().__init__(version, name)
        self.hours = hours
        self.default = default

    @handler
    async def work(self, work: Any, ctx: WorkflowContext[Any, Any]) -> None:
        await self.play(work)
        deadline = None if self.hours is None else self.version.clock.now() + timedelta(hours=self.hours)
        terms = {} if deadline is None else {"deadline": deadline, "default": self.default}
        await ctx.request_info(work, self.version.kind, request_id=f"about {self.role}", **terms)

    @response_handler
    async def answered(self, question: Any, answer: Any, ctx: WorkflowContext[Any, Any]) -> None:
        assert type(question) is type(answer) is self.version.kind
        await self.version.stage.play(f"{self.role} answered", answer.text)
        await ctx.send_message(self.version.kind(f"{question.text}:{answer.text}"))


class Answers(Part):
    """Gets the questions of a sub-workflow, sleeps over them, and answers."""

    @handler
    async def work(self, question: SubWorkflowRequestMessage, ctx: WorkflowContext[Any, Any]) -> None:
        await ctx.sleep(3600)
        answer = question.create_response(self.version.kind("slept over"))
        await ctx.send_message(answer, target_id=question.executor_id)


class Sleeps(Part):
    """Takes steps before and after a sleep; the first sends a message by itself."""

    async def note(self, work: Any) -> Any:
        await self.version.stage.play(f"{self.role} step", work.text)
        return self.version.kind(f"{work.text}!")

    @handler
    async def work(self, work: Any, ctx: WorkflowContext[Any, Any]) -> None:
        async def send_more() -> None:
            await ctx.send_message(self.more(work), target_id=self.version.id("sink"))

        await ctx.step(send_more)
        noted = await ctx.step(self.note, work)
        await ctx.sleep(3600)
        await ctx.send_message(await ctx.step(self.note, noted))


class Fails(Part):
    """Fails always; its fallback gets the message."""

    @handler
    async def work(self, work: Any, ctx: WorkflowContext[Any, Any]) -> None:
        raise Boom


# ---------------------------------------------------------------- situations

Build: TypeAlias = Callable[[Version, Any], Workflow]
Act: TypeAlias = Callable[[Version, Workflow], Awaitable[Any]]


@dataclass(frozen=True)
class Situation:
    """Where a thread can stand when its workflow changes: how it gets there, and how it continues."""

    build: Build
    begin: Act
    end: Act
    outputs: list[str]
    calls: list[str]
    """What happens in all: nothing twice."""


async def begins(version: Version, workflow: Workflow) -> WorkflowRunResult:
    return await workflow.run(version.kind("x"), thread_id="t")


async def falls_asleep(version: Version, workflow: Workflow, run_it: Act = begins) -> None:
    run = asyncio.ensure_future(run_it(version, workflow))
    await version.clock.wait_for_sleepers()
    run.cancel()
    await asyncio.wait([run])


async def crashes(version: Version, workflow: Workflow) -> None:
    """One of its parts fails, and is well again the next time."""
    try:
        await begins(version, workflow)
    except Boom:
        version.stage.failing.clear()


async def resumes(version: Version, workflow: Workflow) -> WorkflowRunResult:
    return await workflow.run(thread_id="t")


async def sleeps_on(version: Version, workflow: Workflow) -> WorkflowRunResult:
    version.clock.advance(3600)
    return await resumes(version, workflow)


def answers(*names: str) -> Act:
    async def act(version: Version, workflow: Workflow) -> WorkflowRunResult:
        responses = {f"about {name}": version.kind("yes") for name in names}
        return await workflow.run(responses=responses, thread_id="t")

    return act


def pending(version: Version, storage: Any) -> Workflow:
    keeps, asks, sink = Keeps(version, "keeps"), Asks(version, "asks"), Yields(version, "sink")
    return version.start(keeps, storage).add_chain([keeps, asks, sink]).build()


def sleeping(version: Version, storage: Any) -> Workflow:
    sleeps, sink = Sleeps(version, "sleeps"), Yields(version, "sink")
    return version.start(sleeps, storage).add_edge(sleeps, sink).build()


def gathering(version: Version, storage: Any) -> Workflow:
    """A fan-in that has one message, and waits for an answer."""
    source, quick, asks = Passes(version, "source"), Passes(version, "quick"), Asks(version, "asks")
    builder = version.start(source, storage).add_fan_out_edges(source, [quick, asks])
    return builder.add_fan_in_edges([quick, asks], Yields(version, "join")).build()


def crashing(version: Version, storage: Any) -> Workflow:
    """Two siblings, of which one fails after the other is recorded."""
    source, sure, weak = Passes(version, "source"), Directs(version, "sure"), Passes(version, "weak")
    sink = Yields(version, "sink")
    builder = version.start(source, storage).add_fan_out_edges(source, [sure, weak])
    return builder.add_edge(sure, sink).add_edge(weak, sink).build()


def standing_in(version: Version, storage: Any) -> Workflow:
    """One that fails always, and one that stands in for it and asks."""
    asks, sink = Asks(version, "asks"), Yields(version, "sink")
    fails = Fails(version, "fails", on_error=asks)
    return version.start(fails, storage).add_edge(fails, sink).add_edge(asks, sink).build()


def inner(version: Version, **terms: Any) -> Workflow:
    relay, asks, end = Keeps(version, "relay", reports=True), Asks(version, "asks", **terms), Yields(version, "end")
    builder = WorkflowBuilder(name="inner", start_executor=relay, output_from=[end], intermediate_output_from=[relay])
    return builder.add_chain([relay, asks, end]).build()


def asking_outside(version: Version, storage: Any, **terms: Any) -> Workflow:
    """A sub-workflow in a sub-workflow, which asks a person."""
    deep = WorkflowExecutor(
        inner(version, **terms), version.id("deep"), propagate_request=True, allow_direct_output=True
    )
    middle = WorkflowBuilder(name="middle", start_executor=deep).build()
    child = WorkflowExecutor(middle, version.id("child"), propagate_request=True, allow_direct_output=True)
    return version.start(child, storage).build()


def asking_inside(version: Version, storage: Any) -> Workflow:
    """A sub-workflow, whose parent sleeps over what it asks."""
    child = WorkflowExecutor(inner(version), version.id("child"), allow_direct_output=True)
    answering = Answers(version, "answers")
    return version.start(child, storage).add_edge(child, answering).add_edge(answering, child).build()


def expiring(version: Version, storage: Any) -> Workflow:
    return asking_outside(version, storage, hours=1)


async def expires(version: Version, workflow: Workflow) -> None:
    await begins(version, workflow)
    version.clock.advance(7200)
    await resumes(version, workflow)


FIRST_STEPS = ["keeps(x)", "asks(x-1)"]

SITUATIONS: dict[str, Situation] = {
    "pending request": Situation(pending, begins, answers("asks"), ["x-1:yes"], [*FIRST_STEPS, "asks answered(yes)"]),
    "sleep": Situation(sleeping, falls_asleep, sleeps_on, ["x-sleeps", "x!!"], ["sleeps step(x)", "sleeps step(x!)"]),
    "fan-in": Situation(
        gathering,
        begins,
        answers("asks"),
        ["x-source-quick+x-source:yes"],
        ["source(x)", "quick(x-source)", "asks(x-source)", "asks answered(yes)"],
    ),
    "fallback": Situation(standing_in, begins, answers("asks"), ["x:yes"], ["asks(x)", "asks answered(yes)"]),
    "sub-workflow that asks outside": Situation(
        asking_outside, begins, answers("asks"), ["x-1:yes"], ["relay(x)", "asks(x-1)", "asks answered(yes)"]
    ),
    "sub-workflow that asks its parent": Situation(
        asking_inside,
        falls_asleep,
        sleeps_on,
        ["x-1:slept over"],
        ["relay(x)", "asks(x-1)", "asks answered(slept over)"],
    ),
}
"""Those that any storage can hold."""

EXPIRED = Situation(expiring, expires, begins, [], [])
"""A sub-workflow asked, and no answer arrived in time."""

CRASH = Situation(
    crashing,
    crashes,
    resumes,
    ["x-source-sure", "x-source-weak"],
    ["source(x)", "sure(x-source)", "weak(x-source)", "weak(x-source)"],
)
"""One that needs a journal: `sure` is not run again."""


def will_crash(version: Version, storage: Any) -> None:
    """`weak` fails once `sure` is in the journal."""
    version.stage.failing.add("weak")
    version.stage.fails_after = 1
    version.stage.watch_journal(storage)
