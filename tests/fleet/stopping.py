"""A process that owns a thread and is stopped, killed or busy, and one that wants the thread meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypedDict

from holdfast import platform
from holdfast.errors import ThreadBusy, ThreadConflict
from holdfast.stores.postgres import PostgresStore
from holdfast.testing.conformance.acts import Owner, everything, inside, own

THREAD = "wanted"
REFUSED = 3
"""What the stopped process ends with if all that it then tries is refused."""


class Stop(TypedDict):
    dsn: str
    schema: str
    is_elsewhere: bool
    """Whether it runs on another machine, as far as anybody can tell."""
    how: str
    """`takeover`, or `lease`: its lease runs out."""


def stopped(order: Stop, say_ready: Callable[[], object]) -> None:
    """Raises if anything of the stopped process is stored once another has its thread."""
    say_ready()
    child = _forked(order, _stop_in_mid_work)
    assert os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1])
    asyncio.run(_take_it(order, child))


async def _stop_in_mid_work(owner: Owner) -> int:
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
    await owner.release()  # harms nobody
    return REFUSED


async def _take_it(order: Stop, child: int) -> None:
    store = _store(order)
    try:
        await own(store, THREAD, owner="another")
    except ThreadBusy as busy:
        assert busy.owner == "first", busy
    else:
        raise AssertionError("A process that is only stopped has lost its thread.")
    if order["how"] == "lease":
        await let_time_pass(store)
    owner = await own(store, THREAD, owner="another", takeover=order["how"] == "takeover")
    await owner.save(brings=["another's"], events=1)
    before = await everything(store, THREAD)
    os.kill(child, signal.SIGCONT)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == REFUSED
    assert await everything(store, THREAD) == before
    await owner.save()  # it still owns it
    assert not (await inside(store, THREAD))["journal"]
    await store.close()


def killed(order: Stop, say_ready: Callable[[], object]) -> None:
    """Raises unless the thread of a killed process is free: at once here, after its lease if it ran elsewhere."""
    say_ready()
    child = _forked(order, _stop_in_mid_work)
    assert os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1])
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    asyncio.run(_inherit(order))


async def _inherit(order: Stop) -> None:
    store = _store(order)
    began = time.monotonic()
    if order["is_elsewhere"]:
        try:
            await own(store, THREAD, owner="another")
        except ThreadBusy:
            await let_time_pass(store)
        else:
            raise AssertionError("A process of another machine was taken for dead while it had its lease.")
    owner = await own(store, THREAD, owner="another")
    assert time.monotonic() - began < 3, "It waited for a lease."
    assert owner.number == 1 and len(owner.opened.journal) == 1
    await owner.save()
    await store.close()


def blocked(order: Stop, say_ready: Callable[[], object]) -> None:
    """Raises unless a process elsewhere whose event loop stands still keeps its thread."""
    say_ready()
    child = _forked(order, _stand_still)
    assert os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1])
    asyncio.run(_watch(order, child))


async def _stand_still(owner: Owner) -> int:
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(60)  # noqa: ASYNC251  # no task gets its turn
    return 0


async def _watch(order: Stop, child: int) -> None:
    store = _store(order)
    await let_time_pass(store)
    os.kill(child, signal.SIGCONT)
    patience = time.monotonic() + 8
    while not await store.db.value("SELECT max(leased_until) > clock_timestamp() FROM {s}.processes"):
        assert time.monotonic() < patience, "It does not renew its lease."
        await asyncio.sleep(0.05)
    try:
        await own(store, THREAD, owner="another")
    except ThreadBusy:
        pass
    else:
        raise AssertionError("It has lost its thread.")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    await store.close()


# ---------------------------------------------------------------- what they share


def _store(order: Stop) -> PostgresStore:
    return PostgresStore(order["dsn"], schema=order["schema"])


def _forked(order: Stop, work: Callable[[Owner], Awaitable[int]]) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        if order["is_elsewhere"]:
            platform.boot_id = lambda: "another machine"  # type: ignore[assignment]  # what tells machines apart
        code = asyncio.run(_own_and_work(order, work))
    finally:
        os._exit(code)


async def _own_and_work(order: Stop, work: Callable[[Owner], Awaitable[int]]) -> int:
    return await work(await own(_store(order), THREAD, owner="first"))


async def let_time_pass(store: PostgresStore) -> Any:
    """As much as a lease lasts, on the server's clock. Who is stopped or dead does not renew it."""
    await store.db.rows("UPDATE {s}.processes SET leased_until = leased_until - interval '10.1 seconds'")
