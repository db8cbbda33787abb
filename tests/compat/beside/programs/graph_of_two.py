"""Two functions in a row: the events of a streamed run, and the outputs of one that is not."""

from typing import Any, Never

from flows import WorkflowBuilder, WorkflowContext, executor


@executor(id="upper")
async def upper(text: str, ctx: WorkflowContext[str]) -> None:
    await ctx.send_message(text.upper())


@executor(id="reverse")
async def reverse(text: str, ctx: WorkflowContext[Never, str]) -> None:
    await ctx.yield_output(text[::-1])


async def main() -> Any:
    workflow = WorkflowBuilder(start_executor=upper).add_edge(upper, reverse).build()
    outputs = (await workflow.run("abc")).get_outputs()
    streamed = [event.data async for event in workflow.run("def", stream=True) if event.type == "output"]
    return outputs, streamed
