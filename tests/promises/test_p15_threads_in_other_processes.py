"""Promise 15 across processes: threads of one workflow run at the same time, and never see each other's state."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.promises.processes import FarStage, Place
from tests.promises.stages import Stage, ledger

from perdure import Executor, Workflow, WorkflowBuilder, WorkflowContext, handler, response_handler
from perdure.checkpoints.storage import StoreCheckpointStorage

PROCESSES = range(4)
THREADS = range(4)
"""Of each process."""


class Secretive(Executor):
    """Keeps each message in every place it can, and asks one question about it."""

    def __init__(self, id: str, stage: Stage) -> None:
        super().__init__(id)
        self.stage = stage
        self.received: list[str] = []

    @handler
    async def receive(self, message: str, ctx: WorkflowContext[Any, Any]) -> None:
        await self.stage.play("hear", message)
        self.received.append(message)
        ctx.set_state("heard", [*ctx.get_state("heard", []), message])
        ctx.private.setdefault("heard", []).append(message)
        await ctx.request_info(message, str, request_id="same id everywhere")

    @response_handler
    async def answered(self, question: str, answer: str, ctx: WorkflowContext[Any, Any]) -> None:
        places = [self.received, ctx.get_state("heard"), ctx.private["heard"]]
        await ctx.yield_output([ctx.thread_id, question, answer, *places])

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"heard": self.received}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.received = state["heard"]


def secretive(stage: Stage, storage: Any) -> Workflow:
    it = Secretive("it", stage)
    return WorkflowBuilder(name="secretive", start_executor=it, checkpoint_storage=storage).build()


def names(process: int) -> list[str]:
    return [f"t{process}-{number}" for number in THREADS]


async def ask(stage: FarStage, storage: StoreCheckpointStorage, process: int) -> list[str]:
    workflow = secretive(stage, storage)
    runs = (workflow.run(f"secret of {thread_id}", thread_id=thread_id) for thread_id in names(process))
    return [event.data for result in await asyncio.gather(*runs) for event in result.get_request_info_events()]


async def answer(stage: FarStage, storage: StoreCheckpointStorage, process: int) -> list[Any]:
    workflow = secretive(stage, storage)
    responses = {"same id everywhere": f"from {process}"}
    runs = (workflow.run(responses=responses, thread_id=thread_id) for thread_id in names(process))
    return [result.get_outputs() for result in await asyncio.gather(*runs)]


async def test_threads_of_several_processes_run_at_once_and_resume_in_others(place: Place) -> None:
    asking = [place.start(ask, process, held=["hear"]) for process in PROCESSES]
    for other in asking:
        for _ in THREADS:
            await other.wait_for("entered", "hear")  # all are inside their handlers: no thread waits for another
    for other in asking:
        other.open_gate("hear")
    for process, other in enumerate(asking):
        assert await other.result() == [f"secret of {name}" for name in names(process)]
    async with place.storage() as storage:
        pending = await storage.pending_requests(workflow_name="secretive")
    assert sorted(request.thread_id for request in pending) == sorted(
        name for process in PROCESSES for name in names(process)
    )
    answering = [place.start(answer, process) for process in PROCESSES]
    for process, other in enumerate(answering):
        secrets = [(name, f"secret of {name}") for name in names(process)]
        assert await other.result() == [
            [[name, secret, f"from {process}", *[[secret]] * 3]] for name, secret in secrets
        ]


async def write_many(stage: FarStage, storage: StoreCheckpointStorage, thread_id: str) -> None:
    workflow = ledger(Stage(), storage)
    for number in range(10):
        await workflow.run(f"{thread_id}-{number}", thread_id=thread_id)


async def test_processes_that_write_all_the_time_do_not_mix_their_threads(place: Place) -> None:
    for writer in [place.start(write_many, f"t{process}") for process in PROCESSES]:
        await writer.result()
    async with place.storage() as storage:
        for thread_id in [f"t{process}" for process in PROCESSES]:
            head = await storage.get_latest(thread_id=thread_id)
            assert head is not None and head.state["entries"] == [f"{thread_id}-{number}" for number in range(10)]
            messages = await ledger(Stage(), storage).messages(thread_id)
            assert [message.data for message in messages] == head.state["entries"]


async def fail(stage: FarStage, storage: StoreCheckpointStorage) -> None:
    stage.failing = {"ledger"}
    await ledger(stage, storage).run("fails", thread_id="failing")


async def test_a_process_that_fails_or_is_killed_disturbs_no_thread_of_another(place: Place) -> None:
    steady = place.start(write_many, "steady")
    killed = place.run(ledger, "x", thread_id="killed", held=["ledger"])
    await killed.wait_for("entered", "ledger")
    failing = place.start(fail)
    await failing.wait_for("entered", "ledger")
    await killed.kill()
    await steady.result()
    async with place.storage() as storage:
        head = await storage.get_latest(thread_id="steady")
    assert head is not None and head.state["entries"] == [f"steady-{number}" for number in range(10)]
