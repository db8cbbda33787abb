"""A thread of an encrypted store copied within it: payloads are bound to their thread, so each is encrypted again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import urandom

import msgspec

from perdure.errors import ThreadBusy, ThreadExists, ThreadNotFound
from perdure.records import Commit, ThreadStanding
from perdure.store import Store
from perdure.stores.memory_thread import renamed_info

TRIES = 20
"""How often a thread is read that is pruned meanwhile."""


async def copy_thread(store: Store, thread_id: str, to: str) -> None:
    """Under new checkpoint ids, without journal, inbox and pins. Raises ThreadNotFound or ThreadBusy."""
    standing, commits = await _moment(store, thread_id)
    copied = msgspec.structs.replace(
        standing,
        thread_id=to,
        fence=0,
        requests=[msgspec.structs.replace(one, thread_id=to) for one in standing.requests],
        journal=(),
        inbox=(),
        consumed=(),
        pins=(),
    )
    try:
        await store.add_thread(copied, _renamed(commits, to))
    except ThreadExists:
        there = await store.threads(thread_id=to)
        raise ThreadBusy(to, there[0].run_id if there else None) from None


async def _moment(store: Store, thread_id: str) -> tuple[ThreadStanding, Sequence[Commit]]:
    """Where it stood, and the commits up to there."""
    for _ in range(TRIES):
        standing = await store.standing(thread_id)
        if standing is None:
            raise ThreadNotFound(thread_id)
        commits = [one for one in await store.commits(thread_id) if one.number <= standing.number]
        after = await store.standing(thread_id)
        is_kept = after is not None and after.first_seq == standing.first_seq
        if is_kept and standing.head in (None, *(one.number for one in commits if one.info is not None)):
            return standing, commits
    raise ThreadBusy(thread_id)


def _renamed(commits: Sequence[Commit], to: str) -> Iterator[Commit]:
    new = {one.info.checkpoint_id: urandom(12).hex() for one in commits if one.info is not None}
    for commit in commits:
        info = None if commit.info is None else renamed_info(commit.info, to, new)
        yield msgspec.structs.replace(commit, lease=msgspec.structs.replace(commit.lease, thread_id=to), info=info)
