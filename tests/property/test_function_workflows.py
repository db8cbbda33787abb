"""A function workflow interrupted after any journal entry or commit ends as if it had not been: same result, same
state, and no recorded step runs again."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import Any

import msgspec
from hypothesis import given, settings, strategies as st
from tests.chance import SOAK
from tests.property.function_interpreter import Ledger, build
from tests.property.function_programs import Program, performed, programs

from perdure import InMemoryCheckpointStorage, ThreadNotFound, Workflow, WorkflowRunResult
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.errors import NoPendingRequests, StorageFailed, SubWorkflowFailed
from perdure.records import Commit, JournalEntry, Lease
from perdure.stores.memory.store import MemoryStore

THREAD = "t"
FEW = settings() if SOAK else settings(max_examples=12)
WAYS = ("kill", "cancel", "refuse")
HANG = 10
"""Seconds after which a run that should have ended is called hanging."""


class InterruptingStore(MemoryStore):
    """Interrupts at the n-th write, into the journal or as a commit, in one of three ways.

    kill: the write is kept, but its writer gets an error and cannot write any more.
    cancel: the write is kept, and the run's task cancelled.
    refuse: the write fails, later ones do not.
    """

    def __init__(self, way: str, moments: list[int]) -> None:
        super().__init__()
        self.way = way
        self.left = moments
        self.task: asyncio.Task[Any] | None = None
        self._dead_fence = 0
        self._records: dict[tuple[int, int], str] = {}

    @property
    def recorded(self) -> Counter[str]:
        """Steps that are in the journal, or in a checkpoint."""
        return Counter(self._records.values())

    async def commit(self, commit: Commit) -> None:
        self._refuse(commit.lease)
        await super().commit(commit)
        self._interrupt(commit.lease)

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        self._refuse(lease)
        await super().append_journal(lease, entry)
        self._note(entry.delivery_id, msgspec.json.decode(entry.body))
        self._interrupt(lease)

    def _note(self, delivery_id: int, record: dict[str, Any]) -> None:
        if "n" in record:
            self._records.pop((delivery_id, record["n"]), None)
        named = re.search("did ([^' ]+)", str(record.get("value")))
        if named and record["kind"] in ("step", "failed"):
            self._records[delivery_id, record["n"]] = named[1]

    def _is_due(self) -> bool:
        if self.left:
            self.left[0] -= 1
            if self.left[0] == 0:
                del self.left[0]
                return True
        return False

    def _refuse(self, lease: Lease) -> None:
        if lease.fence <= self._dead_fence or (self.way == "refuse" and self._is_due()):
            raise OSError("no answer")

    def _interrupt(self, lease: Lease) -> None:
        if self.way == "refuse" or not self._is_due():
            return
        if self.way == "kill":
            self._dead_fence = lease.fence
            raise OSError("no answer")
        if self.task is not None:
            self.task.cancel()


async def attempt(workflow: Workflow, store: InterruptingStore | None, **options: Any) -> WorkflowRunResult | None:
    """The run's result; None if it was interrupted. Nothing of it is left running."""
    others = asyncio.all_tasks()
    task = asyncio.get_running_loop().create_task(workflow.run(thread_id=THREAD, takeover=True, **options))
    if store is not None:
        store.task = task
    done, _ = await asyncio.wait([task], timeout=HANG)
    assert done, "the run hangs"
    left = asyncio.all_tasks() - others - {task}
    assert not left, f"left running: {left}"
    if task.cancelled():
        return None
    if isinstance(error := task.exception(), StorageFailed | ExceptionGroup | SubWorkflowFailed):
        return None
    if error is not None:
        raise error
    result: WorkflowRunResult = task.result()
    return result


async def lead_to_its_end(program: Program, ledger: Ledger, storage: Any, store: InterruptingStore | None) -> list[Any]:
    """Outputs of the run that came to the end. Each attempt is made by an object of its own, where there is a storage.

    Once interrupted, `ledger.finished` holds what ran since, and `ledger.recorded` what need not.
    """
    same = build(program, ledger, storage)
    todo: dict[str, Any] = {"message": "go"}
    for _ in range(300):
        workflow = same if storage is None else build(program, ledger, storage)
        try:
            result = await attempt(workflow, store, **todo)
        except (ThreadNotFound, NoPendingRequests):  # interrupted before its input, or after its answers, was accepted
            todo = {"message": "go"} if "message" not in todo and "responses" not in todo else {}
            continue
        if result is None:
            ledger.finished.clear()
            if store is not None:
                ledger.recorded = store.recorded
            todo = {}
            continue
        pending = {str(event.request_id): f"answer to {event.data}" for event in result.get_request_info_events()}
        if not pending:
            return result.get_outputs()
        chosen = sorted(pending)[:1] if program.one_by_one else list(pending)
        todo = {"responses": {request_id: pending[request_id] for request_id in chosen}}
    raise AssertionError("the thread never came to its end")


async def state_of(storage: Any) -> dict[str, Any]:
    """Lists in any order: which of several branches comes first may change."""
    head = await storage.get_latest(thread_id=THREAD)
    return {key: sorted(value) if isinstance(value, list) else value for key, value in head.state.items()}


async def calm(program: Program) -> tuple[list[Any], dict[str, Any], Counter[str]]:
    ledger, storage = Ledger(), InMemoryCheckpointStorage()
    outputs = await lead_to_its_end(program, ledger, storage, None)
    assert ledger.finished == performed(program.node), "undisturbed"
    return outputs, await state_of(storage), ledger.finished


async def check(program: Program, way: str, second: int = 0) -> None:
    """Interrupted at every write in turn, and if `second` is given again so many writes later."""
    outputs, state, finished = await calm(program)
    moment = 0
    while True:
        moment += 1
        moments = [moment, second] if second else [moment]
        store, ledger = InterruptingStore(way, moments), Ledger()
        storage = StoreCheckpointStorage(store)
        shown = f"{way} at write {moment}" + (f" and {second} writes later" if second else "")
        assert await lead_to_its_end(program, ledger, storage, store) == outputs, shown
        assert await state_of(storage) == state, shown
        assert ledger.finished == finished - ledger.recorded, f"{shown}: recorded {ledger.recorded}"
        if len(moments) == 1 + bool(second):  # never reached
            return


@FEW
@given(programs(), st.sampled_from(WAYS))
async def test_function_interrupted_at_any_write_ends_as_undisturbed(program: Program, way: str) -> None:
    await check(program, way)


@FEW
@given(programs(), st.sampled_from(WAYS), st.integers(1, 4))
async def test_function_interrupted_twice_in_a_row_ends_as_undisturbed(program: Program, way: str, second: int) -> None:
    await check(program, way, second)


@FEW
@given(programs())
async def test_a_function_gives_the_same_with_and_without_a_storage(program: Program) -> None:
    outputs, _, finished = await calm(program)
    ledger = Ledger()
    assert await lead_to_its_end(program, ledger, None, None) == outputs
    assert ledger.finished == finished
