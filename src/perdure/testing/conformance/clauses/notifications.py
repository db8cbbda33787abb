"""Listening to a thread: what is told is heard, and so is that something happened; nobody ever waits for it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from perdure.store import Listener, Store
from perdure.testing.conformance.clause import Needs, clause, clause_with
from perdure.testing.conformance.support.acts import own
from perdure.testing.conformance.support.expectations import holds, same
from perdure.testing.conformance.support.location import TrialLocation

LONG_SECONDS = 2.0
"""Longer than any listener may take to notice that something has happened, or to look whether something has."""
MANY = 3000


async def noticed(listener: Listener, what: str, act: Callable[[], Awaitable[object]]) -> None:
    """The listener comes back, long before its time is up."""
    await act()
    began = time.monotonic()
    heard = await listener.next(LONG_SECONDS)
    same(f"what is heard after {what}", heard, None)
    holds(time.monotonic() - began < LONG_SECONDS - 0.4, f"{what} is not heard, and nobody is told to look")


async def bodies(listener: Listener, count: int) -> list[bytes]:
    """So many that were told, past all that was only a change."""
    found: list[bytes] = []
    until = time.monotonic() + LONG_SECONDS
    while len(found) < count and time.monotonic() < until:
        heard = await listener.next(until - time.monotonic())
        if heard is not None:
            found.append(heard)
    return found


@clause
async def what_is_told_is_heard_by_all_who_listen_to_the_thread_and_in_order(store: Store) -> None:
    """Pass on what is not kept to those who listen to the thread now."""
    store.tell("t", b'"before anybody listens"')
    async with store.listen("t") as one, store.listen("t") as two, store.listen("u") as other:
        for body in (b'"a"', b'{"b":1}', b'"c"'):
            store.tell("t", body)
        store.tell("u", b'"of another thread"')
        for listener in (one, two):
            same("what is heard", await bodies(listener, 3), [b'"a"', b'{"b":1}', b'"c"'])
        same("what is heard of another thread", await bodies(other, 1), [b'"of another thread"'])


@clause
async def a_commit_a_post_and_a_release_are_heard(store: Store) -> None:
    """Hear what is told, and that the thread was committed to, posted to or released, here or elsewhere."""
    owner = await own(store)
    async with store.listen("t") as listener:
        await noticed(listener, "a commit", owner.save)
        await noticed(listener, "a post", lambda: store.post("t", "item", "message", b"1"))
        await noticed(listener, "a release", owner.release)


@clause
async def a_listener_comes_back_when_its_time_is_up(store: Store) -> None:
    """None if the thread may have changed, or after this time."""
    async with store.listen("t") as listener:
        for seconds in (0, 0.05, 0.2):
            began = time.monotonic()
            same("what is heard where nothing happens", await listener.next(seconds), None)
            holds(time.monotonic() - began < seconds + 1, f"it was to come back after {seconds} s, and did not")


@clause
async def somebody_who_listens_could_be_heard_of(store: Store) -> None:
    """Whether anybody could be listening: False where what is told would reach nobody, True if it is not known."""
    async with store.listen("t"):
        holds(store.is_heard("t"), "is_heard says that nobody listens, and somebody does")


@clause
async def telling_never_waits_and_never_raises(store: Store) -> None:
    """Never waits and never raises: it may be lost."""
    async with store.listen("t") as listener:
        for number in range(MANY):  # more than anybody who does not take them could be kept
            store.tell("t", b'"%d"' % number)
            store.tell("nobody's", b'"lost"')
        heard = await bodies(listener, 1)
        holds(heard and heard[0].startswith(b'"'), f"of what was told much may be lost, but not all: heard {heard}")
    store.tell("t", b'"nobody listens any more"')


@clause_with(Needs.TWO_OBJECTS)
async def what_happens_through_another_object_is_noticed(place: TrialLocation) -> None:
    """Hear what is told, and that the thread was committed to, posted to or released, here or elsewhere."""
    owner = await own(place.another())
    async with place.store.listen("t") as listener:
        await noticed(listener, "a commit through another object", owner.save)
        await noticed(listener, "a release through another object", owner.release)


@clause_with(Needs.PROCESSES)
async def what_happens_in_another_process_is_noticed(place: TrialLocation) -> None:
    """Hear what is told, and that the thread was committed to, posted to or released, here or elsewhere."""
    process = await place.process()
    await process.do("open", "t", "run-1")
    async with place.store.listen("t") as listener:
        await noticed(listener, "a commit in another process", lambda: process.do("save", "t", "c1"))
        head = await place.store.head("t")
        same("what whoever looks then sees", head and head.info.checkpoint_id, "c1")
