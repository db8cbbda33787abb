"""What the tests of promises are made of: executors that report to a stage, and the graphs they stand in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable
from typing import Any, TypeAlias

import msgspec

from perdure import Executor, Workflow, WorkflowBuilder, WorkflowContext, WorkflowEvent, handler, response_handler
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.records import Commit, JournalEntry, Lease

Build: TypeAlias = Callable[[], Workflow]
Again: TypeAlias = Callable[[Workflow, Build], Workflow]


def with_the_same_object(interrupted: Workflow, build: Build) -> Workflow:
    return interrupted


def with_a_new_object(interrupted: Workflow, build: Build) -> Workflow:
    return build()


class Boom(Exception):
    """What a failing executor raises."""


class Stage:
    """What a test's executors share outside of anything perdure keeps: like the world, it is never put back."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.failing: set[str] = set()
        self.gates: dict[str, asyncio.Event] = {}
        """An executor named here waits for its gate before it continues."""
        self.entered: dict[str, asyncio.Event] = {}
        self.cancelled: list[str] = []
        self.recorded = 0
        self.fails_after = 0
        """A failing executor waits until so many outcomes are in the journal."""
        self._changed = asyncio.Condition()

    def close(self, *executor_ids: str) -> None:
        for executor_id in executor_ids:
            self.gates[executor_id] = asyncio.Event()
            self.entered[executor_id] = asyncio.Event()

    async def play(self, executor_id: str, message: Any) -> None:
        """A handler's part: record the call, wait at the gate, fail if it is listed as failing."""
        self.calls.append(f"{executor_id}({message})")
        async with self._changed:
            self._changed.notify_all()
        try:
            if executor_id in self.gates:
                self.entered[executor_id].set()
                await self.gates[executor_id].wait()
            if executor_id in self.failing:
                async with self._changed:
                    await self._changed.wait_for(lambda: self.recorded >= self.fails_after)
                raise Boom(executor_id)
        except asyncio.CancelledError:
            self.cancelled.append(executor_id)
            raise

    def called(self, executor_id: str) -> int:
        return sum(call.startswith(f"{executor_id}(") for call in self.calls)

    async def wait_for_calls(self, count: int) -> None:
        """Until so many handlers have begun."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.calls) >= count)

    async def wait_for_records(self, count: int) -> None:
        """Until so many entries are in the journal that `watch_journal` watches."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.recorded >= count)

    def watch_journal(self, storage: StoreCheckpointStorage) -> None:
        """Count what reaches the journal, so that a failure can be timed after it."""
        append = storage.store.append_journal

        async def counted(lease: Lease, entry: JournalEntry) -> None:
            await append(lease, entry)
            self.recorded += 1
            self.journal_grew()
            async with self._changed:
                self._changed.notify_all()

        storage.store.append_journal = counted  # type: ignore[method-assign]  # a tap on the real method

    def journal_grew(self) -> None:
        """A hook for a stage that reports to another process."""


# ---------------------------------------------------------------- executors


class Relay(Executor):
    """Sends on what it gets, with its own id added."""

    def __init__(self, id: str, stage: Stage) -> None:
        super().__init__(id)
        self.stage = stage

    @handler
    async def relay(self, message: str, ctx: WorkflowContext[str]) -> None:
        await self.stage.play(self.id, message)
        await ctx.send_message(f"{message}-{self.id}")


class Join(Executor):
    """Yields what a fan-in brings, as one text."""

    def __init__(self, id: str, stage: Stage) -> None:
        super().__init__(id)
        self.stage = stage

    @handler
    async def join(self, messages: list[str], ctx: WorkflowContext[None, str]) -> None:
        await self.stage.play(self.id, "+".join(messages))
        await ctx.yield_output("+".join(messages))


class Sink(Executor):
    """Yields each message."""

    @handler
    async def take(self, message: Any, ctx: WorkflowContext[None, Any]) -> None:
        await ctx.yield_output(message)


