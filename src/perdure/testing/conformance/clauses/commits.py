"""A commit is one act: number, fence and parent are compared, and either all of it is stored or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import msgspec

from perdure.digests import SHORT
from perdure.errors import ThreadConflict, UnsupportedId
from perdure.records import Commit, LoggedEvents
from perdure.store import Store
from perdure.testing.conformance.clause import (
    Needs,
    clause,
    clause_with,
    expect,
    expect_equal,
    expect_one,
    expect_raises,
)
from perdure.testing.conformance.location import TrialLocation
from perdure.testing.conformance.threads import (
    ThreadOwner,
    at,
    checkpoint_ids,
    chunk,
    chunks,
    make_events,
    make_request,
    own,
    read_as_owner,
    read_everything,
    ref,
    save_thread,
    thread_ids,
)

WHOLE: dict[str, Any] = {
    "brings": ["new"],
    "events": 1,
    "consumed": ["item"],
    "requests": [make_request("t", "question", 9)],
    "due_at": at(60),
    "status": "WAITING",
}
"""Something for each part of a commit."""

MANY = 130
"""More than a page of anything that a store reads in pages."""

BODIES = (b"null", b"0", b'""', b"[]", b"{}", b"-1.50e+3", b'{"a":1,"a":2}', '"é\\u00e9🦀 \\ud83e\\udd80"'.encode())

IDS = (
    "a/b",
    "../up",
    "C:\\con",
    "new\nline",
    "日本語 🦀",
    "%s {} '; DROP TABLE threads; --",
    "ab",
    "AB",
    "ab ",
    " ab",
    "ab.",
    "00",
    "0",
    "é",
    "e\u0301",
    "s",
    "ſ",
    "K",
    "\u212a",
    "",
)


async def prepare_thread(store: Store) -> ThreadOwner:
    """A thread with something of everything, at commit 2."""
    owner = await own(store)
    await owner.save(events=2, brings=["old"], requests=[make_request("t", "first", 1)], due_at=at(5))
    await owner.save(drops=["old"])
    await owner.record(7)
    await store.post("t", "item", "message", b'"hello"')
    return owner


async def stores_nothing(store: Store, commit: Commit, what: str) -> None:
    before = await read_everything(store)
    await expect_raises(ThreadConflict, store.commit(commit), what)
    expect_equal("what can be read after that", await read_everything(store), before)


@clause
async def all_of_a_commit_is_stored(store: Store) -> None:
    """Append the commit: checkpoint, chunks, head, events, requests and consumed inbox items, all or nothing."""
    owner = await prepare_thread(store)
    await read_everything(store)  # what was read before is not what is read after
    info = await owner.save(**{**WHOLE, "events": 3, "root": b'{"big":[1,2.50,null]}'})
    head = await store.head("t")
    expect_equal("the head", None if head is None else (head.info, head.root), (info, b'{"big":[1,2.50,null]}'))
    expect_equal("the checkpoint by its id", await store.find_checkpoint("t-3"), head)
    expect_equal("its chunk", (await chunks(store, "t")).get(ref("new", 3)), chunk("new")[1])
    expect_equal("its events", [(batch.first_seq, batch.count) for batch in await store.events_after("t", 2)], [(3, 3)])
    expect_equal("the requests", [request.request_id for request in await store.pending_requests()], ["question"])
    thread = expect_one("the threads", await store.threads())
    expect_equal("where the thread stands", (thread.number, thread.checkpoint_id, thread.due_at), (3, "t-3", at(60)))
    expect_equal(
        "its status", (thread.status, thread.updated_at, thread.workflow_name), ("WAITING", at(3).isoformat(), "w")
    )
    within = await read_as_owner(store)
    expect_equal("last event, journal and inbox", (within["last_seq"], within["journal"], within["inbox"]), (5, [], []))


@clause
async def a_commit_that_is_not_the_next_stores_nothing(store: Store) -> None:
    """Raises ThreadConflict if the fence is not the thread's newest, the number is not the next, or the parent is gone;
    then nothing is stored."""
    owner = await prepare_thread(store)
    for number in (0, 1, 2, 4, 1000):
        commit = msgspec.structs.replace(owner.checkpoint(**WHOLE), number=number)
        await stores_nothing(store, commit, f"commit {number} after commit 2")
    new = await own(store, "new")
    new.number = 1
    await expect_raises(ThreadConflict, new.save(), "commit 2 of a thread without a commit")
    within = await read_as_owner(store)
    expect_equal("the journal", [entry for entry, _ in within["journal"]], [7])
    expect_equal("the inbox", [item for item, _, _ in within["inbox"]], ["item"])


@clause
async def a_commit_whose_parent_is_gone_stores_nothing(store: Store) -> None:
    """Raises ThreadConflict if the fence is not the thread's newest, the number is not the next, or the parent is gone;
    then nothing is stored."""
    owner = await prepare_thread(store)
    await owner.note()
    for parent, why in ((99, "never was"), (3, "has no checkpoint")):
        commit = owner.checkpoint(**{**WHOLE, "parent": parent})
        await stores_nothing(store, commit, f"a commit after commit {parent}, which {why}")
    await store.prune("t", ["t-1"])
    await stores_nothing(store, owner.checkpoint(**{**WHOLE, "parent": 1}), "a commit after one that was pruned")
    await owner.save(events=make_events(owner.last_seq + 1, refers=True), brings=["of the events"])
    await owner.save()
    await owner.save(prunes=[4, 5])
    for parent in (4, 5):  # the first stays in part, for its events
        commit = owner.checkpoint(**{**WHOLE, "parent": parent})
        await stores_nothing(store, commit, f"a commit after commit {parent}, which another commit pruned")


@clause
async def a_commit_without_a_checkpoint_keeps_head_journal_requests_and_timer(store: Store) -> None:
    """a commit without a checkpoint keeps them all"""
    owner = await own(store)
    await owner.save(requests=[make_request("t", "question", 1)], due_at=at(5))
    await owner.record(7)
    head = await store.head("t")
    await owner.note(events=2, status="FAILED")
    expect_equal("the head", await store.head("t"), head)
    thread = expect_one("the threads", await store.threads())
    expect_equal("where the thread stands", (thread.number, thread.status, thread.due_at), (2, "FAILED", at(5)))
    expect_equal("the requests", [request.request_id for request in await store.pending_requests()], ["question"])
    opened = await store.open("t", "run-2", takeover=True)
    expect_equal("number and last event", (opened.number, opened.last_seq), (2, 2))
    expect_equal(
        "the journal, by delivery and head", [(entry.delivery_id, entry.number) for entry in opened.journal], [(7, 2)]
    )


@clause
async def a_commit_may_continue_from_an_older_checkpoint(store: Store) -> None:
    """The commit whose checkpoint it continues from. Chunks of the parent's checkpoint may be left out."""
    owner = await own(store)
    first = await owner.save(brings=["a"])
    await owner.save(drops=["a"])
    owner.head = first
    branch = await owner.save()
    head = await store.head("t")
    expect_equal("the head", None if head is None else head.info, branch)
    expect_equal("the checkpoints", await checkpoint_ids(store), ["t-1", "t-2", "t-3"])
    expect_equal(
        "what they continue from", [info.previous_checkpoint_id for info in await store.infos()], [None, "t-1", "t-1"]
    )


