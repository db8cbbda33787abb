"""Promise 5: the same checkpoint gives the same result each time; nothing stored is aliased by a live object."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.promises.stages import Again, Does, Stage, Tally, alone, chain
from tests.six_methods import SixMethods

from perdure import Executor, Workflow, WorkflowCheckpoint, WorkflowContext, handler


class Greedy(Executor):
    """Changes in place whatever it can lay hands on: message, state, private state, `self`, what it sent."""

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.seen: list[str] = []

    @handler
    async def grab(self, message: list[str], ctx: WorkflowContext[Any, Any]) -> None:
        message.append(self.id)
        self.seen.append(self.id)
        ctx.state.setdefault("log", [])
        ctx.get_state("log").append(len(message))
        ctx.private.setdefault("times", []).append(self.id)
        await ctx.send_message(message)
        output = {"message": message, "log": ctx.get_state("log"), "seen": self.seen, "private": dict(ctx.private)}
        await ctx.yield_output(output)
        message.append("changed after it was sent")
        output["log"].append("changed after it was yielded")
        ctx.get_state("log").pop()
        self.seen.append("after")

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"seen": self.seen}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]
        self.seen.append("restored")


def greedy(storage: Any) -> Workflow:
    async def end(message: Any, ctx: WorkflowContext[Any, Any]) -> None: ...

    return chain(Greedy("one"), Greedy("two"), Does("end", end), storage=storage)


async def stored_forms(storage: Any) -> dict[str, Any]:
    checkpoints: list[WorkflowCheckpoint] = await storage.list_checkpoints(workflow_name="chain")
    return {checkpoint.checkpoint_id: copy.deepcopy(checkpoint.to_dict()) for checkpoint in checkpoints}


async def test_each_resume_of_a_checkpoint_gives_the_same_result(any_storage: Any, again: Again) -> None:
    workflow = greedy(any_storage)
    await workflow.run(["x"], thread_id="t")
    for checkpoint_id in list(await stored_forms(any_storage)):
        results = []
        for _ in range(3):
            resumed = again(workflow, lambda: greedy(any_storage))
            results.append((await resumed.run(checkpoint_id=checkpoint_id)).get_outputs())
        assert results[0] == results[1] == results[2]
        assert results[0], "each of them yields something"


async def test_stored_checkpoints_stay_unchanged(any_storage: Any, again: Again) -> None:
    workflow = greedy(any_storage)
    result = await workflow.run(["x"], thread_id="t")
    before = await stored_forms(any_storage)
    result.get_outputs()[0]["message"].append("changed by the caller")
    for checkpoint_id in before:
        await again(workflow, lambda: greedy(any_storage)).run(checkpoint_id=checkpoint_id, fork=True)
    await workflow.run(["y"], thread_id="t")
    after = await stored_forms(any_storage)
    assert {key: after[key] for key in before} == before


async def test_resume_gives_the_same_output_as_the_run(any_storage: Any) -> None:
    """From its first checkpoint the same things happen: nothing that came later has leaked into it."""

    def build() -> Workflow:
        async def add(message: int, ctx: WorkflowContext[Any, Any]) -> None:
            numbers = ctx.get_state("numbers", [])
            numbers.append(message)
            ctx.set_state("numbers", numbers)
            await ctx.yield_output(sum(numbers))

        return alone(Does("add", add), any_storage)

    workflow = build()
    await workflow.run(1, thread_id="t")
    result = await workflow.run(3, thread_id="t")
    assert result.get_outputs() == [4]
    entry = (await any_storage.list_checkpoints(workflow_name="alone"))[2]
    for resumed in (workflow, workflow, build(), build()):
        assert (await resumed.run(checkpoint_id=entry.checkpoint_id)).get_outputs() == [4]


async def test_sent_and_yielded_values_are_copied_at_the_call(any_storage: Any) -> None:
    outputs = (await greedy(any_storage).run(["x"], thread_id="t")).get_outputs()
    assert [output["message"] for output in outputs] == [["x", "one"], ["x", "one", "two"]]
    assert [output["log"] for output in outputs] == [[2], [2, 3]]
    assert [output["private"] for output in outputs] == [{"times": ["one"]}, {"times": ["two"]}]


async def test_state_values_are_copied_at_the_call(any_storage: Any) -> None:
    async def keep(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        first, second = ["set"], ["set"]
        ctx.set_state("first", first)
        ctx.state["second"] = second
        first.append("later")
        second.append("later")

    result = await alone(Does("keep", keep), any_storage).run("x")
    assert (await any_storage.load(result.checkpoint_id)).state == {"first": ["set"], "second": ["set"]}


async def test_a_loaded_checkpoint_is_the_callers_own(storage: Any) -> None:
    await greedy(storage).run(["x"], thread_id="t")
    ids = await storage.list_checkpoint_ids(workflow_name="chain")
    before = await stored_forms(storage)
    for loaded in [await storage.load(ids[1]), await storage.get_latest(thread_id="t")]:
        loaded.state.clear()
        loaded.outputs.clear()
        for sent in loaded.messages.values():
            for message in sent:
                message.data.append("changed by a reader")
    assert await stored_forms(storage) == before


async def test_a_checkpoint_is_frozen(storage: Any) -> None:
    result = await greedy(storage).run(["x"])
    checkpoint = await storage.load(result.checkpoint_id)
    with pytest.raises(AttributeError):
        checkpoint.iteration_count = 7


async def test_input_of_the_caller_is_copied_at_the_call(any_storage: Any) -> None:
    message = ["x"]
    workflow = greedy(any_storage)
    first = await workflow.run(message, thread_id="t")
    message.append("changed by the caller")
    entry = (await any_storage.list_checkpoints(workflow_name="chain"))[0]
    resumed = await greedy(any_storage).run(checkpoint_id=entry.checkpoint_id)
    assert resumed.get_outputs()[0]["message"] == first.get_outputs()[0]["message"] == ["x", "one"]
    assert message == ["x", "changed by the caller"]


EVENT_TYPES = ["executor_invoked", "executor_completed", "output", "request_info"]


@pytest.mark.parametrize("kind", EVENT_TYPES)
async def test_changes_of_a_consumer_to_an_event_have_no_effect(any_storage: Any, again: Again, kind: str) -> None:
    """A view that sorts or trims what it is shown must not change what is delivered or stored next."""

    async def ask(message: list[str], ctx: WorkflowContext[Any, Any]) -> None:
        await ctx.yield_output(["output"])
        await ctx.request_info(["question"], str, request_id="r")
        await ctx.send_message(message)

    async def take(message: list[str], ctx: WorkflowContext[Any, Any]) -> None:
        await ctx.yield_output(message)

    def build() -> Workflow:
        return chain(Does("ask", ask), Does("take", take), storage=any_storage)

    workflow = build()
    async for event in workflow.run(["message"], stream=True, thread_id="t"):
        if event.type == kind and event.data:
            event.data.append("changed by a consumer")
    result = await again(workflow, build).run(thread_id="t")
    assert result.get_outputs() == [["output"], ["message"]]
    assert [event.data for event in result.get_request_info_events()] == [["question"]]


async def test_changes_of_the_caller_to_a_result_have_no_effect(any_storage: Any, again: Again) -> None:
    workflow = greedy(any_storage)
    result = await workflow.run(["x"], thread_id="t")
    before = copy.deepcopy(result.get_outputs())
    result.get_outputs()[0]["message"].append("changed by the caller")
    assert (await again(workflow, lambda: greedy(any_storage)).run(thread_id="t")).get_outputs() == before


async def test_two_forks_of_one_checkpoint_are_independent(storage: Any) -> None:
    workflow = alone(Tally("tally", Stage()), storage)
    base = await workflow.run("x", thread_id="base")
    assert base.checkpoint_id is not None
    for fork in ("left", "right"):
        await workflow.run(checkpoint_id=base.checkpoint_id, fork=True, thread_id=fork)
    await workflow.run("x", thread_id="left")
    totals = {}
    for thread_id in ("base", "left", "right"):
        head = await storage.get_latest(thread_id=thread_id)
        totals[thread_id] = head.executors["tally"].saved["total"]
    assert totals == {"base": 1, "left": 2, "right": 1}


async def test_a_storage_that_keeps_live_objects_is_safe_too() -> None:
    """The engine hands out and takes in copies, so a careless storage cannot tie two runs together."""
    storage = SixMethods()
    await greedy(storage).run(["x"], thread_id="t")
    kept = [copy.deepcopy(checkpoint.to_dict()) for checkpoint in storage.kept.values()]
    entry = next(iter(storage.kept))
    await greedy(storage).run(checkpoint_id=entry)
    assert [checkpoint.to_dict() for checkpoint in storage.kept.values()][: len(kept)] == kept
