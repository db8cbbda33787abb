"""A commit is one act: number, fence and parent are compared, and either all of it is stored or nothing."""

from __future__ import annotations

import asyncio

import msgspec

from perdure.errors import ThreadConflict
from perdure.records import Commit
from perdure.store import Store
from perdure.testing.conformance.clause import clause, expect, expect_equal, expect_fields, expect_one, expect_raises
from perdure.testing.conformance.threads import (
    WHOLE,
    ThreadOwner,
    at,
    checkpoint_ids,
    chunk,
    chunks,
    commit_numbers,
    expect_owner_finds,
    expect_state,
    expect_unchanged,
    make_events,
    make_request,
    own,
    read_everything,
    ref,
    save_thread,
)


async def stores_nothing(store: Store, commit: Commit, what: str) -> None:
    async with expect_unchanged(store):
        await expect_raises(ThreadConflict, store.commit(commit), what)


async def prepare_thread(store: Store) -> ThreadOwner:
    """A thread with something of everything, at commit 2."""
    owner = await own(store)
    await owner.save(events=2, brings=["old"], requests=[make_request("t", "first", 1)], due_at=at(5))
    await owner.save(drops=["old"])
    await owner.record(7)
    await store.post("t", "item", "message", b'"hello"')
    return owner


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
    await expect_state(store, requests=["question"])
    thread = expect_one("the threads", await store.threads())
    expect_fields("the thread", thread, number=3, checkpoint_id="t-3", due_at=at(60), status="WAITING")
    expect_fields("the thread", thread, updated_at=at(3).isoformat(), workflow_name="w")
    await expect_owner_finds(store, last_seq=5, journal=[], inbox=[])


@clause
async def a_commit_that_is_not_the_next_or_whose_parent_is_gone_stores_nothing(store: Store) -> None:
    """Raises ThreadConflict if the fence is not the thread's newest, the number is not the next, or the parent is gone;
    then nothing is stored."""
    owner = await prepare_thread(store)
    for number in (0, 1, 2, 4, 1000):
        commit = msgspec.structs.replace(owner.checkpoint(**WHOLE), number=number)
        await stores_nothing(store, commit, f"commit {number} after commit 2")
    new = await own(store, "new")
    new.number = 1
    await expect_raises(ThreadConflict, new.save(), "commit 2 of a thread without a commit")
    await expect_state(store, journal=[7], inbox=["item"])
    owner = await own(store, takeover=True)
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
async def a_commit_without_a_checkpoint_keeps_head_journal_requests_and_timer(store: Store, owner: ThreadOwner) -> None:
    """None for a commit without a checkpoint, which has only events or a status."""
    await owner.note(events=1, status="FAILED", requests=[make_request("t", "first", 1)])
    await expect_state(store, "of a thread that begins with one", head=None, checkpoints=[], requests=["first"])
    thread = expect_one("the threads", await store.threads())
    expect_fields("the thread", thread, number=1, status="FAILED", checkpoint_id=None)
    await owner.save(requests=[make_request("t", "question", 1)], due_at=at(5))
    await owner.record(7)
    head = await store.head("t")
    await owner.note(events=2, status="FAILED", unsettled=[9])
    expect_equal("the head", await store.head("t"), head)
    thread = expect_one("the threads", await store.threads())
    expect_fields("the thread", thread, number=3, checkpoint_id="t-2", status="FAILED", due_at=at(5))
    await expect_state(store, requests=["question"])
    opened = await store.open("t", "run-2", takeover=True)
    expect_fields("what an owner finds", opened, number=3, last_seq=3)
    expect_equal("the journal", [(entry.delivery_id, entry.number) for entry in opened.journal], [(7, 3)])


