"""Random acts on a store and on the model beside it: whatever can be read of one can be read of the other."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import Phase, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from tests.conftest import SOAK
from tests.contract.acts import FAR, asked, at, chunks, told
from tests.contract.model import Model, Thread, plain_events, plain_info
from tests.contract.places import ON_DISK, STORES

from holdfast.errors import ThreadBusy, ThreadConflict
from holdfast.records import CheckpointInfo, Commit, JournalEntry, Lease
from holdfast.store import Store

T = TypeVar("T")

NAMES = st.sampled_from(["a", "a", "a", "B/b", "B/b", "ä", "long " * 30])
WORKFLOWS = st.sampled_from(["one", "two"])
DIGESTS = st.sets(st.sampled_from(["d1", "d2", "d3", "d4"]), max_size=3)
DELIVERIES = st.sets(st.integers(1, 3), max_size=2)
ITEMS = st.sampled_from(["i1", "i2", "i3"])
QUESTIONS = st.none() | st.sets(st.sampled_from(["q1", "q2"]))
PICK = st.integers(0, 7)


class Beside(RuleBasedStateMachine):
    """Acts that a store must accept or refuse, each with what the model says of it."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.folder = Path(tempfile.mkdtemp())
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
        assert [(one.delivery_id, one.body) for one in opened.journal] == thread.journal
        assert {one.item_id: (one.kind, one.body) for one in opened.inbox} == thread.inbox
        assert [one.item_id for one in opened.inbox] == list(thread.inbox)

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
            {"consumed": st.sets(ITEMS), "unsettled": DELIVERIES, "questions": QUESTIONS, "due": st.none() | PICK}
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
        base = next((one for one in thread.checkpoints if one.commit.number == parent), None)
        mine = (own if events else set()) if workflow is not None else (brings | own if events else set())
        brought = (brings | mine) if workflow is not None else mine
        logged = (
            told(thread.last_seq + 1, events, refers=refers and base is not None, own=tuple(mine)) if events else None
        )
        stamp = {"status": f"S{pick}", "run_id": lease.owner, "timestamp": at(self.made).isoformat()}
        questions = rest["questions"]
        commit = Commit(
            lease,
            number,
            self.info(name, workflow, number, odd, pick, stamp),
            None if workflow is None else f'"root {self.made}"'.encode(),
            logged,
            tuple(rest["unsettled"]),
            tuple(rest["consumed"]),
            parent=parent,
            chunks={digest: f'"{digest}"'.encode() for digest in brought},
            dropped=[ref for ref in (base.has if base else ()) if ref.split(".")[0] in drops],
            requests=None if questions is None else [asked(name, one, self.made) for one in questions],
            due_at=None if rest["due"] is None else at(rest["due"]),
            **stamp,
        )
        is_next = number == thread.number + 1 and (parent is None or base is not None)
        if self.is_held(lease) and is_next:
            self.do(self.store.commit(commit))
            self.model.commit(commit)
        else:
            self.refused(self.store.commit(commit), ThreadConflict)

    def parent(self, thread: Thread, pick: int, odd: str) -> int | None:
        if odd == "gone parent":
            return thread.number + 5
        if odd == "old parent" and thread.commits:
            return thread.commits[pick % len(thread.commits)].commit.number
        return None if thread.head is None else thread.head.commit.number

    def info(
        self, name: str, workflow: str | None, number: int, odd: str, pick: int, stamp: dict[str, str]
    ) -> CheckpointInfo | None:
        if workflow is None:
            return None
        self.made += 1
        known = self.known_ids(self.thread(name))
        new_id = known[pick % len(known)] if odd == "replaces" and known else f"{self.made:04x}"
        return CheckpointInfo(
            new_id, name, workflow, number, pick, None, stamp["timestamp"], stamp["run_id"], stamp["status"]
        )

    def known_ids(self, thread: Thread) -> list[str]:
        """Of checkpoints that another can take the place of: those of all threads."""
        return [one.info.checkpoint_id for one in self.model.order if one.info is not None]

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

    # ------------------------------------------------------------ removing, copying, closing

    @rule(name=NAMES, picks=st.sets(PICK), is_free=st.booleans())
    def prune(self, name: str, picks: set[int], is_free: bool) -> None:
        if is_free:
            self.release(name, 1)
        thread = self.thread(name)
        doomed = [one.info.checkpoint_id for index, one in enumerate(thread.checkpoints) if one.info and index in picks]
        head = thread.head
        if thread.owner is not None and head is not None and head.info and head.info.checkpoint_id in doomed:
            self.refused(self.store.prune(name, doomed), ThreadBusy)
            return
        assert self.do(self.store.prune(name, [*doomed, "none"])) == self.model.prune(name, doomed) == len(doomed)

    @rule(name=NAMES, pick=PICK)
    def delete(self, name: str, pick: int) -> None:
        if pick > 2:
            return  # seldom: it takes all that was done with it
        thread = self.thread(name)
        if thread.owner is not None:
            self.refused(self.store.delete_thread(name), ThreadBusy)
            return
        was_there = self.do(self.store.delete_thread(name))
        assert thread.is_empty or was_there
        if name in self.model.threads:
            self.model.delete(name)

    @rule(name=NAMES, to=NAMES)
    def copy(self, name: str, to: str) -> None:
        if self.thread(name).number == 0:
            return
        if to in self.model.threads:
            if not self.thread(to).is_empty:
                self.refused(self.store.copy_thread(name, to), ThreadBusy)
            return
        self.do(self.store.copy_thread(name, to))
        made = {one.number: one.checkpoint_id for one in self.do(self.store.infos(thread_id=to))}
        assert made.keys() == {one.commit.number for one in self.thread(name).checkpoints}
        self.model.copy(name, to, made)

    @rule(is_new=st.booleans())
    def close(self, is_new: bool) -> None:
        self.do(self.store.close())
        if is_new and self.kind in ON_DISK:
            self.store = STORES[self.kind](self.folder)

    # ------------------------------------------------------------ comparing

    @invariant()
    def both_hold_the_same(self) -> None:
        assert self.in_order(self.do(self.read())) == self.in_order(self.model.everything())

    def in_order(self, found: dict[str, Any]) -> dict[str, Any]:
        return found

    async def read(self) -> dict[str, Any]:
        store = self.store
        infos = await store.infos()
        threads = await store.threads()
        keys = [one.thread_id for one in threads]
        found = [await store.find_checkpoint(one.checkpoint_id) for one in infos]
        heads = {key: await store.head(key) for key in keys}
        return {
            "infos": [plain_info(one) for one in infos],
            "roots": [one and one.root for one in found],
            "threads": [tuple(getattr(one, name) for name in one.__struct_fields__) for one in threads],
            "requests": [(one.asked_at, one.thread_id, one.request_id) for one in await store.pending_requests()],
            "due": [one.thread_id for one in await store.due(FAR)],
            "heads": {key: one and one.info.checkpoint_id for key, one in heads.items()},
            "events": {
                key: [plain_events(one, one.run_id, one.timestamp) for one in await store.events_after(key, 0)]
                for key in keys
            },
            "chunks": {key: await chunks(store, key) for key in keys},
        }

    def teardown(self) -> None:
        try:
            for name in self.model.threads:
                self.open(name, takeover=True)  # also reads what only an owner can
        finally:
            self.do(self.store.close())
            self.runner.close()
            shutil.rmtree(self.folder)


def some_examples(count: int) -> settings:
    # Shrinking what failed takes minutes: `HOLDFAST_SOAK=1 pytest --timeout 1800` does it.
    few = settings(max_examples=count, stateful_step_count=30, phases=[Phase.generate], report_multiple_bugs=False)
    return settings(report_multiple_bugs=False) if SOAK else few


@pytest.mark.parametrize("kind", STORES)
def test_a_store_holds_what_the_model_holds_whatever_is_done_to_it(kind: str) -> None:
    factory = partial(Beside, kind)
    run_state_machine_as_test(factory, settings=some_examples(25))  # type: ignore[arg-type]  # a factory will do
