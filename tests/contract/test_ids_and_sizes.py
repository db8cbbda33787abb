"""Ids of any kind are kept apart and lead nowhere else; bodies may be large and chunks many."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace
from tests.conformance.whole_threads import read_out

from perdure.errors import ThreadBusy, UnsupportedId
from perdure.store import Store
from perdure.testing.conformance.threads import (
    ThreadOwner,
    checkpoint_ids,
    chunks,
    make_request,
    own,
    read_as_owner,
    read_everything,
    save_thread,
    thread_ids,
)

ODD = [
    "a/b",
    "a\\b",
    "../up",
    "../../etc/passwd",
    "..",
    ".",
    "/",
    "~",
    "/absolute",
    "C:\\thread",
    "con",
    "nul.txt",
    'a:b*c?d"e<f>g|h',
    "with space",
    " ",
    "trailing. ",
    "new\nline",
    "tab\tbell\x07escape\x1b",
    "\x7f\x80\u200b\ufeff",
    "日本語",
    "🦀" * 30,
    "\u202eright to left",
    "%s %d %00 {} $HOME `id` '; DROP TABLE threads; --",
    "-rf",
    "index.db",
    "index.lock",
    "a" * 101,
    "é" * 2000,
    "x" * 100_000,
    "",
]


@pytest.mark.parametrize("thread_id", ODD, ids=lambda one: ascii(one[:20]))
async def test_any_text_is_a_thread_id(store: Store, thread_id: str) -> None:
    name = thread_id[:500]  # a store may refuse other names that are longer
    owner = await own(store, thread_id)
    info = await owner.save("c1", chunks={"aa": b"1"}, events=1, requests=[make_request(thread_id, name, 1)])
    await owner.record(1)
    await store.post(thread_id, name, name, b"1")
    with pytest.raises(ThreadBusy):
        await store.open(thread_id, "run-2")
    await owner.release()
    head = await store.head(thread_id)
    assert head is not None and head.info == info and info.thread_id == thread_id
    assert await thread_ids(store) == await thread_ids(store, thread_id=thread_id) == [thread_id]
    assert await checkpoint_ids(store, thread_id=thread_id) == ["c1"]
    assert await chunks(store, thread_id) == {"aa.1": b"1"} and len(await store.events_after(thread_id, 0)) == 1
    assert [(one.thread_id, one.request_id) for one in await store.pending_requests()] == [(thread_id, name)]
    within = await read_as_owner(store, thread_id)
    assert (within["journal"], within["inbox"]) == ([(1, b'{"done":1}')], [(name, name, b"1")])
    await store.copy_thread(thread_id, thread_id + "-copy")
    assert await store.delete_thread(thread_id) is True
    assert await thread_ids(store) == [thread_id + "-copy"]


async def test_odd_ids_live_side_by_side_and_stay_inside_the_stores_place(store: Store, tmp_path: Path) -> None:
    beside = tmp_path.parent
    before = sorted(os.listdir(beside))
    for number, thread_id in enumerate(ODD):
        await save_thread(store, thread_id, checkpoint_id=f"c{number}")
    assert await thread_ids(store) == ODD
    for number, thread_id in enumerate(ODD):
        assert await checkpoint_ids(store, thread_id=thread_id) == [f"c{number}"]
    assert sorted(os.listdir(beside)) == before
    kept = {"threads", "threads.db", "threads.db-wal", "threads.db-shm"}
    assert set(os.listdir(tmp_path)) <= kept


CLOSE = ["ab", "AB", "Ab", "aB", "ab ", " ab", "ab.", "a_b", "a-b", "a b", "é", "e\u0301", "É", "ſ", "s", "K", "\u212a"]


async def test_ids_that_differ_only_in_case_form_or_spaces_are_different_threads(store: Store) -> None:
    for thread_id in CLOSE:
        await save_thread(store, thread_id)
        await store.post(thread_id, "item", "message", b'"%b"' % thread_id.encode())
    assert await thread_ids(store) == CLOSE
    for thread_id in CLOSE:
        assert (await read_as_owner(store, thread_id))["inbox"] == [("item", "message", b'"%b"' % thread_id.encode())]
    await store.delete_thread("AB")
    assert await thread_ids(store) == [one for one in CLOSE if one != "AB"]


async def test_other_names_may_be_any_text_too(store: Store) -> None:
    odd = "../naïve 日本\n'\"; --\\"
    owner = await own(store, "t", owner=odd, workflow_name=odd)
    info = await owner.save(odd, chunks={odd: b"1"}, status=odd, requests=[make_request("t", odd, 1, assignee=odd)])
    await store.post("t", odd, odd, b"1")
    assert list(await store.infos(workflow_name=odd)) == [info] and info.run_id == info.status == odd
    assert await chunks(store, "t") == {f"{odd}.1": b"1"}
    assert [one.assignee for one in await store.pending_requests(workflow_name=odd)] == [odd]
    assert (await read_as_owner(store, "t"))["inbox"] == [(odd, odd, b"1")]


LONG = "".join(chr(0x4E00 + place) for place in Random(1).choices(range(20_000), k=30_000))
"""Nothing that a database could make smaller: such names do not fit into an index."""


async def save_under(owner: ThreadOwner, workflow_name: str) -> None:
    owner.workflow_name = workflow_name
    await owner.save()


NAMED: dict[str, Callable[[ThreadOwner, str], Awaitable[object]]] = {
    "checkpoint id": lambda owner, name: owner.save(name),
    "workflow name": save_under,
    "request id": lambda owner, name: owner.save(requests=[make_request("t", name, 1)]),
    "executor id": lambda owner, name: owner.save(requests=[replace(make_request("t", "q", 1), executor_id=name)]),
    "assignee": lambda owner, name: owner.save(requests=[make_request("t", "q", 1, assignee=name)]),
    "status": lambda owner, name: owner.save(status=name),
    "run id": lambda owner, name: owner.save(run_id=name),
    "digest": lambda owner, name: owner.save(chunks={name: b"1"}),
    "item id": lambda owner, name: owner.store.post("t", name, "message", b"1"),
    "kind of an item": lambda owner, name: owner.store.post("t", f"item {len(name)}", name, b"1"),
    "owner": lambda owner, name: owner.store.open("t", name, takeover=True),
    "thread id": lambda owner, name: owner.store.post(name, "item", "message", b"1"),
}


@pytest.mark.parametrize("what", NAMED)
async def test_a_name_is_kept_or_it_is_refused_and_nothing_is_written(store: Store, what: str) -> None:
    owner = await own(store)
    await owner.save("c1")
    for name in (LONG[:500], LONG, "NUL \0 NUL"):
        before = await all_of(store)
        refusal = await refusal_of(NAMED[what](owner, name))
        if refusal:
            assert name != LONG[:500] and "Nothing was written" in refusal and len(refusal) < 500
        assert (await all_of(store) == before) is bool(refusal)
    assert list(await store.check()) == []


async def refusal_of(act: Awaitable[object]) -> str:
    try:
        await act
    except UnsupportedId as error:
        return str(error)
    return ""


async def all_of(store: Store) -> Any:
    return await read_everything(store), await read_out(store), await store.thread_ids()


async def test_a_body_may_have_many_megabytes(store: Store) -> None:
    big = b'"' + b"x" * 5_000_000 + b'"'
    owner = await own(store)
    await owner.save(root=big, chunks={"aa": big})
    await owner.record(1, big)
    await store.post("t", "item", "message", big)
    await owner.release()
    opened = await store.open("t", "run-2")
    assert opened.root == big and [one.body for one in opened.journal] == [big] == [one.body for one in opened.inbox]
    assert await chunks(store, "t") == {"aa.1": big}


async def test_a_commit_may_hold_thousands_of_chunks(store: Store) -> None:
    owner = await own(store)
    many = {f"{index:06}": b'"%d"' % index for index in range(5000)}
    await owner.save(chunks=many)
    await owner.save(dropped=[f"{index:06}.1" for index in range(0, 5000, 2)])
    assert (await store.read_chunks("t", [1]))[1] == many
    await store.prune("t", ["t-1"])
    found = (await store.read_chunks("t", [1]))[1]
    assert len(found) == 2500 and found["004999"] == b'"4999"' and "000000" not in found


async def test_a_thread_may_have_many_commits_journal_entries_and_items(store: Store) -> None:
    owner = await own(store)
    for number in range(1, 201):
        await owner.save(chunks={"aa": b"%d" % number}, events=1)
    for delivery_id in range(200):
        await owner.record(delivery_id)
    await asyncio.gather(*(store.post("t", f"i{index:03}", "message", b"1") for index in range(200)))
    assert set(await store.read_chunks("t", range(1, 301))) == set(range(1, 201))
    assert len(await store.events_after("t", 100)) == 100
    assert await checkpoint_ids(store, limit=2, before="t-100") == ["t-98", "t-99"]
    within = await read_as_owner(store, "t")
    assert len(within["journal"]) == len(within["inbox"]) == 200
