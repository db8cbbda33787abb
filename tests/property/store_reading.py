"""All that can be read of a model and of a store, in the same plain form."""

from __future__ import annotations

from typing import Any

import pytest
from tests.property.store_model import Kept, Model, Thread

from perdure.errors import CursorExpired
from perdure.records import CheckpointInfo, Commit, LoggedEvents, ThreadHeader
from perdure.store import Store
from perdure.testing.conformance.threads import FAR, chunks


def all_of_model(model: Model) -> dict[str, Any]:
    moved = sorted((key for key, one in model.threads.items() if one.number), key=lambda key: model.threads[key].moved)
    threads = {key: model.threads[key] for key in moved}
    holder = {id(kept): thread for thread in model.threads.values() for kept in thread.commits}
    stored = [one for one in model.order if one.info is not None]
    waiting = [(key, one) for key, thread in model.threads.items() for one in thread.requests.values()]
    due = [(one.due_at, key) for key, one in model.threads.items() if one.due_at is not None and one.owner is None]
    return {
        "infos": [_plain_info(one.info, holder[id(one)].previous(one.commit.parent)) for one in stored if one.info],
        "roots": [one.commit.root for one in stored],
        "threads": [_told_of(key, one) for key, one in threads.items()],
        "requests": sorted((one.asked_at, key, one.request_id) for key, one in waiting),
        "due": [key for _, key in sorted(due)],
        "heads": {key: _id(one.head) for key, one in threads.items()},
        "events": {key: [_events_of(kept) for kept in one.commits if kept.events] for key, one in threads.items()},
        "standings": {key: _standing_of(one) for key, one in threads.items()},
    }


async def all_of_store(store: Store) -> dict[str, Any]:
    infos, threads = await store.infos(), await store.threads()
    keys = [one.thread_id for one in threads]
    found = [await store.find_checkpoint(one.checkpoint_id) for one in infos]
    assert [one and one.info for one in found] == list(infos)
    heads = {key: await store.head(key) for key in keys}
    logs = {key: await store.events_after(key, None) for key in keys}
    standings = {key: await store.thread_header(key) for key in keys}
    return {
        "infos": [_plain_info(one, one.previous_checkpoint_id) for one in infos],
        "roots": [one and one.root for one in found],
        "threads": [tuple(getattr(one, name) for name in one.__struct_fields__) for one in threads],
        "requests": [(one.asked_at, one.thread_id, one.request_id) for one in await store.pending_requests()],
        "due": [one.thread_id for one in await store.due(FAR)],
        "heads": {key: one and one.info.checkpoint_id for key, one in heads.items()},
        "events": {key: [_plain_events(one, one.run_id, one.timestamp) for one in log] for key, log in logs.items()},
        "standings": {key: one and _plain_standing(one) for key, one in standings.items()},
    }


async def check_chunks(model: Model, store: Store) -> None:
    """All that something refers to is there, and nothing that could not be."""
    for key, thread in model.threads.items():
        held = await chunks(store, key, thread.number)
        assert thread.needed.items() <= held.items() <= thread.chunks.items(), key
        if thread.is_tidy:
            assert held == thread.chunks, key


async def check_cursors(model: Model, store: Store) -> None:
    for key, thread in model.threads.items():
        for cursor in {0, thread.first_seq - 2, thread.first_seq - 1, thread.last_seq}:
            if max(cursor, 0) + 1 < thread.first_seq:
                with pytest.raises(CursorExpired) as caught:
                    await store.events_after(key, cursor)
                assert caught.value.oldest == thread.first_seq
            else:
                wanted = [one.events for one in thread.commits if one.events]
                firsts = [one.first_seq for one in wanted if one.first_seq + one.count - 1 > cursor]
                assert [one.first_seq for one in await store.events_after(key, cursor)] == firsts, (key, cursor)


def check_commits(thread: Thread, commits: list[Commit]) -> None:
    """What is read out says what the model knows of each commit that holds something, chunks that it only refers to
    included."""
    found = {one.number: one for one in commits}
    assert [one.number for one in commits] == sorted(found)
    has: dict[int, set[str]] = {}
    for number, one in found.items():
        inherited = has.get(one.parent or 0, set()) - set(one.dropped)
        own = () if one.events is None else one.events.own
        has[number] = (
            inherited | {f"{digest}.{number}" for digest in one.chunks if digest not in own} | set(one.carried)
        )
    for kept in thread.commits:
        one = found.get(kept.number, kept.commit)
        assert (one.number in found) or (kept.info is None and kept.events is None)
        if kept.info is not None:
            assert one.info is not None and one.info.checkpoint_id == kept.info.checkpoint_id
            assert one.root == kept.commit.root and frozenset(has[kept.number]) == kept.has, kept.number
        if kept.events is not None:
            assert one.events is not None
            assert _plain_events(one.events, one.run_id, one.timestamp) == _events_of(kept)


# ---------------------------------------------------------------- plain


def _events_of(one: Kept) -> tuple[Any, ...]:
    assert one.events is not None
    return _plain_events(one.events, one.commit.run_id, one.commit.timestamp)


def _plain_events(events: LoggedEvents, run_id: str, timestamp: str) -> tuple[Any, ...]:
    return (events.first_seq, events.count, events.body, events.refers, sorted(events.own), run_id, timestamp)


def _plain_info(info: CheckpointInfo, previous: str | None) -> tuple[Any, ...]:
    of_place = (info.checkpoint_id, info.thread_id, info.workflow_name, info.number, info.iteration_count, previous)
    return (*of_place, info.timestamp, info.run_id, info.status, info.is_pinned)


def _told_of(key: str, one: Thread) -> tuple[Any, ...]:
    return (key, one.workflow_name, one.number, one.status, one.updated_at, _id(one.head), one.due_at, one.owner)


def _id(one: Kept | None) -> str | None:
    return None if one is None or one.info is None else one.info.checkpoint_id


def _standing_of(one: Thread) -> tuple[Any, ...]:
    at = (one.workflow_name, one.number, one.status, one.updated_at, one.last_seq, one.first_seq)
    waits = (one.due_at, sorted(one.requests), one.journal, list(one.inbox.items()), sorted(one.consumed), one.pins)
    return (*at, None if one.head is None else one.head.number, *waits)


def _plain_standing(one: ThreadHeader) -> tuple[Any, ...]:
    at = (one.workflow_name, one.number, one.status, one.updated_at, one.last_seq, one.first_seq)
    asked = sorted(request.request_id for request in one.requests)
    journal = [(entry.delivery_id, entry.body) for entry in one.journal]
    inbox = [(item.item_id, (item.kind, item.body)) for item in one.inbox]
    return (*at, one.head, one.due_at, asked, journal, inbox, sorted(one.consumed), sorted(one.pins))