@clause
async def a_checkpoint_follows_any_older_one_or_the_nearest_that_is_left(store: Store, owner: ThreadOwner) -> None:
    """The checkpoint that it continues from, or the nearest ancestor that is still stored."""
    first = await owner.save(brings=["a"])
    await owner.save(drops=["a"])
    owner.head = first
    branch = await owner.save()
    await expect_state(store, head="t-3", checkpoints=["t-1", "t-2", "t-3"], parents=[None, "t-1", "t-1"])
    fork = await own(store, "fork")
    commit = fork.checkpoint()
    info = msgspec.structs.replace(commit.info, previous_checkpoint_id=branch.checkpoint_id) if commit.info else None
    await store.commit(msgspec.structs.replace(commit, info=info))
    expect_equal("the checkpoints of the fork", await store.infos(thread_id="fork"), [info])
    await fork.release()
    await store.delete_thread("fork")
    await owner.save()
    await owner.save()  # 1 -> 3 -> 4 -> 5
    await store.prune("t", ["t-2", "t-3", "t-4"])
    await expect_state(store, "after a prune", parents=[None, "t-1"])
    await owner.save(prunes=[5])
    await expect_state(store, "after a commit that prunes", head="t-6", parents=[None, "t-1"])
    await store.prune("t", ["t-1"])
    await expect_state(store, "of the last one", parents=[None])


@clause
async def a_checkpoint_with_the_id_of_another_takes_its_place(store: Store, owner: ThreadOwner) -> None:
    """A checkpoint with the id of another replaces it."""
    first = await owner.save("same", brings=["a"], events=1)
    await owner.save("other", brings=["b"], requests=[make_request("t", "q", 1)])
    checkpoint = await store.find_checkpoint("same")
    expect_equal("the first of that id", checkpoint and checkpoint.info, first)
    await owner.save("same", root=b'"new"')
    await owner.record(1)
    await owner.record(2)
    await owner.save("same", root=b'"newest"', unsettled=[2])
    checkpoint = await store.find_checkpoint("same")
    expect_equal("its replacement", checkpoint and (checkpoint.root, checkpoint.info.number), (b'"newest"', 4))
    kept = {ref("a", 1), ref("b", 2)}
    await expect_state(store, checkpoints=["other", "same"], requests=["q"], journal=[2], chunks=kept, events=[1])
    await store.copy_thread("t", "copy")
    expect_equal("the checkpoints of a copy", await commit_numbers(store, thread_id="copy"), [2, 4])
    expect_equal("how many went with the other", await store.prune("t", ["other"]), 1)
    await expect_state(store, "then", chunks=kept, events=[1])
    expect_equal("how many went with the last", await store.prune("t", ["same"]), 1)
    left = (await checkpoint_ids(store, thread_id="t"), await store.find_checkpoint("same"), await store.head("t"))
    expect_equal("what is left", left, ([], None, None))
    await save_thread(store, "u", checkpoint_id="u-1")
    await (await own(store, "v")).save("u-1")
    await expect_state(store, "of a thread that lost it to another", thread_id="u", head=None)


@clause
async def what_a_caller_changes_later_is_not_changed_in_the_store(store: Store, owner: ThreadOwner) -> None:
    """When it returns, its effect is as durable as the store makes anything."""
    new_chunks, requests = dict([chunk("a")]), [make_request("t", "q", 1)]
    await owner.save(chunks=new_chunks, requests=requests)
    new_chunks.clear()
    requests.clear()
    await expect_state(store, chunks={ref("a", 1)}, requests=["q"])


@clause
async def a_commit_whose_caller_is_cancelled_completes(store: Store, owner: ThreadOwner) -> None:
    """Once called, it completes and returns or raises even if its caller is cancelled meanwhile."""
    task = asyncio.create_task(store.commit(owner.checkpoint(events=1, brings=["a"])))
    await asyncio.sleep(0)  # it has been called now
    task.cancel()
    (outcome,) = await asyncio.gather(task, return_exceptions=True)
    expect(not isinstance(outcome, asyncio.CancelledError), "a commit whose caller was cancelled ended with it")
    again = await own(store, owner="run-2", takeover=True)
    expected = [(1, 1)] if outcome is None else [(0, 0), (1, 1)]
    expect((again.number, again.last_seq) in expected, f"the thread stands at {again.number}, {again.last_seq}")
    expect_equal("the chunks", len(await chunks(store, "t")), again.number)
    await again.save(events=1)
