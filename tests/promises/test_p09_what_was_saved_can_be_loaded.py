"""Promise 9: a type that could not be decoded later is refused at save time; data types may gain and lose fields."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, make_dataclass
from typing import Any

import pytest
from tests.promises.processes import FarStage, Place
from tests.promises.stages import Boom, Does, Stage, alone, chain

from perdure import DamagedCheckpoint, Opaque, UnsavableValue, Workflow, WorkflowContext
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.codecs import StoredFieldIgnored


def a_class(*fields: Any, name: str = "Ticket") -> type:
    """A dataclass of a package that no executor here belongs to. Equal names are one class at different times."""
    made = make_dataclass(name, fields)
    made.__module__ = "shop.tickets"  # not by a namespace: from 3.12 on that is overridden
    return made


BEFORE = a_class(("number", int), ("urgent", bool, field(default=False)))
WITH_MORE = a_class(
    ("number", int), ("urgent", bool, field(default=False)), ("notes", list, field(default_factory=list))
)
WITH_LESS = a_class(("number", int))
WITH_A_MUST = a_class(("number", int), ("urgent", bool), ("owner", str))


def shop(stage: Stage, storage: Any, ticket: type, allowed: tuple[type, ...]) -> Workflow:
    """Keeps a ticket in every place, then reads it back in another superstep."""

    async def keep(number: int, ctx: WorkflowContext[Any, Any]) -> None:
        ctx.set_state("ticket", [ticket(number)])
        ctx.private["ticket"] = ticket(number)
        await ctx.yield_output(ticket(number))
        await ctx.send_message(ticket(number))

    async def read(message: Any, ctx: WorkflowContext[Any, Any]) -> None:
        await stage.play("read", "")
        await ctx.yield_output([message, *ctx.get_state("ticket")])

    return chain(Does("keep", keep), Does("read", read), storage=storage, allowed_types=allowed)


@pytest.fixture
def stage() -> Stage:
    return Stage()


async def saved_before(stage: Stage, storage: Any) -> None:
    """A thread of the time BEFORE, interrupted between keeping and reading."""
    stage.failing = {"read"}
    with pytest.raises(Boom):
        await shop(stage, storage, BEFORE, (BEFORE,)).run(7, thread_id="t")
    stage.failing = set()


async def test_undeclared_type_is_refused_at_save_time(any_storage: Any, stage: Stage) -> None:
    """Not when it is loaded: that would be too late."""
    with pytest.raises(UnsavableValue, match=r"type shop\.tickets:Ticket was not declared.*allowed_types=") as raised:
        await shop(stage, any_storage, BEFORE, ()).run(7, thread_id="t")
    assert raised.value.path in ("state['ticket'][0]", "messages['keep'][0].data")
    assert len(await any_storage.list_checkpoint_ids(workflow_name="chain")) == 1


async def test_class_with_the_name_of_a_declared_class_is_refused(any_storage: Any, stage: Stage) -> None:
    """It would come back as the other one."""
    with pytest.raises(UnsavableValue, match="not declared"):
        await shop(stage, any_storage, WITH_LESS, (BEFORE,)).run(7, thread_id="t")


def local_class() -> type:
    from dataclasses import dataclass

    @dataclass
    class Local:
        x: int = 1

    return Local


@pytest.mark.parametrize(
    "value",
    [lambda: None, object(), Stage(), local_class()(), (number for number in [1]), open, pytest, range],
    ids=["lambda", "object", "instance", "local class", "generator", "function", "module", "type"],
)
async def test_values_that_cannot_be_decoded_are_refused(any_storage: Any, value: Any) -> None:
    async def keep(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        ctx.set_state("kept", {"value": value})

    async def end(message: str, ctx: WorkflowContext[Any, Any]) -> None: ...

    workflow = chain(Does("keep", keep), Does("end", end), storage=any_storage)
    if value is range:  # a type of the built-in set is a value like any other
        result = await workflow.run("x")
        assert (await any_storage.load(result.checkpoint_id)).state == {"kept": {"value": range}}
        return
    with pytest.raises(UnsavableValue) as raised:
        await workflow.run("x")
    assert raised.value.path == "state['kept']['value']"


async def test_a_declared_type_comes_back_as_itself(any_storage: Any, stage: Stage) -> None:
    await saved_before(stage, any_storage)
    result = await shop(stage, any_storage, BEFORE, (BEFORE,)).run(thread_id="t")
    assert result.get_outputs() == [BEFORE(7), [BEFORE(7), BEFORE(7)]]


async def test_a_field_added_since_has_its_default(storage: Any, stage: Stage) -> None:
    await saved_before(stage, storage)
    result = await shop(stage, storage, WITH_MORE, (WITH_MORE,)).run(thread_id="t")
    assert result.get_outputs() == [WITH_MORE(7), [WITH_MORE(7), WITH_MORE(7)]]
    (message, state) = result.get_outputs()[1]
    message.notes.append("own")
    assert state.notes == []


async def test_a_field_removed_since_is_reported(storage: Any, stage: Stage) -> None:
    await saved_before(stage, storage)
    with pytest.warns(
        StoredFieldIgnored, match="A stored Ticket has the field 'urgent', which the class no longer has"
    ):
        result = await shop(stage, storage, WITH_LESS, (WITH_LESS,)).run(thread_id="t")
    assert result.get_outputs() == [WITH_LESS(7), [WITH_LESS(7), WITH_LESS(7)]]


async def test_a_field_added_without_a_default_is_an_error_that_names_it(storage: Any, stage: Stage) -> None:
    await saved_before(stage, storage)
    workflow = shop(stage, storage, WITH_A_MUST, (WITH_A_MUST,))
    with pytest.raises(DamagedCheckpoint, match="field 'owner' of Ticket is not stored and has no default"):
        await workflow.run(thread_id="t")
    result = await shop(stage, storage, BEFORE, (BEFORE,)).run(thread_id="t")
    assert len(result.get_outputs()) == 2, "the thread is as it was"


# ---------------------------------------------------------------- without a workflow


@dataclass
class Order:
    number: int
    lines: list[str]


def ordering(stage: Stage, storage: Any) -> Workflow:
    async def keep(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        ctx.set_state("order", Order(7, [message]))
        ctx.private["orders"] = {Order(8, []).number: (Order(8, []), message)}
        await ctx.yield_output(Order(9, [message * 5000]))

    return alone(Does("keep", keep), storage)


async def read_and_save_back(stage: FarStage, tool: StoreCheckpointStorage) -> list[Any]:
    """As a tool does, in a process that never saw a workflow."""
    head = await tool.get_latest(thread_id="t")
    assert head is not None
    order = head.state["order"]
    await tool.save(head)
    return [
        type(order),
        order.type,
        order.data,
        [checkpoint.iteration_count for checkpoint in await tool.list_checkpoints()],
    ]


async def test_tool_without_the_types_reads_and_saves_back_a_checkpoint(place: Place) -> None:
    """It builds nothing; but it loses nothing either."""
    await place.run(ordering, "tea").result()
    async with place.storage() as storage:
        before = await storage.get_latest(thread_id="t")
    seen = await place.start(read_and_save_back).result()
    assert seen == [Opaque, f"{__name__}:Order", {"number": 7, "lines": ["tea"]}, [0, 1]]
    async with place.storage() as storage:
        after = await storage.get_latest(thread_id="t")
        result = await ordering(Stage(), storage).run(thread_id="t")
    assert before is not None and after is not None
    assert (after.state, after.executors) == (before.state, before.executors)
    assert after.number > before.number
    assert result.get_outputs() == [Order(9, ["tea" * 5000])]


@pytest.fixture(autouse=True)
def _forget_reported_fields() -> Iterator[None]:
    """Python shows each warning once for each place; a test must not hide it from the next."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("always", StoredFieldIgnored)
        yield
