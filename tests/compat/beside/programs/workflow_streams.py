"""Streams that a program makes itself, also for the agents and chat clients of the framework."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import contextmanager
from typing import Any

from agent_framework import (
    Agent,
    AgentResponse,
    AgentResponseUpdate,
    BaseAgent,
    BaseChatClient,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    Message,
)
from flows import ResponseStream, WorkflowBuilder


async def count(limit: int = 3) -> AsyncIterator[int]:
    for number in range(limit):
        yield number


async def plain() -> Any:
    stream = ResponseStream(count(), finalizer=sum)
    items = [item async for item in stream]
    without = ResponseStream(count())
    awaited = await ResponseStream(count(), finalizer=len)
    return [
        items,
        await stream.get_final_response(),
        await without.get_final_response(),
        await awaited.get_final_response(),
    ]


async def of_an_awaitable() -> Any:
    async def make() -> Any:
        return ResponseStream(count(4), finalizer=sum)

    stream = ResponseStream.from_awaitable(make())
    return [[item async for item in stream], await stream.get_final_response()]


async def mapped() -> Any:
    doubled = ResponseStream(count(), finalizer=sum).map(lambda item: item * 2, list)
    flat = ResponseStream(count()).flat_map(lambda item: [item] * item, len)
    renamed = ResponseStream(count(), finalizer=sum).with_finalizer(lambda items: f"{len(items)} items")
    results = [[item async for item in stream] for stream in (doubled, flat, renamed)]
    return [results, [await stream.get_final_response() for stream in (doubled, flat, renamed)]]


async def hooked() -> Any:
    seen: list[Any] = []

    @contextmanager
    def pulled() -> Any:
        seen.append("pull")
        yield

    async def later(result: int) -> int:
        return result + 100

    stream = ResponseStream(count(2), finalizer=sum, transform_hooks=[lambda item: item + 1 if item else None])
    stream.with_cleanup_hook(lambda: seen.append("cleanup")).with_result_hook(later)
    stream.with_pull_context_manager(pulled)
    items = [item async for item in stream]
    results = [await stream.get_final_response(), await stream.get_final_response()]
    return [items, results, seen, list(stream.updates)]


async def failing() -> Any:
    seen: list[Any] = []

    async def breaks() -> AsyncIterator[int]:
        yield 1
        raise ValueError("broken")

    stream = ResponseStream(breaks(), finalizer=sum).with_cleanup_hook(lambda: seen.append("cleanup"))
    try:
        async for item in stream:
            seen.append(item)
    except ValueError as error:
        seen.append(str(error))
    return seen


async def of_an_agent() -> Any:
    class Echo(BaseAgent):
        def run(self, messages: Any = None, *, stream: bool = False, session: Any = None, **kwargs: Any) -> Any:
            if stream:
                return ResponseStream(self._updates(), finalizer=AgentResponse.from_updates)
            return self._response()

        async def _updates(self) -> AsyncIterator[Any]:
            for text in ("one ", "two"):
                yield AgentResponseUpdate(contents=[Content.from_text(text)], role="assistant", author_name=self.name)

        async def _response(self) -> Any:
            return AgentResponse(messages=[Message("assistant", ["one two"], author_name=self.name)])

    workflow = WorkflowBuilder(start_executor=Echo(name="echo")).build()
    result = await workflow.run("go")
    streamed = await workflow.run("go", stream=True).get_final_response()
    return [result.get_outputs()[0].text, streamed.get_final_state().value]


async def of_a_chat_client() -> Any:
    class Client(BaseChatClient):
        def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **kwargs: Any) -> Any:
            if stream:
                return ResponseStream(self._updates(), finalizer=ChatResponse.from_updates)
            return self._response()

        async def _updates(self) -> AsyncIterator[Any]:
            for text in ("three ", "four"):
                yield ChatResponseUpdate(contents=[Content.from_text(text)], role="assistant")

        async def _response(self) -> Any:
            return ChatResponse(messages=[Message("assistant", ["three four"])])

    agent = Agent(client=Client(), name="teller")
    workflow = WorkflowBuilder(start_executor=agent).build()
    result = await workflow.run("go")
    streamed = await workflow.run("go", stream=True).get_final_response()
    return [result.get_outputs()[0].text, streamed.get_final_state().value]


async def main() -> Any:
    parts = (plain, of_an_awaitable, mapped, hooked, failing, of_an_agent, of_a_chat_client)
    return {part.__name__: await part() for part in parts}
