"""A program that puts a secret wherever a value of a user can go, and is killed with half of it on its way."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from perdure import Executor, Workflow, WorkflowBuilder, WorkflowContext, WorkflowEvent, handler, response_handler
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.codecs.aes_gcm import AesGcm
from perdure.records import JournalEntry, Lease
from perdure.storages import open_store

PLACES = (
    *("input", "message", "state key", "state", "long state", "request", "answer", "output", "event", "error"),
    *("step argument", "step result", "saved", "private", "tool argument", "client argument", "journal", "inbox"),
)


def secret(place: str) -> str:
    """One that is nowhere else, with characters that JSON may escape."""
    return f'{place}: "Zürich" {sha256(place.encode()).hexdigest()[:20]}'


LONG = "\n".join(f"{secret('long state')} {number}" for number in range(200))
"""Many chunks."""


@dataclass
class Note:
    text: str


class Clerk(Executor):
    """Gets the input, keeps something everywhere, sends a message."""

    kept = ""

    @handler
    async def begin(self, text: str, ctx: WorkflowContext[Note]) -> None:
        self.kept = secret("saved")
        ctx.set_state(secret("state key"), 1)
        ctx.set_state("case", {"text": secret("state")})
        ctx.set_state("file", LONG)
        ctx.private["note"] = secret("private")
        await ctx.add_event(WorkflowEvent("told", secret("event")))
        await ctx.send_message(Note(secret("message")))

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"kept": self.kept}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.kept = state["kept"]


class Asker(Executor):
    """Looks something up, asks, and yields what came of it."""

    @handler
    async def ask(self, note: Note, ctx: WorkflowContext[None, str]) -> None:
        result = await ctx.step(look_up, secret("step argument"))
        await ctx.yield_output(secret("output"))
        await ctx.request_info({"question": secret("request"), "found": result}, str, request_id="q-1")

    @response_handler
    async def answered(self, question: dict[str, str], answer: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"{question['found']} {answer}")


def look_up(name: str) -> str:
    return secret("step result")


def asking(storage: Any) -> Workflow:
    clerk, asker = Clerk("clerk"), Asker("asker")
    builder = WorkflowBuilder(name="asking", start_executor=clerk, checkpoint_storage=storage)
    return builder.add_edge(clerk, asker).build()


class Failing(Executor):
    @handler
    async def fail(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        raise ValueError(secret("error"))


def failing(storage: Any) -> Workflow:
    return WorkflowBuilder(name="failing", start_executor=Failing("failing"), checkpoint_storage=storage).build()


class Quick(Executor):
    @handler
    async def end(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(secret("journal"))


class Slow(Executor):
    """Comes to no end in the process that is killed."""

    hangs = False

    @handler
    async def wait(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        result = await ctx.step(look_up, secret("step argument"))
        if self.hangs:
            await asyncio.Event().wait()
        await ctx.yield_output(result)


class Start(Executor):
    @handler
    async def begin(self, text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text)


def hanging(storage: Any, *, hangs: bool) -> Workflow:
    start, quick, slow = Start("start"), Quick("quick"), Slow("slow")
    slow.hangs = hangs
    builder = WorkflowBuilder(name="hanging", start_executor=start, checkpoint_storage=storage)
    return builder.add_fan_out_edges(start, [quick, slow]).build()


# ---------------------------------------------------------------- the process


async def work(storage: StoreCheckpointStorage) -> None:
    """Everything up to the kill. One thread waits for an answer, one has it, one failed, one is in a superstep."""
    for thread_id in ("asked", "answered"):
        await asking(storage).run(
            secret("input"),
            thread_id=thread_id,
            function_invocation_kwargs={"token": secret("tool argument")},
            client_kwargs={"key": secret("client argument")},
        )
    await asking(storage).run(thread_id="answered", responses={"q-1": secret("answer")})
    try:
        await failing(storage).run(secret("input"), thread_id="failed")
    except ValueError:
        pass
    recorded = _counting_journal(storage, 2)
    async with hanging(storage, hangs=True).open(thread_id="killed") as run:
        await run.send("go")
        await recorded.wait()  # a step of the slow one, and all of the quick one
        await run.send(secret("inbox"))
        os.kill(os.getpid(), signal.SIGKILL)


def _counting_journal(storage: StoreCheckpointStorage, count: int) -> asyncio.Event:
    """Set when so many more entries are in the journal."""
    append, left, done = storage.store.append_journal, count, asyncio.Event()

    async def counted(lease: Lease, entry: JournalEntry) -> None:
        nonlocal left
        await append(lease, entry)
        left -= 1
        if not left:
            done.set()

    storage.store.append_journal = counted  # type: ignore[method-assign]  # a tap on the real method
    return done


if __name__ == "__main__":
    url, key = sys.argv[1], sys.argv[2]
    asyncio.run(work(open_store(url, encryption=AesGcm(key) if key else None)))
