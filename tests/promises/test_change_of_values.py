"""A migration rewrites values wherever they are stored: state, memories, steps, the journal, the inbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from tests.promises.changing import (
    CRASH,
    Case,
    Keeps,
    Ticket,
    Version,
    Yields,
    falls_asleep,
    first,
    pending,
    second,
    sleeping,
    will_crash,
)
from tests.promises.stages import Does

from perdure import NoPendingRequests, Workflow, WorkflowBuilder
from perdure.checkpoints.any_storage import post_message
from perdure.checkpoints.migration.stored_form import StoredForm
from perdure.checkpoints.storage import StoreCheckpointStorage


@dataclass
class File:
    """What a third version calls it, with another field."""

    title: str

    @property
    def text(self) -> str:
        return self.title


File.__module__ = "shop"


def rename_ticket(stored: StoredForm) -> None:
    stored.rename_type("shop:Ticket", Case)


def rename_case(stored: StoredForm) -> None:
    stored.rename_type("shop:Case", File)
    for file in stored.values(File):
        file["title"] = file.pop("text")


def third(before: Version) -> Version:
    return Version(File, "", before.stage, before.clock, [rename_ticket, rename_case])


async def test_a_field_is_renamed_in_everything_that_is_stored(any_storage: Any) -> None:
    old = first()
    await pending(old, any_storage).run(Ticket("x"), thread_id="t")
    new = third(old)
    result = await pending(new, any_storage).run(responses={"about asks": File("yes")}, thread_id="t")
    assert result.get_outputs() == ["x-1:yes"]
    head = await any_storage.get_latest(workflow_name="work")
    assert head.state == {"works": {"x": File("x")}}
    assert head.executors["keeps"].saved == {"seen": [File("x")]}
    assert head.executors["keeps"].private == {"last": File("x")}


async def test_a_field_is_renamed_in_the_journal(storage: StoreCheckpointStorage) -> None:
    old = first()
    will_crash(old, storage)
    await CRASH.begin(old, CRASH.build(old, storage))
    new = third(old)
    result = await CRASH.end(new, CRASH.build(new, storage))
    assert sorted(result.get_outputs()) == CRASH.outputs
    assert old.stage.calls == CRASH.calls


def more_state(stored: StoredForm) -> None:
    stored.state["count"] = stored.state.pop("number") + 1
    stored.state["case"] = stored.encode(Case(stored.decode(stored.state["case"]).text.upper()))
    stored.memory("look")["private"] = {"times": 7}


async def test_state_and_memories_are_rewritten(any_storage: Any) -> None:
    async def write(message: Any, ctx: Any) -> None:
        ctx.set_state("number", 1)
        ctx.set_state("case", Case("x"))

    async def read(message: Any, ctx: Any) -> None:
        await ctx.yield_output((dict(ctx.state), ctx.private["times"]))

    def looking(act: Any, *migrations: Any) -> Workflow:
        builder = WorkflowBuilder(
            name="look",
            start_executor=Does("look", act),
            checkpoint_storage=any_storage,
            allowed_types=[Case],
            migrations=migrations,
        )
        return builder.build()

    await looking(write).run("x", thread_id="t")
    [(state, times)] = (await looking(read, more_state).run("x", thread_id="t")).get_outputs()
    assert state == {"count": 2, "case": Case("X")}
    assert times == 7


def without_asks(stored: StoredForm) -> None:
    stored.drop_executor("asks")
    stored.signature["edges"] = ["Single: keeps->sink"]


async def test_dropped_executor_takes_its_requests_with_it(any_storage: Any) -> None:
    version = first()
    await pending(version, any_storage).run(Ticket("x"), thread_id="t")
    version.migrations = [without_asks]
    keeps, sink = Keeps(version, "keeps"), Yields(version, "sink")
    shorter = version.start(keeps, any_storage).add_edge(keeps, sink).build()
    with pytest.raises(NoPendingRequests):
        await shorter.run(responses={"about asks": Ticket("yes")}, thread_id="t")
    assert (await shorter.run(Ticket("y"), thread_id="t")).get_outputs() == ["y-2"]


async def test_store_of_a_migrated_thread_verifies_without_damage(storage: StoreCheckpointStorage) -> None:
    old = first()
    will_crash(old, storage)
    await CRASH.begin(old, CRASH.build(old, storage))
    new = CRASH.build(second(old), storage)
    await new.checkpoint("t")  # with what the journal was rewritten to
    await post(storage, new, Case("late"))
    assert await storage.verify() == []


# ---------------------------------------------------------------- the inbox


async def post(storage: StoreCheckpointStorage, sender: Workflow, message: Any) -> None:
    compiled = sender._compiled
    mark = compiled.migrations.names[-1] if compiled.migrations.names else None
    await post_message(storage, "t", f"{message}", message, compiled.declared, mark)


async def test_inbox_messages_of_old_and_new_senders_are_delivered(storage: StoreCheckpointStorage) -> None:
    """The inbox holds a message of the old workflow and one of the new workflow."""
    old = first()
    before = sleeping(old, storage)
    await falls_asleep(old, before)
    after = sleeping(third(old), storage)
    await post(storage, before, Ticket("old"))
    await post(storage, after, File("new"))
    async with old.clock.skipping():
        result = await after.run(thread_id="t")
    texts = [text for text in result.get_outputs() if text.endswith("!!")]
    assert sorted(texts) == ["new!!", "old!!", "x!!"]


async def test_message_of_an_old_sender_to_a_migrated_thread_is_migrated(storage: StoreCheckpointStorage) -> None:
    """Of what is sent after the thread was migrated only the types are known."""
    old = first()
    before = sleeping(old, storage)
    await falls_asleep(old, before)
    new = Version(Case, "", old.stage, old.clock, [rename_ticket])
    async with old.clock.skipping():
        await sleeping(new, storage).run(thread_id="t")
    await post(storage, before, Ticket("late"))
    async with old.clock.skipping():
        result = await sleeping(new, storage).run(thread_id="t")
    assert result.get_outputs() == ["late-sleeps", "late!!"]


async def test_message_of_the_new_workflow_to_an_old_thread_is_not_migrated(storage: StoreCheckpointStorage) -> None:
    """It lies in the inbox of a thread that is migrated only after that."""
    old = first()
    await falls_asleep(old, sleeping(old, storage))
    after = sleeping(third(old), storage)
    outputs: list[Any] = []
    async with old.clock.skipping(), after.open(thread_id="t") as handle:
        await handle.send(File("new"))
        outputs = [event.data async for event in handle.events() if event.type == "output"]
    assert {"new!!", "x!!"} <= set(outputs)


# ---------------------------------------------------------------- the event log


async def test_the_log_of_a_thread_can_be_read_beyond_the_change(storage: StoreCheckpointStorage) -> None:
    """The log keeps each event under the names of its time."""
    old = first()
    await pending(old, storage).run(Ticket("x"), thread_id="t")
    new = second(old)
    changed = pending(new, storage)
    await changed.run(responses={"about asks": Case("yes")}, thread_id="t")
    async with changed.open(thread_id="t") as handle:
        logged = [event async for event in handle.events(after=0)]
    assert [event.executor_id for event in logged if event.type == "executor_invoked"] == [
        "keeps",
        "asks",
        "new-asks",
        "new-sink",
    ]
    assert (await changed.outcomes("t"))["new-sink"] == "completed"
