"""The machine's clock is set back, between runs and during one: order, sleeps and leases do not suffer."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, Never
from uuid import UUID

import pytest
from tests.crash import notes
from tests.crash.flows import Sleeper
from tests.crash.lives import PLACES
from tests.schemas import SCHEMAS

import perdure.checkpoints.checkpoint
import perdure.clock
from perdure import Executor, Workflow, WorkflowBuilder, WorkflowContext, handler
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.errors import ThreadBusy
from perdure.store import Store
from perdure.stores.file.store import FileStore
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing import FakeClock

HOUR = 3600.0


class MachineClock:
    """The system's own clock, and a way to set it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = 0.0
        real_time, real_time_ns, clock = time.time, time.time_ns, self

        class Now(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> Any:
                return datetime.now(tz) + timedelta(seconds=clock.ahead)

        monkeypatch.setattr(time, "time", lambda: real_time() + self.ahead)
        for module in (time, perdure.checkpoints.checkpoint):
            monkeypatch.setattr(module, "time_ns", lambda: real_time_ns() + int(self.ahead * 1e9))
        monkeypatch.setattr(perdure.clock, "datetime", Now)

    def set_back(self, seconds: float) -> None:
        self.ahead -= seconds

    def pass_by(self, seconds: float) -> None:
        self.ahead += seconds


@pytest.fixture
def machine_clock(monkeypatch: pytest.MonkeyPatch) -> MachineClock:
    return MachineClock(monkeypatch)


@pytest.fixture(autouse=True)
def _work_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(notes, "pace", 0)
    notes.begin_notes()
    yield
    notes.begin_notes()


STORES = {"file": PLACES["file, fsync=False"], "sqlite": PLACES["sqlite, NORMAL"], "postgres": PLACES["postgres"]}


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], StoreCheckpointStorage]:
    """Opens the same store again, as another process would."""
    made = STORES[request.param]
    return lambda: made(tmp_path)


class Diary(Executor):
    """Adds a line with each message. Sets the clock back in the middle of the message `then`."""

    def __init__(self, machine_clock: MachineClock) -> None:
        super().__init__("diary")
        self.machine_clock = machine_clock

    @handler
    async def add(self, line: str, ctx: WorkflowContext[str, list[str]]) -> None:
        if line == "then":
            self.machine_clock.set_back(HOUR)
        ctx.state.setdefault("lines", []).append(line)
        await (ctx.send_message("after that") if line == "then" else ctx.yield_output(ctx.state["lines"]))


def diary(storage: Any, machine_clock: MachineClock) -> Workflow:
    writing = Diary(machine_clock)
    builder = WorkflowBuilder(name="diary", start_executor=writing, checkpoint_storage=storage)
    return builder.add_edge(writing, writing).build()


async def test_checkpoints_keep_commit_order_when_the_clock_goes_back(
    place: Callable[[], StoreCheckpointStorage], machine_clock: MachineClock, tmp_path: Path
) -> None:
    for line in ("first", "then", "last"):
        async with place() as storage:
            await diary(storage, machine_clock).run(line, thread_id="diary")
        machine_clock.set_back(HOUR)
    (tmp_path / "threads" / "index.db").unlink(missing_ok=True)  # a file store reads all of it again
    async with place() as storage:
        infos = await storage.list_checkpoint_infos(thread_id="diary")
        times = [info.timestamp for info in infos]
        head = await storage.get_latest(thread_id="diary")
        older = await storage.list_checkpoint_infos(thread_id="diary", before=infos[4], limit=2)
    assert times != sorted(times)  # it did go back
    assert [info.number for info in infos] == sorted(info.number for info in infos)
    assert head is not None and head.state["lines"] == ["first", "then", "after that", "last"]
    assert older == infos[2:4]


async def test_the_thread_that_moved_last_is_listed_last(
    place: Callable[[], StoreCheckpointStorage], machine_clock: MachineClock
) -> None:
    async with place() as storage:
        for thread_id in ("a", "b", "c"):
            await diary(storage, machine_clock).run("once", thread_id=thread_id)
            machine_clock.set_back(HOUR)
        await diary(storage, machine_clock).run("again", thread_id="a")
        assert [thread.thread_id for thread in await storage.list_threads()] == ["b", "c", "a"]
        assert [thread.thread_id for thread in await storage.list_threads(before="c")] == ["b"]


# ---------------------------------------------------------------- sleeping


class SettableClock(FakeClock):
    """Its time of day can be set; what has passed cannot."""

    ahead = 0.0
    sleeps = 0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.ahead)

    async def sleep(self, seconds: float) -> None:
        self.sleeps += 1
        await super().sleep(seconds)


