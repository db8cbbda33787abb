"""Arguments of a run reach the executors of sub-workflows: all, those of one sub-workflow, or a single one."""

from __future__ import annotations

import json
from typing import Any, Never

import pytest
from tests.promises.stages import Stage
from tests.unit.engine.nested import (
    THREAD,
    Split,
    around,
)

from perdure import (
    InMemoryCheckpointStorage,
    Secret,
    SubWorkflowFailed,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    executor,
)


async def seen_arguments(arguments: Any) -> dict[str, Any]:
    """The run's arguments that each executor of a nesting receives, by path."""
    seen: dict[str, Any] = {}

    def noting(name: str) -> Any:
        async def note(text: str, ctx: WorkflowContext[str, str]) -> None:
            seen[name] = dict(ctx.function_invocation_kwargs)
            await ctx.send_message(text)

        return executor(id=name.rpartition("/")[2])(note)

    inner, middle, outer = noting("l1/l2/in"), noting("l1/mid"), noting("out")
    l2 = WorkflowExecutor(WorkflowBuilder(name="inner", start_executor=inner).build(), "l2")
    l1 = WorkflowExecutor(WorkflowBuilder(name="m", start_executor=middle).add_edge(middle, l2).build(), "l1")
    flow = WorkflowBuilder(name="o", start_executor=outer).add_edge(outer, l1).build()
    await flow.run("x", function_invocation_kwargs=arguments)
    return seen


async def test_run_arguments_for_all_reach_every_level() -> None:
    assert await seen_arguments({"user": 7}) == {"out": {"user": 7}, "l1/mid": {"user": 7}, "l1/l2/in": {"user": 7}}


async def test_run_arguments_for_a_sub_workflow_reach_all_of_it_and_nothing_else() -> None:
    assert await seen_arguments({"l1": {"user": 7}}) == {"out": {}, "l1/mid": {"user": 7}, "l1/l2/in": {"user": 7}}


async def test_run_arguments_go_to_one_inner_executor_by_the_ids_on_the_way() -> None:
    assert await seen_arguments({"l1": {"l2": {"in": {"user": 7}}}}) == {
        "out": {},
        "l1/mid": {},
        "l1/l2/in": {"user": 7},
    }
    assert await seen_arguments({"out": {"a": 1}, "l1": {"mid": {"b": 2}}}) == {
        "out": {"a": 1},
        "l1/mid": {"b": 2},
        "l1/l2/in": {},
    }


async def test_secret_argument_reaches_an_inner_executor_and_is_not_stored() -> None:
    storage = InMemoryCheckpointStorage()

    @executor
    async def use(text: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"{text} {len(ctx.client_kwargs['key'])}")

    flow = around(WorkflowBuilder(start_executor=use).build(), storage)
    assert (await flow.run("x", client_kwargs={"key": Secret("s3cr3t")})).get_outputs() == ["x 6"]
    for checkpoint in await storage.list_checkpoints():
        assert "s3cr3t" not in json.dumps(checkpoint.to_dict())


async def test_run_arguments_are_kept_after_a_restart_inside_a_child() -> None:
    storage, stage = InMemoryCheckpointStorage(), Stage()
    stage.failing = {"use"}

    def build() -> Workflow:
        @executor
        async def use(text: str, ctx: WorkflowContext[Never, str]) -> None:
            await stage.play("use", text)
            await ctx.yield_output(f"{text} {ctx.function_invocation_kwargs['user']}")

        first = Split("a")
        child = WorkflowBuilder(name="child", start_executor=first).add_edge(first, use).build()
        return around(child, storage)

    with pytest.raises(SubWorkflowFailed):
        await build().run("x", thread_id=THREAD, function_invocation_kwargs={"user": 7})
    stage.failing.clear()
    assert (await build().run(thread_id=THREAD)).get_outputs() == ["x 7"]
