"""What executors share with the program that makes them: lists, dicts and objects of their constructors."""

from typing import Any, Never

from flows import (
    Executor,
    InMemoryCheckpointStorage,
    SubWorkflowRequestMessage,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    handler,
    response_handler,
)


class Tally:
    def __init__(self) -> None:
        self.names: list[str] = []


class Collector(Executor):
    def __init__(self, id: str, seen: list[str], counts: dict[str, int], tally: Tally) -> None:
        super().__init__(id=id)
        self.seen, self.counts, self.tally = seen, counts, tally
        self.own: list[str] = []

    @handler
    async def keep(self, message: str, ctx: WorkflowContext[str, str]) -> None:
        self.seen.append(message)
        self.counts[message] = self.counts.get(message, 0) + 1
        self.tally.names.append(self.id)
        self.own.append(message)
        await ctx.send_message(message + "+")
        await ctx.yield_output(message + "!")


class Asker(Executor):
    def __init__(self, id: str, answers: list[str]) -> None:
        super().__init__(id=id)
        self.answers = answers

    @handler
    async def ask(self, message: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.request_info(message, str)

    @response_handler
    async def answered(self, request: str, answer: str, ctx: WorkflowContext[Never, str]) -> None:
        self.answers.append(answer)
        await ctx.yield_output(answer)


class Outer(Executor):
    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.results: list[str] = []

    @handler
    async def begin(self, message: list[str], ctx: WorkflowContext[str]) -> None:
        for part in message:
            await ctx.send_message(part)

    @handler
    async def take(self, result: str, ctx: WorkflowContext) -> None:
        self.results.append(result)

    @handler
    async def answer(self, request: SubWorkflowRequestMessage, ctx: WorkflowContext[Any]) -> None:
        response = request.create_response(f"to {request.source_event.data}")
        await ctx.send_message(response, target_id=request.executor_id)


class Shared:
    def __init__(self) -> None:
        self.seen: list[str] = []
        self.counts: dict[str, int] = {}
        self.tally = Tally()

    def collector(self, id: str) -> Collector:
        return Collector(id, self.seen, self.counts, self.tally)

    def shown(self) -> list[Any]:
        return [self.seen, self.counts, self.tally.names]


async def in_a_workflow(**options: Any) -> Any:
    shared = Shared()
    a, b = shared.collector("a"), shared.collector("b")
    workflow = WorkflowBuilder(start_executor=a, **options).add_edge(a, b).build()
    outputs = (await workflow.run("x")).get_outputs() + (await workflow.run("y")).get_outputs()
    return [outputs, shared.shown(), a.own, b.own]


async def plain() -> Any:
    return await in_a_workflow()


async def stored() -> Any:
    return await in_a_workflow(checkpoint_storage=InMemoryCheckpointStorage())


async def in_a_sub_workflow() -> Any:
    shared, outer = Shared(), Outer("outer")
    inner = WorkflowBuilder(start_executor=(collector := shared.collector("inner")), name="inner").build()
    child = WorkflowExecutor(inner, id="child")
    workflow = WorkflowBuilder(start_executor=outer, name="w").add_edge(outer, child).add_edge(child, outer).build()
    await workflow.run(["x"])
    first = [list(collector.own), list(outer.results)]
    await workflow.run(["y", "z"])
    return [first, sorted(outer.results), sorted(shared.seen), shared.counts, shared.tally.names]


async def in_a_nested_sub_workflow() -> Any:
    shared, outer = Shared(), Outer("outer")
    deep = WorkflowBuilder(start_executor=(collector := shared.collector("deep")), name="deep").build()
    middle = WorkflowBuilder(start_executor=WorkflowExecutor(deep, id="deep"), name="middle").build()
    child = WorkflowExecutor(middle, id="middle")
    workflow = WorkflowBuilder(start_executor=outer, name="w").add_edge(outer, child).build()
    await workflow.run(["x"])
    return [shared.shown(), collector.own]


async def with_answers() -> Any:
    answers: list[str] = []
    outer = Outer("outer")
    inner = WorkflowBuilder(start_executor=Asker("asker", answers), name="inner").build()
    child = WorkflowExecutor(inner, id="child")
    workflow = WorkflowBuilder(start_executor=outer, name="w").add_edge(outer, child).add_edge(child, outer).build()
    await workflow.run(["x", "y"])
    return [sorted(answers), sorted(outer.results)]


async def of_two_builds() -> Any:
    shared = Shared()
    builder = WorkflowBuilder(start_executor=shared.collector("a"))
    first, second = builder.build(), builder.build()
    await first.run("x")
    await second.run("y")
    return shared.shown()


async def restored() -> Any:
    shared, storage = Shared(), InMemoryCheckpointStorage()

    def build() -> Any:
        a, b = shared.collector("a"), shared.collector("b")
        return WorkflowBuilder(start_executor=a, name="w", checkpoint_storage=storage).add_edge(a, b).build()

    await build().run("x")
    checkpoints = await storage.list_checkpoints(workflow_name="w")
    middle = next(checkpoint for checkpoint in checkpoints if checkpoint.iteration_count == 1)
    workflow = build()
    result = await workflow.run(checkpoint_id=middle.checkpoint_id)
    await workflow.run(checkpoint_id=middle.checkpoint_id)
    return [result.get_outputs()[-1], shared.shown()]


async def main() -> Any:
    parts = (plain, stored, in_a_sub_workflow, in_a_nested_sub_workflow, with_answers, of_two_builds, restored)
    return {part.__name__: await part() for part in parts}
