"""Checkpoints: each one resumed by another workflow object, with a person in the loop, and inside a sub-workflow."""

from dataclasses import dataclass
from typing import Any, Never

from _samples import printed, talker
from flows import (
    AgentExecutor,
    AgentExecutorRequest,
    AgentExecutorResponse,
    Executor,
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    Message,
    SubWorkflowRequestMessage,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    handler,
    response_handler,
)

FOLDER: Any = None


@dataclass
class Task:
    numbers: list[int]


class Start(Executor):
    @handler
    async def begin(self, limit: int, ctx: WorkflowContext[Task]) -> None:
        await ctx.send_message(Task(list(range(1, limit + 1))))


class Worker(Executor):
    def __init__(self) -> None:
        super().__init__(id="worker")
        self.factors: dict[str, list[int]] = {}

    @handler
    async def work(self, task: Task, ctx: WorkflowContext[Task, dict[str, list[int]]]) -> None:
        number = task.numbers.pop(0)
        self.factors[str(number)] = [divisor for divisor in range(1, number + 1) if number % divisor == 0]
        if task.numbers:
            await ctx.send_message(task)
        else:
            await ctx.yield_output(self.factors)

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"factors": self.factors}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.factors = state.get("factors", {})
        print("restored", self.factors)


def counting(storage: Any = None) -> Any:
    start, worker = Start(id="start"), Worker()
    builder = WorkflowBuilder(start_executor=start, checkpoint_storage=storage, name="counting")
    return builder.add_edge(start, worker).add_edge(worker, worker).build()


@dataclass
class Draft:
    text: str
    number: int


class Gateway(Executor):
    def __init__(self) -> None:
        super().__init__(id="gateway")
        self.count = 0

    @handler
    async def begin(self, brief: str, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
        ctx.set_state("brief", brief)
        await ctx.send_message(AgentExecutorRequest([Message("user", [brief])], should_respond=True), "writer")

    @handler
    async def review(self, response: AgentExecutorResponse, ctx: WorkflowContext) -> None:
        self.count += 1
        await ctx.request_info(request_data=Draft(response.agent_response.text, self.count), response_type=str)

    @response_handler
    async def decide(self, draft: Draft, answer: str, ctx: WorkflowContext[AgentExecutorRequest, str]) -> None:
        if answer == "approve":
            await ctx.yield_output(f"{draft.text} ({ctx.get_state('brief')})")
            return
        message = Message("user", [f"{answer}: {draft.text}"])
        await ctx.send_message(AgentExecutorRequest([message], should_respond=True), "writer")

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"count": self.count}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


def reviewing(storage: Any) -> Any:
    gateway, writer = Gateway(), AgentExecutor(talker("writer", "draft one", "draft two"), id="writer")
    builder = WorkflowBuilder(start_executor=gateway, checkpoint_storage=storage, name="reviewing")
    return builder.add_edge(gateway, writer).add_edge(writer, gateway).build()


class Asker(Executor):
    @handler
    async def ask(self, topic: str, ctx: WorkflowContext) -> None:
        await ctx.request_info(Draft(topic, 1), bool)

    @response_handler
    async def answered(self, draft: Draft, is_good: bool, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"{draft.text}: {is_good}")


class Parent(Executor):
    def __init__(self) -> None:
        super().__init__(id="parent")
        self.waiting: dict[str, SubWorkflowRequestMessage] = {}

    @handler
    async def begin(self, topic: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(topic, "nested")

    @handler
    async def asked(self, request: SubWorkflowRequestMessage, ctx: WorkflowContext) -> None:
        draft = request.source_event.data
        self.waiting[draft.text] = request
        await ctx.request_info(draft, bool)

    @response_handler
    async def answered(self, draft: Draft, is_good: bool, ctx: WorkflowContext[Any]) -> None:
        request = self.waiting.pop(draft.text)
        await ctx.send_message(request.create_response(is_good), target_id=request.executor_id)

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"waiting": self.waiting}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.waiting = state["waiting"]


class Result(Executor):
    @handler
    async def take(self, text: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"result {text}")


def nesting(storage: Any) -> Any:
    nested = WorkflowExecutor(WorkflowBuilder(start_executor=Asker("asker"), name="child").build(), id="nested")
    parent, result = Parent(), Result("result")
    builder = WorkflowBuilder(start_executor=parent, checkpoint_storage=storage, name="nesting")
    return builder.add_edge(parent, nested).add_edge(nested, parent).add_edge(nested, result).build()


async def listed(storage: Any, name: str) -> Any:
    return sorted(await storage.list_checkpoints(workflow_name=name), key=lambda checkpoint: checkpoint.timestamp)


@printed
async def main() -> None:
    here = __name__
    storage = FileCheckpointStorage(FOLDER, allowed_checkpoint_types=[f"{here}:Task", f"{here}:Draft"])
    print((await counting(storage).run(4)).get_outputs())
    for checkpoint in (await listed(storage, "counting"))[:-1]:  # the last has ended
        result = await counting().run(checkpoint_id=checkpoint.checkpoint_id, checkpoint_storage=storage)
        print(checkpoint.iteration_count, sorted(checkpoint.messages), result.get_outputs())
    interrupted = InMemoryCheckpointStorage()
    async for event in counting(interrupted).run(5, stream=True):
        if event.type == "superstep_completed" and event.iteration == 3:
            break
    latest = await interrupted.get_latest(workflow_name="counting")
    print((await counting(interrupted).run(checkpoint_id=latest.checkpoint_id)).get_outputs())

    workflow, answers = reviewing(storage), iter(["shorter", "approve"])
    result = await workflow.run("a bottle")
    while requests := result.get_request_info_events():
        print([event.data for event in requests], result.get_final_state())
        result = await workflow.run(responses={event.request_id: next(answers) for event in requests})
    print(result.get_outputs()[-1], result.get_final_state())
    for checkpoint in await listed(storage, "reviewing"):
        pending = checkpoint.pending_request_info_events
        print(checkpoint.iteration_count, sorted(checkpoint.messages), [event.data for event in pending.values()])
        if pending:
            responses = dict.fromkeys(pending, "approve")
            result = await reviewing(storage).run(checkpoint_id=checkpoint.checkpoint_id, responses=responses)
            print([output for output in result.get_outputs() if isinstance(output, str)])

    memory = InMemoryCheckpointStorage()
    [asked] = (await nesting(memory).run("tides")).get_request_info_events()
    latest = await memory.get_latest(workflow_name="nesting")
    workflow = nesting(memory)
    [again] = (await workflow.run(checkpoint_id=latest.checkpoint_id)).get_request_info_events()
    print(again.data, again.request_id == asked.request_id, again.source_executor_id)
    print((await workflow.run(responses={again.request_id: True})).get_outputs())
