"""Agents of the program's own, without memory: what they get when a conversation comes back, and between agents."""

from typing import Any

from agent_framework import BaseAgent
from flows import (
    AgentExecutor,
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    AgentResponseUpdate,
    Content,
    Executor,
    Message,
    WorkflowBuilder,
    WorkflowContext,
    handler,
)


class Noting(BaseAgent):
    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self.seen: list[Any] = []

    def run(self, messages: Any = None, *, stream: bool = False, session: Any = None, **kwargs: Any) -> Any:
        self.seen.append([message.text for message in messages])
        text = f"{self.name} {len(self.seen)}"
        return self._updates(text) if stream else self._response(text)

    async def _response(self, text: str) -> Any:
        return AgentResponse(messages=[Message("assistant", [text], author_name=self.name)])

    async def _updates(self, text: str) -> Any:
        yield AgentResponseUpdate(contents=[Content.from_text(text)], role="assistant", author_name=self.name)


class Coordinator(Executor):
    def __init__(self) -> None:
        super().__init__(id="coordinator")
        self.count = 0
        self.conversations: list[Any] = []

    @handler
    async def start(self, task: str, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
        await ctx.send_message(AgentExecutorRequest([Message("user", [task])]))

    @handler
    async def review(
        self, draft: AgentExecutorResponse, ctx: WorkflowContext[AgentExecutorRequest, list[Message]]
    ) -> None:
        self.count += 1
        self.conversations.append([message.text for message in draft.full_conversation])
        if self.count == 3:
            await ctx.yield_output(draft.full_conversation)
            return
        feedback = Message("user", [f"feedback {self.count}"])
        await ctx.send_message(AgentExecutorRequest(messages=draft.full_conversation + [feedback]))


async def coordinated(stream: bool, *names: str) -> Any:
    coordinator, agents = Coordinator(), [Noting(name) for name in names]
    team = [AgentExecutor(agent) for agent in agents]
    builder = WorkflowBuilder(start_executor=coordinator, output_from=[coordinator])
    builder.add_edge(coordinator, team[0])
    workflow = builder.add_chain([*team, coordinator]).build()
    if stream:
        async for _ in workflow.run("task", stream=True):
            pass
    else:
        await workflow.run("task")
    return [coordinator.conversations, [agent.seen for agent in agents]]


async def main() -> Any:
    return [await coordinated(stream, *names) for names in (("a",), ("a", "b")) for stream in (False, True)]
