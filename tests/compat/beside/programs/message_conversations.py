"""A conversation that comes back to its agent: its length, and what the agent's model gets, each message once."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Mapping, Sequence
from typing import Any

from agent_framework import Agent, BaseChatClient, ChatResponse, ChatResponseUpdate, ResponseStream
from flows import (
    AgentExecutor,
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    Content,
    Executor,
    Message,
    WorkflowBuilder,
    WorkflowContext,
    handler,
)


class Model(BaseChatClient):  # type: ignore[type-arg]
    """Counts its requests, and keeps the texts that it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[list[str]] = []

    def _inner_get_response(
        self, *, messages: Sequence[Any], stream: bool, options: Mapping[str, Any], **kwargs: Any
    ) -> Awaitable[ChatResponse] | ResponseStream[ChatResponseUpdate, ChatResponse]:
        self.seen.append(list(dict.fromkeys(message.text for message in messages)))
        text = f"draft {len(self.seen)}"

        async def updates() -> AsyncIterable[ChatResponseUpdate]:
            yield ChatResponseUpdate(contents=[Content.from_text(text)], role="assistant")

        async def answer() -> ChatResponse:
            return ChatResponse(messages=[Message("assistant", [text])])

        return ResponseStream(updates(), finalizer=ChatResponse.from_updates) if stream else answer()


class Coordinator(Executor):
    """Sends each draft back with feedback, in one of several forms."""

    def __init__(self, form: str) -> None:
        super().__init__(id="coordinator")
        self.form = form
        self.lengths: list[int] = []

    @handler
    async def start(self, task: str, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
        await ctx.send_message(AgentExecutorRequest([Message("user", [task])]))

    @handler
    async def review(
        self,
        draft: AgentExecutorResponse,
        ctx: WorkflowContext[AgentExecutorRequest | AgentExecutorResponse | list[Message] | AgentResponse, str],
    ) -> None:
        self.lengths.append(len(draft.full_conversation))
        if len(self.lengths) == 5:
            await ctx.yield_output(draft.agent_response.text)
            return
        feedback = Message("user", [f"feedback {len(self.lengths)}"])
        conversation = [*draft.full_conversation, feedback]
        if self.form == "request":
            await ctx.send_message(AgentExecutorRequest(conversation))
        elif self.form == "list":
            await ctx.send_message(conversation)
        elif self.form == "feedback":
            await ctx.send_message(AgentExecutorRequest([feedback]))
        elif self.form == "later":
            await ctx.send_message(AgentExecutorRequest(list(draft.full_conversation), should_respond=False))
            await ctx.send_message(AgentExecutorRequest([feedback]))
        else:
            await ctx.send_message(AgentExecutorResponse("coordinator", draft.agent_response, conversation))


async def converse(form: str, stream: bool) -> Any:
    model, coordinator = Model(), Coordinator(form)
    writer = AgentExecutor(Agent(client=model, name="writer", instructions="Write."))
    builder = WorkflowBuilder(start_executor=coordinator, output_from=[coordinator])
    workflow = builder.add_edge(coordinator, writer).add_edge(writer, coordinator).build()
    if stream:
        async for _ in workflow.run("task", stream=True):
            pass
    else:
        await workflow.run("task")
    return [coordinator.lengths, model.seen]


async def main() -> Any:
    forms = ("request", "list", "feedback", "later", "response")
    return {form: [await converse(form, stream) for stream in (False, True)] for form in forms}
