"""Other processes, for promises that hold across them: real ones, forked from a server that has perdure loaded."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeAlias

from tests.promises.stages import Stage
from tests.schemas import SCHEMAS, where

from perdure import InMemoryCheckpointStorage, ThreadBusy, Workflow
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.records import Commit, OpenedThread
from perdure.storages import FileCheckpointStorage, PostgresCheckpointStorage, SqliteCheckpointStorage

STORAGES: dict[str, Callable[..., StoreCheckpointStorage]] = {
    "memory": lambda folder, **options: InMemoryCheckpointStorage(**options),
    "file": lambda folder, **options: FileCheckpointStorage(folder / "threads", fsync=False, **options),
    "sqlite": lambda folder, **options: SqliteCheckpointStorage(folder / "threads.db", synchronous="NORMAL", **options),
    "postgres": lambda folder, **options: PostgresCheckpointStorage(
        where(folder).dsn, schema=where(folder).schema, **options
    ),
}
"""Every storage over a store. Syncing is not what these tests are about, and takes time."""

_TAKEN = """
SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = $1 AND c.relkind IN ('r', 'S')
"""

Make: TypeAlias = Callable[[Stage, Any], Workflow]
Report: TypeAlias = tuple[Any, ...]

# A child of the server starts in milliseconds, a Python of its own in hundreds. pytest is loaded too: a test module may
# hold what a child calls, and multiprocessing imports the script that the tests were started with.
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["pytest", "tests.promises.processes"])

SECONDS = 60.0
"""How long anything may take that is waited for; the machine may be busy."""


async def _next(pipe: Connection) -> Any:
    """Raises EOFError when the other end is closed: its process is gone."""
    loop = asyncio.get_running_loop()
    while not pipe.poll():
        readable = asyncio.Event()
        loop.add_reader(pipe.fileno(), readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(pipe.fileno())
    return pipe.recv()


# ---------------------------------------------------------------- in the other process


class FarStage(Stage):
    """Reports to the test what happens on it, and opens the gates that the test names."""

    def __init__(self, pipe: Connection, held: Iterable[str]) -> None:
        super().__init__()
        self.close(*held)
        self._pipe = pipe

    def report(self, *what: Any) -> None:
        self._pipe.send(what)

    async def play(self, executor_id: str, message: Any) -> None:
        self.report("entered", executor_id, message)
        await super().play(executor_id, message)

    async def listen(self) -> None:
        try:
            while True:
                self.gates[await _next(self._pipe)].set()
        except EOFError:
            os._exit(1)  # the test is gone

    def watch(self, storage: StoreCheckpointStorage) -> None:
        """Report what the store acknowledges, a thread that waits for a time, and a thread that another owner holds."""
        self.watch_journal(storage)
        open_thread, write = storage.store.open, storage.store.commit

        async def acknowledged(commit: Commit) -> None:
            await write(commit)
            self.report("committed", commit.number)
            if commit.due_at is not None:
                self.report("waits")

        async def open_and_report(thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
            try:
                return await open_thread(thread_id, owner, takeover=takeover)
            except ThreadBusy:
                self.report("busy", thread_id)
                raise

        storage.store.open = open_and_report  # type: ignore[method-assign]  # a tap on the real method
        storage.store.commit = acknowledged  # type: ignore[method-assign]  # another

    def journal_grew(self) -> None:
        self.report("recorded", self.recorded)


async def run(stage: FarStage, storage: StoreCheckpointStorage, make: Make, message: Any, options: Any) -> Any:
    """One run of a workflow; its outputs."""
    return (await make(stage, storage).run(message, **options)).get_outputs()


Act: TypeAlias = Callable[..., Awaitable[Any]]


async def _perform(pipe: Connection, place: Place, held: Iterable[str], act: Act, arguments: tuple[Any, ...]) -> Any:
    stage = FarStage(pipe, held)
    listening = asyncio.create_task(stage.listen())
    try:
        async with place.storage() as storage:
            stage.watch(storage)
            return await act(stage, storage, *arguments)
    finally:
        listening.cancel()
        await asyncio.wait([listening])


def _live(pipe: Connection, *arguments: Any) -> None:
    try:
        result = asyncio.run(_perform(pipe, *arguments))
    except Exception as error:  # noqa: BLE001  # reported to the test, which expects it or fails
        pipe.send(("raised", type(error).__name__, str(error)))
    else:
        pipe.send(("ended", result))


# ---------------------------------------------------------------- in the test


class Raised(Exception):
    """What ended the other process, by the name of its type."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


