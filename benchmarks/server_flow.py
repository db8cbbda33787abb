"""The workflow that is served: one step, which counts and says back what it was told."""

from perdure import Executor, WorkflowBuilder, WorkflowContext, handler


class Echo(Executor):
    @handler
    async def hear(self, message: str, ctx: WorkflowContext[str, str]) -> None:
        ctx.set_state("count", ctx.get_state("count", 0) + 1)
        await ctx.yield_output(message)


app = WorkflowBuilder(name="echo", start_executor=Echo(id="echo")).build()
