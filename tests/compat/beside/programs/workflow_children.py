"""Workflows as executors of others: outputs, requests, failures, names, types, checkpoints."""

import asyncio
from dataclasses import dataclass
from typing import Any, Never

from flows import (
    Executor,
    InMemoryCheckpointStorage,
    SubWorkflowRequestMessage,
    SubWorkflowResponseMessage,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    executor,
    handler,
    response_handler,
)


@dataclass
class Question:
    text: str


@dataclass
class Price:
    item: str
    amount: float


class Pricing(Executor):
    @handler
    async def price(self, item: str, ctx: WorkflowContext[Never, Price]) -> None:
        await ctx.yield_output(Price(item, len(item)))


class Steps(Executor):
    @handler
    async def one(self, item: str, ctx: WorkflowContext[int, str]) -> None:
        await ctx.yield_output(f"{item}-1")
        await ctx.send_message(2)

    @handler
    async def two(self, number: int, ctx: WorkflowContext[int, str]) -> None:
        await ctx.yield_output(f"step-{number}")


class Asker(Executor):
    @handler
    async def ask(self, item: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.request_info(Question(item), str, request_id=f"q-{item}")

    @response_handler
    async def answered(self, question: Question, answer: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"{question.text}={answer}")


class Parent(Executor):
    def __init__(self, id: str = "parent") -> None:
        super().__init__(id=id)
        self.results: list[Any] = []
        self.requests: list[Any] = []

    @handler
    async def begin(self, items: list[str], ctx: WorkflowContext[str]) -> None:
        for item in items:
            await ctx.send_message(item, target_id="child")

    @handler
    async def price(self, price: Price, ctx: WorkflowContext[Never, Any]) -> None:
        self.results.append([price.item, price.amount, ctx.get_source_executor_id()])
        await ctx.yield_output(price.item)

    @handler
    async def text(self, text: str, ctx: WorkflowContext[Never, Any]) -> None:
        self.results.append(text)
        await ctx.yield_output(text)

    @handler
    async def request(
        self, request: SubWorkflowRequestMessage, ctx: WorkflowContext[SubWorkflowResponseMessage]
    ) -> None:
        event = request.source_event
        self.requests.append([event.request_id, event.data.text, request.executor_id, event.response_type.__name__])
        await ctx.send_message(request.create_response(f"parent of {event.data.text}"), target_id=request.executor_id)


def inside(start: Executor, *others: Executor) -> Any:
    builder = WorkflowBuilder(start_executor=start, name="inner")
    for each in others:
        builder.add_edge(start, each)
    return builder.build()


def around(inner: Any, **options: Any) -> tuple[Any, Parent]:
    parent, child = Parent(), WorkflowExecutor(inner, id="child", **options)
    builder = WorkflowBuilder(start_executor=parent, name="outer")
    return builder.add_edge(parent, child).add_edge(child, parent).build(), parent


async def results_as_messages() -> Any:
    workflow, parent = around(inside(Pricing(id="pricing")))
    result = await workflow.run(["tea", "coffee"])
    return [sorted(result.get_outputs()), sorted(parent.results)]


async def several_results() -> Any:
    workflow, parent = around(WorkflowBuilder(start_executor=(s := Steps(id="steps"))).add_edge(s, s).build())
    return [(await workflow.run(["x"])).get_outputs(), parent.results]


async def direct_outputs() -> Any:
    child = WorkflowExecutor(inside(Pricing(id="pricing")), id="child", allow_direct_output=True)
    workflow = WorkflowBuilder(start_executor=child).build()
    result = await workflow.run("tea")
    outputs = [[event.executor_id, event.data.item] for event in result if event.type == "output"]
    return [outputs, [output.amount for output in result.get_outputs()]]


async def asked_of_the_parent() -> Any:
    workflow, parent = around(inside(Asker(id="asker")))
    result = await workflow.run(["a", "b"])
    final = [result.get_final_state().value, result.get_request_info_events()]
    return [sorted(result.get_outputs()), sorted(parent.requests), final]


async def asked_outside() -> Any:
    child = WorkflowExecutor(inside(Asker(id="asker")), id="child", propagate_request=True)

    @executor(id="end")
    async def end(message: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(message)

    workflow = WorkflowBuilder(start_executor=child).add_edge(child, end).build()
    result = await workflow.run("a")
    [event] = result.get_request_info_events()
    shown = [event.data.text, event.response_type.__name__, result.get_final_state().value]
    done = await workflow.run(responses={event.request_id: "yes"})
    return [shown, done.get_outputs(), done.get_final_state().value]


async def asked_outside_twice_and_restored() -> Any:
    storage = InMemoryCheckpointStorage()

    def build() -> Any:
        child = WorkflowExecutor(inside(Asker(id="asker")), id="child", propagate_request=True)

        @executor(id="end")
        async def end(message: str, ctx: WorkflowContext[Never, str]) -> None:
            await ctx.yield_output(message)

        builder = WorkflowBuilder(start_executor=child, name="outer", checkpoint_storage=storage)
        return builder.add_edge(child, end).build()

    await build().run("a")
    latest = await storage.get_latest(workflow_name="outer")
    other = build()
    result = await other.run(checkpoint_id=latest.checkpoint_id)
    [event] = result.get_request_info_events()
    return (await other.run(responses={event.request_id: "late"})).get_outputs()


async def passed_on_by_the_parent() -> Any:
    class Relay(Executor):
        def __init__(self) -> None:
            super().__init__(id="relay")
            self.waiting: dict[str, SubWorkflowRequestMessage] = {}

        @handler
        async def begin(self, item: str, ctx: WorkflowContext[str]) -> None:
            await ctx.send_message(item)

        @handler
        async def request(self, request: SubWorkflowRequestMessage, ctx: WorkflowContext) -> None:
            question = request.source_event.data
            self.waiting[question.text] = request
            await ctx.request_info(question, str)

        @response_handler
        async def answered(
            self, question: Question, answer: str, ctx: WorkflowContext[SubWorkflowResponseMessage, str]
        ) -> None:
            request = self.waiting.pop(question.text)
            await ctx.send_message(request.create_response(answer.upper()), target_id=request.executor_id)

    class End(Executor):
        @handler
        async def end(self, message: str, ctx: WorkflowContext[Never, str]) -> None:
            await ctx.yield_output(message)

    relay, end = Relay(), End(id="end")
    child = WorkflowExecutor(inside(Asker(id="asker")), id="child")
    builder = WorkflowBuilder(start_executor=relay).add_edge(relay, child).add_edge(child, relay)
    workflow = builder.add_edge(child, end).build()
    [event] = (await workflow.run("a")).get_request_info_events()
    return (await workflow.run(responses={event.request_id: "yes"})).get_outputs()


async def nested() -> Any:
    deep = WorkflowExecutor(inside(Pricing(id="pricing")), id="deep", allow_direct_output=True)
    middle = WorkflowBuilder(start_executor=deep, name="middle").build()
    workflow, parent = around(middle)
    return [(await workflow.run(["tea"])).get_outputs(), parent.results]


async def types() -> Any:
    child = WorkflowExecutor(inside(Pricing(id="pricing")), id="child")
    accepts = [str in child.input_types, SubWorkflowResponseMessage in child.input_types]
    return [accepts, Price in child.output_types, child.workflow.name]


async def wrong_answers() -> Any:
    seen: list[Any] = []

    class Wrong(Parent):
        @handler
        async def request(self, request: SubWorkflowRequestMessage, ctx: WorkflowContext[Any]) -> None:
            try:
                request.create_response(5)
            except TypeError as error:
                seen.append("TypeError" if isinstance(error, TypeError) else "?")
            except ValueError:
                seen.append("ValueError")
            await ctx.send_message(request.create_response("right"), target_id=request.executor_id)

    parent, child = Wrong(), WorkflowExecutor(inside(Asker(id="asker")), id="child")
    workflow = WorkflowBuilder(start_executor=parent).add_edge(parent, child).add_edge(child, parent).build()
    return [(await workflow.run(["a"])).get_outputs(), len(seen)]


async def failing() -> Any:
    @executor(id="fails")
    async def fails(item: str, ctx: WorkflowContext[Never, str]) -> None:
        await asyncio.sleep(0)
        raise ValueError("inside")

    workflow, _ = around(WorkflowBuilder(start_executor=fails).build())
    kinds = []
    try:
        async for event in workflow.run(["x"], stream=True):
            kinds.append(event.type)
    except Exception as error:  # noqa: BLE001
        kinds.append("inside" in str(error))
    return [kinds[-1], kinds.count("failed"), workflow.status.value]


async def state_is_apart() -> Any:
    @executor(id="writes")
    async def writes(item: str, ctx: WorkflowContext[Never, str]) -> None:
        seen = ctx.get_state("shared", "nothing")
        ctx.set_state("shared", "child")
        await ctx.yield_output(seen)

    class Root(Executor):
        @handler
        async def begin(self, item: list[str], ctx: WorkflowContext[str]) -> None:
            ctx.set_state("shared", "parent")
            await ctx.send_message("x")

        @handler
        async def end(self, text: str, ctx: WorkflowContext[Never, Any]) -> None:
            await ctx.yield_output([text, ctx.get_state("shared")])

    root, child = Root(id="root"), WorkflowExecutor(WorkflowBuilder(start_executor=writes).build(), id="child")
    workflow = WorkflowBuilder(start_executor=root).add_edge(root, child).add_edge(child, root).build()
    return (await workflow.run(["x"])).get_outputs()


async def main() -> Any:
    parts = (
        *(results_as_messages, several_results, direct_outputs, asked_of_the_parent, asked_outside),
        *(asked_outside_twice_and_restored, passed_on_by_the_parent, nested, types, wrong_answers, failing),
        *(state_is_apart,),
    )
    return {part.__name__: await part() for part in parts}
