"""What a workflow's events say, if it is spoken to like an agent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from perdure.agents.conversation.content import Content, add_usage
from perdure.agents.conversation.message import Message
from perdure.agents.conversation.response import AgentResponse, AgentResponseUpdate, is_another
from perdure.agents.turn import as_spoken
from perdure.engine.run.result import WorkflowRunResult
from perdure.events import WorkflowEvent

if TYPE_CHECKING:
    from perdure.workflows.agent import WorkflowAgent


REQUEST_INFO = "request_info"
"""The name of the function that a request of the workflow calls."""


class RequestInfoFunctionArgs(msgspec.Struct, frozen=True):
    """The arguments of a request that is told as a function call."""

    request_id: str
    data: Any


class AgentUpdates(NamedTuple):
    """What one output says."""

    messages: tuple[Message, ...]
    value: Any
    usage: dict[str, int] | None


def response_to(result: WorkflowRunResult, agent: WorkflowAgent, before: int) -> AgentResponse:
    """All outputs since the last outside input, in the order of the deliveries, and then what is pending."""
    counts: Counter[str] = Counter()
    messages: list[Message] = []
    value, usage = None, None
    for event in result.outputs:
        said = _said(event, agent.name, counts, before)
        messages += said.messages
        value = said.value if said.value is not None else value
        usage = add_usage(usage, said.usage) if said.usage is not None else usage
    asked = tuple(_as_call(event) for event in result.get_request_info_events())
    if asked:
        messages.append(Message("assistant", asked, agent.name, "requests"))
    return AgentResponse(
        messages=tuple(messages), response_id=result.run_id, agent_id=agent.id, usage_details=usage, value=value
    )


def told_at_the_end(
    response: AgentResponse, result: WorkflowRunResult, agent: WorkflowAgent
) -> Iterator[AgentResponseUpdate]:
    """What was not told before: the requests, and what is said of the response as a whole."""
    said: dict[str, Any] = {"response_id": response.response_id, "agent_id": response.agent_id}
    if result.get_request_info_events():
        asked = response.messages[-1]
        yield AgentResponseUpdate(
            contents=asked.contents, role=asked.role, author_name=agent.name, message_id=asked.message_id, **said
        )
    usage = () if response.usage_details is None else (Content.from_usage(response.usage_details),)
    yield AgentResponseUpdate(contents=usage, value=response.value, **said)


class Speaking:
    """Each output once, piece by piece if its executor streams it, else when it is there."""

    def __init__(self, agent: WorkflowAgent, before: int) -> None:
        self._before = before
        self._graph = agent.workflow.graph
        self._name = agent.name
        self._counts: Counter[str] = Counter()
        self._pieces: dict[str, list[AgentResponseUpdate]] = {}
        """By executor: what it has streamed of its next output."""
        self._repeated: dict[str, list[AgentResponseUpdate]] = {}
        """By executor: what it had streamed of that before an interruption."""
        self._places: dict[str, tuple[AgentResponseUpdate, int]] = {}
        """By executor: how the message began that it streams now, and its place in that output."""

    def repeat(self, executor_id: str, update: AgentResponseUpdate) -> None:
        """It was said before an interruption: told before what the same executor says next, unless it was told here."""
        if executor_id not in self._pieces:
            self._repeated.setdefault(executor_id, []).append(update)

    def said(self, event: WorkflowEvent) -> Iterator[AgentResponseUpdate]:
        executor_id = str(event.executor_id)
        if event.type == "data" and isinstance(event.data, AgentResponseUpdate):
            if self._is_heard(executor_id):
                for update in (*self._repeated.pop(executor_id, ()), event.data):
                    yield from self._piece(executor_id, update)
        elif event.type in ("output", "intermediate"):
            self._repeated.pop(executor_id, None)
            pieces = self._pieces.pop(executor_id, [])
            self._places.pop(executor_id, None)
            said = _said(event, self._name, self._counts, self._before)
            if AgentResponse.from_updates(pieces).messages != said.messages:
                yield from AgentResponse(messages=said.messages).to_updates()

    def _is_heard(self, executor_id: str) -> bool:
        """Only those whose outputs are the workflow's: what others say, and what is said in sub-workflows, is between
        them."""
        return executor_id in self._graph.nodes and self._graph.designation.event_type(executor_id) is not None

    def _piece(self, executor_id: str, update: AgentResponseUpdate) -> Iterator[AgentResponseUpdate]:
        """The same ids as in the response, so that what several executors say at once is told apart."""
        contents = tuple(one for one in update.contents if one.type != "usage")
        if not contents and update.role is None:
            return
        began, place = self._places.get(executor_id, (None, -1))
        if began is None or is_another(began, update):
            place += 1
            self._places[executor_id] = update, place
        message_id = update.message_id or _message_id(self._before, executor_id, self._counts[executor_id] + 1, place)
        told = AgentResponseUpdate(
            contents=contents,
            role=update.role,
            author_name=update.author_name,
            message_id=message_id,
            additional_properties=update.additional_properties,
            is_whole=update.is_whole,
        )
        self._pieces.setdefault(executor_id, []).append(told)
        yield told


def _message_id(before: int, executor_id: str, count: int, place: int) -> str:
    """The same whenever the turn is run, and of no other message in the session, which had so many before."""
    return f"{executor_id}-{count}-{place}" if before == 0 else f"{before}-{executor_id}-{count}-{place}"


def _said(event: WorkflowEvent, name: str, counts: Counter[str], before: int) -> AgentUpdates:
    executor_id = str(event.executor_id)
    counts[executor_id] += 1
    said = _words(event.data, event.executor_id or name)
    messages = (
        one
        if one.message_id is not None
        else msgspec.structs.replace(one, message_id=_message_id(before, executor_id, counts[executor_id], place))
        for place, one in enumerate(said.messages)
    )
    return AgentUpdates(tuple(messages), said.value, said.usage)


def _words(data: Any, author: str) -> AgentUpdates:
    if isinstance(data, AgentResponse):
        return AgentUpdates(data.messages, data.value, data.usage_details)
    if isinstance(data, AgentResponseUpdate):
        joined = AgentResponse.from_updates([data])
        return AgentUpdates(joined.messages, joined.value, joined.usage_details)
    if isinstance(data, (str, Message, Content)):
        return AgentUpdates((as_spoken(data, author),), None, None)
    if isinstance(data, Sequence) and data and all(isinstance(one, (str, Message, Content)) for one in data):
        return AgentUpdates(tuple(as_spoken(one, author) for one in data), None, None)
    return AgentUpdates((as_spoken(_as_text(data), author),), data, None)


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
        told = msgspec.to_builtins(data)
    except (TypeError, ValueError):
        told = str(data)
    arguments = msgspec.json.encode(RequestInfoFunctionArgs(request_id, told)).decode()
    call = Content.from_function_call(request_id, REQUEST_INFO, arguments=arguments)
    return msgspec.structs.replace(call, user_input_request=True)
