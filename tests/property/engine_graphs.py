"""Random graphs whose executors do everything an executor may do, each a deterministic function of its message.

A `Plan` describes a graph and prints as the code that makes it again. A `Ledger` stands outside and sees every handler
call, so that a delivery that runs twice is noticed. `drive` brings a thread to its end, answering what it asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st
from tests.six_methods import SixMethods

from perdure import (
    Case,
    Default,
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowContext,
    WorkflowEvent,
    WorkflowRunResult,
    handler,
    response_handler,
)
from perdure.errors import ThreadNotFound
from perdure.graph.policy import Reducer, add, append, merge

THREAD = "t"


# ---------------------------------------------------------------- what goes round


@dataclass
class Token:
    """A message. `trail` names the way it took, so it is unique; `share` bounds how many there can be at a time."""

    trail: str
    hops: int
    share: int
    value: int
    marks: list[str] = field(default_factory=list)


@dataclass
class Question:
    token: Token


@dataclass(frozen=True)
class Probe:
    """Asks the start executor for the whole shared state."""


class Boom(Exception):
    """An executor fails, once per message."""


def joined(tokens: list[Token]) -> Token:
    return Token(
        trail="(" + "&".join(token.trail for token in tokens) + ")",
        hops=min(token.hops for token in tokens),
        share=sum(token.share for token in tokens),
        value=sum(token.value for token in tokens),
        marks=[mark for token in tokens for mark in token.marks],
    )


class Ledger:
    """What handlers did, in the order they did it, wherever and by whichever instance."""

    def __init__(self, *, may_fail: bool = False) -> None:
        self.may_fail = may_fail
        self.started: list[str] = []
        self.finished: list[str] = []
        self._failed: set[str] = set()

    def should_fail(self, call: str) -> bool:
        if not self.may_fail or call in self._failed:
            return False
        self._failed.add(call)
        return True


# ---------------------------------------------------------------- who does what with it


@dataclass(frozen=True)
class Habits:
    """What one executor does with each message."""

    sends: int = 1
    outputs: int = 0
    pauses: int = 0
    writes: frozenset[str] = frozenset()
    """Of: notes, total, index (shared, with reducers); count, list, box (a key of its own; list and box in place)."""
    private: bool = False
    memory: bool = False
    """Keeps things in `self`, with hooks."""
    mutates: bool = False
    asks: bool = False
    fails: bool = False


class Worker(Executor):
    def __init__(self, id: str, habits: Habits, ledger: Ledger, ways: int) -> None:
        super().__init__(id)
        self.habits = habits
        self.ledger = ledger
        self.ways = ways
        self.seen: list[str] = []

    @handler
    async def probe(self, probe: Probe, ctx: WorkflowContext[Token, Any]) -> None:
        await ctx.yield_output({key: ctx.state[key] for key in sorted(ctx.state)})

    @handler
    async def join(self, tokens: list[Token], ctx: WorkflowContext[Token, Any]) -> None:
        await self.take(joined(tokens), ctx)
        tokens.clear()

    @handler
    async def take(self, token: Token, ctx: WorkflowContext[Token, Any]) -> None:
        assert token.value >= 0, f"{self.id} got {token}, which its sender changed afterwards"
        by_others = [mark for mark in token.marks if token.marks.count(mark) > token.trail.count(mark)]
        assert not by_others, f"{self.id} got {token}, which an executor changed that never sent it"
        await self._work(token, ctx, may_ask=True)

    @response_handler
    async def resume(self, question: Question, answer: int, ctx: WorkflowContext[Token, Any]) -> None:
        token = question.token
        assert "asked" not in token.marks, f"{self.id} got back {question}, which it changed after it had asked"
        token.trail += "!"
        token.value += answer
        await self._work(token, ctx, may_ask=False)

    async def _work(self, token: Token, ctx: WorkflowContext[Token, Any], *, may_ask: bool) -> None:
        habits, call = self.habits, f"{self.id}:{token.trail}"
        self.ledger.started.append(call)
        await self._pause()
        if habits.mutates and may_ask:
            token.marks.append(self.id)
        self._keep(token, ctx)
        self._write(token, ctx)
        if habits.asks and may_ask:
            await ctx.request_info(Question(token), int)
            token.marks.append("asked")
        else:
            await self._send(token, ctx)
        await self._pause()
        if habits.fails and self.ledger.should_fail(call):
            raise Boom(call)
        self.ledger.finished.append(call)

    async def _pause(self) -> None:
        for _ in range(self.habits.pauses):
            await asyncio.sleep(0)

    def _keep(self, token: Token, ctx: WorkflowContext[Token, Any]) -> None:
        if self.habits.private:
            ctx.private["calls"] = ctx.private.get("calls", 0) + 1
            ctx.private.setdefault("trails", []).append(token.trail)
        if self.habits.memory:
            self.seen.append(token.trail)

    def _write(self, token: Token, ctx: WorkflowContext[Token, Any]) -> None:
        writes = self.habits.writes
        if "notes" in writes:
            ctx.set_state("notes", f"{self.id} saw {token.trail}")
        if "total" in writes:
            ctx.set_state("total", token.value)
        if "index" in writes:
            ctx.set_state("index", {token.value % 5: [token.trail]})
        if "count" in writes:
            ctx.set_state(f"count-{self.id}", ctx.get_state(f"count-{self.id}", 0) + 1)
        if "list" in writes:
            if ctx.get_state(f"list-{self.id}") is None:
                ctx.set_state(f"list-{self.id}", [])
            ctx.get_state(f"list-{self.id}").append(token.value)
        if "box" in writes:
            box = ctx.get_state(f"box-{self.id}", {"first": token.trail})
            box.setdefault("trails", []).append(token.trail)
            if "first" in box and len(box["trails"]) == 1:
                ctx.state[f"box-{self.id}"] = box

    async def _send(self, token: Token, ctx: WorkflowContext[Token, Any]) -> None:
        habits = self.habits
        for number in range(habits.outputs):
            known = (len(self.seen), ctx.private.get("calls") if habits.private else None)
            output = [self.id, token.trail, number, token.value, token.marks, known]
            await ctx.yield_output(output)
            output.append("afterwards")
            await self._pause()
        copies = habits.sends * self.ways
        if token.hops == 0 or copies > token.share:
            return
        for number in range(habits.sends if self.ways else 0):
            sent = replace(
                token,
                trail=f"{token.trail}{number}{self.id}",
                hops=token.hops - 1,
                share=token.share // copies,
                value=(token.value * 3 + number + len(token.trail)) % 1009,
                marks=list(token.marks),
            )
            await ctx.send_message(sent)
            sent.value = -1
            sent.marks.append("after it was sent")


class RememberingWorker(Worker):
    """Remembers in `self`; the checkpoint carries it."""

    async def on_checkpoint_save(self) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"seen": self.seen}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


# ---------------------------------------------------------------- how they are wired


@dataclass(frozen=True)
class Every:
    """A condition: true for every `step`-th value."""

    step: int
    rest: int = 0

    def __call__(self, token: Any) -> bool:
        return bool(token.value % self.step == self.rest % self.step)


@dataclass(frozen=True)
class LaterEvery:
    """The same, as an asynchronous condition."""

    step: int

    async def __call__(self, token: Any) -> bool:
        await asyncio.sleep(0)
        return bool(token.value % self.step == 0)


@dataclass(frozen=True)
class Some:
    """A selection: those targets whose bit is set in the value; possibly none."""

    turn: int

    def __call__(self, token: Any, targets: list[str]) -> list[str]:
        return [target for place, target in enumerate(targets) if (token.value + self.turn) >> place & 1]


@dataclass(frozen=True)
class Wire:
    kind: str
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    step: int = 2


@dataclass(frozen=True)
class Plan:
    habits: tuple[Habits, ...]
    wires: tuple[Wire, ...]
    hops: int = 4
    one_by_one: bool = False
    """Whether only the first of several pending questions is answered at a time."""

    @property
    def first_message(self) -> Token:
        return Token("", self.hops, 24, 7)

    def build(self, ledger: Ledger, storage: Any = None) -> Workflow:
        workers = [self._worker(place, ledger) for place in range(len(self.habits))]
        reducers: dict[str, Reducer] = {"notes": append, "total": add, "index": merge}
        builder = WorkflowBuilder(name="random", start_executor=workers[0], checkpoint_storage=storage, state=reducers)
        for wire in self.wires:
            add_wire(builder, wire, workers)
        return builder.build()

    def _worker(self, place: int, ledger: Ledger) -> Worker:
        habits = self.habits[place]
        ways = sum(len(wire.targets) for wire in self.wires if place in wire.sources)
        return (RememberingWorker if habits.memory else Worker)(f"n{place}", habits, ledger, ways)


def add_wire(builder: WorkflowBuilder, wire: Wire, workers: list[Any]) -> None:
    source, targets = workers[wire.sources[0]], [workers[place] for place in wire.targets]
    match wire.kind:
        case "edge":
            builder.add_edge(source, targets[0])
        case "conditional":
            builder.add_edge(source, targets[0], LaterEvery(wire.step) if wire.step % 2 else Every(wire.step))
        case "fan_out":
            builder.add_fan_out_edges(source, targets)
        case "selection":
            builder.add_multi_selection_edge_group(source, targets, Some(wire.step))
        case "switch":
            cases = [Case(Every(wire.step, place), target) for place, target in enumerate(targets[:-1])]
            builder.add_switch_case_edge_group(source, [*cases, Default(targets[-1])])
        case "fan_in":
            builder.add_fan_in_edges([workers[place] for place in wire.sources], targets[0])
        case other:
            raise AssertionError(other)


WRITES = ("notes", "total", "index", "count", "list", "box")

HABITS = st.builds(
    Habits,
    sends=st.sampled_from((1, 2, 1, 1, 2, 0)),
    outputs=st.sampled_from((0, 1, 1, 2)),
    pauses=st.integers(0, 2),
    writes=st.frozensets(st.sampled_from(WRITES), max_size=3),
    private=st.booleans(),
    memory=st.booleans(),
    mutates=st.booleans(),
    asks=st.sampled_from((False, False, False, True)),
    fails=st.booleans(),
)

SPREADING = ("fan_out", "selection", "switch")


@st.composite
def wirings(draw: st.DrawFn, size: int) -> tuple[Wire, ...]:
    """Every executor is reached from the first; then come joins, and edges that may lead back."""
    wires: list[Wire] = []
    taken: set[tuple[int, int]] = set()

    def wire(kind: str, sources: tuple[int, ...], targets: tuple[int, ...]) -> None:
        pairs = {(source, target) for source in sources for target in targets}
        if not pairs & taken:
            taken.update(pairs)
            wires.append(Wire(kind, sources, targets, draw(st.integers(2, 4))))

    reached = 1
    while reached < size:
        source = draw(st.integers(max(0, reached - 3), reached - 1))
        width = min(draw(st.integers(1, 3)), size - reached)
        kind = draw(st.sampled_from(SPREADING)) if width > 1 else draw(st.sampled_from(("edge", "edge", "conditional")))
        targets = tuple(range(reached, reached + width))
        wire(kind, (source,), targets)
        reached += width
        if kind == "fan_out" and reached < size and draw(st.booleans()):
            wire("fan_in", targets, (reached,))
            reached += 1
    places = st.integers(0, size - 1)
    for _ in range(draw(st.integers(0, 2))):
        sources = draw(st.lists(places, min_size=2, max_size=3, unique=True))
        wire("fan_in", tuple(sources), (draw(places),))
    for _ in range(draw(st.integers(0, 3))):
        wire(draw(st.sampled_from(("edge", "conditional"))), (draw(places),), (draw(places),))
    return tuple(wires)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Loops end because the hops of a token do."""
    habits = draw(st.lists(HABITS, min_size=3, max_size=8))
    habits[0] = replace(habits[0], sends=max(habits[0].sends, 1))
    return Plan(tuple(habits), draw(wirings(len(habits))), draw(st.integers(3, 7)), draw(st.booleans()))


