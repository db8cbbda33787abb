"""Workflows as agents: sessions and their history, a review in a loop, a person in it, and arguments for tools."""

from dataclasses import dataclass
from typing import Any

from _samples import call, printed, talker
from agent_framework import FunctionInvocationContext, InMemoryHistoryProvider, tool
from flows import (
    AgentResponse,
    Content,
    Executor,
    InMemoryCheckpointStorage,
    Message,
    SequentialBuilder,
    WorkflowAgent,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    handler,
    response_handler,
)


@dataclass
class Review:
    number: int
    asked: list[Message]
    replied: list[Message]


@dataclass
class Verdict:
    number: int
    feedback: str
    is_good: bool


@dataclass
class Question:
    review: Review


class Worker(Executor):
    """Calls a client of its own, and has its answers reviewed."""

    def __init__(self, client: Any) -> None:
        super().__init__(id="worker")
        self.client = client
        self.pending: dict[int, tuple[Review, list[Message]]] = {}

    async def reply(self, number: int, asked: list[Message], messages: list[Message], ctx: Any) -> None:
        response = await self.client.get_response(messages=messages)
        review = Review(number, asked, list(response.messages))
        self.pending[number] = review, [*messages, *response.messages]
        await ctx.send_message(review)

    @handler
    async def begin(self, asked: list[Message], ctx: WorkflowContext[Review]) -> None:
        await self.reply(len(self.pending), asked, [Message("system", ["Help"]), *asked], ctx)

    @handler
    async def judged(self, verdict: Verdict, ctx: WorkflowContext[Review, AgentResponse]) -> None:
        review, messages = self.pending.pop(verdict.number)
        print("verdict", verdict.is_good, verdict.feedback)
        if verdict.is_good:
            await ctx.yield_output(AgentResponse(messages=review.replied))
        else:
            messages.append(Message("system", [verdict.feedback]))
            await self.reply(review.number, review.asked, messages, ctx)


class Strict(Executor):
    """Accepts a second answer."""

    def __init__(self) -> None:
        super().__init__(id="strict")
        self.count = 0

    @handler
    async def review(self, review: Review, ctx: WorkflowContext[Verdict]) -> None:
        self.count += 1
        await ctx.send_message(Verdict(review.number, f"take {self.count}", self.count > 1))


class Person(Executor):
    @handler
    async def review(self, review: Review, ctx: WorkflowContext) -> None:
        await ctx.request_info(request_data=Question(review), response_type=Verdict)

    @response_handler
    async def answered(self, question: Question, verdict: Verdict, ctx: WorkflowContext[Verdict]) -> None:
        await ctx.send_message(verdict)


def reviewed(reviewer: Executor) -> Any:
    worker = Worker(talker("w", "first", "second").client)
    return WorkflowBuilder(start_executor=worker).add_edge(worker, reviewer).add_edge(reviewer, worker).build()


@tool(approval_mode="never_require")
def look_up(query: str, ctx: FunctionInvocationContext) -> str:
    """Looks it up."""
    print("called with", query, {name: ctx.kwargs[name] for name in ("user", "token") if name in ctx.kwargs})
    return "found"


def helper(name: str = "helper") -> Any:
    return talker(name, [call("look_up", query="x")], "Here", tools=[look_up])


@printed
async def main() -> None:
    agent = SequentialBuilder(participants=[talker("ann", "one", "two"), talker("bob", "eins", "zwei")]).build()
    agent = agent.as_agent(name="pair", description="Two of them")
    session = agent.create_session()
    for text in ("Hello", "And?"):
        response = await agent.run(text, session=session)
        print([(message.author_name, str(message.role), message.text) for message in response.messages])
    history = session.state[InMemoryHistoryProvider.DEFAULT_SOURCE_ID]["messages"]
    print(agent.name, agent.description, [(str(message.role), message.text) for message in history])
    storage = InMemoryCheckpointStorage()
    response = await agent.run("Again", checkpoint_storage=storage)
    print(response.text, bool(await storage.list_checkpoints(workflow_name=agent.workflow.name)))

    print((await reviewed(Strict()).as_agent("strict").run("Write")).text)
    async for update in reviewed(Strict()).as_agent().run("Write", stream=True):
        print("update", update.text, str(update.role))
    agent = reviewed(Person("person")).as_agent("person")
    response, is_good = await agent.run("Write"), False
    for _ in range(2):
        [asked] = [item for m in response.messages for item in m.contents if item.type == "function_call"]
        args = WorkflowAgent.RequestInfoFunctionArgs.from_dict(asked.parse_arguments())
        review = args.request_event.data.review
        print(asked.name == WorkflowAgent.REQUEST_INFO_FUNCTION_NAME, [message.text for message in review.replied])
        verdict = Verdict(review.number, "nicer", is_good)
        response = await agent.run(Message("tool", [Content("function_result", call_id=asked.call_id, result=verdict)]))
        is_good = True
    print(response.text)

    options: Any = {"function_invocation_kwargs": {"user": "ann", "token": {"scope": "all"}}}
    workflow = SequentialBuilder(participants=[helper()]).build()
    print([output.text for output in (await workflow.run("Look", **options)).get_outputs()])
    print("".join([update.text async for update in workflow.as_agent("h").run("Look", stream=True, **options)]))
    nested = WorkflowExecutor(SequentialBuilder(participants=[helper()]).build(), id="nested")
    result = await SequentialBuilder(participants=[nested]).build().run("Look", **options)
    print([output.text for output in result.get_outputs()])
    workflow = SequentialBuilder(participants=[helper("first"), helper("second")]).build()
    of_each: Any = {"first": {"user": 1}, "second": {"user": 2}}
    print([output.text for output in (await workflow.run("Look", function_invocation_kwargs=of_each)).get_outputs()])
