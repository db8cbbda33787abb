"""The events of a workflow as responses and updates of an agent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from perdure.agents.base import as_agent_message
from perdure.agents.conversation.message import Content, Message
from perdure.agents.conversation.response import (
    AgentResponse,
    AgentResponseUpdate,
    add_usage,
    is_other_message,
    update_of,
)
from perdure.engine.run.run import WorkflowRunResult
from perdure.events import WorkflowEvent

if TYPE_CHECKING:
    from perdure.workflows.agent import WorkflowAgent


REQUEST_INFO = "request_info"
"""The name of the function call of a request."""


class RequestInfoFunctionArgs(msgspec.Struct, frozen=True):
    """The arguments of a request's function call."""

    request_id: str
    data: Any


class OutputContent(NamedTuple):
    """The messages, value and usage of one output."""

    messages: tuple[Message, ...]
    value: Any
    usage: dict[str, int] | None


def build_response(result: WorkflowRunResult, agent: WorkflowAgent, before: int) -> AgentResponse:
    """All outputs since the last outside input, in the order of the deliveries, then the pending requests."""
    counts: Counter[str] = Counter()
    messages: list[Message] = []
    value, usage = None, None
    for event in result.outputs:
        output = _read_output(event, agent.name, counts, before)
        messages += output.messages
        value = output.value if output.value is not None else value
        usage = add_usage(usage, output.usage) if output.usage is not None else usage
    requests = tuple(_as_call(event) for event in result.get_request_info_events())
    if requests:
        messages.append(Message("assistant", requests, agent.name, "requests"))
    return AgentResponse(
        messages=tuple(messages), response_id=result.run_id, agent_id=agent.id, usage_details=usage, value=value
    )


def final_updates(response: AgentResponse, result: WorkflowRunResult) -> Iterator[AgentResponseUpdate]:
    """The last updates: the requests, and the usage and value of the whole response."""
    ids: dict[str, Any] = {"response_id": response.response_id, "agent_id": response.agent_id}
    if result.get_request_info_events():
        requests = response.messages[-1]
        yield update_of(requests, contents=requests.contents, **ids)
    usage = () if response.usage_details is None else (Content.from_usage(response.usage_details),)
    yield AgentResponseUpdate(contents=usage, value=response.value, **ids)


class UpdateStream:
    """The updates of a run: each output once, in parts if its executor streams it, else as a whole."""

    def __init__(self, agent: WorkflowAgent, before: int) -> None:
        self._before = before
        self._graph = agent.workflow.graph
        self._name = agent.name
        self._counts: Counter[str] = Counter()
        self._parts: dict[str, list[AgentResponseUpdate]] = {}
        """By executor: the streamed parts of its next output."""
        self._repeated: dict[str, list[AgentResponseUpdate]] = {}
        """By executor: the parts that it streamed before an interruption."""
        self._current: dict[str, tuple[AgentResponseUpdate, int]] = {}
        """By executor: the first update of its current message, and the index of that message in the output."""

    def repeat(self, executor_id: str, update: AgentResponseUpdate) -> None:
        """Add an update from before an interruption. It precedes the next update of its executor, unless this stream
        already has one."""
        if executor_id not in self._parts:
            self._repeated.setdefault(executor_id, []).append(update)

    def add(self, event: WorkflowEvent) -> Iterator[AgentResponseUpdate]:
        executor_id = str(event.executor_id)
        if event.type == "data" and isinstance(event.data, AgentResponseUpdate):
            if self._is_public(executor_id):
                for update in (*self._repeated.pop(executor_id, ()), event.data):
                    yield from self._add_part(executor_id, update)
        elif event.type in ("output", "intermediate"):
            self._repeated.pop(executor_id, None)
            parts = self._parts.pop(executor_id, [])
            self._current.pop(executor_id, None)
            output = _read_output(event, self._name, self._counts, self._before)
            if AgentResponse.from_updates(parts).messages != output.messages:
                yield from AgentResponse(messages=output.messages).to_updates()

    def _is_public(self, executor_id: str) -> bool:
        """Whether its outputs are the workflow's. Updates of other executors and of sub-workflows are internal."""
        return executor_id in self._graph.output_kinds

    def _add_part(self, executor_id: str, update: AgentResponseUpdate) -> Iterator[AgentResponseUpdate]:
        """The update with the message id of the response, which separates concurrent executors."""
        contents = tuple(content for content in update.contents if content.type != "usage")
        if not contents and update.role is None:
            return
        first, index = self._current.get(executor_id, (None, -1))
        if first is None or is_other_message(first, update):
            index += 1
            self._current[executor_id] = update, index
        message_id = update.message_id or _message_id(self._before, executor_id, self._counts[executor_id] + 1, index)
        part = AgentResponseUpdate(
            contents=contents,
            role=update.role,
            author_name=update.author_name,
            message_id=message_id,
            additional_properties=update.additional_properties,
            is_whole=update.is_whole,
        )
        self._parts.setdefault(executor_id, []).append(part)
        yield part


def _message_id(before: int, executor_id: str, count: int, index: int) -> str:
    """Equal in every run of the turn, and unique in the session, which had `before` messages."""
    return f"{executor_id}-{count}-{index}" if before == 0 else f"{before}-{executor_id}-{count}-{index}"


def _read_output(event: WorkflowEvent, name: str, counts: Counter[str], before: int) -> OutputContent:
    executor_id = str(event.executor_id)
    counts[executor_id] += 1
    output = _as_output(event.data, event.executor_id or name)
    messages = (
        message
        if message.message_id is not None
        else msgspec.structs.replace(message, message_id=_message_id(before, executor_id, counts[executor_id], index))
        for index, message in enumerate(output.messages)
    )
    return OutputContent(tuple(messages), output.value, output.usage)


def _as_output(data: Any, author: str) -> OutputContent:
    if isinstance(data, AgentResponse):
        return OutputContent(data.messages, data.value, data.usage_details)
    if isinstance(data, AgentResponseUpdate):
        joined = AgentResponse.from_updates([data])
        return OutputContent(joined.messages, joined.value, joined.usage_details)
    if isinstance(data, (str, Message, Content)):
        return OutputContent((as_agent_message(data, author),), None, None)
    if isinstance(data, Sequence) and data and all(isinstance(item, (str, Message, Content)) for item in data):
        return OutputContent(tuple(as_agent_message(item, author) for item in data), None, None)
    return OutputContent((as_agent_message(_as_text(data), author),), data, None)


def _as_text(data: Any) -> str:
    try:
        return msgspec.json.encode(data).decode()
    except (TypeError, ValueError):
        return str(data)


def _as_call(event: WorkflowEvent) -> Content:
    request_id, data = str(event.request_id), event.data
    if isinstance(data, Content) and data.user_input_request:
        if data.type == "function_call":
            return msgspec.structs.replace(data, call_id=request_id)
        return msgspec.structs.replace(data, id=request_id)
    try:
        plain = msgspec.to_builtins(data)
    except (TypeError, ValueError):
        plain = str(data)
    arguments = msgspec.json.encode(RequestInfoFunctionArgs(request_id, plain)).decode()
    call = Content.from_function_call(request_id, REQUEST_INFO, arguments=arguments)
    return msgspec.structs.replace(call, user_input_request=True)
