"""The event log can be continued; order-independent reads, secrets, dispatch, restores that fail."""

from __future__ import annotations

from typing import Any

import pytest
from tests.promises.stages import Again, Boom, Does, Relay, Stage, Tally, alone, chain, fan, kinds

from perdure import (
    CheckpointHookFailed,
    Executor,
    MissingSecret,
    Secret,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
)
from perdure.checkpoints.storage import StoreCheckpointStorage

# ---------------------------------------------------------------- what siblings see


def siblings(order: list[str], storage: Any) -> Workflow:
    """begin -> a writer and two readers, in this order; all of them touch the same value and the same message."""

    async def begin(message: Any, ctx: WorkflowContext[Any, Any]) -> None:
        ctx.set_state("key", ["old"])
        await ctx.send_message(message)

    async def write(message: list[str], ctx: WorkflowContext[Any, Any]) -> None:
        ctx.get_state("key").append("in place")
        ctx.set_state("key", ["new"])
        ctx.set_state("other", "new")
        message.append("changed")
        await ctx.yield_output(("writer", ctx.get_state("key"), ctx.get_state("other")))

    async def read(message: list[str], ctx: WorkflowContext[Any, Any]) -> None:
        await ctx.yield_output((ctx.executor_id, ctx.get_state("key"), ctx.get_state("other"), message))

    acts = {"writer": write, "reader1": read, "reader2": read}
    source = Does("begin", begin)
    builder = WorkflowBuilder(name="siblings", start_executor=source, checkpoint_storage=storage)
    return builder.add_fan_out_edges(source, [Does(name, acts[name]) for name in order]).build()


ORDERS = [["writer", "reader1", "reader2"], ["reader1", "writer", "reader2"], ["reader1", "reader2", "writer"]]


@pytest.mark.parametrize("order", ORDERS, ids=[order.index("writer") for order in ORDERS])
async def test_siblings_read_the_same_in_any_order(any_storage: Any, order: list[str]) -> None:
    result = await siblings(order, any_storage).run(["message"])
    assert sorted(result.get_outputs()) == [
        ("reader1", ["old"], None, ["message"]),
        ("reader2", ["old"], None, ["message"]),
        ("writer", ["new"], "new"),
    ]
    head = await any_storage.get_latest(workflow_name="siblings")
    assert head.state == {"key": ["new"], "other": "new"}


