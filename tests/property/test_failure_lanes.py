"""Several deliveries to one executor, each failing, sleeping and stepped over as it likes: none disturbs another."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hypothesis import example, given, strategies as st
from tests.property.test_failure_policies import POINTS, STORAGES, TurnClock, led_to_its_end
from tests.unit.engine.policy_flows import Boom, Context

from perdure import Executor, RetryPolicy, Workflow, WorkflowBuilder, add, handler


@dataclass(frozen=True)
class Job:
    """One message: what its delivery does before it succeeds or is given up."""

    number: int
    failures: int = 0
    naps: int = 0
    steps: int = 0
    pauses: int = 0

    def is_done(self, attempts: int) -> bool:
        return self.failures < attempts


class World:
    def __init__(self) -> None:
        self.failed: Counter[str] = Counter()
        self.steps: Counter[str] = Counter()

    async def step(self, name: str) -> str:
        self.steps[name] += 1
        return name


class Desk(Executor):
    """Does jobs. It keeps the numbers of those it has done in `self`, in private and in shared state."""

    def __init__(self, id: str, world: World, attempts: int, **policy: Any) -> None:
        super().__init__(id, retry=RetryPolicy(attempts, initial_delay=1), **policy)
        self.world = world
        self.attempts = attempts
        self.done: list[int] = []

    @handler
    async def work(self, job: Job, ctx: Context) -> None:
        self.done.append(job.number)
        ctx.private.setdefault("done", []).append(job.number)
        ctx.set_state(self.id, [*ctx.get_state(self.id, []), job.number])
        ctx.set_state("total", 1)
        for _ in range(job.pauses):
            await asyncio.sleep(0)
        for number in range(job.steps):
            await ctx.step(self.world.step, f"{self.id}{job.number}.{number}")
        for _ in range(job.naps):
            await ctx.sleep(1)
        if not job.is_done(self.attempts) or self.world.failed[f"{self.id}{job.number}"] < job.failures:
            self.world.failed[f"{self.id}{job.number}"] += 1
            raise Boom(f"job {job.number}")
        assert self.done == ctx.private["done"] == ctx.get_state(self.id), (self.done, dict(ctx.private))
        await ctx.yield_output(job.number)

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"done": self.done}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.done = state["done"]


class Split(Executor):
    @handler
    async def split(self, jobs: list[Job], ctx: Context) -> None:
        for job in jobs:
            await ctx.send_message(job)


def build(world: World, storage: Any, attempts: int, mode: str) -> Workflow:
    """Two desks, each with a lane of its own, get every job."""
    split, desks = Split("split"), [Desk(name, world, attempts, on_error=mode) for name in "ab"]
    builder = WorkflowBuilder(
        name="desks", start_executor=split, checkpoint_storage=storage, clock=TurnClock(), state={"total": add}
    )
    return builder.add_fan_out_edges(split, desks).build()


JOBS = st.lists(
    st.builds(
        Job,
        number=st.just(0),
        failures=st.integers(0, 3),
        naps=st.sampled_from((0, 0, 1)),
        steps=st.integers(0, 2),
        pauses=st.integers(0, 2),
    ),
    min_size=1,
    max_size=4,
).map(lambda jobs: [replace(job, number=place) for place, job in enumerate(jobs)])


@example([Job(0), Job(1, failures=8), Job(2, naps=1), Job(3, steps=1)], 2, "skip", [9], "memory", "exit")
@given(
    jobs=JOBS,
    attempts=st.integers(1, 3),
    mode=st.sampled_from(("skip", "isolate")),
    after=POINTS,
    kind=st.sampled_from(sorted(STORAGES)),
    durability=st.sampled_from(("sync", "exit")),
)
async def test_deliveries_of_one_lane_end_as_each_would_alone(
    jobs: list[Job], attempts: int, mode: str, after: list[int], kind: str, durability: str
) -> None:
    world = World()
    storage = STORAGES[kind]()
    make = partial(build, world, storage, attempts, mode)
    same = make()
    options = {} if kind == "none" else {"durability": durability}
    result = await led_to_its_end(lambda: same if kind == "none" else make(), after, message=jobs, **options)
    done = [job.number for job in jobs if job.is_done(attempts)]
    assert sorted(result.get_outputs()) == sorted(done * 2)
    expected = {f"{desk}{job.number}.{number}" for desk in "ab" for job in jobs for number in range(job.steps)}
    assert set(world.steps) == expected
    if kind == "none" or (kind == "memory" and durability == "sync"):  # these have a journal
        assert set(world.steps.values()) <= {1}
    if kind == "memory":
        head = await storage.get_latest(thread_id="t")
        assert head.state.get("total", 0) == 2 * len(done)
        for desk in "ab":
            kept = head.executors[desk]
            assert sorted(kept.saved["done"]) == sorted((kept.private or {}).get("done", [])) == done
