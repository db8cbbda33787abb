"""A store and the model beside it: random acts of owners, each accepted or refused as the model requires."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tests.conformance.stores import STORES
from tests.property.store_model import Model, Thread
from tests.schemas import SCHEMAS

from perdure.errors import ThreadBusy, ThreadConflict
from perdure.records import CheckpointInfo, Commit, JournalEntry, Lease
from perdure.store import Store
from perdure.testing.conformance.threads import at, make_events, make_request

T = TypeVar("T")

NAMES = st.sampled_from([*["a"] * 6, "B/b", "B/b", "ä", "long " * 30])
WORKFLOWS = st.sampled_from(["one", "two"])
DIGESTS = st.sets(st.sampled_from(["d1", "d2", "d3", "d4"]), max_size=3)
DELIVERIES = st.sets(st.integers(1, 3), max_size=2)
ITEMS = st.sampled_from(["i1", "i2", "i3"])
QUESTIONS = st.none() | st.sets(st.sampled_from(["q1", "q2"]))
PICK = st.integers(0, 7)
BACK = st.none() | st.sets(st.integers(0, 6), max_size=4)
"""How many commits before the last one."""


class OwnersBeside(RuleBasedStateMachine):
    """Threads that are claimed, moved and written to."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.folder = Path(tempfile.mkdtemp())
        self.ends = ExitStack()
        self.ends.enter_context(SCHEMAS.lent())
        self.runner = asyncio.Runner()
        self.store: Store = STORES[kind](self.folder)
        self.model = Model()
        self.leases: dict[str, list[Lease]] = {}
        self.made = 0

    def do(self, act: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(act)

    def thread(self, name: str) -> Thread:
        return self.model.threads.get(name, Thread())

    def refused(self, act: Coroutine[Any, Any, object], error: type[Exception]) -> None:
        with pytest.raises(error):
            self.do(act)

    def teardown(self) -> None:
        try:
            for name in self.model.threads:
                self.open(name, takeover=True)  # also reads what only an owner can
        finally:
            self.do(self.store.close())
            self.runner.close()
            self.ends.close()
            shutil.rmtree(self.folder)

    # ------------------------------------------------------------ owning

    @rule(name=NAMES, takeover=st.booleans())
    def open(self, name: str, takeover: bool) -> None:
        self.made += 1
        owner = f"run-{self.made:04x}"
        if self.thread(name).owner is not None and not takeover:
            self.refused(self.store.open(name, owner), ThreadBusy)
            return
        opened = self.do(self.store.open(name, owner, takeover=takeover))
        thread = self.model.threads.setdefault(name, Thread())
        assert opened.lease.fence > thread.fence
        thread.owner, thread.fence = owner, opened.lease.fence
        self.leases.setdefault(name, []).append(opened.lease)
        head = thread.head
        assert (opened.number, opened.last_seq, opened.status) == (thread.number, thread.last_seq, thread.status)
        assert opened.root == (None if head is None else head.commit.root)
        assert (opened.info is not None and opened.info.is_pinned) is (head is not None and head.number in thread.pins)
        assert [(entry.delivery_id, entry.body) for entry in opened.journal] == thread.journal
        assert {item.item_id: (item.kind, item.body) for item in opened.inbox} == thread.inbox
        assert [item.item_id for item in opened.inbox] == list(thread.inbox)

    @rule(name=NAMES, pick=PICK)
    def release(self, name: str, pick: int) -> None:
        lease = self.lease(name, pick)
        self.do(self.store.release(lease))
        if self.is_held(lease):
            self.thread(name).owner = None

    def lease(self, name: str, pick: int) -> Lease:
        """Mostly the newest."""
        known = self.leases.get(name, [Lease(name, "nobody", 1)])
        return known[-1 if pick else pick]

    def is_held(self, lease: Lease) -> bool:
        thread = self.thread(lease.thread_id)
        return (thread.owner, thread.fence) == (lease.owner, lease.fence)

    # ------------------------------------------------------------ writing

    @rule(
        name=NAMES,
        pick=PICK,
        workflow=st.none() | WORKFLOWS,
        brings=DIGESTS,
        drops=DIGESTS,
        own=DIGESTS,
        events=st.integers(0, 3),
        refers=st.booleans(),
        rest=st.fixed_dictionaries(
            {
                "consumed": st.sets(ITEMS),
                "unsettled": DELIVERIES,
                "questions": QUESTIONS,
                "due": st.none() | PICK,
                "prunes": BACK,
                "silence": st.none() | st.integers(0, 6),
            }
        ),
        odd=st.sampled_from([*["nothing"] * 5, "number", "old parent", "gone parent", "replaces"]),
    )
    def commit(
        self,
        name: str,
        pick: int,
        workflow: str | None,
        brings: set[str],
        drops: set[str],
        own: set[str],
        events: int,
        refers: bool,
        rest: dict[str, Any],
        odd: str,
    ) -> None:
        if self.thread(name).owner is None and pick > 1:
            self.open(name, takeover=False)  # otherwise most would be refused
        thread, lease = self.thread(name), self.lease(name, pick)
        number = thread.number + 1 + (pick if odd == "number" else 0)
        parent = self.parent(thread, pick, odd) if workflow is not None else None
        base = next((kept for kept in thread.checkpoints if kept.number == parent), None)
        mine = (own if events else set()) if workflow is not None else (brings | own if events else set())
        brought = (brings | mine) if workflow is not None else mine
        logged = (
            make_events(thread.last_seq + 1, events, refers=refers and base is not None, own=tuple(mine))
            if events
            else None
        )
        stamp = (f"S{pick}", lease.owner, at(self.made).isoformat())
        questions = rest["questions"]
        commit = Commit(
            lease,
            number,
            self.info(name, workflow, number, parent, odd, pick, stamp),
            None if workflow is None else f'"root {self.made}"'.encode(),
            logged,
            tuple(rest["unsettled"]),
            tuple(rest["consumed"]),
            *stamp,
            parent=parent,
            chunks={digest: f'"{digest}"'.encode() for digest in brought},
            dropped=[ref for ref in (base.has if base else ()) if ref.split(".")[0] in drops],
            requests=None if questions is None else [make_request(name, question, self.made) for question in questions],
            due_at=None if rest["due"] is None else at(rest["due"]),
            prunes=[number - back for back in rest["prunes"] or ()],
            prunes_events_before=0 if rest["silence"] is None else max(number - rest["silence"], 0),
        )
        is_next = number == thread.number + 1 and (parent is None or base is not None)
        if self.is_held(lease) and is_next:
            self.do(self.store.commit(commit))
            self.model.commit(commit)
        else:
            self.refused(self.store.commit(commit), ThreadConflict)

    @initialize(count=st.integers(0, 5))
    def begin(self, count: int) -> None:
        """Mostly with something to act on."""
        if count:
            self.extend("a", count, None)

    @rule(name=NAMES, count=st.integers(1, 6), kept=st.none() | st.integers(1, 3))
    def extend(self, name: str, count: int, kept: int | None) -> None:
        """A line of checkpoints, each with a chunk of its own and without the one that the one before brought; perhaps
        only the last ones are kept."""
        self.open(name, takeover=True)
        thread, lease = self.thread(name), self.lease(name, 1)
        for _ in range(count):
            number = thread.number + 1
            parent = None if thread.head is None else thread.head.number
            stamp = ("GOES ON", lease.owner, at(self.made).isoformat())
            commit = Commit(
                lease,
                number,
                self.info(name, "one", number, parent, "nothing", 0, stamp),
                f'"root {self.made}"'.encode(),
                make_events(thread.last_seq + 1, refers=number % 3 == 0, own=("d2",)) if number % 2 else None,
                (),
                (),
                *stamp,
                parent=parent,
                chunks={"d1": b'"d1"', "d2": b'"d2"'},
                dropped=[ref for ref in (thread.head.has if thread.head else ()) if ref == f"d1.{parent}"],
                prunes=range(1, number - kept + 1) if kept else (),
                prunes_events_before=number - kept if kept else 0,
            )
            self.do(self.store.commit(commit))
            self.model.commit(commit)

    def parent(self, thread: Thread, pick: int, odd: str) -> int | None:
        if odd == "gone parent":
            return thread.number + 5
        if odd == "old parent" and thread.commits:
            return thread.commits[pick % len(thread.commits)].number
        return None if thread.head is None else thread.head.number

    def info(
        self,
        name: str,
        workflow: str | None,
        number: int,
        parent: int | None,
        odd: str,
        pick: int,
        stamp: tuple[str, str, str],
    ) -> CheckpointInfo | None:
        if workflow is None:
            return None
        self.made += 1
        known = self.known_ids(self.thread(name))
        new_id = known[pick % len(known)] if odd == "replaces" and known else f"{self.made:04x}"
        status, run_id, timestamp = stamp
        previous = self.thread(name).previous(parent)
        return CheckpointInfo(new_id, name, workflow, number, pick, previous, timestamp, run_id, status)

    def known_ids(self, thread: Thread) -> list[str]:
        """Of checkpoints that another can take the place of: those of all threads."""
        return [kept.info.checkpoint_id for kept in self.model.order if kept.info is not None]

    @rule(name=NAMES, pick=PICK, delivery_id=st.integers(1, 3))
    def record(self, name: str, pick: int, delivery_id: int) -> None:
        lease = self.lease(name, pick)
        entry = JournalEntry(self.thread(name).number, delivery_id, f'"{self.made} {pick}"'.encode())
        if self.is_held(lease):
            self.do(self.store.append_journal(lease, entry))
            self.thread(name).journal.append((delivery_id, entry.body))
        else:
            self.refused(self.store.append_journal(lease, entry), ThreadConflict)

    @rule(name=NAMES, item=ITEMS, pick=PICK)
    def post(self, name: str, item: str, pick: int) -> None:
        body = f'"{pick}"'.encode()
        self.do(self.store.post(name, item, "message", body))
        self.model.post(name, item, "message", body)