@clause
async def a_checkpoint_with_the_id_of_another_takes_its_place(store: Store) -> None:
    """A checkpoint with the id of another replaces it."""
    owner = await own(store)
    first = await owner.save("same", brings=["a"], events=1)
    await owner.save("other")
    found = await store.find_checkpoint("same")
    expect_equal("the first of that id", found and found.info, first)
    await owner.save("same", root=b'"new"')
    expect_equal("the checkpoints", await checkpoint_ids(store), ["other", "same"])
    found = await store.find_checkpoint("same")
    expect_equal(
        "the one that took the place", None if found is None else (found.root, found.info.number), (b'"new"', 3)
    )
    expect_equal("the chunk that it shares", await chunks(store, "t"), {ref("a", 1): chunk("a")[1]})
    expect_equal("the events of the one before", [batch.first_seq for batch in await store.events_after("t", 0)], [1])
    await (await own(store, "u")).save("same")
    head = await store.head("t")
    expect_equal("the head of a thread that lost it to another", head and head.info.checkpoint_id, "other")


@clause
async def bytes_come_back_as_they_were(store: Store) -> None:
    """A store never looks into the bytes it keeps"""
    for index, body in enumerate(BODIES):
        thread_id = f"t{index}"
        owner = await own(store, thread_id)
        await owner.save(root=body, chunks={"aa": body}, events=LoggedEvents(1, 1, body))
        await owner.record(1, body)
        await store.post(thread_id, "item", "message", body)
        expect_equal("an event", [batch.body for batch in await store.events_after(thread_id, 0)], [body])
        expect_equal("a chunk", await chunks(store, thread_id), {"aa.1": body})
        within = await read_as_owner(store, thread_id)
        expect_equal("a root", within["root"], body)
        expect_equal(
            "journal and inbox", (within["journal"], within["inbox"]), ([(1, body)], [("item", "message", body)])
        )


