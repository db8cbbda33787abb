"""A session that has messages already: the first turn of a workflow as an agent gets them."""

from typing import Any, Never

from agent_framework import InMemoryHistoryProvider
from flows import AgentSession, Executor, Message, WorkflowBuilder, WorkflowContext, handler


class Listener(Executor):
    @handler
    async def go(self, messages: list[Message], ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(", ".join(f"{message.role} {message.text}" for message in messages))


async def main() -> Any:
    results = []
    for earlier in ([], [Message("user", ["Hello"]), Message("assistant", ["Hello to you"])]):
        for is_streamed in (False, True):
            session = AgentSession()
            session.state[InMemoryHistoryProvider.DEFAULT_SOURCE_ID] = {"messages": list(earlier)}
            agent = WorkflowBuilder(start_executor=Listener("listener")).build().as_agent("desk")
            if is_streamed:
                results.append([update.text async for update in agent.run("And?", stream=True, session=session)])
            else:
                results.append([(await agent.run("And?", session=session)).text])
    return results