class Other:
    """Another process at work."""

    def __init__(self, process: Any, pipe: Connection) -> None:
        self._process = process
        self._pipe = pipe
        self.calls: list[str] = []
        """What its handlers got, as far as the test has received it."""
        self.committed = 0
        """The last commit that its store acknowledged."""

    async def _receive(self) -> Report:
        async with asyncio.timeout(SECONDS):
            report: Report = await _next(self._pipe)
        if report[0] == "entered":
            self.calls.append(f"{report[1]}({report[2]})")
        elif report[0] == "committed":
            self.committed = report[1]
        return report

    async def wait_for(self, *what: Any) -> None:
        """Wait until it reports this, and skip other reports. Raises Raised or EOFError if it ends before."""
        while (report := await self._receive())[: len(what)] != what:
            if report[0] == "raised":
                raise Raised(*report[1:])
            assert report[0] != "ended", f"it ended with {report[1]!r} without {what!r}"

    async def result(self) -> Any:
        """What its act returned. Raises Raised for what it raised."""
        while (report := await self._receive())[0] != "ended":
            if report[0] == "raised":
                raise Raised(*report[1:])
        self._process.join()
        return report[1]

    def open_gate(self, executor_id: str) -> None:
        self._pipe.send(executor_id)

    def stop(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    async def kill(self) -> None:
        """Kill it with SIGKILL, and receive what it reported before."""
        self._process.kill()
        self._process.join()
        try:
            while True:
                await self._receive()
        except (EOFError, ConnectionResetError):
            pass

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self._process.close()
        self._pipe.close()


@dataclass
class Place:
    """Where threads are kept, for this process and others."""

    kind: str
    folder: Path
    others: list[Other] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.kind == "postgres":
            where(self.folder)  # before others make what could be had

    def __reduce__(self) -> Any:
        return Place, (self.kind, self.folder)

    def storage(self, **options: Any) -> StoreCheckpointStorage:
        return STORAGES[self.kind](self.folder, **options)

    @property
    def database(self) -> Path:
        """The tables that record the owner of each thread."""
        assert self.kind != "postgres"
        return self.folder / ("threads.db" if self.kind == "sqlite" else "threads/index.db")

    def read(self, query: str) -> list[Any]:
        """From its tables, which are named with `{s}` before them."""
        if self.kind == "postgres":
            return list(SCHEMAS.fetch(self.folder, query.replace("{s}", "{s}.")))
        with closing(sqlite3.connect(self.database)) as db:
            return db.execute(query.replace("{s}", "")).fetchall()

    def change(self, *parameters: Any, sqlite: str = "", postgres: str = "") -> None:
        """One row of its tables, behind everybody's back: the statement for each kind, in PostgreSQL with `{s}.`."""
        if self.kind == "postgres":
            assert len(SCHEMAS.fetch(self.folder, f"{postgres} RETURNING 1", *parameters)) == 1
            return
        with closing(sqlite3.connect(self.database)) as db, db:
            assert db.execute(sqlite, parameters).rowcount == 1

    def on_disk(self) -> int:
        """Bytes that it takes there: of PostgreSQL all tables and indexes, with dead rows."""
        if self.kind == "postgres":
            return int(SCHEMAS.fetch(self.folder, _TAKEN, where(self.folder).schema)[0][0])
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    def start(self, act: Act, *arguments: Any, held: Iterable[str] = ()) -> Other:
        """Another process that does `act(stage, storage, *arguments)`: something on top of a module."""
        pipe, theirs = _SERVER.Pipe()
        process = _SERVER.Process(target=_live, args=(theirs, self, tuple(held), act, arguments))
        process.start()
        theirs.close()
        self.others.append(Other(process, pipe))
        return self.others[-1]

    def run(self, make: Make, message: Any = None, *, held: Iterable[str] = (), **options: Any) -> Other:
        """Another process that runs this workflow on thread `t`."""
        return self.start(run, make, message, {"thread_id": "t", **options}, held=held)

    def end(self) -> None:
        while self.others:
            self.others.pop().end()