@clause
async def any_text_is_an_id_and_no_two_are_taken_for_one(store: Store) -> None:
    """The checkpoint with this id, whichever thread it belongs to."""
    for name in IDS:
        owner = await own(store, name, owner=f"run {name}", workflow_name=f"w {name}")
        await owner.save(f"c {name}", brings=[name], status=name, requests=[make_request(name, name, 1, assignee=name)])
        await store.post(name, name, name, b"1")
        await owner.release()
    expect_equal("the checkpoints", await checkpoint_ids(store), [f"c {name}" for name in IDS])
    for name in IDS:
        found = await store.find_checkpoint(f"c {name}")
        expect_equal(
            f"thread and run of {name!r}", found and (found.info.thread_id, found.info.run_id), (name, f"run {name}")
        )
        expect_equal(
            f"what is of workflow {name!r}", await checkpoint_ids(store, workflow_name=f"w {name}"), [f"c {name}"]
        )
        expect_equal(f"the inbox of {name!r}", (await read_as_owner(store, name))["inbox"], [(name, name, b"1")])
        request = expect_one(f"the requests of {name!r}", await store.pending_requests(thread_id=name))
        expect_equal(f"the request of {name!r}", (request.request_id, request.assignee), (name, name))


@clause
async def a_commit_may_be_large(store: Store) -> None:
    """New chunks, by digest."""
    owner = await own(store)
    big = b'"' + b"x" * 2_000_000 + b'"'
    many = dict(chunk(f"chunk {index}") for index in range(2000))
    await owner.save(root=big, chunks=many)
    await owner.record(1, big)
    await store.post("t", "item", "message", big)
    within = await read_as_owner(store)
    expect(within["root"] == big, "a root of 2 MB did not come back as it was")
    expect(within["journal"] == [(1, big)], "a journal entry of 2 MB did not come back as it was")
    expect(within["inbox"] == [("item", "message", big)], "an item of 2 MB did not come back as it was")
    stored = (await store.read_chunks("t", [1])).get(1)
    expect(stored == many, f"of 2000 chunks in one commit {len(stored or ())} came back")
    again = await own(store, takeover=True)
    digests = sorted(many)
    await again.save(dropped=[f"{digest[:SHORT]}.1" for digest in digests[::2]])
    await store.prune("t", ["t-1"])
    stored = (await store.read_chunks("t", [1])).get(1)
    expect(stored == {digest: many[digest] for digest in digests[1::2]}, f"{len(stored or ())} of 1000 chunks are left")


@clause
async def what_a_caller_changes_later_is_not_changed_in_the_store(store: Store) -> None:
    """When it returns, its effect is as durable as the store makes anything."""
    owner = await own(store)
    given, requests = dict([chunk("a")]), [make_request("t", "q", 1)]
    await owner.save(chunks=given, requests=requests)
    given.clear()
    requests.clear()
    expect_equal("the chunks", await chunks(store, "t"), {ref("a", 1): chunk("a")[1]})
    expect_equal("the requests", [request.request_id for request in await store.pending_requests()], ["q"])


