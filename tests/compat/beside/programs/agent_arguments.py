"""What agents get of a run's arguments, and how requests and responses of agents are changed in place."""

from typing import Any

from _scripted import Echo
from flows import (
    AgentExecutor,
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    Message,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    executor,
)


class Keeps(Echo):
    """Keeps the arguments of each run."""

    def __init__(self, name: str) -> None:
        super().__init__(name, name)
        self.got: list[Any] = []

    def run(self, messages: Any = None, *, stream: bool = False, session: Any = None, **kwargs: Any) -> Any:
        self.got.append([[message.text for message in messages], dict(sorted(kwargs.items()))])
        return super().run(messages, stream=stream, session=session)


GIVEN: dict[str, dict[str, Any]] = {
    "nothing": {},
    "tools": {"function_invocation_kwargs": {"user": "u", "none": None}},
    "client": {"client_kwargs": {"deep": [1, {"a": 2}]}},
    "by executor": {"function_invocation_kwargs": {"first": {"x": 1}}, "client_kwargs": {"second": {"y": 2}}},
}


async def got(stream: bool, options: dict[str, Any]) -> list[Any]:
    first, second, inner = Keeps("first"), Keeps("second"), Keeps("inner")
    child = WorkflowExecutor(WorkflowBuilder(start_executor=inner).build(), id="child")
    workflow = WorkflowBuilder(start_executor=first).add_edge(first, second).build()
    around = WorkflowBuilder(start_executor=child).build()
    for each in (workflow, around):
        if stream:
            async for _ in each.run("q", stream=True, **options):
                pass
        elif each is workflow or "first" not in options.get("function_invocation_kwargs", {}):
            await each.run("q", **options)
    return [first.got, second.got, inner.got if "by" not in str(options) else None]


@executor(id="change")
async def change(response: AgentExecutorResponse, ctx: WorkflowContext[AgentExecutorResponse]) -> None:
    response.executor_id = "changed"
    response.full_conversation.append(Message("user", ["and more"]))
    await ctx.send_message(response)


@executor(id="ask")
async def ask(text: str, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
    request = AgentExecutorRequest(messages=[], should_respond=False)
    request.messages.append(Message("user", [text]))
    request.should_respond = True
    await ctx.send_message(request)


async def main() -> Any:
    first, second = Keeps("first"), Keeps("second")
    chain = WorkflowBuilder(start_executor=ask).add_chain([ask, first, change, second]).build()
    await chain.run("q")
    words = []
    for options in ({"context_mode": "custom"}, {"context_mode": "some"}):
        try:
            AgentExecutor(Keeps("any"), **options)
        except ValueError as error:
            words.append([word in str(error) for word in ("context_filter must be provided when", "must be one of")])
    response = AgentExecutorResponse("e", AgentResponse(messages=[]), [])
    return {
        "arguments": {name: [await got(stream, each) for stream in (False, True)] for name, each in GIVEN.items()},
        "changed": [first.got[0][0], second.got[0][0]],
        "words": words,
        "outputs": sorted(each.__name__ for each in AgentExecutor(Keeps("any")).workflow_output_types),
        "empty": [response.executor_id, response.full_conversation],
    }
