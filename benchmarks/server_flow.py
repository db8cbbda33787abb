"""The workflow of the server: one step, which counts and returns its message."""

from perdure import Executor, WorkflowBuilder, WorkflowContext, handler


class Echo(Executor):
    @handler
    async def echo(self, message: str, ctx: WorkflowContext[str, str]) -> None:
        ctx.set_state("count", ctx.get_state("count", 0) + 1)
        await ctx.yield_output(message)


app = WorkflowBuilder(name="echo", start_executor=Echo(id="echo")).build()
