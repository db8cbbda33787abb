"""Models for tests of agents: they reply with a script, in any process, and note each request on disk."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.usage import RequestUsage

Reply: TypeAlias = str | ToolCallPart | Sequence[ToolCallPart | str] | Exception | ModelResponse


def note(log: Path, **what: Any) -> None:
    """Append a line to the log and sync it to disk. A line that is there twice was written twice, after any kill."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, (json.dumps(what) + "\n").encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def notes(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def call(name: str, arguments: dict[str, Any] | str, call_id: str) -> ToolCallPart:
    return ToolCallPart(name, arguments, call_id)


class Script:
    """Replies, one for each request of a conversation. How far it is follows from the messages."""

    def __init__(self, replies: Sequence[Reply], log: Path | None = None) -> None:
        self._replies = replies
        self._log = log
        self.received: list[list[ModelMessage]] = []
        self.infos: list[AgentInfo] = []

    @property
    def requests(self) -> int:
        return len(self.received)

    def _next(self, messages: list[ModelMessage], info: AgentInfo) -> list[Any]:
        place = sum(isinstance(message, ModelResponse) for message in messages)
        self.received.append(list(messages))
        self.infos.append(info)
        if self._log is not None:
            note(self._log, model=place)
        reply = self._replies[place]
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, ModelResponse):
            return list(reply.parts)
        several = [reply] if isinstance(reply, (str, ToolCallPart)) else reply
        return [TextPart(part) if isinstance(part, str) else part for part in several]

    def plain(self) -> FunctionModel:
        """Return a model that cannot stream."""
        return FunctionModel(self._answer)

    def model(self) -> FunctionModel:
        return FunctionModel(self._answer, stream_function=self._stream)

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        usage = RequestUsage(input_tokens=10, output_tokens=5)
        return ModelResponse(parts=self._next(messages, info), usage=usage)

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        for place, part in enumerate(self._next(messages, info)):
            if isinstance(part, TextPart):
                for word in part.content.split(" "):
                    yield word if part.content.startswith(word) else f" {word}"
            else:
                delta = DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)
                yield {place: delta}


def prompts(messages: Sequence[ModelMessage]) -> list[Any]:
    """Return the user prompts that a model received."""
    return [part.content for message in messages for part in message.parts if isinstance(part, UserPromptPart)]


def last_contents(messages: Sequence[ModelMessage]) -> list[Any]:
    """Return the contents of the last message that a model received."""
    return [getattr(part, "content", None) for part in messages[-1].parts]
