"""A function workflow interrupted after any journal entry or commit ends as if it had not been: same result, same
state, and no recorded step runs again."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from hypothesis import example, given, settings, strategies as st
from tests.property.function_programs import (
    Ask, Boom, Do, Fail, Gather, Group, Ledger, Loop, Nest, Program, Retry, Sequence_, Sleep, Write, programs,
)
from holdfast import ThreadNotFound, Workflow, WorkflowRunResult
from holdfast.checkpoints.storage import StoreCheckpointStorage
from holdfast.records import Commit, JournalEntry, Lease
from holdfast.stores.memory import MemoryStore

THREAD = "t"


class Killed(BaseException):
    """The process is gone, as far as its store can tell."""


class InterruptingStore(MemoryStore):
    """Interrupts at the n-th write, journal or commit. What it acknowledged or kept before is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded: Counter[str] = Counter()
        """Labels of steps in the journal."""
        self.left = 0
        self.interrupt: Callable[[], None] = lambda: None
        self.is_before = False

    async def commit(self, commit: Commit) -> None:
        self._due(commit.lease, is_before=True)
        await super().commit(commit)
        self._due(commit.lease, is_before=False)

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        self._due(lease, is_before=True)
        await super().append_journal(lease, entry)
        record = msgspec.json.decode(entry.body)
        print(record)
        self._due(lease, is_before=False)

    def _due(self, lease: Lease, *, is_before: bool) -> None:
        if self.is_before is is_before:
            self.left -= 1
            if self.left == 0:
                self.interrupt()


async def test_x() -> None:
    store = InterruptingStore()
    prog = Program(Sequence_((Do("d1", 1, True), Fail("f1"), Retry("r1", 2), Ask("a1"), Sleep(3), Nest("n1", (Do("i1", 1, True),)))))
    ledger = Ledger()
    w = prog.build(ledger, StoreCheckpointStorage(store))
    r = await w.run("go", thread_id="t")
    print(r.get_final_state(), r.get_request_info_events())
    r = await prog.build(ledger, StoreCheckpointStorage(store)).run(responses={r.get_request_info_events()[0].request_id: "x"}, thread_id="t")
    print(r.get_outputs())
    print(ledger)
    print((await StoreCheckpointStorage(store).get_latest(thread_id="t")).state)
