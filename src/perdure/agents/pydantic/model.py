"""The model of an agent: each request is a recorded step, streamed if a listener receives updates."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import msgspec
from pydantic import TypeAdapter
from pydantic_ai.messages import (
    FilePart,
    ModelMessage,
    ModelResponse,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
)
from pydantic_ai.models import CompletedStreamedResponse, Model, ModelRequestParameters
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext

from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import Message
from perdure.agents.conversation.update import update_of
from perdure.agents.pydantic.messages import to_message
from perdure.agents.recording import emit_update, is_streaming, record_call

RESPONSE: TypeAdapter[ModelResponse] = TypeAdapter(ModelResponse)


@dataclass
class TurnMessages:
    """The messages of an agent's turn. Their updates are emitted as they come: messages, or parts of messages."""

    agent_name: str
    agent_id: str
    messages: list[Message] = field(default_factory=list)
    _emitted: int = 0
    """How many of them the listener has. Replayed messages are emitted only before a new one, since until then they
    may be removed."""

    def add_part(self, content: Content, message_id: str) -> None:
        self.emit_replayed()
        self._emit(Message("assistant", (), self.agent_name, message_id), contents=(content,))

    def finish(self, message: Message) -> None:
        """Add a message whose parts were emitted, and emit its remaining properties."""
        if message.additional_properties or not message.contents:
            self._emit(message, contents=())
        self.messages.append(message)
        self._emitted = len(self.messages)

    def add(self, message: Message, *, replayed: bool) -> None:
        """Add a whole message; a new one is emitted."""
        if not replayed:
            self.emit_replayed()
            self._emit(message, contents=message.contents, is_whole=True)
            self._emitted += 1
        self.messages.append(message)

    def emit_replayed(self) -> None:
        for message in self.messages[self._emitted :]:
            self._emit(message, replayed=True, contents=message.contents, is_whole=True)
        self._emitted = len(self.messages)

    def truncate(self, index: int) -> None:
        """Remove the messages from this index on."""
        del self.messages[index:]
        self._emitted = min(self._emitted, index)

    def _emit(self, message: Message, *, replayed: bool = False, **fields: Any) -> None:
        if is_streaming():
            emit_update(update_of(message, agent_id=self.agent_id, **fields), replayed=replayed)


class ModelAnswer(msgspec.Struct, frozen=True):
    """The recorded result of one model request."""

    message_id: str
    response: str
    """pydantic-ai's response, as JSON."""


class RecordingModel(WrapperModel):  # type: ignore[misc]  # pydantic-ai is not type-checked
    """A wrapped model for one turn of an agent: a recorded request is not repeated."""

    def __init__(self, wrapped: Model, turn: TurnMessages, policy: Mapping[str, Any]) -> None:
        """`policy`: `retry` and `timeout` of requests."""
        super().__init__(wrapped)
        self._turn = turn
        self._policy = policy
        self.requests = 0
        """The number of requests, made or replayed."""
        self.output_names: set[str] = set()
        """Names of the tools by which the model returns structured output."""
        self.is_new = False
        """Whether the last request was made, not replayed."""
        self.is_failed = False
        """Whether the last request failed: a repeated turn makes it again."""
        self._answers: list[tuple[int, str]] = []
        """The index of each answer among the messages of the turn, with its id."""

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        self.output_names.update(tool.name for tool in model_request_parameters.output_tools)
        self.requests += 1
        self.is_new, self.is_failed = False, True
        is_streamed = False

        async def ask_model() -> ModelAnswer:
            nonlocal is_streamed
            self.is_new = True
            is_streamed = is_streaming() and _can_stream(self.wrapped)
            arguments = (messages, model_settings, model_request_parameters)
            message_id = uuid4().hex
            asking = self._stream(message_id, *arguments) if is_streamed else self.wrapped.request(*arguments)
            return ModelAnswer(message_id, RESPONSE.dump_json(await asking).decode())

        name, key = f"{self._turn.agent_name}.model", str(self.requests)
        answer: ModelAnswer = await record_call(ask_model, name=name, key=key, **self._policy)
        self.is_failed = False
        response = RESPONSE.validate_json(answer.response)
        message = self._message_of(response, answer.message_id)
        self._answers.append((len(self._turn.messages), answer.message_id))
        if is_streamed:
            self._turn.finish(message)
        else:
            self._turn.add(message, replayed=not self.is_new)
        return response

    def drop_answers(self, answers: int, shortened: ModelResponse | None) -> None:
        """Remove the last answers; `shortened` replaces the answer before them."""
        if answers:
            self._turn.truncate(self._answers[-answers][0])
            del self._answers[-answers:]
        if shortened is not None:
            index, message_id = self._answers[-1]
            self._turn.truncate(index)
            self._turn.add(self._message_of(shortened, message_id), replayed=True)

    def _message_of(self, response: ModelResponse, message_id: str) -> Message:
        parts = [self._output_as_text(part) for part in response.parts]
        message = to_message(replace(response, parts=parts), self._turn.agent_name)
        return msgspec.structs.replace(message, message_id=message_id)

    def _output_as_text(self, part: Any) -> Any:
        """Structured output is text, not a call of pydantic-ai's internal output tool."""
        if isinstance(part, ToolCallPart) and part.tool_name in self.output_names:
            return TextPart(part.args_as_json_str())
        return part

    async def _stream(self, message_id: str, *arguments: Any) -> ModelResponse:
        async with self.wrapped.request_stream(*arguments) as stream:
            async for event in stream:
                part = self._new_part(event)
                if part is not None:
                    self._turn.add_part(part, message_id)
            return stream.get()

    def _new_part(self, event: Any) -> Content | None:
        """The new content of an event. Calls and files are emitted when they are complete."""
        if isinstance(event, PartStartEvent) and isinstance(event.part, (TextPart, ThinkingPart)):
            text, is_thought = event.part.content, isinstance(event.part, ThinkingPart)
        elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, (TextPartDelta, ThinkingPartDelta)):
            text, is_thought = event.delta.content_delta, isinstance(event.delta, ThinkingPartDelta)
        elif isinstance(event, PartEndEvent) and isinstance(event.part, (ToolCallPart, FilePart)):
            message = to_message(ModelResponse(parts=[self._output_as_text(event.part)]))
            return message.contents[0] if message.contents else None
        else:
            return None
        return Content("text_reasoning" if is_thought else "text", text=text) if text else None

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncIterator[Any]:
        """For an agent with its own event handlers: they receive events after the request is recorded."""
        response = await self.request(messages, model_settings, model_request_parameters)
        yield CompletedStreamedResponse(response, model_request_parameters=model_request_parameters, replay_events=True)


def _can_stream(model: Model) -> bool:
    """A FunctionModel without a stream function cannot stream."""
    innermost = model
    while isinstance(innermost, WrapperModel):
        innermost = innermost.wrapped
    return not (isinstance(innermost, FunctionModel) and innermost.stream_function is None)


def usage_of(response_usage: Any) -> dict[str, int]:
    """The counts of pydantic-ai's usage, by our names."""
    always, rare = ("input", "output", "total"), ("cache_read", "cache_write")
    counts = {f"{kind}_token_count": getattr(response_usage, f"{kind}_tokens") for kind in (*always, *rare)}
    counts |= {str(name): count for name, count in (response_usage.details or {}).items()}
    return {name: count for name, count in counts.items() if count or name.removesuffix("_token_count") in always}
