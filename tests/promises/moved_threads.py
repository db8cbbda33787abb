"""Threads of every kind that a store can hold, and how each continues: for tests that move threads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.promises.stages import Boom, Does, Stage, alone, fan, ledger

from perdure import Executor, Workflow, WorkflowBuilder, WorkflowContext, handler, response_handler
from perdure.checkpoints.any_storage import post_message
from perdure.checkpoints.history.retention import KeepLast
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.codec import DeclaredTypes
from perdure.records import Commit
from perdure.testing import FakeClock

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
LONG = "a long line of text, so that there are chunks of it; " * 40

Continuation = Callable[[StoreCheckpointStorage], Awaitable[list[Any]]]
"""Continues a thread, and returns its outputs."""


class Reviewer(Executor):
    """Asks for each word, with a deadline and an assignee."""

    @handler
    async def ask(self, message: str, ctx: WorkflowContext[Any, str]) -> None:
        for word in message.split():
            await ctx.request_info(word, str, request_id=word, deadline=MONDAY + timedelta(days=9000), assignee="Ada")

    @response_handler
    async def answered(self, question: str, answer: str, ctx: WorkflowContext[Any, str]) -> None:
        await ctx.yield_output(f"{question}={answer}")


class Sleeper(Executor):
    """Does a step, sleeps for a day, does another."""

    def __init__(self, stage: Stage) -> None:
        super().__init__("sleeper")
        self.stage = stage

    @handler
    async def handle(self, message: str, ctx: WorkflowContext[Any, Any]) -> None:
        await ctx.step(self.stage.play, "before", message, name="before")
        await ctx.sleep(timedelta(days=1))
        await ctx.step(self.stage.play, "after", message, name="after")
        await ctx.yield_output([message, *self.stage.calls])


def sleeper(storage: Any, *, days: int) -> Workflow:
    return alone(Sleeper(Stage()), storage, clock=FakeClock(MONDAY + timedelta(days=days)))


def long_message(number: int) -> str:
    return f"{number}: {LONG}"


class Counting:
    """A workflow that writes a line in each superstep, as many as it is let."""

    TURNS = 24

    def __init__(self, turns: int = 0) -> None:
        self.steps = asyncio.Semaphore(turns)
        self.written: asyncio.Queue[int] = asyncio.Queue()
        self.seen = 0

    async def count(self, message: int, ctx: WorkflowContext[Any, Any]) -> None:
        await self.steps.acquire()
        ctx.set_state("entries", [*ctx.get_state("entries", []), f"{message} {LONG}"])
        if message < self.TURNS:
            await ctx.send_message(message + 1, target_id="count")
        self.written.put_nowait(message)

    async def advance(self, turns: int) -> None:
        """Let it write so many more lines, and wait for them: all but the last are committed then."""
        for _ in range(turns):
            self.steps.release()
        until = min(self.seen + turns, self.TURNS)
        while self.seen < until:
            self.seen = await self.written.get()

    def workflow(self, storage: StoreCheckpointStorage) -> Any:
        counter = Does("count", self.count)
        builder = WorkflowBuilder(
            name="counting", start_executor=counter, checkpoint_storage=storage, max_iterations=100
        )
        return builder.add_edge(counter, counter).build()


# ---------------------------------------------------------------- making them


async def written(storage: StoreCheckpointStorage, thread_id: str, count: int) -> None:
    for number in range(count):
        await ledger(Stage(), storage).run(long_message(number), thread_id=thread_id)


async def make_branched(storage: StoreCheckpointStorage) -> None:
    """Rewound twice, with pins on the line to the head and beside it."""
    await written(storage, "branched", 3)
    infos = await storage.list_checkpoint_infos(thread_id="branched")
    await storage.rewind("branched", infos[1])
    await written(storage, "branched", 1)
    await storage.rewind("branched", infos[2])  # where a message is due
    await storage.pin(infos[1])
    await storage.pin(infos[-1])


async def make_forked(storage: StoreCheckpointStorage) -> None:
    """It begins with a checkpoint of another thread."""
    await written(storage, "forked from", 2)
    head = await storage.get_latest(thread_id="forked from")
    assert head is not None
    await storage.fork(head.checkpoint_id, thread_id="fork", update_state={"entries": ["other"]})


async def make_asking(storage: StoreCheckpointStorage) -> None:
    """One of three questions is answered."""
    await alone(Reviewer("reviewer"), storage).run("red green blue", thread_id="asking")
    await alone(Reviewer("reviewer"), storage).run(responses={"green": "no"}, thread_id="asking")


async def make_sleeping(storage: StoreCheckpointStorage) -> None:
    asleep, write = asyncio.Event(), storage.store.commit

    async def commit_and_notify(commit: Commit) -> None:
        await write(commit)
        if commit.due_at is not None:
            asleep.set()

    storage.store.commit = commit_and_notify  # type: ignore[method-assign]  # a tap on the real method
    run = asyncio.ensure_future(sleeper(storage, days=0).run("x", thread_id="sleeping"))
    await asleep.wait()
    run.cancel()
    await asyncio.wait([run])
    storage.store.commit = write  # type: ignore[method-assign]  # a tap on the real method


async def make_half(storage: StoreCheckpointStorage) -> None:
    """Two of three siblings are in the journal."""
    stage = Stage()
    append = storage.store.append_journal
    stage.watch_journal(storage)
    stage.failing, stage.fails_after = {"b"}, 2
    with pytest.raises(Boom):
        await fan(stage, storage).run("x", thread_id="half")
    storage.store.append_journal = append  # type: ignore[method-assign]  # a tap on the real method


async def make_pruned(storage: StoreCheckpointStorage) -> None:
    """With gaps in its history, and one in them that is pinned."""
    await written(storage, "pruned", 5)
    infos = await storage.list_checkpoint_infos(thread_id="pruned")
    await storage.pin(infos[4])
    await storage.store.prune("pruned", [info.checkpoint_id for info in infos[2:7]])


async def make_fallen_back(storage: StoreCheckpointStorage) -> None:
    """Its head was deleted, so that it stands at an older one."""
    await written(storage, "fallen back", 2)
    head = await storage.get_latest(thread_id="fallen back")
    assert head is not None
    await storage.delete(head.checkpoint_id)


async def make_kept(storage: StoreCheckpointStorage) -> None:
    """Retention forgot most of it, and most of its events; what they held is not freed yet."""
    whole, storage.retention = storage.retention, KeepLast(2)
    await written(storage, "kept", 4)
    storage.retention = whole


async def make_posted(storage: StoreCheckpointStorage) -> None:
    """Something waits in its inbox, and something was taken out of it."""
    await written(storage, "posted", 1)
    await post_message(storage, "posted", "first", "one", DeclaredTypes())
    await ledger(Stage(), storage).run(thread_id="posted")
    await post_message(storage, "posted", "second", "two", DeclaredTypes())


MAKERS = (
    make_branched,
    make_forked,
    make_asking,
    make_sleeping,
    make_half,
    make_pruned,
    make_fallen_back,
    make_kept,
    make_posted,
)


async def make_all(storage: StoreCheckpointStorage) -> None:
    for make in MAKERS:
        await make(storage)


# ---------------------------------------------------------------- continuing


async def continue_asking(storage: StoreCheckpointStorage) -> list[Any]:
    answers = {"red": "yes", "blue": "maybe"}
    return (await alone(Reviewer("reviewer"), storage).run(responses=answers, thread_id="asking")).get_outputs()


async def continue_sleeping(storage: StoreCheckpointStorage) -> list[Any]:
    return (await sleeper(storage, days=2).run(thread_id="sleeping")).get_outputs()


async def continue_half(storage: StoreCheckpointStorage) -> list[Any]:
    stage = Stage()
    outputs = (await fan(stage, storage).run(thread_id="half")).get_outputs()
    return [*outputs, *stage.calls]


async def continue_posted(storage: StoreCheckpointStorage) -> list[Any]:
    await post_message(storage, "posted", "first", "one", DeclaredTypes())  # again: it was taken in already
    return (await ledger(Stage(), storage).run(thread_id="posted")).get_outputs()


def writing(thread_id: str, message: str | None = "more") -> Continuation:
    async def continue_thread(storage: StoreCheckpointStorage) -> list[Any]:
        return (await ledger(Stage(), storage).run(message, thread_id=thread_id)).get_outputs()

    return continue_thread


CONTINUATIONS: dict[str, Continuation] = {
    "branched": writing("branched", None),
    "forked from": writing("forked from"),
    "fork": writing("fork"),
    "asking": continue_asking,
    "sleeping": continue_sleeping,
    "half": continue_half,
    "pruned": writing("pruned"),
    "fallen back": writing("fallen back", None),
    "kept": writing("kept"),
    "posted": continue_posted,
}
"""In the order in which they moved last."""
