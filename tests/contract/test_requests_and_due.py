"""Who is asked, and which threads go on by themselves: both across threads."""

from __future__ import annotations

from perdure.store import Store
from perdure.testing.conformance.threads import at, make_request, own, save_thread


async def pending(store: Store, **filters: object) -> list[tuple[str, str]]:
    found = await store.pending_requests(**filters)  # type: ignore[arg-type]  # filters are of several types
    return [(one.thread_id, one.request_id) for one in found]


async def test_requests_are_listed_across_threads_with_those_that_wait_longest_first(store: Store) -> None:
    await save_thread(store, "b", requests=[make_request("b", "late", 30), make_request("b", "early", 10)])
    await save_thread(store, "a", requests=[make_request("a", "middle", 20)], workflow_name="other")
    assert await pending(store) == [("b", "early"), ("a", "middle"), ("b", "late")]
    assert await pending(store, limit=2) == [("b", "early"), ("a", "middle")]
    assert await pending(store, thread_id="b") == [("b", "early"), ("b", "late")]
    assert await pending(store, workflow_name="other") == [("a", "middle")]
    assert await pending(store, workflow_name="other", thread_id="b") == []
    assert await pending(store, thread_id="none") == []


async def test_a_request_says_all_that_was_said_of_it(store: Store) -> None:
    request = make_request("t", "q/1", 1.000001, deadline=at(99.5), assignee="ann@example.com")
    await save_thread(store, "t", requests=[request], workflow_name="naïve")
    (found,) = await store.pending_requests()
    assert (found.thread_id, found.request_id, found.executor_id) == ("t", "q/1", "reviewer")
    assert (found.asked_at, found.deadline, found.assignee) == (at(1.000001), at(99.5), "ann@example.com")
    assert found.workflow_name == "naïve"


async def test_a_request_keeps_the_time_it_was_asked_over_later_commits(store: Store) -> None:
    owner = await own(store)
    await owner.save(requests=[make_request("t", "first", 1)])
    await owner.save(requests=[make_request("t", "first", 2), make_request("t", "second", 2)])
    await owner.note(status="FAILED")
    await owner.save()  # pending ones as before
    found = await store.pending_requests()
    assert [(one.request_id, one.asked_at) for one in found] == [("first", at(1)), ("second", at(2))]


async def test_a_request_goes_when_it_was_answered_and_is_new_when_asked_again(store: Store) -> None:
    owner = await own(store)
    await owner.save(requests=[make_request("t", "first", 1), make_request("t", "second", 1)])
    await owner.save(requests=[make_request("t", "second", 2)])
    assert await pending(store) == [("t", "second")]
    await owner.save(requests=[])
    assert await pending(store) == []
    await owner.save(requests=[make_request("t", "first", 4)])
    assert [one.asked_at for one in await store.pending_requests()] == [at(4)]


async def test_requests_of_a_thread_without_a_checkpoint_are_listed_too(store: Store) -> None:
    owner = await own(store)
    await owner.note(requests=[make_request("t", "q", 1)])
    assert await pending(store) == [("t", "q")]


async def test_one_request_id_in_two_threads_is_two_requests(store: Store) -> None:
    await save_thread(store, "a", requests=[make_request("a", "same", 1)])
    await save_thread(store, "b", requests=[make_request("b", "same", 1)])
    owner = await own(store, "a")
    await owner.save(requests=[])
    assert await pending(store) == [("b", "same")]


async def test_requests_of_a_thread_that_is_deleted_or_whose_head_is_pruned_go(store: Store) -> None:
    await save_thread(store, "a", requests=[make_request("a", "q", 1)])
    await save_thread(store, "b", requests=[make_request("b", "q", 1)])
    await save_thread(store, "c", requests=[make_request("c", "q", 1)])
    await store.delete_thread("a")
    await store.prune("b", ["b-1"])
    assert await pending(store) == [("c", "q")]


async def test_requests_of_the_head_stay_when_older_checkpoints_are_pruned(store: Store) -> None:
    owner = await own(store)
    await owner.save(requests=[make_request("t", "q", 1)])
    await owner.save()
    await store.prune("t", ["t-1"])
    assert await pending(store) == [("t", "q")]


# ---------------------------------------------------------------- due


async def due(store: Store, seconds: float, limit: int | None = None) -> list[str]:
    return [one.thread_id for one in await store.due(at(seconds), limit)]


async def test_threads_are_due_at_their_time_with_the_most_overdue_first(store: Store) -> None:
    for name, seconds in [("b", 30), ("a", 20), ("d", 40), ("c", 20)]:
        await save_thread(store, name, due_at=at(seconds))
    await save_thread(store, "never")
    assert await due(store, 19.999999) == []
    assert await due(store, 20) == ["a", "c"]
    assert await due(store, 35) == ["a", "c", "b"] and await due(store, 35, limit=1) == ["a"]
    assert await due(store, 1000) == ["a", "c", "b", "d"]


async def test_a_thread_with_an_owner_is_not_due(store: Store) -> None:
    await save_thread(store, "t", due_at=at(1))
    owner = await own(store)
    assert await due(store, 9) == []
    await owner.release()
    assert await due(store, 9) == ["t"]


async def test_each_checkpoint_says_anew_when_its_thread_is_due(store: Store) -> None:
    await save_thread(store, "t", due_at=at(50))
    await save_thread(store, "t", due_at=at(10))
    assert await due(store, 10) == ["t"]
    (found,) = await store.due(at(10))
    assert (found, found.due_at) == ((await store.threads())[0], at(10))
    await save_thread(store, "t")
    assert await due(store, 1000) == []


async def test_a_thread_is_not_due_any_more_when_its_head_was_pruned(store: Store) -> None:
    await save_thread(store, "t")
    await save_thread(store, "t", due_at=at(10))
    await store.prune("t", ["t-2"])
    assert await due(store, 1000) == []
