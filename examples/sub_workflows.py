"""Workflows inside workflows, two levels deep: an order holds a shipment, a shipment holds a customs check.

There are two questions. An executor of the shipment answers the question of the customs check. The question of the
shipment is for a person: the caller of the order receives it, and passes the answer back in.

    python examples/sub_workflows.py
"""

import asyncio
from dataclasses import dataclass
from typing import Never

from perdure import (
    Executor,
    InMemoryCheckpointStorage,
    SubWorkflowRequestMessage,
    SubWorkflowResponseMessage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    executor,
    handler,
    response_handler,
)


@dataclass
class TariffQuestion:
    goods: str


# ---------------------------------------------------------------- innermost: the customs check


class Officer(Executor):
    """Asks for the tariff of the goods. It does not know who answers."""

    @handler
    async def check(self, goods: str, ctx: WorkflowContext[Never, float]) -> None:
        await ctx.request_info(TariffQuestion(goods), float)

    @response_handler
    async def take_tariff(self, question: TariffQuestion, tariff: float, ctx: WorkflowContext[Never, float]) -> None:
        await ctx.yield_output(tariff)


def customs() -> Workflow:
    return WorkflowBuilder(name="customs", start_executor=Officer("officer")).build()


# ---------------------------------------------------------------- around it: the shipment


class TariffBook(Executor):
    """Answers the question of the customs check, which is a normal message in this workflow."""

    @handler
    async def look_up(self, asked: SubWorkflowRequestMessage, ctx: WorkflowContext[SubWorkflowResponseMessage]) -> None:
        tariff = {"tea": 0.75, "silk": 4.5}[asked.source_event.data.goods]
        await ctx.send_message(asked.create_response(tariff), target_id=asked.executor_id)


class Clerk(Executor):
    """Asks a person how to send the goods."""

    @handler
    async def price(self, tariff: float, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.request_info(f"customs take {tariff:.2f}: by ship or by air?", str)

    @response_handler
    async def take_way(self, question: str, way: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"sent by {way}")


def shipment() -> Workflow:
    check, book, clerk = WorkflowExecutor(customs(), "check"), TariffBook("book"), Clerk("clerk")
    return (
        WorkflowBuilder(name="shipment", start_executor=check)
        .add_edge(check, clerk)  # the output of the customs check: the tariff
        .add_edge(check, book)  # its question
        .add_edge(book, check)  # the answer
        .build()
    )


# ---------------------------------------------------------------- outermost: the order


@executor
async def report(outcome: str, ctx: WorkflowContext[Never, str]) -> None:
    await ctx.yield_output(f"order done: {outcome}")


def order(storage: InMemoryCheckpointStorage) -> Workflow:
    # propagate_request: no executor of this workflow answers the shipment, so the caller receives its questions.
    ship = WorkflowExecutor(shipment(), "ship", propagate_request=True)
    builder = WorkflowBuilder(name="order", start_executor=ship, checkpoint_storage=storage)
    return builder.add_edge(ship, report).build()


async def main() -> None:
    storage = InMemoryCheckpointStorage()

    print("silk is ordered; the executors that run, with their paths:")
    stream = order(storage).run("silk", thread_id="order-1", stream=True)
    async for event in stream:
        if event.type == "executor_invoked":
            print("  ", event.executor_id)
    [request] = (await stream.get_final_response()).get_request_info_events()
    print(f"asked outside by {request.source_executor_id}: {request.data}")

    # Another object, as in a process that starts later: the sub-workflows continue where they stopped.
    result = await order(storage).run(responses={str(request.request_id): "air"}, thread_id="order-1")
    print(result.get_outputs()[0])
    print("called after the answer:", [event.executor_id for event in result if event.type == "executor_invoked"])


if __name__ == "__main__":
    asyncio.run(main())
