"""Arguments of a run reach the agents: for all or for one executor, in sub-workflows, streams and resumed runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from agent_framework import Agent, BaseAgent, BaseChatClient, ChatResponse, FunctionInvocationContext, tool
from flows import (
    AgentExecutor,
    AgentResponse,
    AgentResponseUpdate,
    Content,
    InMemoryCheckpointStorage,
    Message,
    WorkflowBuilder,
    WorkflowExecutor,
)


class Noting(BaseAgent):
    """An agent of the program's own, whose `run` takes any arguments."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self.seen: list[Any] = []

    def run(self, messages: Any = None, *, stream: bool = False, session: Any = None, **kwargs: Any) -> Any:
        self.seen.append({name: value for name, value in kwargs.items() if value is not None})
        if stream:
            return self._updates()
        return self._response()

    async def _response(self) -> Any:
        return AgentResponse(messages=[Message("assistant", ["noted"], author_name=self.name)])

    async def _updates(self) -> AsyncIterator[Any]:
        yield AgentResponseUpdate(contents=[Content.from_text("noted")], role="assistant")


async def arguments(inner: bool, stream: bool, **kwargs: Any) -> Any:
    first, second = Noting("first"), Noting("second")
    workflow = WorkflowBuilder(start_executor=first, name="two").add_edge(first, second).build()
    if inner:
        workflow = WorkflowBuilder(start_executor=WorkflowExecutor(workflow, "inner"), name="outer").build()
    if stream:
        async for _ in workflow.run("hi", stream=True, **kwargs):
            pass
    else:
        await workflow.run("hi", **kwargs)
    return [first.seen, second.seen]


async def resumed() -> Any:
    first, second = Noting("first"), Noting("second")
    storage = InMemoryCheckpointStorage()
    builder = WorkflowBuilder(start_executor=first, name="two", checkpoint_storage=storage)
    workflow = builder.add_edge(first, second).build()
    await workflow.run("hi", function_invocation_kwargs={"user": "ann"})
    checkpoints = await storage.list_checkpoints(workflow_name="two")
    middle = next(item for item in checkpoints if item.iteration_count == 1)
    await workflow.run(checkpoint_id=middle.checkpoint_id)
    return [first.seen, second.seen]


async def in_tools() -> Any:
    seen: list[Any] = []

    @tool
    def look(city: str, ctx: FunctionInvocationContext) -> str:
        """Look."""
        seen.append([city, ctx.kwargs.get("user")])
        return "sunny"

    class Model(BaseChatClient):  # type: ignore[type-arg]
        def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **kwargs: Any) -> Any:
            call = Content.from_function_call("c1", "look", arguments={"city": "Oslo"})
            last = [content.type for content in messages[-1].contents]
            text = Content.from_text("It is sunny.")

            async def answer() -> Any:
                seen.append([last, kwargs.get("trace")])
                return ChatResponse(messages=[Message("assistant", [text if "function_result" in last else call])])

            return answer()

    from agent_framework import FunctionInvocationLayer

    class ToolModel(FunctionInvocationLayer, Model):  # type: ignore[misc, type-arg]
        pass

    agent = Agent(client=ToolModel(), name="looker", tools=[look])
    workflow = WorkflowBuilder(start_executor=AgentExecutor(agent)).build()
    result = await workflow.run("hi", function_invocation_kwargs={"user": "ann"}, client_kwargs={"trace": "t1"})
    return [seen, [output.text for output in result.get_outputs()]]


async def main() -> Any:
    forms: dict[str, dict[str, Any]] = {
        "none": {},
        "all": {"function_invocation_kwargs": {"user": "ann"}, "client_kwargs": {"trace": 1}},
        "one": {"function_invocation_kwargs": {"second": {"user": "bob"}}},
        "each": {"client_kwargs": {"first": {"a": 1}, "second": {"a": 2}}},
    }
    results: dict[str, Any] = {}
    for name, kwargs in forms.items():
        sides = [(inner, stream) for inner in (False, True) for stream in (False, True)]
        results[name] = [await arguments(inner, stream, **kwargs) for inner, stream in sides]
    return [results, await resumed(), await in_tools()]