class Tally(Executor):
    """Keeps a total in `self`, saved by hooks, and sends it on after each message."""

    def __init__(self, id: str, stage: Stage) -> None:
        super().__init__(id)
        self.stage = stage
        self.total = 0

    @handler
    async def count(self, message: str, ctx: WorkflowContext[str]) -> None:
        self.total += 1
        await self.stage.play(self.id, message)
        await ctx.send_message(f"{self.id}={self.total}")

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"total": self.total}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.total = state["total"]


class Asker(Executor):
    """Asks one question for each word it gets, and yields question and answer."""

    @handler
    async def ask(self, message: str, ctx: WorkflowContext[None, str]) -> None:
        for word in message.split():
            await ctx.request_info(word, str, request_id=word)

    @response_handler
    async def answered(self, question: str, answer: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"{question}={answer}")


class Does(Executor):
    """Runs an async function of (message, ctx) given by the test."""

    def __init__(self, id: str, act: Callable[[Any, WorkflowContext[Any, Any]], Any]) -> None:
        super().__init__(id)
        self.act = act

    @handler
    async def handle(self, message: Any, ctx: WorkflowContext[Any, Any]) -> None:
        await self.act(message, ctx)


# ---------------------------------------------------------------- graphs


def fan(stage: Stage, storage: Any = None, *, kind: type[Relay | Tally] = Relay, names: str = "abc") -> Workflow:
    """source -> each of the named siblings -> join."""
    source = Relay("source", stage)
    siblings = [kind(name, stage) for name in names]
    return (
        WorkflowBuilder(name="fan", start_executor=source, checkpoint_storage=storage)
        .add_fan_out_edges(source, siblings)
        .add_fan_in_edges(siblings, Join("join", stage))
        .build()
    )


def alone(executor: Executor, storage: Any = None, **options: Any) -> Workflow:
    return WorkflowBuilder(name="alone", start_executor=executor, checkpoint_storage=storage, **options).build()


def chain(*executors: Executor, storage: Any = None, **options: Any) -> Workflow:
    builder = WorkflowBuilder(name="chain", start_executor=executors[0], checkpoint_storage=storage, **options)
    return builder.add_chain(executors).build()


def ledger(stage: Stage, storage: Any = None, *, name: str = "alone") -> Workflow:
    """Writes every message into the thread's state, and yields all that is there."""

    async def write(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        await stage.play("ledger", message)
        entries = [*ctx.get_state("entries", []), message]
        ctx.set_state("entries", entries)
        await ctx.yield_output(entries)

    return WorkflowBuilder(name=name, start_executor=Does("ledger", write), checkpoint_storage=storage).build()


async def entries(storage: StoreCheckpointStorage) -> list[str]:
    """What is in the ledger of thread `t`."""
    head = await storage.get_latest(thread_id="t")
    assert head is not None
    written: list[str] = head.state.get("entries", [])
    return written


async def collect(stream: AsyncIterable[WorkflowEvent], events: list[WorkflowEvent]) -> None:
    """Into a list that the caller holds: what came before an error is there too."""
    async for event in stream:
        events.append(event)


def kinds(events: list[WorkflowEvent]) -> list[str]:
    return [event.type for event in events]


# ---------------------------------------------------------------- storages


async def rewrite_head(storage: StoreCheckpointStorage, thread_id: str, change: Callable[[bytes], bytes]) -> str:
    """Change the stored bytes of a thread's head behind everybody's back. Gives the head's id."""
    opened = await storage.store.open(thread_id, "vandal", takeover=True)
    assert opened.info is not None
    info = msgspec.structs.replace(opened.info, number=opened.number + 1)
    await storage.store.commit(
        Commit(opened.lease, info.number, info, change(opened.root or b""), timestamp=info.timestamp)
    )
    await storage.store.release(opened.lease)
    return info.checkpoint_id


def edited(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    """The same for its tree: `change` alters it in place."""

    def rewrite(root: bytes) -> bytes:
        tree = msgspec.json.decode(root)
        change(tree)
        return msgspec.json.encode(tree)

    return rewrite