# Shapes that random plans come to too seldom to rely on; each is tried every time.
FAN = (Wire("fan_out", (0,), (1, 2)),)
INTERLEAVED = Plan((Habits(sends=2), Habits(outputs=1, pauses=1), Habits(outputs=1)), FAN)
"""Two deliveries for each of two siblings, and the later sibling is the quicker one."""
IN_PLACE = Plan(
    (Habits(sends=2), Habits(writes=frozenset(("list", "box")), private=True), Habits(pauses=2, fails=True)), FAN
)
"""One changes state in place, twice, and is done when its sibling fails."""
SLOW_HOOK = Plan((Habits(), Habits(fails=True), Habits(memory=True)), FAN)
"""One is done and just being saved when its sibling fails."""


# ---------------------------------------------------------------- bringing a thread to its end


@dataclass(frozen=True)
class Rest:
    """How a thread looks when it has come to rest."""

    outputs: list[Any]
    status: str
    pending: list[str]


Attempt = Callable[[Workflow, dict[str, Any]], Awaitable[WorkflowRunResult | None]]
"""Runs a workflow with these arguments of `run`; None if it was interrupted."""


async def undisturbed(workflow: Workflow, options: dict[str, Any]) -> WorkflowRunResult | None:
    result: WorkflowRunResult = await workflow.run(**options)
    return result


