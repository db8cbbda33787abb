"""Agents of four frameworks, with models for tests: each notes its requests on disk and echoes its prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import agent_framework as af
import agents as sdk
import pydantic_ai
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from tests.unit.agents.agent_models import Script, note, prompts

NAME = "foreign"
"""The name of each agent."""


def echo(texts: Sequence[str]) -> str:
    return "heard: " + " | ".join(texts)


# ---------------------------------------------------------------- pydantic-ai


def with_pydantic_ai(log: Path) -> pydantic_ai.Agent[Any, Any]:
    class Listening(Script):
        def _next(self, messages: Any, info: Any) -> list[Any]:
            note(log, model=len(messages))
            self._replies = [echo(prompts(messages))] * 99
            return super()._next(messages, info)

    return pydantic_ai.Agent(Listening([]).model(), name=NAME)


# ---------------------------------------------------------------- the OpenAI Agents SDK

sdk.set_tracing_disabled(True)  # it would be sent to OpenAI


class SdkModel(sdk.Model):  # type: ignore[misc]  # the SDK is not looked at
    """Calls the tools of `calls`, one after the other, then replies with the prompts it received."""

    def __init__(self, log: Path, calls: Sequence[str] = (), fail: Callable[[int], None] | None = None) -> None:
        self._log = log
        self._calls = calls
        self._fail = fail

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        items = [{"role": "user", "content": input}] if isinstance(input, str) else input
        done = sum(item.get("type") == "function_call_output" for item in items)
        if self._fail is not None:
            self._fail(done)
        note(self._log, model=done)
        if done < len(self._calls):
            name = self._calls[done]
            made = ResponseFunctionToolCall(arguments="{}", call_id=f"c{done}", name=name, type="function_call")
            return sdk.ModelResponse(output=[made], usage=_usage(), response_id=f"r{done}")
        texts = [item["content"] for item in items if item.get("role") == "user"]
        text = ResponseOutputText(annotations=[], text=echo(texts), type="output_text")
        message = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
        return sdk.ModelResponse(output=[message], usage=_usage(), response_id="r")

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("the adapter does not stream")


def _usage() -> Any:
    return sdk.Usage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15)


def with_openai(log: Path) -> sdk.Agent[Any]:
    return sdk.Agent(name=NAME, model=SdkModel(log))


# ---------------------------------------------------------------- LangGraph


def with_langgraph(log: Path) -> Any:
    async def answer(state: MessagesState) -> dict[str, Any]:
        note(log, model=len(state["messages"]))
        texts = [str(message.content) for message in state["messages"] if message.type == "human"]
        counts = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        return {"messages": [AIMessage(echo(texts), usage_metadata=counts)]}

    graph = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    return graph.compile(name=NAME)


# ---------------------------------------------------------------- agent-framework-core


class FrameworkClient(af.FunctionInvocationLayer, af.BaseChatClient):  # type: ignore[misc]
    """Calls `pay` if it can and has not, then replies with the prompts it received."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self._log = log

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **kwargs: Any) -> Any:
        note(self._log, model=len(messages))
        contents = self._reply_contents(messages, options)

        async def updates() -> Any:
            for content in contents:
                yield af.ChatResponseUpdate(role="assistant", contents=[content], message_id="m")

        async def response() -> Any:
            usage = {"input_token_count": 10, "output_token_count": 5, "total_token_count": 15}
            return af.ChatResponse(messages=[af.Message("assistant", contents)], usage_details=usage)

        if stream:
            return af.ResponseStream(updates(), finalizer=af.ChatResponse.from_updates)
        return response()

    def _reply_contents(self, messages: Any, options: Any) -> list[Any]:
        contents = [content for message in messages for content in message.contents]
        if options.get("tools") and not any(content.type == "function_result" for content in contents):
            return [af.Content.from_function_call("c1", "pay", arguments={"amount": 20})]
        return [
            af.Content.from_text(
                echo([message.text for message in messages if message.role == "user" and message.text])
            )
        ]


def with_framework(log: Path, *tools: Any) -> Any:
    return af.Agent(FrameworkClient(log), name=NAME, tools=list(tools) or None)


MAKERS: dict[str, Callable[[Path], Any]] = {
    "pydantic-ai": with_pydantic_ai,
    "openai": with_openai,
    "langgraph": with_langgraph,
    "agent-framework": with_framework,
}
