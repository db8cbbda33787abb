"""A whole life of a thread through a pooler that gives each transaction another session: the same as without it."""

from __future__ import annotations

import asyncio
from typing import Any, Never

import pytest
from tests.databases.fixtures import Place
from tests.databases.pooler import Pooler

from perdure import (
    Executor,
    PostgresCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
)
from perdure.stores.postgres.store import PostgresStore
from perdure.testing.conformance.threads import own


class Source(Executor):
    @handler
    async def begin(self, words: list[str], ctx: WorkflowContext[str]) -> None:
        for word in words:
            await ctx.send_message(word)


class Writer(Executor):
    """Works in steps. One of them breaks once, when the others have ended, or have recorded a step."""

    def __init__(self, id: str, calls: list[str]) -> None:
        super().__init__(id)
        self.calls = calls

    async def _write(self, word: str, number: int) -> str:
        self.calls.append(f"{self.id} {word} {number}")
        return f"{word} {number}"

    @handler
    async def write(self, word: str, ctx: WorkflowContext[str]) -> None:
        written = [await ctx.step(self._write, word, number, name=f"write-{number}") for number in range(3)]
        if self.id == "b" and word == "two" and "broken" not in self.calls:
            self.calls.append("broken")
            raise RuntimeError("It broke.")
        ctx.set_state(f"{self.id} {word}", written * 50)
        await ctx.send_message(f"{self.id} {written[-1]}")


class Editor(Executor):
    @handler
    async def join(self, texts: list[str], ctx: WorkflowContext[Never, str]) -> None:
        ctx.state.setdefault("texts", []).extend(texts)
        await ctx.request_info(f"print {len(ctx.state['texts'])}?", str, request_id=f"print {len(ctx.state['texts'])}")

    @response_handler
    async def take_answer(self, question: str, answer: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"{question} {answer}")


def build(storage: PostgresCheckpointStorage, calls: list[str]) -> Workflow:
    source, editor = Source("source"), Editor("editor")
    writers = [Writer(name, calls) for name in ("a", "b", "c")]
    builder = WorkflowBuilder(name="paper", start_executor=source, checkpoint_storage=storage)
    return builder.add_fan_out_edges(source, writers).add_fan_in_edges(writers, editor).build()


async def life(storage: PostgresCheckpointStorage) -> list[Any]:
    """Run a thread that fails, continues, asks, is answered, rewound, forked, pinned and pruned. Return what shows."""
    calls: list[str] = []
    seen: list[Any] = []
    with pytest.raises(RuntimeError, match="It broke"):
        await build(storage, calls).run(["one", "two"], thread_id="t")
    result = await build(storage, calls).run(thread_id="t")
    seen += [sorted(calls), result.get_final_state(), sorted(e.request_id for e in result.get_request_info_events())]
    asked = [(request.thread_id, request.request_id) for request in await storage.pending_requests()]
    before = (await build(storage, calls).history("t"))[0]
    yes, no = ({request_id: answer for _, request_id in asked} for answer in ("yes", "no"))
    seen += [asked, (await build(storage, calls).run(responses=yes, thread_id="t")).get_outputs()]
    await build(storage, calls).rewind("t", before)
    seen.append((await build(storage, calls).run(responses=no, thread_id="t")).get_outputs())
    fork = await build(storage, calls).fork(before, thread_id="forked")
    seen.append((await build(storage, calls).run(responses=yes, thread_id="forked")).get_outputs())
    await storage.pin(before)
    report = await storage.prune(keep_last=1)
    seen += [[(thread.thread_id, thread.checkpoints) for thread in report.threads], report.skipped]
    infos = await storage.list_checkpoint_infos()
    seen.append([(info.thread_id, info.number, info.iteration_count, info.is_pinned, info.status) for info in infos])
    kept = await asyncio.gather(*(storage.load(checkpoint.checkpoint_id) for checkpoint in [before, *infos]))
    seen += [[sorted(checkpoint.state.items()) for checkpoint in kept], fork.thread_id, sorted(calls)]
    seen.append([(thread.thread_id, thread.number, thread.status) for thread in await storage.list_threads()])
    seen.append([(events.first_seq, events.count) for events in await storage.store.events_after("t", None)])
    await storage.delete_thread("forked")
    seen.append([thread.thread_id for thread in await storage.list_threads()])
    return seen


async def lived(dsn: str, schema: str) -> list[Any]:
    storage = PostgresCheckpointStorage(dsn, schema=schema, pool_size=3)
    try:
        return await life(storage)
    finally:
        await storage.close()


@pytest.mark.parametrize("knows_statements", [True, False], ids=["of today", "before 1.21"])
async def test_a_threads_whole_life_is_the_same_through_a_pooler(postgres_dsn: str, knows_statements: bool) -> None:
    expected = await lived(postgres_dsn, "direct")
    with Pooler(postgres_dsn, size=2, knows_statements=knows_statements) as pooler:
        pooled = await lived(pooler.dsn, "pooled")
        assert pooler.switches > 20
    for actual, other in zip(pooled, expected, strict=True):
        assert actual == other


async def test_two_stores_behind_one_pooler_take_threads_from_each_other(postgres_place: Place) -> None:
    with Pooler(postgres_place.dsn, size=2) as pooler:
        stores = [PostgresStore(pooler.dsn, schema=postgres_place.schema) for _ in range(2)]

        async def move(number: int) -> None:
            for turn in range(10):
                owner = await own(stores[number], "t", owner=f"{number}.{turn}", takeover=True)
                await asyncio.gather(
                    owner.save(events=1), stores[1 - number].thread_header("t"), return_exceptions=True
                )

        await asyncio.gather(move(0), move(1))
        numbers = [commit.number for commit in await stores[0].commits("t")]
        assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) >= 10
        assert not await stores[0].check()
        for store in stores:
            await store.close()
