"""What type checkers say about sending and yielding. Checked by tests/typing/test_cases.py, never run."""

from dataclasses import dataclass

from typing_extensions import Never

from perdure import Executor, WorkflowContext, handler


@dataclass
class Order:
    number: int


class Right(Executor):
    @handler
    async def receive(self, message: str, ctx: WorkflowContext[Order, float]) -> None:
        await ctx.send_message(Order(1))
        await ctx.yield_output(1.5)

    @handler
    async def only_sends(self, message: int, ctx: WorkflowContext[Order | str]) -> None:
        await ctx.send_message("text")
        await ctx.send_message(Order(2))

    @handler
    async def only_yields(self, message: bytes, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output("done")

    @handler
    async def only_listens(self, message: float, ctx: WorkflowContext) -> None:
        ctx.set_state("seen", message)


class Wrong(Executor):
    @handler
    async def receive(self, message: str, ctx: WorkflowContext[Order, float]) -> None:
        await ctx.send_message(message)  # expect: error [arg-type]
        await ctx.yield_output(message)  # expect: error [arg-type]
        ctx.send_message(Order(1))  # expect: error [unused-coroutine]

    @handler
    async def only_sends(self, message: int, ctx: WorkflowContext[Order]) -> None:
        await ctx.yield_output("done")  # expect: error [arg-type]

    @handler
    async def only_yields(self, message: bytes, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.send_message("text")  # expect: error [arg-type]

    @handler
    async def only_listens(self, message: float, ctx: WorkflowContext) -> None:
        await ctx.send_message("text")  # expect: error [arg-type]