@clause
async def a_cancelled_commit_is_complete_or_absent(store: Store) -> None:
    """Whether `commit`, once called, completes and returns or raises even if its caller is cancelled meanwhile."""
    owner = await own(store)
    task = asyncio.create_task(store.commit(owner.checkpoint(events=1, brings=["a"])))
    await asyncio.sleep(0)  # it has been called now
    task.cancel()
    (outcome,) = await asyncio.gather(task, return_exceptions=True)
    if store.finishes_commits:
        expect(
            not isinstance(outcome, asyncio.CancelledError),
            "finishes_commits is true, and a commit whose caller was cancelled ended with CancelledError",
        )
    again = await own(store, owner="run-2", takeover=True)
    expected = [(1, 1)] if outcome is None else [(0, 0), (1, 1)]
    expect((again.number, again.last_seq) in expected, f"the thread stands at {again.number}, {again.last_seq}")
    expect_equal("the chunks", len(await chunks(store, "t")), again.number)
    await again.save(events=1)


@clause
async def a_thread_may_begin_with_a_commit_without_a_checkpoint(store: Store) -> None:
    """None for a commit without a checkpoint, which has only events or a status."""
    owner = await own(store)
    await owner.note(events=1, status="FAILED", requests=[make_request("t", "q", 1)])
    expect_equal("head and checkpoints", (await store.head("t"), await checkpoint_ids(store)), (None, []))
    thread = expect_one("the threads", await store.threads())
    expect_equal("the thread", (thread.number, thread.status, thread.checkpoint_id), (1, "FAILED", None))
    expect_equal("the requests", [request.request_id for request in await store.pending_requests()], ["q"])
    expect_equal("the number of the first checkpoint", (await owner.save()).number, 2)


@clause
async def a_checkpoint_may_follow_one_of_another_thread(store: Store) -> None:
    """The checkpoint that it continues from, or the nearest ancestor that is still stored."""
    await save_thread(store, "origin")
    owner = await own(store, "fork")
    commit = owner.checkpoint()
    info = msgspec.structs.replace(commit.info, previous_checkpoint_id="origin-1") if commit.info else None
    await store.commit(msgspec.structs.replace(commit, info=info))
    expect_equal("the checkpoints of the fork", list(await store.infos(thread_id="fork")), [info])


@clause
async def a_replaced_checkpoint_stays_gone(store: Store) -> None:
    """A checkpoint with the id of another replaces it."""
    owner = await own(store)
    await owner.save("other", brings=["a"])
    await owner.save("same", brings=["b"])
    await owner.save("same")
    await owner.release()
    await store.copy_thread("t", "copy")
    copied = [info.number for info in await store.infos(thread_id="copy")]
    expect_equal("the checkpoints of a copy", copied, [1, 3])
    expect_equal("how many went with the other", await store.prune("t", ["other"]), 1)
    expect_equal("the chunks then", sorted(await chunks(store, "t")), sorted([ref("a", 1), ref("b", 2)]))
    expect_equal("how many went with the last", await store.prune("t", ["same"]), 1)
    left = (await checkpoint_ids(store, thread_id="t"), await store.find_checkpoint("same"), await store.head("t"))
    expect_equal("what is left", left, ([], None, None))


@clause
async def a_checkpoint_that_replaces_its_head_keeps_requests_and_unsettled_entries(store: Store) -> None:
    """A checkpoint with the id of another replaces it."""
    owner = await own(store)
    await owner.save("same", requests=[make_request("t", "q", 1)])
    await owner.record(1)
    await owner.record(2)
    await owner.save("same", unsettled=[2])
    expect_equal("the requests", [request.request_id for request in await store.pending_requests()], ["q"])
    expect_equal("the journal", [entry for entry, _ in (await read_as_owner(store))["journal"]], [2])


LONG = "".join(chr(0x4E00 + index) for index in Random(1).choices(range(20_000), k=30_000))  # noqa: S311  # text
"""Incompressible: a name that fits into no index of a database."""


async def _save_under(owner: ThreadOwner, workflow_name: str) -> None:
    owner.workflow_name = workflow_name
    await owner.save()


