"""A process that owns a thread and is stopped, killed or busy, and another that wants the thread meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypedDict

from perdure import platform
from perdure.errors import ThreadBusy, ThreadConflict
from perdure.stores.postgres.store import PostgresStore
from perdure.testing.conformance.threads import ThreadOwner, own, read_as_owner, read_everything

THREAD = "wanted"
REFUSED = 3
"""What the stopped process ends with if all that it then tries is refused."""


class Stop(TypedDict):
    dsn: str
    schema: str
    is_elsewhere: bool
    """Whether the owner appears to run on another machine."""
    how: str
    """`takeover`, or `lease`: its lease runs out."""
    has_moved: bool
    """Whether the other has committed something when the owner continues. If not, only the fence separates them."""


# ---------------------------------------------------------------- the owner


async def _stop_in_mid_work(owner: ThreadOwner) -> int:
    await owner.save(brings=["mine"], events=1)
    await owner.record(1)
    next_one = owner.checkpoint(brings=["never to be stored"], events=1)
    os.kill(os.getpid(), signal.SIGSTOP)
    for tried in (owner.write(next_one), owner.record(2), owner.store.renew(owner.lease)):
        try:
            await tried
        except ThreadConflict:
            continue
        return 0
    await owner.release()  # harms no other owner
    return REFUSED


async def _stand_still(owner: ThreadOwner) -> int:
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(60)  # noqa: ASYNC251  # no task gets its turn
    return 0


@contextmanager
def _owner(order: Stop, work: Callable[[ThreadOwner], Awaitable[int]]) -> Iterator[int]:
    """The pid of a process that owns the thread and has stopped itself. It is gone at the end."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if order["is_elsewhere"]:
                platform.boot_id = lambda: "another one"  # type: ignore[assignment]  # this id distinguishes machines
            code = asyncio.run(_own_and_work(order, work))
        finally:
            os._exit(code)
    try:
        assert os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1])
        yield child
    finally:
        try:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        except (ProcessLookupError, ChildProcessError):
            pass  # it has ended by itself


async def _own_and_work(order: Stop, work: Callable[[ThreadOwner], Awaitable[int]]) -> int:
    return await work(await own(_store(order), THREAD, owner="first"))


def _store(order: Stop) -> PostgresStore:
    return PostgresStore(order["dsn"], schema=order["schema"])


# ---------------------------------------------------------------- another that wants its thread


def stopped(order: Stop, report_ready: Callable[[], object]) -> None:
    """Raises if anything of the stopped process is stored once another has its thread."""
    report_ready()
    store = _store(order)
    with _owner(order, _stop_in_mid_work) as child, asyncio.Runner() as runner:
        runner.run(_is_refused(store))
        if order["how"] == "lease":
            runner.run(let_time_pass(store))
        owner = runner.run(own(store, THREAD, owner="another", takeover=order["how"] == "takeover"))
        if order["has_moved"]:
            runner.run(owner.save(brings=["another's"], events=1))
        before = runner.run(read_everything(store, THREAD))
        os.kill(child, signal.SIGCONT)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == REFUSED
        assert runner.run(read_everything(store, THREAD)) == before
        runner.run(owner.save())  # it still owns it
        opened = runner.run(read_as_owner(store, THREAD))
        assert (opened["number"], opened["journal"]) == (2 + order["has_moved"], [])
        runner.run(store.close())


def killed(order: Stop, report_ready: Callable[[], object]) -> None:
    """Raises unless the thread of a killed process is free: at once here, after its lease if it ran elsewhere."""
    report_ready()
    store = _store(order)
    with asyncio.Runner() as runner:
        with _owner(order, _stop_in_mid_work):
            runner.run(_is_refused(store))
        if order["is_elsewhere"]:
            runner.run(_is_refused(store))
            runner.run(let_time_pass(store))
        else:  # no process waits for such a lease
            runner.run(store.db.rows("UPDATE {s}.processes SET leased_until = leased_until + interval '1 hour'"))
        owner = runner.run(own(store, THREAD, owner="another"))
        assert owner.number == 1 and len(owner.opened.journal) == 1
        runner.run(owner.save())
        runner.run(store.close())


def blocked(order: Stop, report_ready: Callable[[], object]) -> None:
    """Raises unless a process elsewhere whose event loop stands still keeps its thread."""
    report_ready()
    store = _store(order)
    with _owner(order, _stand_still) as child, asyncio.Runner() as runner:
        runner.run(let_time_pass(store))
        os.kill(child, signal.SIGCONT)
        patience = time.monotonic() + 15
        renewed = "SELECT bool_and(leased_until > clock_timestamp()) FROM {s}.processes"
        while not runner.run(store.db.value(renewed)):
            assert time.monotonic() < patience, "It does not renew its lease."
            time.sleep(0.05)
        runner.run(_is_refused(store))
        runner.run(store.close())


async def _is_refused(store: PostgresStore) -> None:
    try:
        await own(store, THREAD, owner="another")
    except ThreadBusy as busy:
        if busy.run_id == "first":
            return
    raise AssertionError("The owner has lost its thread although it may still be at work.")


async def let_time_pass(store: PostgresStore) -> None:
    """As much as a lease lasts, on the server's clock. Who is stopped or dead does not renew it."""
    await store.db.rows("UPDATE {s}.processes SET leased_until = leased_until - interval '10.1 seconds'")
