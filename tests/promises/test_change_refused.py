"""A change that cannot be met is refused before anything is done, names the reason, and can be forced."""

from __future__ import annotations

from typing import Any

import pytest
from tests.promises.changing import Case, Ticket, first, pending, second
from tests.promises.stages import Boom, Does
from tests.promises.test_change_once_and_in_order import A, B, C, adds, look, looking, seen

from perdure import (
    DamagedCheckpoint,
    IncompatibleWorkflow,
    InMemoryCheckpointStorage,
    MigrationFailed,
    Workflow,
    WorkflowBuilder,
)
from perdure.checkpoints.any_storage import post_message
from perdure.checkpoints.migration.stored_form import StoredForm
from perdure.checkpoints.storage import StoreCheckpointStorage


async def everything_in(storage: Any) -> list[Any]:
    return [checkpoint.to_dict() for checkpoint in await storage.list_checkpoints(workflow_name="look")]


# ---------------------------------------------------------------- lists that do not continue what was applied


@pytest.mark.parametrize(
    ("applied", "today", "why"),
    [
        ([A], [], "migration 'a' was applied to it, and is not among the workflow's"),
        ([adds("rename_it")], [adds("rename_its")], "is not among the workflow's (did you mean 'rename_its'?)"),
        ([A, B], [B, A], "its migrations were applied in the order 'a', 'b', and are listed as 'b', 'a'"),
        ([A, C], [A, B, C], "migration 'b' stands before 'c', which was applied already: add it at the end"),
        ([B], [A, B], "migration 'a' stands before 'b', which was applied already: add it at the end"),
    ],
    ids=["unknown", "misspelt", "another order", "in between", "in front"],
)
async def test_a_list_that_does_not_continue_what_was_applied_is_refused(
    any_storage: Any, applied: list[Any], today: list[Any], why: str
) -> None:
    await seen(any_storage, *applied)
    before = await everything_in(any_storage)
    with pytest.raises(IncompatibleWorkflow) as refused:
        await seen(any_storage, *today)
    [difference] = refused.value.differences
    assert why in difference
    for way_out in ("migrations=[...]", "force=True", "Nothing was changed"):
        assert way_out in str(refused.value)
    with pytest.raises(IncompatibleWorkflow):
        await looking(any_storage, *today).run(checkpoint_id=before[-1]["checkpoint_id"])
    assert await everything_in(any_storage) == before


async def test_refused_migration_can_be_forced_and_counts_as_applied(any_storage: Any) -> None:
    await seen(any_storage, A, C)
    workflow = looking(any_storage, A, B, C)
    result = await workflow.run("x", thread_id="t", force=True)
    assert result.get_outputs() == [["b"]]
    warnings = [event.data for event in result if event.type == "warning"]
    assert warnings[0] == "Migrations were applied to the checkpoint: b."
    assert "migration 'b' stands before 'c', which was applied already: add it at the end" in warnings[1]
    assert await seen(any_storage, A, B, C) == ["b"]


async def test_old_process_refuses_a_journal_of_a_newer_version(storage: StoreCheckpointStorage) -> None:
    """The head is still what the old one knows; the journal is not."""
    calls: list[str] = []

    async def note() -> None:
        calls.append("noted")

    async def at_once(message: Any, ctx: Any) -> None:
        raise Boom

    async def later(message: Any, ctx: Any) -> None:
        await ctx.step(note)
        raise Boom

    async def not_at_all(message: Any, ctx: Any) -> None:
        await ctx.step(note)

    with pytest.raises(Boom):
        await looking(storage, A, act=at_once).run("x", thread_id="t")
    with pytest.raises(Boom):
        await looking(storage, A, B, act=later).run(thread_id="t")
    with pytest.raises(IncompatibleWorkflow, match="its journal was written after migration 'b'"):
        await looking(storage, A, act=later).run(thread_id="t")
    await looking(storage, A, B, act=not_at_all).run(thread_id="t")
    assert calls == ["noted"]


async def test_old_process_refuses_an_inbox_of_a_newer_version(storage: StoreCheckpointStorage) -> None:
    await seen(storage, A)
    new = looking(storage, A, B)
    await post_message(storage, "t", "item", "y", new._compiled.declared, "b")
    with pytest.raises(IncompatibleWorkflow, match="its inbox was written after migration 'b'"):
        await looking(storage, A).run(thread_id="t")
    assert (await new.run(thread_id="t")).get_outputs() == [["b"]]


