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
    moved = sorted(
        (key for key, thread in model.threads.items() if thread.number), key=lambda key: model.threads[key].moved
    )
    threads = {key: model.threads[key] for key in moved}
    holder = {id(kept): thread for thread in model.threads.values() for kept in thread.commits}
    stored = [kept for kept in model.order if kept.info is not None]
    waiting = [(key, request) for key, thread in model.threads.items() for request in thread.requests.values()]
    due = [
        (thread.due_at, key)
        for key, thread in model.threads.items()
        if thread.due_at is not None and thread.owner is None
    ]
    return {
        "infos": [
            _plain_info(kept.info, holder[id(kept)].previous(kept.commit.parent)) for kept in stored if kept.info
        ],
        "roots": [kept.commit.root for kept in stored],
        "threads": [_summary_of(key, thread) for key, thread in threads.items()],
        "requests": sorted((request.asked_at, key, request.request_id) for key, request in waiting),
        "due": [key for _, key in sorted(due)],
        "heads": {key: _id(thread.head) for key, thread in threads.items()},
        "events": {
            key: [_events_of(kept) for kept in thread.commits if kept.events] for key, thread in threads.items()
        },
        "standings": {key: _standing_of(thread) for key, thread in threads.items()},
    }


async def all_of_store(store: Store) -> dict[str, Any]:
    infos, threads = await store.infos(), await store.threads()
    keys = [thread.thread_id for thread in threads]
    stored = [await store.find_checkpoint(info.checkpoint_id) for info in infos]
    assert [checkpoint and checkpoint.info for checkpoint in stored] == list(infos)
    heads = {key: await store.head(key) for key in keys}
    logs = {key: await store.events_after(key, None) for key in keys}
    standings = {key: await store.thread_header(key) for key in keys}
    return {
        "infos": [_plain_info(info, info.previous_checkpoint_id) for info in infos],
        "roots": [checkpoint and checkpoint.root for checkpoint in stored],
        "threads": [tuple(getattr(thread, name) for name in thread.__struct_fields__) for thread in threads],
        "requests": [
            (request.asked_at, request.thread_id, request.request_id) for request in await store.pending_requests()
        ],
        "due": [thread.thread_id for thread in await store.due(FAR)],
        "heads": {key: head and head.info.checkpoint_id for key, head in heads.items()},
        "events": {
            key: [_plain_events(events, events.run_id, events.timestamp) for events in log] for key, log in logs.items()
        },
        "standings": {key: header and _plain_standing(header) for key, header in standings.items()},
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
                wanted = [kept.events for kept in thread.commits if kept.events]
                firsts = [events.first_seq for events in wanted if events.first_seq + events.count - 1 > cursor]
                assert [events.first_seq for events in await store.events_after(key, cursor)] == firsts, (key, cursor)


def check_commits(thread: Thread, commits: list[Commit]) -> None:
    """What is read out equals what the model knows of each commit that holds something, chunks that it only refers to
    included."""
    by_number = {commit.number: commit for commit in commits}
    assert [commit.number for commit in commits] == sorted(by_number)
    has: dict[int, set[str]] = {}
    for number, commit in by_number.items():
        inherited = has.get(commit.parent or 0, set()) - set(commit.dropped)
        own = () if commit.events is None else commit.events.own
        has[number] = (
            inherited | {f"{digest}.{number}" for digest in commit.chunks if digest not in own} | set(commit.carried)
        )
    for kept in thread.commits:
        commit = by_number.get(kept.number, kept.commit)
        assert (commit.number in by_number) or (kept.info is None and kept.events is None)
        if kept.info is not None:
            assert commit.info is not None and commit.info.checkpoint_id == kept.info.checkpoint_id
            assert commit.root == kept.commit.root and frozenset(has[kept.number]) == kept.has, kept.number
        if kept.events is not None:
            assert commit.events is not None
            assert _plain_events(commit.events, commit.run_id, commit.timestamp) == _events_of(kept)


# ---------------------------------------------------------------- plain


def _events_of(kept: Kept) -> tuple[Any, ...]:
    assert kept.events is not None
    return _plain_events(kept.events, kept.commit.run_id, kept.commit.timestamp)


def _plain_events(events: LoggedEvents, run_id: str, timestamp: str) -> tuple[Any, ...]:
    return (events.first_seq, events.count, events.body, events.refers, sorted(events.own), run_id, timestamp)


def _plain_info(info: CheckpointInfo, previous: str | None) -> tuple[Any, ...]:
    of_place = (info.checkpoint_id, info.thread_id, info.workflow_name, info.number, info.iteration_count, previous)
    return (*of_place, info.timestamp, info.run_id, info.status, info.is_pinned)


def _summary_of(key: str, thread: Thread) -> tuple[Any, ...]:
    return (
        key,
        thread.workflow_name,
        thread.number,
        thread.status,
        thread.updated_at,
        _id(thread.head),
        thread.due_at,
        thread.owner,
    )


def _id(kept: Kept | None) -> str | None:
    return None if kept is None or kept.info is None else kept.info.checkpoint_id


def _standing_of(thread: Thread) -> tuple[Any, ...]:
    at = (thread.workflow_name, thread.number, thread.status, thread.updated_at, thread.last_seq, thread.first_seq)
    waits = (
        thread.due_at,
        sorted(thread.requests),
        thread.journal,
        list(thread.inbox.items()),
        sorted(thread.consumed),
        thread.pins,
    )
    return (*at, None if thread.head is None else thread.head.number, *waits)


def _plain_standing(header: ThreadHeader) -> tuple[Any, ...]:
    at = (header.workflow_name, header.number, header.status, header.updated_at, header.last_seq, header.first_seq)
    asked = sorted(request.request_id for request in header.requests)
    journal = [(entry.delivery_id, entry.body) for entry in header.journal]
    inbox = [(item.item_id, (item.kind, item.body)) for item in header.inbox]
    return (*at, header.head, header.due_at, asked, journal, inbox, sorted(header.consumed), sorted(header.pins))
