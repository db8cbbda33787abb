"""Random lives of threads beside a model of them: runs, crashes, resumes, forks, rewinds, pins, prunes and moves."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from tests.promises.processes import STORAGES
from tests.property.test_stores import some_examples

from perdure import Executor, Workflow, WorkflowBuilder, WorkflowContext, handler, response_handler
from perdure.checkpoints.history.retention import FullHistory, KeepLast, LatestOnly, Retention
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.errors import ThreadBusy, ThreadExists
from perdure.testing import Faults, ProcessGone

T = TypeVar("T")

NAMES = st.sampled_from(["a", "a", "a", "b", "c/d"])
PICK = st.integers(0, 9)
POINTS = st.sampled_from(["commit", "commit", "journal", "release"])
CRASH = st.tuples(POINTS, st.integers(1, 3), st.sampled_from(["before", "after"]))
CRASHES = st.one_of(st.none(), st.none(), CRASH)
KEPT = [(FullHistory(), None), (LatestOnly(), 1), (KeepLast(3), 3)]
LONG = "x" * 300
"""Such texts are cut out as chunks, which checkpoints share."""


# ---------------------------------------------------------------- the workflow


class Writer(Executor):
    @handler
    async def write(self, message: str, ctx: WorkflowContext[str]) -> None:
        ctx.set_state("said", [*ctx.get_state("said", []), message])
        await ctx.send_message(message)


class Asker(Executor):
    @handler
    async def ask(self, message: str, ctx: WorkflowContext[None, str]) -> None:
        if message.startswith("?"):
            await ctx.request_info(message, str, request_id=message[:8])

    @response_handler
    async def answered(self, question: str, answer: str, ctx: WorkflowContext[None, str]) -> None:
        ctx.set_state("said", [*ctx.get_state("said", []), answer])
        await ctx.yield_output(answer)


class Counter(Executor):
    @handler
    async def count(self, message: str, ctx: WorkflowContext[None, int]) -> None:
        for _ in range(5):
            await asyncio.sleep(0)  # so that the other one is recorded before this one ends
        count = ctx.private.get("heard", 0) + 1
        ctx.private["heard"] = count
        ctx.set_state("heard", count)
        await ctx.yield_output(count)


def build(storage: Any) -> Workflow:
    writer = Writer("writer")
    builder = WorkflowBuilder(name="talk", start_executor=writer, checkpoint_storage=storage)
    return builder.add_fan_out_edges(writer, [Asker("asker"), Counter("counter")]).build()


# ---------------------------------------------------------------- the model


@dataclass(frozen=True)
class Place:
    """Where a thread stands."""

    texts: tuple[str, ...] = ()
    count: int = 0
    asks: tuple[str, ...] = ()
    outputs: tuple[Any, ...] = ()
    due: tuple[str, str] | None = None

    def with_message(self, message: str) -> Place:
        return replace(self, due=("write", message), outputs=())

    def answered(self, request_id: str, answer: str) -> Place:
        asks = tuple(asked for asked in self.asks if asked != request_id)
        return replace(self, due=("answer", answer), asks=asks, outputs=())

    def next(self) -> Place:
        assert self.due is not None
        kind, text = self.due
        if kind == "write":
            return replace(self, texts=(*self.texts, text), due=("hear", text))
        if kind == "answer":
            return replace(self, texts=(*self.texts, text), due=None, outputs=(*self.outputs, text))
        asks = (*self.asks, text[:8]) if text.startswith("?") else self.asks
        count = self.count + 1
        return replace(self, asks=asks, count=count, outputs=(*self.outputs, count), due=None)

    @property
    def status(self) -> str:
        if self.due is None:
            return "IDLE_WITH_PENDING_REQUESTS" if self.asks else "IDLE"
        return "IN_PROGRESS_PENDING_REQUESTS" if self.asks else "IN_PROGRESS"

    @property
    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = {"said": [*self.texts]} if self.texts else {}
        return {**state, "heard": self.count} if self.count else state

    def to_the_end(self) -> list[Place]:
        places, at = list[Place](), self
        while at.due is not None:
            places.append(at := at.next())
        return places


@dataclass
class Made:
    """A checkpoint."""

    number: int
    place: Place
    before: Made | None
    id: str = ""
    is_pinned: bool = False
    is_kept: bool = True

    @property
    def previous(self) -> Made | None:
        """The nearest before it that is kept."""
        at = self.before
        while at is not None and not at.is_kept:
            at = at.before
        return at

    @property
    def line(self) -> list[Made]:
        """All that is kept and leads to it, newest first."""
        return [self, *(self.previous.line if self.previous else ())]


@dataclass
class Life:
    """A thread."""

    made: list[Made] = field(default_factory=list)
    number: int = 0
    """Its last commit. A commit with events alone has no checkpoint."""

    @property
    def kept(self) -> list[Made]:
        return [checkpoint for checkpoint in self.made if checkpoint.is_kept]

    @property
    def head(self) -> Made:
        return self.made[-1]

    def add(self, place: Place, before: Made | None, keep_last: int | None) -> None:
        self.number += 1
        self.made.append(Made(self.number, place, before))
        if keep_last is not None:
            self.prune(keep_last)

    def beyond(self, keep_last: int) -> list[Made]:
        stays = self.head.line[:keep_last]
        return [checkpoint for checkpoint in self.kept if checkpoint not in stays and not checkpoint.is_pinned]

    def prune(self, keep_last: int) -> None:
        for checkpoint in self.beyond(keep_last):
            checkpoint.is_kept = False


# ---------------------------------------------------------------- both


class Lives(RuleBasedStateMachine):
    """Threads of one workflow, moved by an object that lives on, by new ones, and by the storage alone."""

    def __init__(self, kind: str, retention: Retention, keeps: int | None) -> None:
        super().__init__()
        self.kind, self.retention, self.keeps = kind, retention, keeps
        self.folder = Path(tempfile.mkdtemp())
        self.runner = asyncio.Runner()
        self.opened: list[StoreCheckpointStorage] = []
        self.reopen()
        self.lives: dict[str, Life] = {}
        self.held: set[str] = set()  # threads whose owner crashed
        self.count = 0

    def do(self, act: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(act)

    def teardown(self) -> None:
        assert self.do(self.storage.verify()) == []
        for storage in self.opened:
            self.do(storage.close())
        self.runner.close()
        shutil.rmtree(self.folder)

    def new(self, what: str) -> str:
        self.count += 1
        return f"{what}{self.count:04} {LONG}"

    def by(self, pick: int) -> Workflow:
        return build(self.storage) if pick % 2 else self.workflow

    def place(self, name: str) -> Place:
        return self.lives[name].head.place if name in self.lives else Place()

    @rule(name=NAMES, mark=st.sampled_from("?!"), pick=PICK, crash=CRASHES)
    def send(self, name: str, mark: str, pick: int, crash: Any) -> None:
        if (at := self.place(name)).due is None:
            message = self.new(mark)
            self.move(name, at.with_message(message), pick, crash, message=message)

    @rule(name=NAMES, pick=PICK, crash=CRASHES)
    def answer(self, name: str, pick: int, crash: Any) -> None:
        at = self.place(name)
        if at.asks and at.due is None:
            request_id, answer = at.asks[pick % len(at.asks)], self.new("=")
            self.move(name, at.answered(request_id, answer), pick, crash, responses={request_id: answer})

    @rule(name=NAMES, pick=PICK, crash=CRASHES)
    def resume(self, name: str, pick: int, crash: Any) -> None:
        if name in self.lives:
            self.move(name, None, pick, crash)

    def move(self, name: str, entry: Place | None, pick: int, crash: Any, **arguments: Any) -> None:
        if name in self.held and pick == 0:
            with pytest.raises(ThreadBusy):
                self.do(self.workflow.run(thread_id=name, **arguments))
            return
        places = self.place(name).to_the_end() if entry is None else [entry, *entry.to_the_end()]
        faults, stored = Faults(), list[str]()
        faults.watch(lambda point, _: stored.append(point))
        if crash is not None:
            faults.crash(crash[0], nth=crash[1], when=crash[2])
        workflow = self.by(pick) if crash is None else build(faults.wrap(self.storage))
        try:
            result = self.do(workflow.run(thread_id=name, takeover=name in self.held, **arguments))
        except ProcessGone:
            done = stored.count("commit")
            (self.held.discard if "release" in stored else self.held.add)(name)
        else:
            self.held.discard(name)
            done = max(len(places), 1)
            at = places[-1] if places else self.place(name)
            assert result.get_outputs() == [*at.outputs]
            assert result.get_final_state() == at.status
        if not places:
            self.lives[name].number += done
        for place in places[:done]:
            life = self.lives.setdefault(name, Life())
            life.add(place, life.made[-1] if life.made else None, self.keeps)
        self.learn(name)

    def learn(self, name: str) -> None:
        """The ids of what was made."""
        if name in self.lives:
            ids = {info.number: info.checkpoint_id for info in self.do(self.storage.history(name))}
            for checkpoint in self.lives[name].kept:
                checkpoint.id = checkpoint.id or ids[checkpoint.number]

    def chosen(self, name: str | None) -> list[Life]:
        return [life for key, life in self.lives.items() if name in (None, key)]

    def some(self, pick: int, name: str | None = None) -> Made | None:
        known = [checkpoint for life in self.chosen(name) for checkpoint in life.kept]
        return known[-1 - pick % len(known)] if known else None

    def any_of(self, pick: int) -> Any:
        return self.storage if pick % 3 else self.by(pick)

    @rule(pick=PICK, to=NAMES, is_edited=st.booleans())
    def fork(self, pick: int, to: str, is_edited: bool) -> None:
        source, text = self.some(pick), self.new("edited")
        if source is None:
            return
        update = {"said": [text]} if is_edited else None
        act = self.any_of(pick).fork(source.id, thread_id=to, update_state=update)
        if to in self.lives or to in self.held:
            with pytest.raises(ThreadExists):
                self.do(act)
            return
        made = self.do(act)
        place = replace(source.place, texts=(text,)) if is_edited else source.place
        self.lives[to] = Life([Made(1, place, None, made.checkpoint_id)], 1)

    @rule(name=NAMES, pick=PICK, takeover=st.booleans())
    def rewind(self, name: str, pick: int, takeover: bool) -> None:
        target = self.some(pick, name)
        if target is not None:
            self.put(name, target, self.any_of(pick).rewind(name, target.id, takeover=takeover), takeover=takeover)

    @rule(name=NAMES, pick=PICK, takeover=st.booleans())
    def save(self, name: str, pick: int, takeover: bool) -> None:
        if name in self.lives:
            act = self.any_of(pick).checkpoint(name, takeover=takeover)
            self.put(name, self.lives[name].head, act, takeover=takeover)

    def put(self, name: str, target: Made, act: Coroutine[Any, Any, object], *, takeover: bool) -> None:
        if name in self.held and not takeover:
            with pytest.raises(ThreadBusy):
                self.do(act)
            return
        self.do(act)
        self.held.discard(name)
        self.lives[name].add(target.place, target, self.keeps)
        self.learn(name)

    @rule(name=NAMES, pick=PICK, is_pinned=st.booleans(), goes_on=st.booleans())
    def pin(self, name: str, pick: int, is_pinned: bool, goes_on: bool) -> None:
        known = [
            checkpoint for life in self.chosen(name) for checkpoint in life.kept if is_pinned or checkpoint.is_pinned
        ]
        for checkpoint in known[-1 - pick :][:1]:
            self.do(self.storage.pin(checkpoint.id) if is_pinned else self.workflow.unpin(checkpoint.id))
            checkpoint.is_pinned = is_pinned
        if goes_on:
            self.send(name, "!", 2, None)

    @rule(name=st.none() | NAMES, keep_last=st.integers(1, 4))
    def prune(self, name: str | None, keep_last: int) -> None:
        if name is not None and name not in self.lives:
            return
        expected = sum(len(life.beyond(keep_last)) for life in self.chosen(name))
        for is_dry in (True, False):
            report = self.do(self.storage.prune(keep_last=keep_last, thread_id=name, dry_run=is_dry))
            assert report.checkpoints == expected
        for life in self.chosen(name):
            life.prune(keep_last)

    @rule(name=NAMES, through=st.sampled_from([*STORAGES]))
    def send_away_and_fetch_back(self, name: str, through: str) -> None:
        """By way of a file, and of a storage of another kind."""
        if name not in self.lives or name in self.held:
            return
        with tempfile.TemporaryDirectory() as folder:
            there, back = Path(folder) / "there", Path(folder) / "back"
            self.do(self.storage.export_thread(name, there))
            assert self.do(self.storage.delete_thread(name))
            other = STORAGES[through](Path(folder))
            self.do(other.import_thread(there))
            self.do(other.export_thread(name, back))
            self.do(other.close())
            self.do(self.storage.import_thread(back))

    @rule()
    def reopen(self) -> None:
        """As a new process would, while the one before it has closed and released nothing."""
        if self.opened and self.kind == "memory":
            return
        self.storage = STORAGES[self.kind](self.folder, retention=self.retention)
        self.workflow = build(self.storage)
        self.opened.append(self.storage)

    @invariant()
    def both_are_equal(self) -> None:
        threads = {thread.thread_id: thread for thread in self.do(self.storage.list_threads())}
        assert threads.keys() == self.lives.keys()
        for name, life in self.lives.items():
            thread = threads[name]
            assert (thread.number, thread.status) == (life.number, life.head.place.status)
            assert thread.checkpoint_id == life.head.id and (thread.run_id is not None) == (name in self.held)
            self.do(self.compare(name, life))
        asked = {(name, request_id) for name, life in self.lives.items() for request_id in life.head.place.asks}
        assert {
            (request.thread_id, request.request_id) for request in self.do(self.storage.pending_requests())
        } == asked

    async def compare(self, name: str, life: Life) -> None:
        infos = (await self.storage.history(name))[::-1]
        assert [(info.checkpoint_id, info.number, info.status, info.is_pinned) for info in infos] == [
            (checkpoint.id, checkpoint.number, checkpoint.place.status, checkpoint.is_pinned)
            for checkpoint in life.kept
        ]
        branches = await self.workflow.branches(name)
        assert branches.head.checkpoint_id == life.head.id
        for made in life.kept:
            assert [checkpoint.checkpoint_id for checkpoint in branches.line(made.id)] == [
                checkpoint.id for checkpoint in made.line[::-1]
            ]
        newest = {branch.newest.checkpoint_id for branch in branches}
        continued = {id(checkpoint.previous) for checkpoint in life.kept}
        assert newest == {checkpoint.id for checkpoint in life.kept if id(checkpoint) not in continued}
        for made, loaded in zip(life.kept, await self.storage.list_checkpoints(thread_id=name), strict=True):
            assert loaded.state == made.place.state
            assert [*loaded.pending_request_info_events] == [*made.place.asks]
            assert [output.data for output in loaded.outputs] == [*made.place.outputs]


@pytest.mark.parametrize(("retention", "keeps"), KEPT, ids=str)
@pytest.mark.parametrize("kind", STORAGES)
def test_threads_match_the_model_after_random_operations(kind: str, retention: Any, keeps: int | None) -> None:
    factory: Any = partial(Lives, kind, retention, keeps)
    run_state_machine_as_test(factory, settings=some_examples(6))