async def test_a_value_changed_in_place_is_seen_in_the_next_superstep_only(any_storage: Any) -> None:
    seen: list[Any] = []

    async def begin(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        ctx.set_state("list", [])
        await ctx.send_message(message)

    async def change(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        ctx.get_state("list").append(message)
        await ctx.send_message(message)

    async def look(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        seen.append(ctx.get_state("list"))

    source, change_it, first, last = (
        Does(name, act) for name, act in [("begin", begin), ("change", change), ("first", look), ("last", look)]
    )
    builder = WorkflowBuilder(start_executor=source, checkpoint_storage=any_storage)
    await builder.add_fan_out_edges(source, [change_it, first]).add_edge(change_it, last).build().run("x")
    assert seen == [[], ["x"]]


# ---------------------------------------------------------------- a log that can be continued


async def test_log_continues_without_a_gap_or_a_repeat(storage: StoreCheckpointStorage, again: Again) -> None:
    """Over a failure and a resume, from any cursor."""
    stage = Stage()
    stage.failing = {"join"}
    workflow = fan(stage, storage)
    with pytest.raises(Boom):
        await workflow.run("x", thread_id="t")
    stage.failing = set()
    workflow = again(workflow, lambda: fan(stage, storage))
    await workflow.run(thread_id="t")
    async with workflow.open(thread_id="t") as run:
        whole = [event async for event in run.events(after=0)]
        assert [event.seq for event in whole] == list(range(1, len(whole) + 1))
        assert all(event.thread_id == "t" and event.run_id and event.timestamp for event in whole)
        for cursor in range(len(whole) + 1):
            assert [event.seq async for event in run.events(after=cursor)] == list(range(cursor + 1, len(whole) + 1))
    assert [event.data for event in whole if event.type == "output"] == ["x-source-a+x-source-b+x-source-c"]
    assert len({event.run_id for event in whole}) == 2


# ---------------------------------------------------------------- secrets


async def everything_stored(storage: StoreCheckpointStorage, thread_id: str) -> bytes:
    parts = []
    for info in await storage.list_checkpoint_infos():
        stored = await storage.store.find_checkpoint(info.checkpoint_id)
        parts.append(stored.root if stored else b"")
    parts += [logged.body for logged in await storage.store.events_after(thread_id, 0)]
    return b"".join(parts)


def client(stage: Stage, storage: Any, seen: list[Any]) -> Workflow:
    async def call(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        await stage.play("client", message)
        seen.append((ctx.client_kwargs["api_key"], ctx.function_invocation_kwargs["nested"]))

    return chain(Relay("one", stage), Does("client", call), storage=storage)


SECRETS: dict[str, Any] = {
    "client_kwargs": {"api_key": Secret("hunter2"), "region": "eu"},
    "function_invocation_kwargs": {"client": {"nested": Secret({"token": "hunter2"})}},
}


async def test_secrets_are_in_no_checkpoint_and_no_log(storage: StoreCheckpointStorage, again: Again) -> None:
    stage, seen = Stage(), list[Any]()
    stage.failing = {"client"}
    workflow = client(stage, storage, seen)
    with pytest.raises(Boom):
        await workflow.run("x", thread_id="t", **SECRETS)
    stage.failing = set()
    await again(workflow, lambda: client(stage, storage, seen)).run(thread_id="t", **SECRETS)
    assert seen == [("hunter2", {"token": "hunter2"})], "handlers get the values themselves"
    stored = await everything_stored(storage, "t")
    assert b"hunter2" not in stored and b"region" in stored


async def test_resume_without_a_secret_raises_missing_secret(storage: StoreCheckpointStorage) -> None:
    stage, seen = Stage(), list[Any]()
    stage.failing = {"client"}
    with pytest.raises(Boom):
        await client(stage, storage, seen).run("x", thread_id="t", **SECRETS)
    stage.failing = set()
    with pytest.raises(MissingSecret, match=r"'api_key' was marked secret.*Pass it again"):
        await client(stage, storage, seen).run(thread_id="t")
    await client(stage, storage, seen).run(thread_id="t", **SECRETS)
    assert len(seen) == 1


@pytest.mark.parametrize(
    "place", [[Secret("hunter2")], ({"deep": [{"er": Secret("hunter2")}]},), {"a": [[Secret("hunter2")]]}]
)
async def test_secret_at_any_depth_is_not_stored(storage: StoreCheckpointStorage, place: Any) -> None:
    workflow = alone(Relay("one", Stage()), storage)
    await workflow.run("x", thread_id="t", client_kwargs={"place": place})
    assert b"hunter2" not in await everything_stored(storage, "t")


def test_repr_of_a_secret_hides_its_value() -> None:
    assert "hunter2" not in repr(Secret("hunter2")) + str(SECRETS)


# ---------------------------------------------------------------- dispatch


class Animal: ...


class Dog(Animal): ...


class Puppy(Dog): ...


class Vet(Executor):
    """The handlers' names are in the wrong alphabetical order on purpose."""

    @handler
    async def a_anything(self, message: object, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output("anything")

    @handler
    async def b_animal(self, message: Animal, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output("animal")

    @handler
    async def c_dog(self, message: Dog, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output("dog")

    @handler
    async def d_number(self, message: int | str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output("number or text")

    @handler
    async def e_flag(self, message: bool, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output("flag")


@pytest.mark.parametrize(
    ("message", "chosen"),
    [(Puppy(), "dog"), (Dog(), "dog"), (Animal(), "animal"), (1.5, "anything"), (1, "number or text"), (True, "flag")],
)
async def test_the_most_specific_handler_is_chosen(message: object, chosen: str) -> None:
    assert (await alone(Vet("vet")).run(message)).get_outputs() == [chosen]


async def test_message_without_a_matching_handler_is_a_warning() -> None:
    async def send(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        await ctx.send_message(3.5)

    workflow = chain(Does("sender", send), Relay("only text", Stage()))
    result = await workflow.run("x")
    (warning,) = [event for event in result if event.type == "warning"]
    assert "float" in warning.data and "'sender'" in warning.data and "add_edge" in warning.data


# ---------------------------------------------------------------- restores


class Fragile(Tally):
    """Its restore fails while the stage lists `restore` as failing."""

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        if "restore" in self.stage.failing:
            raise Boom("restore")
        await super().on_checkpoint_restore(state)


def fragile(stage: Stage, storage: Any) -> Workflow:
    return chain(Tally("first", stage), Fragile("second", stage), storage=storage)


async def test_a_restore_that_fails_leaves_nothing_half_restored(any_storage: Any, again: Again) -> None:
    stage = Stage()
    workflow = fragile(stage, any_storage)
    await workflow.run("x", thread_id="t")
    early = (await any_storage.list_checkpoint_ids(workflow_name="chain"))[-1]
    await workflow.run("y", thread_id="t")
    stage.failing = {"restore"}
    broken = again(workflow, lambda: fragile(stage, any_storage))
    with pytest.raises(CheckpointHookFailed, match="on_checkpoint_restore of executor 'second' failed"):
        await broken.run(checkpoint_id=early)
    stage.failing = set()
    result = await broken.run("z", thread_id="t")
    sent = [event.data for event in result if event.type == "executor_completed"]
    assert sent == [["first=3"], ["second=3"]], "it continues from the head, all of it"


async def test_executors_unknown_to_a_restored_checkpoint_start_fresh(any_storage: Any) -> None:
    """Restoring a checkpoint from before an executor ran does not leave it with what it has learnt since."""
    stage = Stage()
    workflow = fragile(stage, any_storage)
    for _ in range(2):
        await workflow.run("x", thread_id="t")
    entry = (await any_storage.list_checkpoint_ids(workflow_name="chain"))[0]
    result = await workflow.run(checkpoint_id=entry)
    sent = [event.data for event in result if event.type == "executor_completed"]
    assert sent == [["first=1"], ["second=1"]]
    assert "executor_bypassed" not in kinds(result)
