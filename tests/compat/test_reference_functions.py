"""Function workflows and drawings as a reader of the reference writes them."""

from __future__ import annotations

from typing import Any

from tests.compat.programs import berth_workflow, collect

from perdure import RunContext, WorkflowViz, get_run_context, step, workflow


@step(name="gauge")
async def measure(mark: int) -> int:
    return mark + 1


@workflow(name="gauging", description="how high the water is")
async def gauging(mark: int, ctx: RunContext) -> str:
    assert get_run_context() is ctx
    ctx.set_state("mark", await measure(mark))
    return f"{ctx.get_state('mark')} {ctx.is_streaming()}"


async def test_a_function_workflow_runs_and_streams() -> None:
    events = await collect(gauging.run(1, stream=True))

    assert (gauging.name, gauging.description) == ("gauging", "how high the water is")
    assert (await gauging.run(1)).get_outputs() == ["2 False"]
    assert [event.data for event in events if event.type == "output"] == ["2 True"]
    assert ("executor_completed", "gauge") in [(event.type, event.executor_id) for event in events]
    assert get_run_context() is None


async def test_a_message_is_optional_and_so_is_the_context() -> None:
    @workflow
    async def neither() -> str:
        return "neither"

    @workflow
    async def only_context(ctx: RunContext) -> str:
        return type(ctx).__name__

    runs: list[Any] = [await neither.run(), await only_context.run()]
    assert [run.get_outputs() for run in runs] == [["neither"], ["RunContext"]]


def test_a_drawing_names_every_executor_and_marks_the_start() -> None:
    text = WorkflowViz(berth_workflow()).to_mermaid()

    assert text.startswith("flowchart")
    assert "master" in text and "pilot" in text and "(Start)" in text