class Last(Executor):
    @handler
    async def take(self, text: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(text)


def sleeper(storage: Any, clock: FakeClock) -> Workflow:
    dozing = Sleeper("dozing")
    builder = WorkflowBuilder(name="sleeper", start_executor=dozing, checkpoint_storage=storage, clock=clock)
    return builder.add_edge(dozing, Last("last")).build()


async def test_sleeper_sleeps_on_when_the_clock_is_set_back_and_wakes_once(
    place: Callable[[], StoreCheckpointStorage],
) -> None:
    clock = SettableClock()
    async with place() as storage:
        run = asyncio.create_task(sleeper(storage, clock).run("go", thread_id="sleeper"))
        await clock.wait_for_sleepers()
        clock.ahead -= HOUR
        clock.advance(1)  # its time is up, but the clock says that it is not
        await clock.wait_for_sleepers()
        clock.advance(2 * HOUR)
        assert (await run).get_outputs() == ["#sleeper.dozing.before# #sleeper.dozing.after#"]
    assert clock.sleeps == 2  # it did not look again and again
    assert [line for line in notes.current.lines if line.startswith("begin")] == [
        "begin sleeper.dozing.before",
        "begin sleeper.dozing.after",
    ]


async def test_sleeper_resumed_after_the_clock_went_back_wakes_at_its_time(
    place: Callable[[], StoreCheckpointStorage],
) -> None:
    clock = SettableClock()
    async with place() as storage:
        run = asyncio.create_task(sleeper(storage, clock).run("go", thread_id="sleeper"))
        await clock.wait_for_sleepers()
        run.cancel()
        await asyncio.wait([run])
    clock.ahead -= HOUR
    async with place() as storage, clock.skipping():
        result = await sleeper(storage, clock).run(thread_id="sleeper")
    assert result.get_outputs() == ["#sleeper.dozing.before# #sleeper.dozing.after#"]
    assert notes.current.lines.count("begin sleeper.dozing.before") == 1
    assert clock.monotonic() > HOUR


# ---------------------------------------------------------------- leases

DATABASES: dict[str, tuple[Callable[[Path], FileStore | SqliteStore], str]] = {
    "file": (lambda folder: FileStore(folder / "threads", fsync=False), "threads/index.db"),
    "sqlite": (lambda folder: SqliteStore(folder / "threads.db", synchronous="NORMAL"), "threads.db"),
}


def move_owner_elsewhere(database: Path) -> None:
    """Move the owner into another container: whether it lives is not visible here, only its lease is."""
    with closing(sqlite3.connect(database)) as db, db:
        [(identity,)] = db.execute("SELECT identity FROM processes").fetchall()
        moved = {**json.loads(identity), "pid_namespace": "another", "token": "another"}
        db.execute("UPDATE processes SET identity = ?", (json.dumps(moved),))


def renew(database: Path) -> None:
    with closing(sqlite3.connect(database)) as db, db:
        db.execute("UPDATE processes SET leased_until = ? WHERE identity LIKE '%another%'", (time.time() + 10,))


@pytest.mark.parametrize("kind", DATABASES)
async def test_dead_owner_elsewhere_is_noticed_seconds_after_clock_set_back(
    kind: str, machine_clock: MachineClock, tmp_path: Path
) -> None:
    make, name = DATABASES[kind]
    dead, heir = make(tmp_path), make(tmp_path)
    await dead.open("t", "the dead one")
    move_owner_elsewhere(tmp_path / name)
    machine_clock.set_back(HOUR)
    with pytest.raises(ThreadBusy):
        await heir.open("t", "the heir")
    machine_clock.pass_by(12)
    assert (await heir.open("t", "the heir")).lease.fence == 2
    await dead.close()
    await heir.close()


@pytest.mark.parametrize("kind", DATABASES)
async def test_live_owner_elsewhere_keeps_its_thread_when_clock_is_set_back(
    kind: str, machine_clock: MachineClock, tmp_path: Path
) -> None:
    make, name = DATABASES[kind]
    owner, other = make(tmp_path), make(tmp_path)
    await owner.open("t", "the owner")
    move_owner_elsewhere(tmp_path / name)
    machine_clock.set_back(HOUR)
    for _ in range(5):
        with pytest.raises(ThreadBusy):
            await other.open("t", "the other")
        machine_clock.pass_by(3)
        renew(tmp_path / name)
    await owner.close()
    await other.close()


# ---------------------------------------------------------------- leases in PostgreSQL, which follow its clock


ELSEWHERE = UUID(int=1)


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[tuple[Store, Store]]:
    """One that owns thread `t`, in another container, and one that would like to."""
    owner, other = PLACES["postgres"](tmp_path).store, PLACES["postgres"](tmp_path).store
    await owner.open("t", "the owner")
    [(identity,)] = SCHEMAS.fetch(tmp_path, "SELECT identity FROM {s}.processes")
    moved = json.dumps({**json.loads(identity), "pid_namespace": "another", "token": "another"})
    SCHEMAS.fetch(tmp_path, "UPDATE {s}.processes SET identity = $1, process = $2", moved, ELSEWHERE)
    SCHEMAS.fetch(tmp_path, "UPDATE {s}.threads SET process = $1", ELSEWHERE)
    yield owner, other
    await owner.close()
    await other.close()


@pytest.mark.parametrize("hours", [-1, 1, 24])
async def test_owner_elsewhere_keeps_its_thread_at_any_local_clock(
    two: tuple[Store, Store], machine_clock: MachineClock, hours: int
) -> None:
    machine_clock.pass_by(hours * HOUR)
    with pytest.raises(ThreadBusy):
        await two[1].open("t", "the other")


@pytest.mark.parametrize("hours", [-24, 0, 1])
async def test_dead_owner_elsewhere_is_noticed_by_the_clock_of_the_server(
    two: tuple[Store, Store], machine_clock: MachineClock, hours: int, tmp_path: Path
) -> None:
    machine_clock.pass_by(hours * HOUR)
    SCHEMAS.fetch(tmp_path, "UPDATE {s}.processes SET leased_until = clock_timestamp() - interval '1 ms'")
    assert (await two[1].open("t", "the heir")).lease.fence == 2
