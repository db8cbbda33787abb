"""What a workflow does, as the response of its agent: whole, and in updates; and its events as a stream shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.agents.conversation.content import Content
from perdure.agents.conversation.content_fields import add_usage
from perdure.agents.conversation.message import Message
from perdure.agents.conversation.response import AgentResponse, as_agent_message
from perdure.agents.conversation.update import AgentResponseUpdate, is_other_message, update_of
from perdure.checkpoints.feed import lenient_codec
from perdure.codec import declare
from perdure.engine.run.run import WorkflowRunResult
from perdure.errors import UnsavableValue
from perdure.events import WorkflowEvent, WorkflowEventSource
from perdure.graph.graph import Graph
from perdure.twins import to_own

if TYPE_CHECKING:
    from perdure.workflows.agent import WorkflowAgent

REQUEST_INFO = "request_info"
"""The name of the function call of a request."""


class RequestInfoFunctionArgs(msgspec.Struct, frozen=True):
    """The arguments of a request's function call: `RequestInfoFunctionArgs.from_dict(call.parse_arguments())`."""

    request_id: str
    request_event: WorkflowEvent

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON, with data of a type that cannot be stored as its text."""
        try:
            event = self.request_event.to_dict()
        except UnsavableValue:
            text = str(self.request_event.data)
            event = msgspec.structs.replace(self.request_event, data=text, request_type=str).to_dict()
        return {"request_id": self.request_id, "request_event": event}

    @classmethod
    def from_dict(
        cls, payload: Mapping[str, Any], *, allowed_types: Mapping[str, type] | None = None
    ) -> RequestInfoFunctionArgs:
        """Data of a type that is not allowed, and that no workflow of this process declares, is `Opaque`. Raises
        ValueError for other payloads."""
        if "request_event" not in payload or not payload.get("request_id"):
            raise ValueError(
                "Invalid payload for RequestInfoFunctionArgs. 'request_id' and 'request_event' are required, and "
                "request_id cannot be empty."
            )
        codec = None if allowed_types is None else lenient_codec(declare(*allowed_types.values()))
        event = WorkflowEvent.from_dict(payload["request_event"], codec)
        return cls(str(payload["request_id"]), event)


def build_response(
    result: WorkflowRunResult, agent: WorkflowAgent, before: int, request_author: str | None = None
) -> AgentResponse:
    """All outputs since the last outside input, in the order of the deliveries, then the pending requests. The author
    of a request is the executor that asks, unless it is given."""
    counts: Counter[str] = Counter()
    messages: list[Message] = []
    value, usage = None, None
    created: list[str] = []
    for event in result.outputs:
        output = _read_output(event, agent.name, counts, before)
        messages += output.messages
        value = output.value if output.value is not None else value
        usage = add_usage(usage, output.usage_details) if output.usage_details is not None else usage
        created += [] if output.created_at is None else [output.created_at]
    for request in result.get_request_info_events():
        author = request_author or request.source_executor_id
        messages.append(Message("assistant", [_as_call(request)], author, str(request.request_id)))
    return AgentResponse(
        messages=tuple(messages),
        response_id=result.run_id,
        agent_id=agent.id,
        created_at=max(created, default=None),
        usage_details=usage,
        value=value,
    )


def merge_updates(updates: Iterable[AgentResponseUpdate], response_id: str) -> AgentResponse:
    """The response, with this id, of updates that came from several agents at once.

    Updates of one response stay together, as do those of one message; messages of one response are in the order of
    their times. A function result belongs to the response that called. Updates without a response come last.
    """
    updates = list(updates)
    callers = {
        content.call_id: update.response_id
        for update in updates
        for content in update.contents
        if update.response_id and content.type == "function_call"
    }
    responses: dict[str | None, dict[str | None, list[AgentResponseUpdate]]] = {}
    for update in updates:
        called = (callers.get(item.call_id) for item in update.contents if item.type == "function_result")
        caller = update.response_id or next(filter(None, called), None)
        responses.setdefault(caller, {}).setdefault(update.message_id if caller else None, []).append(update)
    last = responses.pop(None, {})
    parts: list[AgentResponse] = []
    for group in (*responses.values(), last):
        dangling = [group.pop(None)] if None in group else []
        merged = [AgentResponse.from_updates(items) for items in (*group.values(), *dangling)]
        parts += sorted(merged, key=lambda part: (part.created_at is None, part.created_at or ""))
    properties = {name: value for update in updates for name, value in (update.additional_properties or {}).items()}
    return msgspec.structs.replace(
        AgentResponse.from_updates(updates),
        messages=tuple(message for part in parts for message in part.messages),
        response_id=response_id,
        created_at=max((part.created_at for part in parts if part.created_at is not None), default=None),
        additional_properties=properties or None,
    )


class UpdateStream:
    """The updates of a run: each output once, in parts if its executor streams it, else as a whole. Then the requests,
    and the usage and value of the whole response."""

    def __init__(self, agent: WorkflowAgent, run_id: str, before: int) -> None:
        self._before = before
        self._graph = agent.workflow.graph
        self._name = agent.name
        self._ids: dict[str, Any] = {"response_id": run_id, "agent_id": agent.id}
        self._last: dict[str, str | None] = {}
        """Author and response of the last update: a program that shows them per speaker shows no other at the end."""
        self._has_value = False
        """Whether an update had the last value."""
        self._counts: Counter[str] = Counter()
        self._streaming: set[str] = set()
        """Executors that stream their next output."""
        self._repeated: dict[str, list[AgentResponseUpdate]] = {}
        """By executor: the parts that it streamed before an interruption."""
        self._current: dict[str, tuple[AgentResponseUpdate, int]] = {}
        """By executor: the first update of its current message, and the index of that message in the output."""

    def repeat(self, executor_id: str, update: AgentResponseUpdate) -> None:
        """Add an update from before an interruption. It precedes the next update of its executor, unless this stream
        already has one."""
        if executor_id not in self._streaming:
            self._repeated.setdefault(executor_id, []).append(update)

    def add(self, event: WorkflowEvent) -> Iterator[AgentResponseUpdate]:
        executor_id = str(event.executor_id)
        if event.type == "data" and isinstance(event.data, AgentResponseUpdate):
            # Updates of executors without public outputs, of sub-workflows, and of drafts are internal.
            if executor_id in self._graph.output_kinds and event.origin is WorkflowEventSource.FRAMEWORK:
                for update in (*self._repeated.pop(executor_id, ()), event.data):
                    yield from self._add_part(executor_id, update)
        elif event.type in ("output", "intermediate"):
            self._repeated.pop(executor_id, None)
            self._current.pop(executor_id, None)
            output = _read_output(event, self._name, self._counts, self._before)
            self._has_value = self._has_value and output.value is None
            if executor_id in self._streaming:
                self._streaming.remove(executor_id)
            else:
                yield from self._whole(output, event.data)

    def _add_part(self, executor_id: str, update: AgentResponseUpdate) -> Iterator[AgentResponseUpdate]:
        """The update with the message id of the response, which separates concurrent executors."""
        contents = tuple(content for content in update.contents if content.type != "usage")
        if update.user_input_requests or (not contents and (update.contents or update.role is None)):
            return
        first, index = self._current.get(executor_id, (None, -1))
        if first is None or is_other_message(first, update):
            index += 1
            self._current[executor_id] = update, index
        self._streaming.add(executor_id)
        author, response_id = update.author_name or _author(update.role, executor_id), update.response_id
        self._last = {"author_name": author, "response_id": response_id or self._ids["response_id"]}
        yield msgspec.structs.replace(
            update,
            contents=contents,
            author_name=author,
            message_id=update.message_id
            or _message_id(self._before, executor_id, self._counts[executor_id] + 1, index),
            response_id=self._last["response_id"],
            agent_id=update.agent_id or self._ids["agent_id"],
        )

    def _whole(self, response: AgentResponse, data: Any = None) -> Iterator[AgentResponseUpdate]:
        """An update for each message of the output `data`."""
        ids = {**self._ids, "created_at": response.created_at}
        ids["response_id"] = response.response_id or ids["response_id"]
        for number, message in enumerate(response.messages, 1):
            if number == len(response.messages) and response.value is not None:
                self._has_value, ids["value"] = True, response.value
            self._last = {"author_name": message.author_name, "response_id": ids["response_id"]}
            is_part = data is None or len(response.messages) > 1 or isinstance(data, AgentResponse)
            ids["raw_representation"] = message if is_part else data
            yield update_of(message, contents=message.contents, is_whole=True, **ids)

    def end(self, response: AgentResponse, requests: int) -> Iterator[AgentResponseUpdate]:
        """The last updates: the requests, which are the last messages, and the usage and value that no update had."""
        yield from self._whole(AgentResponse(messages=response.messages[len(response.messages) - requests :]))
        usage = () if response.usage_details is None else (Content.from_usage(response.usage_details),)
        value = None if self._has_value else response.value
        if usage or value is not None:
            yield AgentResponseUpdate(contents=usage, value=value, **{**self._ids, **self._last})


class AgentOutputs:
    """The output of an agent arrives as updates, while the agent works. Its response is not emitted again.

    A response without updates, such as one that an earlier run recorded, becomes an update for each message. Updates
    inside a sub-workflow, and those of an answer that is not an output yet, stay `data` events.
    """

    def __init__(self, graph: Graph) -> None:
        self._executors = graph.executors
        self._kinds = graph.output_kinds
        self._streamed: set[str] = set()
        """Executors whose next response has been streamed."""

    def __call__(self, event: WorkflowEvent) -> Sequence[WorkflowEvent]:
        if event.type == "data":
            is_live = event.origin is WorkflowEventSource.FRAMEWORK and event.child_id is None
            if is_live and isinstance(event.data, AgentResponseUpdate):
                return self._show_update(event, event.data)
        elif event.type in ("output", "intermediate"):
            if isinstance(event.data, AgentResponse):
                return self._show_response(event, event.data)
        elif event.type == "executor_invoked" and self._streamed:
            # What the executor streamed before had no response, since it failed.
            self._streamed.discard(str(event.executor_id))
        return (event,)

    def _show_update(self, event: WorkflowEvent, update: AgentResponseUpdate) -> Sequence[WorkflowEvent]:
        executor_id = str(event.executor_id)
        kind = self._kinds.get(executor_id)
        if kind is None or update.user_input_requests:  # a hidden executor; a request_info event follows
            return ()
        self._streamed.add(executor_id)
        return (msgspec.structs.replace(event, type=kind),)

    def _show_response(self, event: WorkflowEvent, response: AgentResponse) -> Sequence[WorkflowEvent]:
        executor_id = str(event.executor_id)
        if executor_id in self._streamed and not event.replayed:
            self._streamed.remove(executor_id)
            return ()
        executor = self._executors.get(executor_id)
        if executor is None or not executor.streams_output:
            return (event,)
        ids = {"response_id": response.response_id, "is_whole": True}
        parts = (update_of(message, contents=message.contents, **ids) for message in response.messages)
        return [msgspec.structs.replace(event, data=part) for part in parts]


def _message_id(before: int, executor_id: str, count: int, index: int) -> str:
    """Equal in every run of the turn, and unique in the session, which had `before` messages."""
    return f"{executor_id}-{count}-{index}" if before == 0 else f"{before}-{executor_id}-{count}-{index}"


def _author(role: str | None, executor_id: str) -> str | None:
    return None if role == "user" else executor_id


def _read_output(event: WorkflowEvent, name: str, counts: Counter[str], before: int) -> AgentResponse:
    """The output as a response, whose messages have ids and authors."""
    executor_id = str(event.executor_id)
    counts[executor_id] += 1
    author = event.executor_id or name
    response = _as_response(event.data, author)
    messages = (
        msgspec.structs.replace(
            message,
            author_name=message.author_name or _author(message.role, author),
            message_id=message.message_id or _message_id(before, executor_id, counts[executor_id], index),
        )
        for index, message in enumerate(response.messages)
    )
    return msgspec.structs.replace(response, messages=tuple(messages))


def _as_response(data: Any, author: str) -> AgentResponse:
    data = to_own(data)
    if isinstance(data, AgentResponse):
        return data
    if isinstance(data, AgentResponseUpdate):
        return AgentResponse.from_updates([data])
    items = list(data) if isinstance(data, (list, tuple)) else [data]
    shown: list[Any] = [item if isinstance(item, (str, Content, Message)) else str(item) for item in items]
    if any(isinstance(item, Message) for item in items):
        messages = [as_agent_message(item, author) for item in shown]
    else:
        messages = [Message("assistant", shown, author)] if shown else []
    return AgentResponse(messages=messages, value=None if shown == items else data)


def _as_call(event: WorkflowEvent) -> Content:
    request_id, data = str(event.request_id), to_own(event.data)
    if isinstance(data, Content) and data.user_input_request:
        if data.type == "function_call":
            return msgspec.structs.replace(data, call_id=request_id)
        return msgspec.structs.replace(data, id=request_id)
    asked = WorkflowEvent.request_info(request_id, str(event.source_executor_id), data, event.response_type)
    arguments = RequestInfoFunctionArgs(request_id, asked).to_dict()
    call = Content.from_function_call(request_id, REQUEST_INFO, arguments=arguments)
    return msgspec.structs.replace(call, user_input_request=True)
