"""Several processes on one store: races that one wins, and owners that are killed or stopped."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.schemas import SCHEMAS

from perdure.errors import ThreadBusy
from perdure.store import Store
from perdure.testing.conformance.threads import at, checkpoint_ids, chunks, own, read_as_owner, save_thread, thread_ids

ROOT = Path(__file__).parents[2]
PLACES = {"sqlite": "threads.db", "file": "threads/index.db"}
"""Where stores in files say who owns what."""


class Child:
    """A process that does what it is told with a store of its own."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.contract.child"]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def ask(self, *act: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(act) + "\n")
        self.process.stdin.flush()

    def hear(self) -> list[Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the child has ended"
        told: list[Any] = json.loads(line)
        return told

    def do(self, *act: Any) -> Any:
        """What came of it, which must be well."""
        self.ask(*act)
        outcome, value = self.hear()
        assert outcome == "done", value
        return value

    def is_refused(self, *act: Any) -> str:
        self.ask(*act)
        outcome, value = self.hear()
        assert outcome == "refused", value
        return str(value)

    def send(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)
        if number == signal.SIGSTOP:
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)
        elif number == signal.SIGKILL:  # it has ended, and nobody has waited for it: as a crash looks at first
            os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def processes() -> Iterator[list[Child]]:
    """Two that live through all tests of this file: starting one takes as long as many tests."""
    made = [Child(), Child()]
    yield made
    for one in made:
        one.end()


@pytest.fixture
def children(processes: list[Child], kind: str, tmp_path: Path) -> list[Child]:
    for index, one in enumerate(processes):
        if one.process.poll() is not None:
            one.end()
            processes[index] = Child()
    for one in processes:
        one.do("use", kind, str(tmp_path))
    return processes


@pytest.fixture
def here(another: Callable[[], Store]) -> Store:
    """The store as this process sees it."""
    return another()


def both(children: list[Child], *acts: list[Any]) -> list[list[Any]]:
    """Told at once, then heard."""
    for child, act in zip(children, acts, strict=True):
        child.ask(*act)
    return [child.hear() for child in children]


async def test_of_two_processes_that_open_one_thread_one_gets_it(here: Store, children: list[Child]) -> None:
    for turn in range(25):
        told = both(children, ["open", f"t{turn}", "run-1"], ["open", f"t{turn}", "run-2"])
        assert sorted(outcome for outcome, _ in told) == ["done", "refused"]
        assert ["refused", "ThreadBusy"] in told
        winner = [outcome for outcome, _ in told].index("done")
        with pytest.raises(ThreadBusy, match=f"run-{winner + 1}"):
            await here.open(f"t{turn}", "run-3")


async def test_of_two_processes_that_write_one_commit_with_one_fence_one_does(
    here: Store, children: list[Child]
) -> None:
    for turn in range(25):
        lease = (await here.open(f"t{turn}", "run-1")).lease
        for child in children:
            child.do("lend", lease.thread_id, lease.owner, lease.fence)
        told = both(children, ["save", f"t{turn}", f"a{turn}"], ["save", f"t{turn}", f"b{turn}"])
        assert sorted(outcome for outcome, _ in told) == ["done", "refused"]
        assert ["refused", "ThreadConflict"] in told
        winner = "ab"[[outcome for outcome, _ in told].index("done")]
        assert await checkpoint_ids(here, thread_id=f"t{turn}") == [f"{winner}{turn}"]
        assert len(await here.events_after(f"t{turn}", 0)) == 1


async def test_what_one_process_wrote_another_sees_at_once(here: Store, children: list[Child]) -> None:
    one, two = children
    for turn in range(5):
        one.do("open", "t", f"run-{turn}")
        one.do("save", "t", f"c{turn}")
        assert two.do("head", "t") == f"c{turn}" and (await checkpoint_ids(here))[-1] == f"c{turn}"
        assert two.is_refused("open", "t", "run-x") == "ThreadBusy"
        one.do("release", "t")
    two.do("post", "t", "item")
    assert [item for item, _, _ in (await read_as_owner(here, "t"))["inbox"]] == ["item"]


async def test_processes_that_move_threads_of_their_own_do_not_disturb_each_other(
    here: Store, children: list[Child]
) -> None:
    both(children, ["open", "a", "run-1"], ["open", "b", "run-2"])
    for turn in range(30):
        told = both(children, ["save", "a", f"a{turn}"], ["save", "b", f"b{turn}"])
        assert told == [["done", turn + 1], ["done", turn + 1]]
    assert len(await checkpoint_ids(here, thread_id="a")) == len(await checkpoint_ids(here, thread_id="b")) == 30
    assert len(await chunks(here, "a")) == 30