async def unless_it_fails(running: Awaitable[WorkflowRunResult]) -> WorkflowRunResult | None:
    try:
        return await running
    except Boom:
        return None


async def failing(workflow: Workflow, options: dict[str, Any]) -> WorkflowRunResult | None:
    return await unless_it_fails(workflow.run(**options))


def left_after(counts: list[int]) -> Attempt:
    """The n-th attempt is watched for so many events and then left; those beyond the list run to the end."""
    left = iter(counts)

    async def attempt(workflow: Workflow, options: dict[str, Any]) -> WorkflowRunResult | None:
        count = next(left, None)
        stream = workflow.run(stream=True, **options)
        if count is None:
            return await unless_it_fails(stream.get_final_response())
        try:
            async for _ in stream:
                if count == 0:
                    break
                count -= 1
        except Boom:
            pass
        await stream.aclose()
        return None

    return attempt


def cancelled_after(turns: list[int]) -> Attempt:
    """The n-th attempt gets so many turns of the event loop before its task is cancelled."""
    left = iter(turns)

    async def attempt(workflow: Workflow, options: dict[str, Any]) -> WorkflowRunResult | None:
        count = next(left, None)
        if count is None:
            return await unless_it_fails(workflow.run(**options))
        task = asyncio.ensure_future(workflow.run(**options))
        for _ in range(count):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, Boom):
            raise error
        return None

    return attempt


