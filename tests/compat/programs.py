"""The programs that the documents' flows are tried on: a harbour with its tides, soundings and berths, and a still."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable
from dataclasses import dataclass, field
from typing import Any

from perdure import (
    CheckpointInfo,
    CheckpointNotFound,
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowContext,
    WorkflowEvent,
    WorkflowRunState,
    handler,
    response_handler,
)

# ---------------------------------------------------------------- a counter in `self`, moved by None


class Tide(Executor):
    """Rises by one a superstep up to the mark; every message is None."""

    def __init__(self, id: str, mark: int = 5) -> None:
        super().__init__(id=id)
        self._mark = mark
        self._height = 0

    @handler
    async def rise(self, _: None, ctx: WorkflowContext[None]) -> None:
        self._height += 1
        if self._height < self._mark:
            await ctx.send_message(None)
        else:
            await ctx.yield_output(self._height)  # type: ignore[arg-type]  # not declared, as users of the pages write it

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"height": self._height}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self._height = state.get("height", 0)


def tide_workflow(storage: Any = None, mark: int = 5) -> Workflow:
    tide = Tide("tide", mark)
    return WorkflowBuilder(start_executor=tide, checkpoint_storage=storage).add_edge(tide, tide).build()


# ---------------------------------------------------------------- a table in `self`, a message changed in place


@dataclass
class Survey:
    remaining: list[int]


Soundings = dict[int, list[tuple[int, int]]]


class Surveyor(Executor):
    """Takes one depth a superstep off the survey it was sent, and keeps the marks that measure it."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._soundings: Soundings = {}

    @handler
    async def sound(self, survey: Survey, ctx: WorkflowContext[Survey, Soundings]) -> None:
        depth = survey.remaining.pop(0)
        self._soundings[depth] = [(line, depth // line) for line in range(1, depth) if depth % line == 0]
        if survey.remaining:
            await ctx.send_message(survey)
        else:
            await ctx.yield_output(self._soundings)

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"soundings": self._soundings}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self._soundings = state.get("soundings", {})


DEPTHS = [6, 4, 9, 8]
SOUNDINGS: Soundings = {
    6: [(1, 6), (2, 3), (3, 2)],
    4: [(1, 4), (2, 2)],
    9: [(1, 9), (3, 3)],
    8: [(1, 8), (2, 4), (4, 2)],
}


def survey_workflow(storage: Any = None) -> Workflow:
    surveyor = Surveyor("surveyor")
    return WorkflowBuilder(start_executor=surveyor, checkpoint_storage=storage).add_edge(surveyor, surveyor).build()


# ---------------------------------------------------------------- a person is asked


@dataclass
class Clearance:
    granted: bool
    remark: str = ""


@dataclass
class BerthRequest:
    """A question that knows its own id and makes its own answers."""

    ship: str
    request_id: str

    def grant(self) -> Clearance:
        return Clearance(granted=True)

    def turn_away(self, remark: str) -> Clearance:
        return Clearance(granted=False, remark=remark)


class Harbourmaster(Executor):
    """Notes each arrival, asks for clearance, and berths the ship once that is granted."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._arrivals: list[str] = []

    @handler
    async def arrive(self, ship: str, ctx: WorkflowContext[str, str]) -> None:
        self._arrivals.append(ship)
        await ctx.request_info(BerthRequest(ship, f"berth-{ship}"), Clearance, request_id=f"berth-{ship}")

    @response_handler
    async def decide(self, request: BerthRequest, answer: Clearance, ctx: WorkflowContext[str, str]) -> None:
        if answer.granted:
            await ctx.send_message(f"{request.ship} after {self._arrivals}")
        else:
            await ctx.yield_output(f"{request.ship} turned away: {answer.remark}")

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"arrivals": self._arrivals}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self._arrivals = state["arrivals"]


class Pilot(Executor):
    @handler
    async def moor(self, ship: str, ctx: WorkflowContext[str, str]) -> None:
        ctx.set_state("moored", [*ctx.get_state("moored", []), ship])
        await ctx.yield_output(f"moored {ship}")


def berth_workflow(storage: Any = None) -> Workflow:
    master, pilot = Harbourmaster("master"), Pilot("pilot")
    return WorkflowBuilder(start_executor=master, checkpoint_storage=storage).add_edge(master, pilot).build()


async def run_until_asked(workflow: Workflow, ship: str) -> BerthRequest:
    """Stream until the workflow waits for a person, then leave, as the pages do."""
    asked: BerthRequest | None = None
    async for event in workflow.run(ship, stream=True):
        if event.type == "request_info" and isinstance(event.data, BerthRequest):
            asked = event.data
        if event.state == WorkflowRunState.IDLE_WITH_PENDING_REQUESTS:
            break
    assert asked is not None
    return asked


# ---------------------------------------------------------------- start -> b, b -> c, b -> end, and back from c to b


@dataclass
class Wash:
    strength: int
    notes: list[str] = field(default_factory=list)


@dataclass
class Spirit:
    strength: int
    notes: list[str]


class MashTun(Executor):
    @handler
    async def mash(self, grain: str, ctx: WorkflowContext[Wash]) -> None:
        ctx.set_state("grain", grain)
        await ctx.send_message(Wash(5, [grain]))


class Still(Executor):
    """Doubles the strength; keeps in `self` what it has distilled, and saves that through the context of its hooks."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.batches: list[int] = []

    @handler
    async def distil(self, wash: Wash, ctx: WorkflowContext[Wash | Spirit]) -> None:
        self.batches.append(wash.strength)
        wash.strength *= 2
        wash.notes.append(f"distilled {len(self.batches)}")
        await ctx.send_message(wash if wash.strength < 80 else Spirit(wash.strength, [*wash.notes, str(self.batches)]))

    async def on_checkpoint_save(self, ctx: Any) -> dict[str, Any]:
        ctx.private["batches"] = list(self.batches)
        return {}

    async def on_checkpoint_restore(self, state: dict[str, Any], ctx: Any) -> None:
        assert state == {}
        self.batches = list(ctx.private.get("batches", []))


class Condenser(Executor):
    @handler
    async def condense(self, wash: Wash, ctx: WorkflowContext[Wash]) -> None:
        ctx.set_state("condensed", ctx.get_state("condensed", 0) + 1)
        await ctx.send_message(wash)


class Cask(Executor):
    @handler
    async def fill(self, spirit: Spirit, ctx: WorkflowContext[Spirit, str]) -> None:
        grain, condensed = ctx.get_state("grain"), ctx.get_state("condensed")
        await ctx.yield_output(f"{grain} at {spirit.strength}, condensed {condensed} times: {', '.join(spirit.notes)}")


BARLEY = "barley at 80, condensed 3 times: barley, distilled 1, distilled 2, distilled 3, distilled 4, [5, 10, 20, 40]"
SUPERSTEPS_OF_BARLEY = 9


def still_builder() -> WorkflowBuilder:
    """The older generation of the builder, a call a line."""
    tun, still, condenser, cask = MashTun("tun"), Still("still"), Condenser("condenser"), Cask("cask")
    builder = WorkflowBuilder()
    builder.set_start_executor(tun)
    builder.add_edge(tun, still)
    builder.add_edge(still, condenser)
    builder.add_edge(still, cask)
    builder.add_edge(condenser, still)
    return builder


def still_workflow(storage: Any = None) -> Workflow:
    """The newer generation: everything in one expression."""
    tun, still, condenser, cask = MashTun("tun"), Still("still"), Condenser("condenser"), Cask("cask")
    return (
        WorkflowBuilder(start_executor=tun, checkpoint_storage=storage)
        .add_chain([tun, still, condenser])
        .add_edge(still, cask)
        .add_edge(condenser, still)
        .build()
    )


# ---------------------------------------------------------------- storages of a user's own


class TextShelf:
    """Keeps each checkpoint as JSON text."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        self.texts[checkpoint.checkpoint_id] = json.dumps(checkpoint.to_dict())
        return checkpoint.checkpoint_id

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        if checkpoint_id not in self.texts:
            raise CheckpointNotFound(checkpoint_id)
        return WorkflowCheckpoint.from_dict(json.loads(self.texts[checkpoint_id]))

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        every = [await self.load(checkpoint_id) for checkpoint_id in self.texts]
        return [checkpoint for checkpoint in every if checkpoint.workflow_name == workflow_name]

    async def delete(self, checkpoint_id: str) -> bool:
        return self.texts.pop(checkpoint_id, None) is not None

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        checkpoints = await self.list_checkpoints(workflow_name=workflow_name)
        return checkpoints[-1] if checkpoints else None

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        return [checkpoint.checkpoint_id for checkpoint in await self.list_checkpoints(workflow_name=workflow_name)]


# ---------------------------------------------------------------- reading streams


async def collect(events: AsyncIterable[WorkflowEvent]) -> list[WorkflowEvent]:
    return [event async for event in events]


def outputs(events: list[WorkflowEvent]) -> list[Any]:
    return [event.data for event in events if event.type == "output"]


def warnings_among(events: list[WorkflowEvent]) -> list[str]:
    return [str(event.data) for event in events if event.type == "warning"]


def last_status(events: list[WorkflowEvent]) -> WorkflowRunState | None:
    return [event.state for event in events if event.type == "status"][-1]


def checkpoints_of(events: list[WorkflowEvent]) -> list[CheckpointInfo]:
    """What `superstep_completed` events carry, in order."""
    return [event.checkpoint for event in events if event.type == "superstep_completed" and event.checkpoint]
