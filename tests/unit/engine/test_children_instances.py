"""Every child has executors, memory and state of its own, however many runs share the workflow object."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Never

import pytest
from tests.promises.stages import Boom, Stage
from tests.unit.engine.nested import (
    THREAD,
    Counter,
    Give,
    KeptCounter,
    Split,
    Take,
    around,
    committed,
    deep,
    line,
    on_any_storage,
)

from perdure import (
    Executor,
    InMemoryCheckpointStorage,
    SubWorkflowFailed,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    WorkflowRunResult,
    executor,
    handler,
)


def counting(kind: type[Counter] = Counter) -> Workflow:
    return WorkflowBuilder(name="counting", start_executor=kind("count")).build()


def outputs(result: WorkflowRunResult) -> list[Any]:
    return result.get_outputs()


# ---------------------------------------------------------------- instances


@on_any_storage
@pytest.mark.parametrize("kind", [Counter, KeptCounter])
async def test_children_of_several_inputs_do_not_share_executors(
    kind: type[Counter], make_storage: Callable[[], Any]
) -> None:
    flow = around(counting(kind), make_storage())
    assert outputs(await flow.run("x y z", thread_id=THREAD)) == ["x1", "y1", "z1"]


@pytest.mark.parametrize("kind", [Counter, KeptCounter])
async def test_a_later_input_gets_executors_that_have_seen_nothing(kind: type[Counter]) -> None:
    flow = around(counting(kind))
    assert outputs(await flow.run("x", thread_id=THREAD)) == ["x1"]
    assert outputs(await flow.run("y", thread_id=THREAD)) == ["y1"]


@pytest.mark.parametrize("kind", [Counter, KeptCounter])
async def test_one_workflow_object_runs_twice_in_a_parent(kind: type[Counter]) -> None:
    child, first, last = counting(kind), Split("first"), Take("last")
    subs = [WorkflowExecutor(child, "left"), WorkflowExecutor(child, "right")]
    builder = WorkflowBuilder(start_executor=first).add_fan_out_edges(first, subs)
    flow = builder.add_edge(subs[0], last).add_edge(subs[1], last).build()
    assert sorted(outputs(await flow.run("x"))) == ["x1", "x1"]


@pytest.mark.parametrize("kind", [Counter, KeptCounter])
async def test_one_workflow_object_runs_in_several_parents_and_by_itself(kind: type[Counter]) -> None:
    """Executors that are passed as instances serve one thread; every other thread gets its own."""
    child = counting(kind)
    assert outputs(await child.run("own")) == ["own1"]
    assert outputs(await around(child).run("x")) == ["x1"]
    assert outputs(await around(child, name="another").run("y")) == ["y1"]
    assert outputs(await child.run("own")) == ["own2"], "it has run by itself before, in this thread"


@pytest.mark.parametrize("thread_id", [None, "named"])
async def test_children_of_the_default_thread_share_what_constructors_got(thread_id: str | None) -> None:
    class Listing(Executor):
        def __init__(self, id: str, seen: list[str]) -> None:
            super().__init__(id)
            self.seen = seen

        @handler
        async def note(self, message: str, ctx: WorkflowContext[Never, str]) -> None:
            self.seen.append(message)
            await ctx.yield_output(f"{message}{len(self.seen)}")

    seen: list[str] = []
    flow = around(WorkflowBuilder(start_executor=Listing("list", seen)).build())
    await flow.run("x", thread_id=None if thread_id is None else "first")
    assert outputs(await flow.run("y", thread_id=thread_id)) == (["y2"] if thread_id is None else ["y1"])
    assert seen == (["x", "y"] if thread_id is None else ["x"])


async def test_a_parent_and_its_child_run_by_themselves_at_the_same_time() -> None:
    stage = Stage()
    child = line(stage, "ab")
    parent, other = around(child), around(child, name="other")
    results = await asyncio.gather(child.run("own"), parent.run("x"), other.run("y"))
    assert [outputs(result) for result in results] == [["own-a-b"], ["x-a-b"], ["y-a-b"]]


@on_any_storage
@pytest.mark.parametrize("kind", [Counter, KeptCounter])
async def test_threads_of_a_parent_never_share_the_executors_of_children(
    kind: type[Counter], make_storage: Callable[[], Any]
) -> None:
    flow = deep(counting(kind), 2, make_storage())
    running = [flow.run(f"x{number}-", thread_id=f"t{number}") for number in range(8)]
    assert [outputs(result) for result in await asyncio.gather(*running)] == [[f"x{number}-1"] for number in range(8)]


async def test_executor_of_a_child_keeps_its_instance_across_supersteps() -> None:
    class Rounds(Counter):
        @handler
        async def turn(self, left: int, ctx: WorkflowContext[int, str]) -> None:
            self.count += 1
            await (ctx.send_message(left - 1) if left else ctx.yield_output(f"{self.count}"))

    rounds = Rounds("rounds")
    child = WorkflowBuilder(start_executor=rounds).add_edge(rounds, rounds).build()
    sub = WorkflowExecutor(child, "sub", allow_direct_output=True)
    assert outputs(await WorkflowBuilder(start_executor=sub).build().run(4)) == ["5"]


# ---------------------------------------------------------------- hooks


class Pair(Executor):
    """Collects its messages in `self` and sends them on, three times."""

    def __init__(self, id: str, stage: Stage) -> None:
        super().__init__(id)
        self.stage = stage
        self.texts: list[str] = []

    @handler
    async def collect(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        self.texts.append(text)
        await self.stage.play(self.id, text)
        await (ctx.send_message(text + "!") if len(self.texts) < 3 else ctx.yield_output(" ".join(self.texts)))

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"heard": self.texts}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.texts = state["heard"]


def collecting(stage: Stage, storage: Any, depth: int = 1) -> Workflow:
    pair = Pair("hear", stage)
    return deep(WorkflowBuilder(name="hearing", start_executor=pair).add_edge(pair, pair).build(), depth, storage)


@pytest.mark.parametrize("depth", [1, 2])
async def test_saved_values_of_an_inner_executor_are_in_its_childs_checkpoint(depth: int) -> None:
    storage = InMemoryCheckpointStorage()
    await collecting(Stage(), storage, depth).run("x", thread_id=THREAD)
    kept = []
    for checkpoint in await committed(storage):
        level: Any = checkpoint
        for _ in range(depth):
            level = next(iter(level.children.values()), None)
            if level is None:
                break
        if level is not None and "hear" in level.executors:
            kept.append(level.executors["hear"].saved["heard"])
    assert kept[-2:] == [["x"], ["x", "x!"]]


@pytest.mark.parametrize("depth", [1, 2])
async def test_saved_values_of_an_inner_executor_are_restored_from_checkpoints(depth: int) -> None:
    storage = InMemoryCheckpointStorage()
    flow = collecting(Stage(), storage, depth)
    await flow.run("x", thread_id=THREAD)
    for info in await committed(storage):
        forked = await collecting(Stage(), storage, depth).run(checkpoint_id=info.checkpoint_id, fork=True)
        rewound = await flow.run(checkpoint_id=info.checkpoint_id)
        assert outputs(forked) == outputs(rewound) == ["x x! x!!"]


@on_any_storage
async def test_an_inner_executor_is_put_back_after_a_failed_superstep(make_storage: Callable[[], Any]) -> None:
    stage = Stage()
    flow = collecting(stage, make_storage(), 2)
    stage.failing = {"hear"}
    for _ in range(3):
        with pytest.raises(SubWorkflowFailed):
            await flow.run("x" if not stage.calls else None, thread_id=THREAD)
    stage.failing.clear()
    assert outputs(await flow.run(thread_id=THREAD)) == ["x x! x!!"]


async def test_hooks_of_several_children_are_kept_apart() -> None:
    storage, stage = InMemoryCheckpointStorage(), Stage()
    flow = collecting(stage, storage)
    assert outputs(await flow.run("x y", thread_id=THREAD)) == ["x x! x!!", "y y! y!!"]
    for checkpoint in await committed(storage):
        resumed = await collecting(stage, storage).run(checkpoint_id=checkpoint.checkpoint_id, fork=True)
        assert outputs(resumed) == ["x x! x!!", "y y! y!!"]


# ---------------------------------------------------------------- state


async def test_state_of_child_and_parent_are_kept_apart() -> None:
    @executor
    async def outer(text: str, ctx: WorkflowContext[str]) -> None:
        ctx.set_state("key", "parent")
        await ctx.send_message(text)

    @executor
    async def inner(text: str, ctx: WorkflowContext[str]) -> None:
        assert ctx.get_state("key") is None
        ctx.set_state("key", f"child {text}")
        await ctx.send_message(text)

    @executor
    async def reads(text: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(ctx.get_state("key"))

    @executor
    async def after(text: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"{text}, {ctx.get_state('key')}")

    storage = InMemoryCheckpointStorage()
    sub = WorkflowExecutor(WorkflowBuilder(start_executor=inner).add_edge(inner, reads).build(), "sub")
    builder = WorkflowBuilder(start_executor=outer, checkpoint_storage=storage)
    result = await builder.add_edge(outer, sub).add_edge(sub, after).build().run("x", thread_id=THREAD)
    assert outputs(result) == ["child x, parent"]
    [inside] = [
        checkpoint
        for checkpoint in await committed(storage)
        if checkpoint.children and any(c.state for c in checkpoint.children.values())
    ]
    assert [child.state for child in inside.children.values()] == [{"key": "child x"}]
    assert inside.state == {"key": "parent"}


async def test_children_write_the_same_key_in_one_superstep_without_a_conflict() -> None:
    @executor
    async def write(text: str, ctx: WorkflowContext[str]) -> None:
        ctx.set_state("key", text)
        ctx.private["own"] = text
        await ctx.send_message(text)

    @executor
    async def read(text: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(ctx.get_state("key"))

    child = WorkflowBuilder(start_executor=write).add_edge(write, read).build()
    assert outputs(await around(child, InMemoryCheckpointStorage()).run("x y z")) == ["x", "y", "z"]


async def test_a_child_uses_the_reducers_of_its_own_workflow() -> None:
    first = Split("first")

    async def note(text: str, ctx: WorkflowContext[str]) -> None:
        ctx.set_state("notes", [f"{text}{ctx.executor_id}"])
        await ctx.send_message(text)

    @executor
    async def read(texts: list[str], ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output("+".join(ctx.get_state("notes")))

    noting = [executor(id=name)(note) for name in ("1", "2")]
    builder = WorkflowBuilder(start_executor=first, state={"notes": lambda before, new: (before or []) + new})
    child = builder.add_fan_out_edges(first, noting).add_fan_in_edges(noting, read).build()
    assert outputs(await around(child).run("x y")) == ["x1+x2", "y1+y2"]


async def test_a_message_is_the_childs_own_copy() -> None:
    """What an inner executor does to it reaches neither a sibling nor the parent's checkpoint."""

    @executor
    async def send(text: str, ctx: WorkflowContext[list[str]]) -> None:
        await ctx.send_message([text])

    @executor
    async def change(items: list[str], ctx: WorkflowContext[Never, str]) -> None:
        items.append("changed")
        await ctx.yield_output("+".join(items))

    child = WorkflowBuilder(name="changing", start_executor=change).build()
    subs = [WorkflowExecutor(child, name) for name in ("one", "two")]
    last = Take("last")
    builder = WorkflowBuilder(start_executor=send).add_fan_out_edges(send, subs)
    flow = builder.add_edge(subs[0], last).add_edge(subs[1], last).build()
    assert outputs(await flow.run("x")) == ["x+changed", "x+changed"]


async def test_executors_of_a_failed_child_leave_nothing_to_the_next_child() -> None:
    """Without hooks what an executor keeps in `self` is lost with its instance, not handed to the next child."""
    stage = Stage()

    class Fragile(Give):
        tries = 0

        @handler
        async def try_it(self, number: int, ctx: WorkflowContext[Never, str]) -> None:
            self.tries += 1
            if number < 0:
                raise Boom
            await ctx.yield_output(f"{number} {self.tries}")

    sub = WorkflowExecutor(WorkflowBuilder(start_executor=Fragile("f", stage)).build(), "sub", True)
    flow = WorkflowBuilder(start_executor=sub).build()
    with pytest.raises(SubWorkflowFailed):
        await flow.run(-1, thread_id="one")
    assert outputs(await flow.run(2, thread_id="two")) == ["2 1"]