def _assign(name: str) -> dict[str, Any]:
    return {"requests": [make_request("t", "q", 1, assignee=name)]}


NAMED: dict[str, Callable[[ThreadOwner, str], Awaitable[object]]] = {
    "checkpoint id": lambda owner, name: owner.save(name),
    "workflow name": _save_under,
    "request id": lambda owner, name: owner.save(requests=[make_request("t", name, 1)]),
    "assignee": lambda owner, name: owner.save(**_assign(name)),
    "status": lambda owner, name: owner.save(status=name),
    "run id": lambda owner, name: owner.save(run_id=name),
    "digest": lambda owner, name: owner.save(chunks={name: b"1"}),
    "item id": lambda owner, name: owner.store.post("t", name, "message", b"1"),
    "kind of an item": lambda owner, name: owner.store.post("t", f"item {len(name)}", name, b"1"),
    "owner": lambda owner, name: owner.store.open("t", name, takeover=True),
    "thread id": lambda owner, name: owner.store.post(name, "item", "message", b"1"),
}


@clause
async def a_name_is_stored_or_rejected_and_then_nothing_is_written(store: Store) -> None:
    """Each method is one atomic step: it happens completely or not at all."""
    for what, act in NAMED.items():
        owner = await own(store)
        await owner.save("c1")
        for name in (LONG[:500], LONG, "NUL \0 NUL"):
            before = await _all_of(store)
            try:
                await act(owner, name)
            except UnsupportedId as error:
                expect(name != LONG[:500], f"the {what} of 500 characters is rejected: {error}")
                expect_equal(f"what can be read after the {what} was rejected", await _all_of(store), before)
            else:
                is_stored = await _all_of(store) != before
                expect(is_stored, f"the {what} of {len(name)} characters is accepted and not stored")
        last = await own(store, owner="last", takeover=True)
        await last.release()
        await store.delete_thread("t")
    expect_equal("the damage after all that", list(await store.check()), [])


async def _all_of(store: Store) -> list[Any]:
    header = await store.thread_header("t")
    return [await read_everything(store), header, list(await store.commits("t")), list(await store.thread_ids())]


THREAD_IDS = ("../up", "/absolute", "a/b", "..", ".", "~", "C:\\con", "nul.txt", "index.db", "x" * 101, "é" * 2000)


@clause_with(Needs.A_STORE)
async def a_thread_id_leads_to_no_file_outside_the_folder(place: TrialLocation) -> None:
    """A store keeps threads."""
    before = sorted(path.name for path in (*place.folder.iterdir(), *place.folder.parent.glob("up*")))
    names = [*THREAD_IDS, "x" * 100_000]
    for number, thread_id in enumerate(names):
        await save_thread(place.store, thread_id, checkpoint_id=f"c{number}")
    listed = await thread_ids(place.store)
    expect(listed == names, f"of {len(names)} threads these are listed: {[name[:30] for name in listed]}")
    after = sorted(path.name for path in (*place.folder.iterdir(), *place.folder.parent.glob("up*")))
    expect_equal("the files outside the folder", [name for name in after if name != "store"], before)


@clause
async def a_thread_may_have_many_commits_entries_and_items(store: Store) -> None:
    """New chunks, by digest."""
    owner = await own(store)
    for number in range(1, MANY + 1):
        await owner.save(chunks={"aa": b"%d" % number}, events=1)
    await asyncio.gather(*(store.post("t", f"item {index}", "message", b"1") for index in range(MANY)))
    for delivery_id in range(MANY):
        await owner.record(delivery_id)
    expect_equal("the commits with chunks", len(await store.read_chunks("t", range(1, MANY + 100))), MANY)
    expect_equal("the batches of events", len(await store.events_after("t", 100)), MANY - 100)
    page = await checkpoint_ids(store, limit=2, before=f"t-{MANY - 2}")
    expect_equal("a page of checkpoints", page, [f"t-{MANY - 4}", f"t-{MANY - 3}"])
    within = await read_as_owner(store)
    expect_equal("journal and inbox", (len(within["journal"]), len(within["inbox"])), (MANY, MANY))