def answer(request: WorkflowEvent) -> int:
    return int(request.data.token.value) % 7 + 1


async def drive(
    plan: Plan, make: Callable[[], Workflow], attempt: Attempt = undisturbed, thread: str = THREAD, **begin: Any
) -> list[Rest]:
    """Every rest of the thread from `begin` (a message by default) to where nothing is pending."""
    begin = begin or {"message": plan.first_message, "thread_id": thread}
    todo = begin
    rests: list[Rest] = []
    for _ in range(300):
        try:
            result = await attempt(make(), todo)
        except ThreadNotFound:  # interrupted before its first commit: nothing was acknowledged
            todo = begin
            continue
        if result is None:
            todo = {"thread_id": thread}
            continue
        pending = {str(event.request_id): event for event in result.get_request_info_events()}
        assert not any("afterwards" in output for output in result.get_outputs())
        rest = Rest(result.get_outputs(), result.get_final_state().value, sorted(pending))
        if rests and rests[-1].pending == rest.pending:  # interrupted before its answers were committed
            assert rests[-1] == rest, "resuming a thread at rest gives another result than before"
        else:
            rests.append(rest)
        if not pending:
            return rests
        chosen = rest.pending[:1] if plan.one_by_one else rest.pending
        todo = {"thread_id": thread, "responses": {request_id: answer(pending[request_id]) for request_id in chosen}}
    raise AssertionError(f"the thread never came to rest; so far: {rests}")


async def history(storage: Any, thread: str = THREAD) -> list[WorkflowCheckpoint]:
    if isinstance(storage, SixMethods):
        return [checkpoint for checkpoint in storage.kept.values() if checkpoint.thread_id == thread]
    checkpoints: list[WorkflowCheckpoint] = await storage.list_checkpoints(thread_id=thread)
    return checkpoints


COMPARED = ("state", "executors", "buffers", "outputs", "messages", "requests", "counters", "iteration_count", "status")


async def final(storage: Any, thread: str = THREAD) -> dict[str, Any]:
    """Where the thread stands, in the exact form in which it is stored."""
    if isinstance(storage, SixMethods):
        head = max(await history(storage, thread), key=lambda checkpoint: checkpoint.number)
    else:
        head = await storage.get_latest(thread_id=thread)
    tree = head.to_dict()
    # One that never ran has nothing to remember, whether it was asked to or was not even made yet.
    kept = {key: memory for key, memory in tree.get("executors", {}).items() if memory != {"saved": {"seen": []}}}
    tree["counters"] = tree["counters"][:2]  # the third names the rewind: no two ends share it
    return {part: tree.get(part) for part in COMPARED} | {"answered": sorted(head.answered), "executors": kept}
