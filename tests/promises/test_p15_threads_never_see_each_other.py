"""Promise 15: any number of threads of one workflow run at the same time, and never see each other's state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.promises.processes import STORAGES
from tests.promises.stages import Boom, Stage, Tally, alone
from tests.six_methods import SixMethods

from perdure import Executor, Workflow, WorkflowBuilder, WorkflowContext, handler, response_handler
from perdure.checkpoints.storage import StoreCheckpointStorage

COUNT = 50
THREADS = [f"t{number}" for number in range(COUNT)]


class Meeting:
    """Holds every run until all have arrived: proof that they run at the same time."""

    def __init__(self, size: int) -> None:
        self.barrier = asyncio.Barrier(size)


class Secretive(Executor):
    """Keeps each message in every place it can, and asks one question about it."""

    shared_by_mistake: int = 0

    def __init__(self, id: str, meeting: Meeting, options: dict[str, list[str]]) -> None:
        super().__init__(id)
        self.meeting = meeting
        self.options = options
        self.received: list[str] = []

    @handler
    async def receive(self, message: str, ctx: WorkflowContext[Any, Any]) -> None:
        self.received.append(message)
        self.options["heard"].append(message)
        ctx.set_state("heard", [*ctx.get_state("heard", []), message])
        ctx.private.setdefault("heard", []).append(message)
        await self.meeting.barrier.wait()
        await ctx.request_info(message, str, request_id="same id everywhere")
        await ctx.send_message(message)

    @response_handler
    async def answered(self, question: str, answer: str, ctx: WorkflowContext[Any, Any]) -> None:
        await self.meeting.barrier.wait()
        arguments = [ctx.client_kwargs["mine"]]
        places = [self.received, self.options["heard"], ctx.get_state("heard"), ctx.private["heard"], arguments]
        await ctx.yield_output([ctx.thread_id, question, answer, *places])

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"heard": self.received, "options": self.options}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.received, self.options = state["heard"], state["options"]


class Echo(Executor):
    @handler
    async def echo(self, message: str, ctx: WorkflowContext[Any, Any]) -> None:
        await ctx.yield_output([message, ctx.get_state("heard")])


def secretive(meeting: Meeting, storage: Any, *, as_factory: bool = False) -> Workflow:
    def make() -> Secretive:
        return Secretive("secretive", meeting, {"heard": []})

    start, echo = make if as_factory else make(), Echo("echo")
    builder = WorkflowBuilder(name="secretive", start_executor=start, checkpoint_storage=storage)
    return builder.add_edge(start, echo).build()


@pytest.fixture(params=["no storage", *STORAGES, "six methods"])
async def maybe_storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    if request.param not in STORAGES:
        yield None if request.param == "no storage" else SixMethods()
        return
    async with STORAGES[request.param](tmp_path) as storage:
        yield storage


@pytest.mark.parametrize("as_factory", [False, True], ids=["instance", "factory"])
async def test_fifty_threads_at_once_on_one_object_are_isolated(maybe_storage: Any, as_factory: bool) -> None:
    workflow = secretive(Meeting(COUNT), maybe_storage, as_factory=as_factory)
    asked = await asyncio.gather(
        *(
            workflow.run(f"secret of {thread_id}", thread_id=thread_id, client_kwargs={"mine": thread_id})
            for thread_id in THREADS
        )
    )
    for thread_id, result in zip(THREADS, asked, strict=True):
        secret = f"secret of {thread_id}"
        assert result.thread_id == thread_id
        assert result.get_outputs() == [[secret, [secret]]]
        assert [event.data for event in result.get_request_info_events()] == [secret]
    answers = [{"same id everywhere": f"answer of {thread_id}"} for thread_id in THREADS]
    done = await asyncio.gather(
        *(
            workflow.run(responses=answer, thread_id=thread_id)
            for thread_id, answer in zip(THREADS, answers, strict=True)
        )
    )
    for thread_id, result in zip(THREADS, done, strict=True):
        secret = f"secret of {thread_id}"
        assert result.get_outputs() == [[thread_id, secret, f"answer of {thread_id}", *[[secret]] * 4, [thread_id]]]


async def test_threads_resume_in_another_object_with_their_own_state(storage: StoreCheckpointStorage) -> None:
    meeting = Meeting(10)
    first, second = secretive(meeting, storage), secretive(meeting, storage)
    threads = THREADS[:10]
    await asyncio.gather(
        *(first.run(thread_id, thread_id=thread_id, client_kwargs={"mine": thread_id}) for thread_id in threads)
    )
    results = await asyncio.gather(
        *(second.run(responses={"same id everywhere": "a"}, thread_id=thread_id) for thread_id in reversed(threads))
    )
    assert [result.get_outputs() for result in results] == [
        [[thread_id, thread_id, "a", *[[thread_id]] * 5]] for thread_id in reversed(threads)
    ]


async def test_failed_or_cancelled_thread_disturbs_no_other(maybe_storage: Any) -> None:
    stage = Stage()
    stage.close("tally")
    workflow = alone(Tally("tally", stage), maybe_storage)
    runs = [asyncio.create_task(workflow.run(thread_id, thread_id=thread_id)) for thread_id in THREADS[:9]]
    await stage.wait_for_calls(9)
    runs[0].cancel()
    await asyncio.wait(runs[:1])
    stage.failing = {"tally"}
    stage.gates["tally"].set()
    assert {type(outcome) for outcome in await asyncio.gather(*runs[1:], return_exceptions=True)} == {Boom}
    stage.failing = set()
    again = await asyncio.gather(*(workflow.run(thread_id=thread_id) for thread_id in THREADS[:9]))
    sent = [[event.data for event in result if event.type == "executor_completed"] for result in again]
    assert sent == [[["tally=1"]]] * 9, "each counts for itself, and its failed attempt not at all"


async def test_first_thread_uses_the_passed_instance(maybe_storage: Any) -> None:
    tally = Tally("tally", Stage())
    workflow = alone(tally, maybe_storage)
    await workflow.run("x", thread_id="first")
    await workflow.run("x", thread_id="second")
    await workflow.run("x", thread_id="first")
    assert tally.total == 2


class Plain(Executor):
    """Keeps something in `self`, without hooks."""

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.count = 0

    @handler
    async def handle(self, message: str, ctx: WorkflowContext[None, int]) -> None:
        self.count += 1
        await ctx.yield_output(self.count)


async def test_stored_thread_without_hooks_gets_fresh_instances_in_each_run(maybe_storage: Any) -> None:
    """Except the first, which the given instances serve. Without a storage all threads stay in memory, whole."""
    workflow = alone(Plain("plain"), maybe_storage)
    counts = {
        thread_id: [(await workflow.run("x", thread_id=thread_id)).get_outputs()[0] for _ in range(3)]
        for thread_id in THREADS[:3]
    }
    others = [1, 2, 3] if maybe_storage is None else [1, 1, 1]
    assert counts == {"t0": [1, 2, 3], "t1": others, "t2": others}


async def test_lists_and_messages_are_separate_for_each_thread(storage: StoreCheckpointStorage) -> None:
    workflow = alone(Tally("tally", Stage()), storage)
    await asyncio.gather(*(workflow.run(thread_id, thread_id=thread_id) for thread_id in THREADS))
    for thread_id in THREADS:
        infos = await storage.list_checkpoint_infos(thread_id=thread_id)
        assert [(info.thread_id, info.iteration_count) for info in infos] == [(thread_id, 0), (thread_id, 1)]
        messages = await workflow.messages(thread_id)
        assert [message.data for message in messages] == [thread_id]


async def test_runs_without_a_thread_id_do_not_meet_named_threads(maybe_storage: Any) -> None:
    workflow = alone(Plain("plain"), maybe_storage)
    own = [(await workflow.run("x")).get_outputs() for _ in range(2)]
    named = (await workflow.run("x", thread_id="named")).get_outputs()
    assert own == [[1], [2]] and named == [1]
