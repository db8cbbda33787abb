"""The model of an agent, each of its requests a recorded step, streamed while somebody listens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
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
from perdure.agents.conversation.response import AgentResponseUpdate
from perdure.agents.pydantic.messages import to_message
from perdure.agents.recording import is_heard, record_call, tell
from perdure.graph.policy import RetryPolicy, Seconds

RESPONSE: TypeAdapter[ModelResponse] = TypeAdapter(ModelResponse)


class Voice:
    """What an agent says in one turn, told as it comes: message by message, piece by piece."""

    def __init__(self, agent_name: str, agent_id: str) -> None:
        self._agent_name = agent_name
        self._agent_id = agent_id
        self.said: list[Message] = []
        self._told = 0
        """How many of them whoever listens knows. What is replayed is told only before something new: it may be taken
        back until then."""

    def say_piece(self, content: Content, message_id: str) -> None:
        self.catch_up()
        self._tell(contents=(content,), message_id=message_id, role="assistant", author_name=self._agent_name)

    def end(self, message: Message) -> None:
        """Of a message whose pieces were told: what is known of it only now."""
        if message.additional_properties or not message.contents:
            self._tell_of(message, replayed=False, contents=())
        self.said.append(message)
        self._told = len(self.said)

    def say(self, message: Message, *, replayed: bool) -> None:
        """A message as a whole."""
        if not replayed:
            self.catch_up()
            self._tell_whole(message, replayed=False)
            self._told += 1
        self.said.append(message)

    def catch_up(self) -> None:
        """Tell what was replayed."""
        for message in self.said[self._told :]:
            self._tell_whole(message, replayed=True)
        self._told = len(self.said)

    def take_back(self, place: int) -> None:
        """What was said from there on."""
        del self.said[place:]
        self._told = min(self._told, place)

    def _tell_whole(self, message: Message, *, replayed: bool) -> None:
        self._tell_of(message, replayed=replayed, contents=message.contents, is_whole=True)

    def _tell_of(self, message: Message, *, replayed: bool, **fields: Any) -> None:
        self._tell(
            replayed=replayed,
            role=message.role,
            author_name=message.author_name,
            message_id=message.message_id,
            additional_properties=message.additional_properties,
            **fields,
        )

    def _tell(self, *, replayed: bool = False, **fields: Any) -> None:
        if is_heard():
            tell(AgentResponseUpdate(agent_id=self._agent_id, **fields), replayed=replayed)


class ModelAnswer(msgspec.Struct, frozen=True):
    """What one request came to."""

    message_id: str
    response: str
    """pydantic-ai's response, as JSON."""


