"""Payloads that are rewritten: all of them, nothing else, while the owner of the thread continues."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from perdure.records import Commit
from perdure.store import Store
from perdure.testing.conformance.clause import clause, expect, expect_equal
from perdure.testing.conformance.clauses.transfer import all_commits, header_of
from perdure.testing.conformance.threads import (
    at,
    chunk,
    make_events,
    make_request,
    own,
    read_as_owner,
    read_everything,
    save_full_thread,
)


def wrap(kind: str, name: str, data: bytes) -> bytes:
    """A change that shows what it was given."""
    return msgspec.json.encode([kind, name, msgspec.Raw(data)])


def unwrap(data: bytes) -> bytes:
    """What was given; the bytes themselves if they were not changed."""
    value = msgspec.json.decode(data)
    is_wrapped = isinstance(value, list) and len(value) == 3 and isinstance(value[1], str)
    return msgspec.json.encode(value[2]) if is_wrapped else msgspec.json.encode(value)


async def payloads(store: Store, thread_id: str = "t") -> Counter[tuple[str, str, bytes]]:
    """All that is kept of the thread: kind, name and bytes."""
    header = await header_of(store, thread_id)
    entries: list[tuple[str, str, bytes]] = []
    for commit in await all_commits(store, thread_id):
        entries += [("root", str(commit.number), commit.root)] if commit.root is not None else []
        entries += [("events", str(commit.number), commit.events.body)] if commit.events is not None else []
        entries += [("chunk", digest, data) for digest, data in commit.chunks.items()]
    entries += [("journal", str(entry.delivery_id), entry.body) for entry in header.journal]
    entries += [("inbox", item.item_id, item.body) for item in header.inbox]
    return Counter(entries)


@clause
async def every_payload_goes_through_the_change(store: Store) -> None:
    """Replace every payload of the thread by what `change` returns; returns how many differ."""
    await save_full_thread(store)
    await save_full_thread(store, "u")
    before, others = await payloads(store), await payloads(store, "u")
    seen: Counter[tuple[str, str, bytes]] = Counter()

    def change(kind: str, name: str, data: bytes) -> bytes:
        seen[kind, name, data] += 1
        return data if kind == "events" else wrap(kind, name, data)

    count = await store.rewrite("t", change)
    expect_equal("what was put through", sorted(seen.elements()), sorted(before.elements()))
    expect_equal("how many came back different", count, sum(kind != "events" for kind, _, _ in before.elements()))
    expected = [
        (*payload[:2], payload[2] if payload[0] == "events" else wrap(*payload)) for payload in before.elements()
    ]
    expect_equal("what is there now", sorted((await payloads(store)).elements()), sorted(expected))
    expect_equal(
        "what is in the other thread", sorted((await payloads(store, "u")).elements()), sorted(others.elements())
    )
    expect_equal("how many of a thread that does not exist", await store.rewrite("none", change), 0)


@clause
async def nothing_but_payloads_is_rewritten(store: Store) -> None:
    """Changes nothing else."""
    await save_full_thread(store)
    await store.pin("t-2")
    await store.prune("t", ["t-1"])
    before = await _all_of(store)
    await store.rewrite("t", lambda kind, name, data: data)
    expect_equal("what can be read after a change that changes nothing", await _all_of(store), before)
    await store.rewrite("t", wrap)
    expect_equal("what is damaged then", list(await store.check()), [])
    expect_equal("what can be read but for the payloads", _without(await _all_of(store)), _without(before))
    await store.prune("t", ["t-4"])
    expect_equal("the checkpoints after a prune", [info.checkpoint_id for info in await store.infos()], ["t-2"])


async def _all_of(store: Store) -> list[Any]:
    header = msgspec.structs.replace(await header_of(store), fence=0)  # reading as an owner claims the thread
    return [await read_everything(store), await read_as_owner(store), header, await all_commits(store)]


def _without(value: Any) -> Any:
    """The same without the bytes of payloads."""
    if isinstance(value, bytes):
        return b""
    if isinstance(value, msgspec.Struct):
        return {name: _without(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {key: _without(item) for key, item in value.items()}
    return [_without(item) for item in value] if isinstance(value, list | tuple) else value


@clause
async def the_owner_of_a_rewritten_thread_continues(store: Store) -> None:
    """Needs no lease: the owner of the thread keeps running."""
    owner = await own(store)
    await owner.save(brings=["a"], events=1, requests=[make_request("t", "q", 1)], due_at=at(9))
    await store.post("t", "item", "message", b"1")
    await owner.record(1)
    await store.rewrite("t", wrap)
    await owner.record(2)
    digest, data = chunk("b")
    await owner.save(chunks={digest: data}, events=make_events(2, refers=True), unsettled=[2], consumed=["item"])
    header = await header_of(store)
    expect_equal("the journal", [entry.delivery_id for entry in header.journal], [2])
    expect_equal("inbox and what was consumed", (list(header.inbox), list(header.consumed)), ([], ["item"]))
    expect_equal("the commits", [commit.number for commit in await all_commits(store)], [1, 2])
    await owner.release()


@clause
async def a_change_that_fails_leaves_each_commit_whole(store: Store) -> None:
    """Atomic for each commit, journal entry and inbox item."""
    await save_full_thread(store)
    before = await all_commits(store)
    for fails_at in range(1, 9):
        calls = 0

        def change(kind: str, name: str, data: bytes, fails_at: int = fails_at) -> bytes:
            nonlocal calls
            calls += 1
            if calls == fails_at:
                raise RuntimeError("it does not want any more")
            return wrap(kind, name, unwrap(data))

        try:
            await store.rewrite("t", change)
        except RuntimeError:
            pass
        else:
            expect(False, f"a change that failed at payload {fails_at} was passed over")
        for commit, original in zip(await all_commits(store), before, strict=True):
            states = {data == plain for data, plain in zip(_bytes_of(commit), _bytes_of(original), strict=True)}
            expect(len(states) < 2, f"of commit {commit.number} some payloads were changed, and some were not")
            expect_equal(
                f"the payloads of commit {commit.number}",
                [*map(unwrap, _bytes_of(commit))],
                [*map(unwrap, _bytes_of(original))],
            )
    expect_equal("what is damaged after all that", list(await store.check()), [])


def _bytes_of(commit: Commit) -> list[bytes]:
    root = [] if commit.root is None else [commit.root]
    events = [] if commit.events is None else [commit.events.body]
    return [*root, *events, *(data for _, data in sorted(commit.chunks.items()))]
