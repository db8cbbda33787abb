"""Checkpoints that runs make: their number and chain, resuming from each, hooks, other workflows, fan-ins."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Never

from flows import (
    Executor,
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    WorkflowBuilder,
    WorkflowCheckpointException,
    WorkflowContext,
    executor,
    handler,
)

FOLDER = Path()


@dataclass
class Item:
    name: str
    count: int = 0


class Step(Executor):
    def __init__(self, id: str, fails: list[str] | None = None) -> None:
        super().__init__(id=id)
        self.fails = [] if fails is None else fails
        self.calls = 0

    @handler
    async def take(self, message: str, ctx: WorkflowContext[str, str]) -> None:
        self.calls += 1
        if self.id in self.fails:
            raise ValueError(f"{self.id} fails")
        ctx.set_state("path", [*ctx.get_state("path", []), self.id])
        if self.id == "c":
            await ctx.yield_output(f"{message}c{len(ctx.get_state('path'))}")
        await ctx.send_message(message + self.id)

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"calls": self.calls}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.calls = state["calls"]


def chain(storage: Any, fails: list[str] | None = None, name: str = "chain") -> Any:
    a, b, c = (Step(key, fails) for key in "abc")
    return WorkflowBuilder(start_executor=a, name=name, checkpoint_storage=storage).add_chain([a, b, c]).build()


async def ordered(storage: Any, name: str = "chain") -> list[Any]:
    """By their chain."""
    listed = {each.checkpoint_id: each for each in await storage.list_checkpoints(workflow_name=name)}
    previous = {each.previous_checkpoint_id: each for each in listed.values()}
    checkpoints, current = [], None
    while current in previous:
        checkpoints.append(previous[current])
        current = checkpoints[-1].checkpoint_id
    return checkpoints


async def made_by_a_run() -> Any:
    storage = InMemoryCheckpointStorage()
    await chain(storage).run("x")
    checkpoints = await ordered(storage)
    due = [sorted(message.data for sent in each.messages.values() for message in sent) for each in checkpoints]
    return [
        [each.iteration_count for each in checkpoints][:4],
        due[:3],
        [each.state.get("path") for each in checkpoints][:4],
    ]


async def of_each_storage() -> Any:
    results = []
    for storage in (InMemoryCheckpointStorage(), FileCheckpointStorage(FOLDER / "files")):
        await chain(storage).run("x")
        latest = await storage.get_latest(workflow_name="chain")
        results.append([latest.workflow_name, latest.state["path"], latest.pending_request_info_events])
    return results


async def resumed_from_each() -> Any:
    storage = InMemoryCheckpointStorage()
    await chain(storage).run("x")
    results = []
    for checkpoint in (await ordered(storage))[:3]:
        workflow = chain(storage)
        result = await workflow.run(checkpoint_id=checkpoint.checkpoint_id)
        calls = [workflow.executors[key].calls for key in "abc"]
        results.append([result.get_outputs(), result.get_final_state().value, calls])
    return results


async def resumed_after_a_failure() -> Any:
    storage, fails = InMemoryCheckpointStorage(), ["b"]
    workflow = chain(storage, fails)
    try:
        await workflow.run("x")
    except ValueError as error:
        text = str(error)
    latest = await storage.get_latest(workflow_name="chain")
    fails.clear()
    same = await workflow.run(checkpoint_id=latest.checkpoint_id)
    other = await chain(storage).run(checkpoint_id=latest.checkpoint_id)
    streamed = chain(storage).run(checkpoint_id=latest.checkpoint_id, stream=True)
    events = [
        event.type async for event in streamed if event.type in ("executor_invoked", "output", "superstep_started")
    ]
    return [text, latest.iteration_count, same.get_outputs(), other.get_outputs(), events[:4]]


async def storage_of_the_run() -> Any:
    storage, built = InMemoryCheckpointStorage(), InMemoryCheckpointStorage()
    await chain(None).run("x", checkpoint_storage=storage)
    [first, *_] = await ordered(storage)
    result = await chain(None).run(checkpoint_id=first.checkpoint_id, checkpoint_storage=storage)
    await chain(built).run("x", checkpoint_storage=storage)
    counts = [len(await each.list_checkpoints(workflow_name="chain")) for each in (built,)]
    later = chain(built)
    await later.run("x")
    return [result.get_outputs(), counts, len(await built.list_checkpoints(workflow_name="chain")) > 2]


async def refused() -> Any:
    storage = InMemoryCheckpointStorage()
    await chain(storage).run("x")
    [first, *_] = await ordered(storage)

    def other() -> Any:
        a, b = Step("a"), Step("b")
        return WorkflowBuilder(start_executor=a, name="chain", checkpoint_storage=storage).add_edge(a, b).build()

    results = []
    for workflow, checkpoint_id in ((other(), first.checkpoint_id), (chain(storage), "unknown")):
        try:
            results.append((await workflow.run(checkpoint_id=checkpoint_id)).get_outputs())
        except WorkflowCheckpointException:
            results.append("refused")
    return results


async def same_graph_same_hash() -> Any:
    first, second = chain(None), chain(None, name="other")
    a, b, c = (Step(key) for key in "abc")
    changed = WorkflowBuilder(start_executor=a).add_edge(a, b, condition=lambda message: True).add_edge(b, c).build()
    return [
        first.graph_signature_hash == second.graph_signature_hash,
        first.graph_signature_hash == changed.graph_signature_hash,
    ]


async def own_objects() -> Any:
    @executor(id="first")
    async def first(message: str, ctx: WorkflowContext[Item]) -> None:
        ctx.set_state("item", Item(message, 1))
        await ctx.send_message(Item(message))

    @executor(id="second")
    async def second(item: Item, ctx: WorkflowContext[Never, Any]) -> None:
        kept = ctx.get_state("item")
        await ctx.yield_output([item.name, item.count, kept.name, kept.count])

    results = []
    for storage in (
        InMemoryCheckpointStorage(),
        FileCheckpointStorage(FOLDER / "objects", allowed_checkpoint_types=[f"{Item.__module__}:Item"]),
    ):
        builder = WorkflowBuilder(start_executor=first, name="objects", checkpoint_storage=storage)
        workflow = builder.add_edge(first, second).build()
        await workflow.run("tea")
        checkpoints = await ordered(storage, "objects")
        again = await workflow.run(checkpoint_id=checkpoints[1].checkpoint_id)
        results.append(again.get_outputs())
    return results


async def several_runs() -> Any:
    storage = InMemoryCheckpointStorage()
    workflow = chain(storage)
    await workflow.run("x")
    before = len(await storage.list_checkpoints(workflow_name="chain"))
    await workflow.run("y")
    checkpoints = await ordered(storage)
    listed = await storage.list_checkpoints(workflow_name="chain")
    return [len(listed) > before, len(checkpoints) == len(listed), checkpoints[-1].state["path"]]


async def main() -> Any:
    parts = (
        *(made_by_a_run, of_each_storage, resumed_from_each, resumed_after_a_failure, storage_of_the_run),
        *(refused, same_graph_same_hash, own_objects, several_runs),
    )
    return {part.__name__: await part() for part in parts}