class RecordingModel(WrapperModel):  # type: ignore[misc]  # pydantic-ai is not looked at
    """Another model, for one turn of an agent: a request that was recorded is not made again."""

    def __init__(
        self,
        wrapped: Model,
        agent_name: str,
        voice: Voice,
        *,
        retry: RetryPolicy | int | None = None,
        timeout: Seconds | None = None,
    ) -> None:
        super().__init__(wrapped)
        self._agent_name = agent_name
        self._voice = voice
        self._retry = retry
        self._timeout = timeout
        self.requests = 0
        """How many were made, or taken from the record."""
        self.output_names: set[str] = set()
        """Of the tools by which the model gives its structured output."""
        self.is_made = False
        """Whether the last request was not taken from the record."""
        self.is_failed = False
        """Whether the last request failed: it is made again when its turn is."""
        self._places: list[tuple[int, str]] = []
        """Of its answers among all that is said in the turn, with their ids."""

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        self.output_names.update(tool.name for tool in model_request_parameters.output_tools)
        self.requests += 1
        self.is_made, self.is_failed = False, True
        is_streamed = False

        async def ask_model() -> ModelAnswer:
            nonlocal is_streamed
            self.is_made = True
            is_streamed = is_heard() and _can_stream(self.wrapped)
            given = (messages, model_settings, model_request_parameters)
            message_id = uuid4().hex
            asked = self._streamed(message_id, *given) if is_streamed else self.wrapped.request(*given)
            return ModelAnswer(message_id, RESPONSE.dump_json(await asked).decode())

        name, key = f"{self._agent_name}.model", str(self.requests)
        answer: ModelAnswer = await record_call(ask_model, name=name, key=key, retry=self._retry, timeout=self._timeout)
        self.is_failed = False
        response = RESPONSE.validate_json(answer.response)
        message = self._message_of(response, answer.message_id)
        self._places.append((len(self._voice.said), answer.message_id))
        if is_streamed:
            self._voice.end(message)
        else:
            self._voice.say(message, replayed=not self.is_made)
        return response

    def take_back(self, answers: int, cut: ModelResponse | None) -> None:
        """The last answers were never given, and of the one before them there is only what is `cut`."""
        if answers:
            self._voice.take_back(self._places[-answers][0])
            del self._places[-answers:]
        if cut is not None:
            place, message_id = self._places[-1]
            self._voice.take_back(place)
            self._voice.say(self._message_of(cut, message_id), replayed=True)

    def _message_of(self, response: ModelResponse, message_id: str) -> Message:
        said = to_message(self._as_said(response), self._agent_name)
        return msgspec.structs.replace(said, message_id=message_id)

    def _as_said(self, response: ModelResponse) -> ModelResponse:
        """With structured output as the text that it is, rather than as the call of a tool that nobody wrote."""
        parts = [self._part_as_said(part) for part in response.parts]
        return replace(response, parts=parts)

    def _part_as_said(self, part: Any) -> Any:
        if isinstance(part, ToolCallPart) and part.tool_name in self.output_names:
            return TextPart(part.args_as_json_str())
        return part

    async def _streamed(
        self,
        message_id: str,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        async with self.wrapped.request_stream(messages, model_settings, model_request_parameters) as stream:
            async for event in stream:
                piece = self._piece(event)
                if piece is not None:
                    self._voice.say_piece(piece, message_id)
            return stream.get()

    def _piece(self, event: Any) -> Content | None:
        """The news of an event. Calls and files are told when they are complete."""
        if isinstance(event, PartStartEvent):
            part = event.part
            if isinstance(part, TextPart) and part.content:
                return Content.from_text(part.content)
            if isinstance(part, ThinkingPart) and part.content:
                return Content.from_text_reasoning(part.content)
        elif isinstance(event, PartDeltaEvent):
            delta = event.delta
            if isinstance(delta, TextPartDelta) and delta.content_delta:
                return Content.from_text(delta.content_delta)
            if isinstance(delta, ThinkingPartDelta) and delta.content_delta:
                return Content.from_text_reasoning(delta.content_delta)
        elif isinstance(event, PartEndEvent) and isinstance(event.part, (ToolCallPart, FilePart)):
            said = to_message(ModelResponse(parts=[self._part_as_said(event.part)]))
            return said.contents[0] if said.contents else None
        return None

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncIterator[Any]:
        """For an agent whose own listeners want events: they get them when the request is recorded."""
        response = await self.request(messages, model_settings, model_request_parameters)
        yield CompletedStreamedResponse(response, model_request_parameters=model_request_parameters, replay_events=True)


def _can_stream(model: Model) -> bool:
    """Of models for tests, one may be made of a plain function."""
    innermost = model
    while isinstance(innermost, WrapperModel):
        innermost = innermost.wrapped
    return not (isinstance(innermost, FunctionModel) and innermost.stream_function is None)


def usage_of(response_usage: Any) -> dict[str, int]:
    """The counts of pydantic-ai's usage, by our names."""
    counts = {
        "input_token_count": response_usage.input_tokens,
        "output_token_count": response_usage.output_tokens,
        "total_token_count": response_usage.total_tokens,
        "cache_read_token_count": response_usage.cache_read_tokens,
        "cache_write_token_count": response_usage.cache_write_tokens,
        **{str(name): count for name, count in (response_usage.details or {}).items()},
    }
    always = ("input_token_count", "output_token_count", "total_token_count")
    return {name: count for name, count in counts.items() if name in always or count}