# ---------------------------------------------------------------- after the migrations


def half(stored: StoredForm) -> None:
    stored.rename_executor("keeps", "new-keeps")


async def test_migrated_checkpoint_is_compared_with_the_workflow(any_storage: Any) -> None:
    old = first()
    await pending(old, any_storage).run(Ticket("x"), thread_id="t")
    with pytest.raises(DamagedCheckpoint, match="'shop:Ticket' was not declared"):
        await pending(second(old, half), any_storage).run(thread_id="t")

    def rest(stored: StoredForm) -> None:
        stored.rename_executor("asks", "new-asks")
        stored.rename_type("shop:Ticket", Case)

    with pytest.raises(IncompatibleWorkflow) as refused:
        await pending(second(old, half, rest), any_storage).run(thread_id="t")
    assert refused.value.differences == ["executor 'sink' is gone", "edge 'Single: new-asks->sink' is gone"]
    forced = await pending(second(old, half, rest), any_storage).run(
        responses={"about asks": Case("yes")}, thread_id="t", force=True
    )
    assert forced.get_outputs() == ["x-1:yes"]


async def test_additions_pass_and_are_reported_beside_the_migrations(any_storage: Any) -> None:
    await seen(any_storage)
    start = Does("look", look)
    grown = WorkflowBuilder(name="look", start_executor=start, checkpoint_storage=any_storage, migrations=[A])
    grown.add_edge(start, Does("more", look))
    result = await grown.build().run("x", thread_id="t")
    assert [event.data for event in result if event.type == "warning"][:2] == [
        "Migrations were applied to the checkpoint: a.",
        "The workflow changed since the checkpoint was made: executor 'more' is new; edge 'Single: look->more' is new.",
    ]


# ---------------------------------------------------------------- migrations that fail


def broken(stored: StoredForm) -> None:
    stored.state["left"] = "behind"
    raise KeyError("no such thing")


def unknown(stored: StoredForm) -> None:
    stored.rename_executor("loook", "looks")


def no_json(stored: StoredForm) -> None:
    stored.state["pair"] = (1, 2)


@pytest.mark.parametrize(
    ("migration", "why"),
    [
        (broken, "KeyError: 'no such thing'"),
        (unknown, "the graph has no executor 'loook' (did you mean 'look'?)"),
        (no_json, "it left a value that JSON cannot hold, such as a tuple"),
    ],
)
async def test_a_migration_that_fails_changes_nothing_and_is_named(any_storage: Any, migration: Any, why: str) -> None:
    await seen(any_storage)
    before = await everything_in(any_storage)
    workflow = looking(any_storage, A, migration)
    with pytest.raises(MigrationFailed):
        await workflow.run("x", thread_id="t")
    with pytest.raises(MigrationFailed) as failed:  # not ThreadBusy: it was given up
        await workflow.run("x", thread_id="t")
    assert failed.value.migration == migration.__name__
    for part in (why, repr(migration.__name__), repr("t"), repr(before[-1]["checkpoint_id"])):
        assert part in str(failed.value)
    assert await everything_in(any_storage) == before
    assert await seen(any_storage, A) == ["a"]


# ---------------------------------------------------------------- invalid lists of migrations


def build(migrations: Any) -> Workflow:
    return looking(InMemoryCheckpointStorage(), *migrations)


async def late(stored: StoredForm) -> None: ...


@pytest.mark.parametrize(
    ("migrations", "error", "why"),
    [
        ([A, adds("a")], ValueError, "Two migrations are called 'a'"),
        ([lambda stored: None], ValueError, r"needs a name that stays the same.*Migration\('name', function\)"),
        ([late], TypeError, "is not async"),
        (["rename_writer"], TypeError, "a function that takes a StoredForm"),
        ([StoredForm], TypeError, "a function that takes a StoredForm"),
    ],
    ids=["twice", "lambda", "async", "text", "class"],
)
def test_invalid_list_of_migrations_is_refused_at_build_time(migrations: Any, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        build(migrations)
