"""Promise 1: SIGKILL at any instant loses nothing acknowledged; a new process resumes by thread_id alone."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any, Never

from tests.chance import draw_seed
from tests.promises.processes import FarStage, Place
from tests.promises.stages import Stage, alone, fan, ledger

from perdure import (
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
    step,
    workflow as as_workflow,
)
from perdure.checkpoints.storage import StoreCheckpointStorage

TURNS = 5


class Turn(Executor):
    """Adds what it gets to shared state and to its own, and sends itself messages until there were enough turns."""

    def __init__(self, id: str, stage: Stage) -> None:
        super().__init__(id)
        self.stage = stage
        self.seen: list[int] = []

    @handler
    async def turn(self, number: int, ctx: WorkflowContext[int, Any]) -> None:
        await self.stage.play(f"turn {number}", number)
        self.seen.append(number)
        ctx.set_state("turns", [*ctx.get_state("turns", []), number])
        await ctx.yield_output(f"turn {number}")
        if number < TURNS:
            await ctx.send_message(number + 1)
        else:
            await ctx.yield_output([self.seen, ctx.get_state("turns")])

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"seen": self.seen}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


def turns(stage: Stage, storage: Any) -> Workflow:
    it = Turn("it", stage)
    return WorkflowBuilder(name="turns", start_executor=it, checkpoint_storage=storage).add_edge(it, it).build()


ALL = list(range(1, TURNS + 1))
UNDISTURBED = [*[f"turn {number}" for number in ALL], [ALL, ALL]]


async def test_undisturbed_run_in_another_process_gives_the_expected_output(place: Place) -> None:
    assert await place.run(turns, 1).result() == UNDISTURBED


async def test_thread_killed_in_any_superstep_resumes_that_superstep(place: Place) -> None:
    for last in ALL:
        killed = place.run(turns, 1, thread_id=f"t{last}", held=[f"turn {last}"])
        await killed.wait_for("entered", f"turn {last}")
        await killed.kill()
        resumed = place.run(turns, thread_id=f"t{last}")
        assert await resumed.result() == UNDISTURBED
        assert resumed.calls == [f"turn {number}({number})" for number in ALL[last - 1 :]]


async def test_finished_siblings_of_a_killed_superstep_do_not_run_again(place: Place) -> None:
    killed = place.run(fan, "x", held=["b"])
    await killed.wait_for("recorded", 2)
    await killed.kill()
    resumed = place.run(fan)
    assert await resumed.result() == ["x-source-a+x-source-b+x-source-c"]
    assert [call.partition("(")[0] for call in resumed.calls] == ["b", "join"]


async def test_a_killed_process_repeats_no_recorded_step(place: Place) -> None:
    killed = place.run(stepping, "x", held=["three"])
    await killed.wait_for("entered", "three")
    await killed.kill()
    resumed = place.run(stepping)
    assert await resumed.result() == ["x-one-two-three"]
    assert killed.calls == ["one(x)", "two(x-one)", "three(x-one-two)"]
    assert resumed.calls == ["three(x-one-two)"]


def stepping(stage: Stage, storage: Any) -> Workflow:
    def played(name: str) -> Any:
        async def play(message: str) -> str:
            await stage.play(name, message)
            return f"{message}-{name}"

        return step(name=name)(play)

    step_one, step_two, step_three = played("one"), played("two"), played("three")

    @as_workflow(name="stepping")
    async def flow(message: str) -> str:
        return str(await step_three(await step_two(await step_one(message))))

    return flow.build(storage)


# ---------------------------------------------------------------- what came from outside


async def post(stage: FarStage, storage: StoreCheckpointStorage, message: str) -> Never:
    async with ledger(stage, storage).open(thread_id="t") as handle:
        await handle.send(message)
        stage.report("posted")
        await asyncio.Event().wait()
    raise AssertionError("it was not killed")


async def test_acknowledged_post_survives_the_death_of_sender_and_owner(place: Place) -> None:
    owner = place.run(ledger, "first", held=["ledger"])
    await owner.wait_for("entered", "ledger")
    sender = place.start(post, "second")
    await sender.wait_for("posted")
    await sender.kill()
    await owner.kill()
    assert sender.calls == []
    assert (await place.run(ledger).result())[-1] == ["first", "second"]


async def test_a_post_to_a_thread_that_never_ran_is_kept(place: Place) -> None:
    sender = place.start(post, "only", held=["ledger"])
    await sender.wait_for("posted")
    await sender.kill()
    assert await place.run(ledger).result() == [["only"]]


class Reviewer(Executor):
    def __init__(self, id: str, stage: Stage) -> None:
        super().__init__(id)
        self.stage = stage

    @handler
    async def ask(self, message: str, ctx: WorkflowContext[Any, Any]) -> None:
        await self.stage.play("ask", message)
        await ctx.request_info(message, str, request_id="q")

    @response_handler
    async def answered(self, question: str, answer: str, ctx: WorkflowContext[Any, Any]) -> None:
        await self.stage.play("answered", answer)
        await ctx.yield_output(f"{question}: {answer}")


def review(stage: Stage, storage: Any) -> Workflow:
    return alone(Reviewer("reviewer", stage), storage)


async def test_a_question_and_its_answer_outlive_the_processes_that_took_them(place: Place) -> None:
    assert await place.run(review, "good?").result() == []
    async with place.storage() as storage:
        assert [request.request_id for request in await storage.pending_requests()] == ["q"]
    killed = place.run(review, responses={"q": "yes"}, held=["answered"])
    await killed.wait_for("entered", "answered")
    await killed.kill()
    resumed = place.run(review)
    assert await resumed.result() == ["good?: yes"]
    assert resumed.calls == ["answered(yes)"]


# ---------------------------------------------------------------- at any instant


async def stands(place: Place, thread_id: str) -> tuple[int, list[int]]:
    """The thread's last commit, and the turns that it keeps."""
    async with place.storage() as storage:
        head = await storage.get_latest(thread_id=thread_id)
        numbers = [thread.number for thread in await storage.list_threads() if thread.thread_id == thread_id]
    return (numbers or [0])[0], [] if head is None else head.state.get("turns", [])


async def test_random_kills_lose_no_acknowledged_commit_and_repeat_none(place: Place) -> None:
    """Each thread loses two processes somewhere in their runs; the third comes to the end."""
    chance = random.Random(draw_seed())
    began = time.monotonic()
    await place.run(turns, 1, thread_id="calm").result()
    duration = time.monotonic() - began
    for thread_id in ("one", "two", "three"):
        number, kept = 0, list[int]()
        for _ in range(2):
            killed = place.run(turns, None if number else 1, thread_id=thread_id)
            await asyncio.sleep(chance.uniform(0, duration))  # left to chance: no event signals it
            await killed.kill()
            assert not {f"turn {turn}({turn})" for turn in kept} & set(killed.calls), "what was committed ran again"
            number, kept = await stands(place, thread_id)
            assert number >= killed.committed, "a commit that was acknowledged is gone"
            assert kept == ALL[: len(kept)]
        last = place.run(turns, None if number else 1, thread_id=thread_id)
        assert await last.result() == UNDISTURBED
        assert last.calls == [f"turn {turn}({turn})" for turn in ALL[len(kept) :]]
