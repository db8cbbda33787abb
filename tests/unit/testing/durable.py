"""Two small storages that outlive a process, and workflows that child processes can import."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, Never

import msgspec
from tests.six_methods import SixMethods

from perdure import (
    CheckpointNotFound,
    Executor,
    InMemoryCheckpointStorage,
    RunContext,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowContext,
    WorkflowEvent,
    executor,
    handler,
    response_handler,
    step,
    workflow,
)
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.records import Commit, JournalEntry, Lease
from perdure.stores.memory.store import MemoryStore


class FolderStorage:
    """Six methods over JSON files, each written beside and renamed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        draft = self.folder / "draft"
        draft.write_text(json.dumps(checkpoint.to_dict()), encoding="utf-8")
        draft.rename(self.folder / f"{checkpoint.checkpoint_id}.json")
        return checkpoint.checkpoint_id

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        file = self.folder / f"{checkpoint_id}.json"
        if not file.exists():
            raise CheckpointNotFound(checkpoint_id)
        return WorkflowCheckpoint.from_dict(json.loads(file.read_text(encoding="utf-8")))

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        checkpoints = [await self.load(file.stem) for file in self.folder.glob("*.json")]
        return sorted(
            (checkpoint for checkpoint in checkpoints if checkpoint.workflow_name == workflow_name),
            key=lambda checkpoint: checkpoint.number,
        )

    async def delete(self, checkpoint_id: str) -> bool:
        file = self.folder / f"{checkpoint_id}.json"
        was_there = file.exists()
        file.unlink(missing_ok=True)
        return was_there

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        return next(reversed(await self.list_checkpoints(workflow_name=workflow_name)), None)

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        return [checkpoint.checkpoint_id for checkpoint in await self.list_checkpoints(workflow_name=workflow_name)]


class DiaryStore(MemoryStore):
    """A driver: the store in memory, with every write noted in a file and done again by the next process."""

    def __init__(self, diary: Path) -> None:
        super().__init__()
        self._diary = diary
        self._is_reading = True
        for line in diary.read_text(encoding="utf-8").splitlines() if diary.exists() else ():
            self._do_again(*msgspec.json.decode(line))
        for thread in self._threads.values():
            thread.owner = None  # its owner does not live any more
        self._is_reading = False

    def _note(self, name: str, *written: Any) -> None:
        if not self._is_reading:
            with self._diary.open("ab") as file:
                file.write(msgspec.json.encode([name, written]) + b"\n")

    def _do_again(self, name: str, written: list[Any]) -> None:
        kinds: dict[str, list[Any]] = {
            "open": [str, str, bool],
            "commit": [Commit],
            "append_journal": [Lease, JournalEntry],
        }
        arguments = [msgspec.convert(value, kind) for value, kind in zip(written, kinds[name], strict=True)]
        work = self.open(*arguments[:2], takeover=True) if name == "open" else getattr(self, name)(*arguments)
        try:
            work.send(None)  # a store in memory awaits nothing
        except StopIteration:
            pass

    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> Any:
        opened = await super().open(thread_id, owner, takeover=takeover)
        self._note("open", thread_id, owner, takeover)
        return opened

    async def commit(self, commit: Commit) -> None:
        await super().commit(commit)
        self._note("commit", commit)

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        await super().append_journal(lease, entry)
        self._note("append_journal", lease, entry)


class ForgetfulStore(DiaryStore):
    """Says that it recorded, and does not note it: after a kill it is gone."""

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        await MemoryStore.append_journal(self, lease, entry)


def diary(folder: Path) -> StoreCheckpointStorage:
    return StoreCheckpointStorage(DiaryStore(folder / "diary.jsonl"))


def forgetful_diary(folder: Path) -> StoreCheckpointStorage:
    return StoreCheckpointStorage(ForgetfulStore(folder / "diary.jsonl"))


# ---------------------------------------------------------------- workflows


class Desk(Executor):
    """Asks what to do with a parcel, and does it."""

    @handler
    async def take(self, parcel: str, ctx: WorkflowContext[Never, str]) -> None:
        ctx.set_state("parcel", parcel)
        await ctx.request_info(f"what about {parcel}?", str)

    @response_handler
    async def take_answer(self, question: str, answer: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"{ctx.get_state('parcel')}: {answer}")


@executor
async def unpack(text: str, ctx: WorkflowContext[str]) -> None:
    await ctx.send_message(text.strip())


def parcels(storage: Any) -> Workflow:
    desk = Desk("desk")
    return (
        WorkflowBuilder(name="parcels", start_executor=unpack, checkpoint_storage=storage)
        .add_edge(unpack, desk)
        .build()
    )


def answer_to(event: WorkflowEvent) -> str:
    return f"{len(event.data)} letters"


@step
async def double(number: int) -> int:
    return 2 * number


@workflow
async def doubled_twice(number: int, ctx: RunContext) -> int:
    first, second = await asyncio.gather(double(number), double(number + 1))
    ctx.set_state("sum", first + second)
    return await double(first + second)


@executor
async def note(text: str, ctx: WorkflowContext[Never, str]) -> None:
    ctx.set_state("noted", text)
    await ctx.yield_output(text.strip())


def noting(storage: Any) -> Workflow:
    print("what the code under test prints is in nobody's way")
    return WorkflowBuilder(name="noting", start_executor=note, checkpoint_storage=storage).build()


# ---------------------------------------------------------------- what must be refused


def in_memory(folder: Path) -> InMemoryCheckpointStorage:
    return InMemoryCheckpointStorage()


def six_in_memory(folder: Path) -> SixMethods:
    return SixMethods()


def leave(storage: Any) -> Never:
    print("I am leaving", file=sys.stderr, flush=True)
    os._exit(3)
