"""Random acts on a store and on the model beside it: whatever can be read of one can be read of the other."""

from __future__ import annotations

import tempfile
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings, strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test
from tests.conformance.stores import ON_DISK, STORES
from tests.conformance.whole_threads import read_out
from tests.conftest import SOAK
from tests.property.store_model import Thread
from tests.property.store_owners import NAMES, PICK, OwnersBeside
from tests.property.store_reading import all_of_model, all_of_store, check_chunks, check_commits, check_cursors
from tests.schemas import SCHEMAS

from perdure.errors import CheckpointNotFound, ThreadBusy, ThreadExists
from perdure.records import Commit, ThreadHeader

THROUGH = st.sampled_from([None, None, None, *STORES])


class Beside(OwnersBeside):
    """All that is done to a store: also what keeps, removes, copies and moves whole threads, and closes it."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.away: dict[str, tuple[ThreadHeader, list[Commit], Thread]] = {}
        """Threads that were read out."""

    # ------------------------------------------------------------ keeping and removing

    @rule(pick=PICK, is_pinned=st.booleans())
    def pin(self, pick: int, is_pinned: bool) -> None:
        known = [*(kept.info.checkpoint_id for kept in self.model.order if kept.info is not None), "none"]
        checkpoint_id = known[-1 - pick % len(known)]
        if checkpoint_id == "none":
            act = self.store.pin(checkpoint_id) if is_pinned else self.store.unpin(checkpoint_id)
            self.refused(act, CheckpointNotFound)
        else:
            self.set_pin(checkpoint_id, is_pinned=is_pinned)

    def set_pin(self, checkpoint_id: str, *, is_pinned: bool) -> None:
        self.do(self.store.pin(checkpoint_id) if is_pinned else self.store.unpin(checkpoint_id))
        self.model.pin(checkpoint_id, is_pinned=is_pinned)

    @rule(
        name=NAMES,
        picks=st.sets(st.integers(0, 4)),
        pins=st.sets(st.integers(0, 4), max_size=1),
        is_free=st.sampled_from([True, True, False]),
        before=st.sampled_from([0, 0, 0, 1, 2, 4, 6]),
    )
    def prune(self, name: str, picks: set[int], pins: set[int], is_free: bool, before: int) -> None:
        if is_free:
            self.release(name, 1)
        thread, head = self.thread(name), self.thread(name).head
        known = [kept.info.checkpoint_id for kept in thread.checkpoints if kept.info]
        for checkpoint_id in (known_id for index, known_id in enumerate(known) if index in pins):
            self.set_pin(checkpoint_id, is_pinned=True)
        doomed = [known_id for index, known_id in enumerate(known) if index in picks]
        is_head_doomed = bool(doomed) and doomed[-1] == known[-1]
        if thread.owner is not None and head is not None and is_head_doomed and head.number not in thread.pins:
            self.refused(self.store.prune(name, doomed, events_before=before), ThreadBusy)
            return
        count = self.do(self.store.prune(name, [*doomed, "none"], events_before=before))
        assert count == self.model.prune(name, doomed, before)

    @rule(name=NAMES, pick=PICK, since=st.none() | st.integers(0, 1))
    def delete(self, name: str, pick: int, since: int | None) -> None:
        if pick > 2:
            return  # seldom: it takes all that was done with it
        thread = self.thread(name)
        last = None if since is None else thread.number - since
        if thread.owner is not None:
            self.refused(self.store.delete_thread(name, if_unmoved_since=last), ThreadBusy)
            return
        was_there = self.do(self.store.delete_thread(name, if_unmoved_since=last))
        if last is not None and (since or thread.inbox or thread.pins):
            assert was_there is False
            return
        assert thread.is_empty or was_there
        if name in self.model.threads:
            self.model.delete(name)

    # ------------------------------------------------------------ whole threads

    @rule(name=NAMES, to=NAMES)
    def copy(self, name: str, to: str) -> None:
        if self.thread(name).number == 0:
            return
        if to in self.model.threads:
            if not self.thread(to).is_empty:
                self.refused(self.store.copy_thread(name, to), ThreadBusy)
            return
        self.do(self.store.copy_thread(name, to))
        made = {info.number: info.checkpoint_id for info in self.do(self.store.infos(thread_id=to))}
        assert made.keys() == {kept.number for kept in self.thread(name).checkpoints}
        self.model.copy(name, to, made)

    @rule(name=NAMES, through=THROUGH, moves=st.booleans(), page=st.none() | st.integers(1, 4))
    def take_out(self, name: str, through: str | None, moves: bool, page: int | None) -> None:
        """As it is stored, perhaps by way of a store of another kind; and mostly to be put back elsewhere in time."""
        thread = self.thread(name)
        if thread.is_empty:
            return
        standing, commits = self.do(read_out(self.store, name, page))
        check_commits(thread, commits)
        if through is not None:
            standing, commits = self.do(self.handed_through(through, standing, commits))
            check_commits(thread, commits)
        self.away[name] = standing, commits, self.model.read_out(name)
        if moves:
            self.release(name, 1)
            self.delete(name, 0, None)

    async def handed_through(
        self, kind: str, standing: ThreadHeader, commits: list[Commit]
    ) -> tuple[ThreadHeader, list[Commit]]:
        with tempfile.TemporaryDirectory() as folder, SCHEMAS.lent():
            other = STORES[kind](Path(folder))
            await other.add_thread(standing, iter(commits))
            result = await read_out(other, standing.thread_id)
            assert result[0].fence >= standing.fence
            await other.close()
        return result

    @precondition(lambda self: self.away)
    @rule(pick=PICK)
    def put_in(self, pick: int) -> None:
        name = [*self.away][pick % len(self.away)]
        standing, commits, was = self.away[name]
        there = self.thread(name)
        taken = {kept.info.checkpoint_id for kept in self.model.order if kept.info is not None}
        is_taken = any(kept.info is not None and kept.info.checkpoint_id in taken for kept in was.commits)
        if not there.is_empty or there.owner is not None or is_taken:
            self.refused(self.store.add_thread(standing, iter(commits)), ThreadExists)
            return
        self.do(self.store.add_thread(standing, iter(commits)))
        made = deepcopy(was)
        made.fence = max(standing.fence, there.fence)
        self.model.add(name, made)

    @rule(is_new=st.booleans())
    def close(self, is_new: bool) -> None:
        self.do(self.store.close())
        if is_new and self.kind in ON_DISK:
            self.store = STORES[self.kind](self.folder)

    # ------------------------------------------------------------ comparing

    @invariant()
    def both_hold_the_same(self) -> None:
        assert self.in_order(self.do(all_of_store(self.store))) == self.in_order(all_of_model(self.model))
        self.do(check_chunks(self.model, self.store))
        self.do(check_cursors(self.model, self.store))

    @rule()
    def it_is_sound(self) -> None:
        assert list(self.do(self.store.check())) == []

    def in_order(self, content: dict[str, Any]) -> dict[str, Any]:
        return content


EXAMPLES = {"memory": 40, "sqlite": 20, "file": 20, "postgres": 5}
"""As many as a few seconds are enough for."""


def some_examples(count: int) -> settings:
    # Shrinking what failed takes minutes: `PERDURE_SOAK=1 pytest --timeout 1800` does it.
    few = settings(max_examples=count, stateful_step_count=30, phases=[Phase.generate], report_multiple_bugs=False)
    long = settings(max_examples=min(settings().max_examples, 200 * count), report_multiple_bugs=False)
    return long if SOAK else few


@pytest.mark.parametrize("kind", STORES)
def test_store_matches_the_model_after_random_operations(kind: str) -> None:
    factory = partial(Beside, kind)
    run_state_machine_as_test(factory, settings=some_examples(EXAMPLES[kind]))  # type: ignore[arg-type]  # a factory will do