async def test_an_owner_that_was_killed_is_noticed_at_once(here: Store, children: list[Child]) -> None:
    one, two = children
    await save_thread(here, "t", due_at=at(1))
    one.do("open", "t", "run-1")
    one.do("open", "u", "run-1")
    one.do("save", "u", "u1")
    assert two.is_refused("open", "t", "run-2") == "ThreadBusy" and list(await here.due(at(2))) == []
    one.send(signal.SIGKILL)
    assert [info.thread_id for info in await here.due(at(2))] == ["t"]  # nobody owns it any more
    assert [info.run_id for info in await here.threads()] == [None, None]
    assert two.do("open", "t", "run-2") == 1
    assert await here.delete_thread("u") is True
    two.do("save", "t", "t2")
    one.end()


def change_owner(kind: str, folder: Path, leased_until: float) -> None:
    """Make whoever owns a thread a process of another machine, behind everybody's back."""
    of_postgres = """
        UPDATE {s}.processes SET leased_until = to_timestamp($1),
          identity = (identity::jsonb || '{"boot_id": "another machine"}')::text
          WHERE process = (SELECT process FROM {s}.threads WHERE thread_id = 't')
    """
    of_sqlite = """
        UPDATE processes SET leased_until = ?, identity = json_set(identity, '$.boot_id', 'another machine')
          WHERE process = (SELECT process FROM threads WHERE thread_id = 't')
    """
    if kind == "postgres":
        SCHEMAS.fetch(folder, of_postgres, leased_until)
        return
    with closing(sqlite3.connect(folder / PLACES[kind], isolation_level=None)) as db:
        db.execute(of_sqlite, (leased_until,))


async def test_an_owner_that_was_killed_elsewhere_is_listed_until_its_lease_ends(
    kind: str, tmp_path: Path, another: Callable[[], Store], children: list[Child]
) -> None:
    children[0].do("open", "t", "run-1")
    children[0].do("save", "t", "t1")
    here = another()

    async def owners() -> list[str | None]:
        return [one.run_id for one in await here.threads(prefix="t", statuses={"IDLE"})]

    assert await owners() == ["run-1"]
    children[0].send(signal.SIGKILL)
    change_owner(kind, tmp_path, time.time() + 60)
    assert await owners() == ["run-1"], "nobody here can see that it is dead"
    change_owner(kind, tmp_path, time.time() - 1)
    assert await owners() == [None]
    children[0].end()


async def test_an_owner_that_was_stopped_is_alive_and_holds_up_nobody_else(here: Store, children: list[Child]) -> None:
    one, two = children
    one.do("open", "t", "run-1")
    one.do("save", "t", "t1")
    one.send(signal.SIGSTOP)
    try:
        assert two.is_refused("open", "t", "run-2") == "ThreadBusy"
        with pytest.raises(ThreadBusy):
            await here.delete_thread("t")
        two.do("open", "u", "run-2")
        two.do("save", "u", "u1")
        two.do("post", "t", "item")
        two.do("release", "u")
        assert two.do("head", "t") == "t1"
        await save_thread(here, "v")
        assert await thread_ids(here) == ["t", "u", "v"]
    finally:
        one.send(signal.SIGCONT)
    one.do("save", "t", "t2")


async def test_a_stopped_owner_that_goes_on_after_a_takeover_is_refused(here: Store, children: list[Child]) -> None:
    one, _ = children
    one.do("open", "t", "run-1")
    one.do("save", "t", "old")
    one.send(signal.SIGSTOP)
    try:
        owner = await own(here, "t", owner="run-2", takeover=True)
        await owner.save("new")
    finally:
        one.send(signal.SIGCONT)
    assert one.is_refused("save", "t", "late") == "ThreadConflict"
    one.do("release", "t")  # leaves the new owner alone
    await owner.save("newer")
    assert await checkpoint_ids(here) == ["old", "new", "newer"] and await here.find_checkpoint("late") is None
    assert len(await here.events_after("t", 0)) == 1


async def test_a_killed_process_leaves_all_that_was_acknowledged(here: Store, children: list[Child]) -> None:
    one, _ = children
    one.do("open", "t", "run-1")
    for number in range(1, 6):
        assert one.do("save", "t", f"c{number}") == number
    one.do("post", "t", "item")
    one.send(signal.SIGKILL)
    assert await checkpoint_ids(here) == ["c1", "c2", "c3", "c4", "c5"] and len(await chunks(here, "t")) == 5
    owner = await own(here, "t")
    assert (owner.number, [item.item_id for item in owner.opened.inbox]) == (5, ["item"])
    await owner.save()
    one.end()
