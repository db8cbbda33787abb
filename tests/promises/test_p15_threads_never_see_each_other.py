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
    """Lets nobody go on before all have come: proof that they run at the same time."""

    def __init__(self, size: int) -> None:
        self.barrier = asyncio.Barrier(size)


class Secretive(Executor):
    """Keeps what it hears everywhere it can, and asks one question about it."""

    shared_by_mistake: int = 0

    def __init__(self, id: str, meeting: Meeting, options: dict[str, list[str]]) -> None:
        super().__init__(id)
        self.meeting = meeting
        self.options = options
        self.heard: list[str] = []

    @handler
    async def hear(self, message: str, ctx: WorkflowContext[Any, Any]) -> None:
        self.heard.append(message)
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
        places = [self.heard, self.options["heard"], ctx.get_state("heard"), ctx.private["heard"], arguments]
        await ctx.yield_output([ctx.thread_id, question, answer, *places])

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"heard": self.heard, "options": self.options}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.heard, self.options = state["heard"], state["options"]


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
        *(workflow.run(f"secret of {one}", thread_id=one, client_kwargs={"mine": one}) for one in THREADS)
    )
    for one, result in zip(THREADS, asked, strict=True):
        secret = f"secret of {one}"
        assert result.thread_id == one
        assert result.get_outputs() == [[secret, [secret]]]
        assert [event.data for event in result.get_request_info_events()] == [secret]
    answers = [{"same id everywhere": f"answer of {one}"} for one in THREADS]
    done = await asyncio.gather(
        *(workflow.run(responses=given, thread_id=one) for one, given in zip(THREADS, answers, strict=True))
    )
    for one, result in zip(THREADS, done, strict=True):
        secret = f"secret of {one}"
        assert result.get_outputs() == [[one, secret, f"answer of {one}", *[[secret]] * 4, [one]]]


async def test_threads_go_on_in_another_object_each_with_its_own(storage: StoreCheckpointStorage) -> None:
    meeting = Meeting(10)
    first, second = secretive(meeting, storage), secretive(meeting, storage)
    threads = THREADS[:10]
    await asyncio.gather(*(first.run(one, thread_id=one, client_kwargs={"mine": one}) for one in threads))
    results = await asyncio.gather(
        *(second.run(responses={"same id everywhere": "a"}, thread_id=one) for one in reversed(threads))
    )
    assert [result.get_outputs() for result in results] == [
        [[one, one, "a", *[[one]] * 5]] for one in reversed(threads)
    ]


async def test_one_thread_that_fails_or_is_cancelled_disturbs_no_other(maybe_storage: Any) -> None:
    stage = Stage()
    stage.close("tally")
    workflow = alone(Tally("tally", stage), maybe_storage)
    runs = [asyncio.create_task(workflow.run(one, thread_id=one)) for one in THREADS[:9]]
    await stage.wait_for_calls(9)
    runs[0].cancel()
    await asyncio.wait(runs[:1])
    stage.failing = {"tally"}
    stage.gates["tally"].set()
    assert {type(one) for one in await asyncio.gather(*runs[1:], return_exceptions=True)} == {Boom}
    stage.failing = set()
    again = await asyncio.gather(*(workflow.run(thread_id=one) for one in THREADS[:9]))
    sent = [[event.data for event in result if event.type == "executor_completed"] for result in again]
    assert sent == [[["tally=1"]]] * 9, "each counts for itself, and its failed attempt not at all"


async def test_the_first_thread_is_served_by_the_instance_that_was_given(maybe_storage: Any) -> None:
    given = Tally("tally", Stage())
    workflow = alone(given, maybe_storage)
    await workflow.run("x", thread_id="first")
    await workflow.run("x", thread_id="second")
    await workflow.run("x", thread_id="first")
    assert given.total == 2


class Plain(Executor):
    """Keeps something in `self`, without hooks."""

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.count = 0

    @handler
    async def handle(self, message: str, ctx: WorkflowContext[None, int]) -> None:
        self.count += 1
        await ctx.yield_output(self.count)


async def test_without_hooks_a_stored_thread_starts_each_run_with_fresh_instances(maybe_storage: Any) -> None:
    """Except the first, which the given instances serve. Without a storage all threads stay in memory, whole."""
    workflow = alone(Plain("plain"), maybe_storage)
    counts = {one: [(await workflow.run("x", thread_id=one)).get_outputs()[0] for _ in range(3)] for one in THREADS[:3]}
    others = [1, 2, 3] if maybe_storage is None else [1, 1, 1]
    assert counts == {"t0": [1, 2, 3], "t1": others, "t2": others}


async def test_lists_and_latest_tell_threads_apart(storage: StoreCheckpointStorage) -> None:
    workflow = alone(Tally("tally", Stage()), storage)
    await asyncio.gather(*(workflow.run(one, thread_id=one) for one in THREADS))
    for one in THREADS:
        infos = await storage.list_checkpoint_infos(thread_id=one)
        assert [(info.thread_id, info.iteration_count) for info in infos] == [(one, 0), (one, 1)]
        messages = await workflow.messages(one)
        assert [message.data for message in messages] == [one]


async def test_runs_without_a_thread_id_do_not_meet_named_threads(maybe_storage: Any) -> None:
    workflow = alone(Plain("plain"), maybe_storage)
    own = [(await workflow.run("x")).get_outputs() for _ in range(2)]
    named = (await workflow.run("x", thread_id="named")).get_outputs()
    assert own == [[1], [2]] and named == [1]
