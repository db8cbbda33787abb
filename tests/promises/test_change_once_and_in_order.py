"""Each migration is applied once to each checkpoint, in order, whatever was applied before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.promises.changing import Case, Ticket, first, pending, second
from tests.promises.stages import Does

from perdure import Workflow, WorkflowBuilder
from perdure.checkpoints.migration.stored_form import StoredForm

Step = Callable[[StoredForm], None]


def adds(name: str) -> Step:
    """A migration that can be seen: applied twice, it adds its name twice."""

    def migration(stored: StoredForm) -> None:
        stored.state["applied"] = [*stored.state.get("applied", []), name]

    migration.__name__ = name
    return migration


A, B, C = adds("a"), adds("b"), adds("c")


async def look(message: Any, ctx: Any) -> None:
    await ctx.yield_output(ctx.get_state("applied", []))


def looking(storage: Any, *migrations: Step, act: Any = look) -> Workflow:
    builder = WorkflowBuilder(
        name="look", start_executor=Does("look", act), checkpoint_storage=storage, migrations=migrations
    )
    return builder.build()


async def seen(storage: Any, *migrations: Step, **options: Any) -> Any:
    """What a run of the workflow with these migrations finds in the state."""
    [applied] = (await looking(storage, *migrations).run("x", **{"thread_id": "t", **options})).get_outputs()
    return applied


async def test_a_migration_is_applied_once_however_often_the_thread_is_opened(any_storage: Any) -> None:
    assert await seen(any_storage) == []
    assert await seen(any_storage, A) == ["a"]
    assert await seen(any_storage, A) == ["a"]
    workflow = looking(any_storage, A)
    assert [(await workflow.run("x", thread_id="t")).get_outputs() for _ in range(2)] == [[["a"]], [["a"]]]


async def test_thread_with_some_migrations_gets_the_others_in_order(any_storage: Any) -> None:
    await seen(any_storage)
    assert await seen(any_storage, A) == ["a"]
    assert await seen(any_storage, A, B, C) == ["a", "b", "c"]
    await seen(any_storage, thread_id="other")
    assert await seen(any_storage, A, B, C, thread_id="other") == ["a", "b", "c"]


async def test_new_thread_records_all_migrations_and_applies_none(any_storage: Any) -> None:
    assert await seen(any_storage, A, B) == []
    assert await seen(any_storage, A, B, C) == ["c"]
    head = await any_storage.get_latest(workflow_name="look")
    assert head.migrations == ("a", "b", "c")


async def test_history_is_unchanged_and_each_checkpoint_migrates_on_its_own(any_storage: Any) -> None:
    await seen(any_storage)
    await seen(any_storage, A)
    history = await any_storage.list_checkpoints(workflow_name="look")
    assert [(checkpoint.migrations, checkpoint.state) for checkpoint in (history[0], history[-1])] == [
        ((), {}),
        (("a",), {"applied": ["a"]}),
    ]
    ids = [checkpoint.checkpoint_id for checkpoint in history]
    back = await looking(any_storage, A, B).run(checkpoint_id=ids[0])  # a rewind behind all of them
    assert back.get_outputs() == [["a", "b"]]
    await looking(any_storage, A, B).run(checkpoint_id=ids[-1], fork=True, thread_id="fork")
    assert await seen(any_storage, A, B, thread_id="fork") == ["a", "b"]


async def test_migration_stores_nothing_until_the_next_commit(any_storage: Any) -> None:
    old = first()
    await pending(old, any_storage).run(Ticket("x"), thread_id="t")
    before = await any_storage.list_checkpoint_ids(workflow_name="work")
    result = await pending(second(old), any_storage).run(thread_id="t")  # only looks: it waits for an answer
    assert [event.data for event in result.get_request_info_events()] == [Case("x-1")]
    assert await any_storage.list_checkpoint_ids(workflow_name="work") == before
    assert (await any_storage.get_latest(workflow_name="work")).migrations == ()
