"""WorkflowAgent: a workflow that is spoken to like an agent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.agents.base import AgentStream, BaseAgent
from holdfast.agents.content import Content
from holdfast.agents.foreign import as_spoken
from holdfast.agents.message import Message, as_messages
from holdfast.agents.response import AgentResponse, AgentResponseUpdate
from holdfast.agents.session import AgentSession
from holdfast.engine.result import WorkflowRunResult
from holdfast.engine.stream import ResponseStream
from holdfast.engine.workflow import Workflow
from holdfast.events import WorkflowEvent
from holdfast.graph.types import is_type_compatible

REQUEST_INFO = "request_info"
"""The name of the function that a request of the workflow calls."""

ANSWERS = ("function_result", "function_approval_response")


class RequestInfoFunctionArgs(msgspec.Struct, frozen=True):
    """The arguments of a request that is told as a function call."""

    request_id: str
    data: Any


class WorkflowAgent(BaseAgent):
    """`workflow.as_agent()`: a message starts a turn of the workflow, its outputs are the response.

    A session is a thread of the workflow, so it goes on where it stood, in any process; without one the workflow
    object's own thread goes on. What the workflow asks is a function call named `request_info`, or the request for
    approval as it is; it is answered with the function's result, or with the approval's response. `run()` without
    messages resumes, and gives what the undisturbed run would have given.
    """

    def __init__(self, workflow: Workflow, name: str | None = None, *, description: str | None = None) -> None:
        super().__init__(name or workflow.name, description=description or workflow.description)
        start = workflow.executors[workflow.start_executor_id]
        if not any(is_type_compatible(list[Message], one) for one in start.input_types):
            raise ValueError(
                f"The start executor {start.id!r} of {workflow.name!r} does not accept list[Message], which an agent "
                "is given. Write a handler for it, or begin with an agent."
            )
        self.workflow = workflow

    def run(
        self,
        messages: Any = None,
        *,
        stream: bool = False,
        session: AgentSession | None = None,
        checkpoint_id: str | None = None,
        checkpoint_storage: Any = None,
        **kwargs: Any,
    ) -> Any:
        given = as_messages(messages)
        options: dict[str, Any] = {"checkpoint_storage": checkpoint_storage, **kwargs}
        if session is not None:
            options["thread_id"] = session.session_id
        if checkpoint_id is not None:
            options["checkpoint_id"] = checkpoint_id
        options = {name: value for name, value in options.items() if value is not None}
        answers = _answers(given)
        if answers:
            options["responses"] = answers
        message = given if given and not answers else None
        if not stream:
            return self._run(message, session, options)
        return self._stream(message, session, options)

    async def _run(self, message: Any, session: AgentSession | None, options: dict[str, Any]) -> AgentResponse:
        result = await self.workflow.run(message, **options)
        speaking = Speaking(self)
        updates = [update for event in result for update in speaking.said(event)]
        return self._ended(updates, speaking.asked(result), session, result)

    def _stream(self, message: Any, session: AgentSession | None, options: dict[str, Any]) -> AgentStream:
        async def start(put: Any) -> AgentResponse:
            speaking, updates = Speaking(self), []
            events = self.workflow.run(message, stream=True, **options)
            async for event in events:
                for update in speaking.said(event):
                    updates.append(update)
                    put(update)
            result = await events
            asked = speaking.asked(result)
            for update in asked:
                put(update)
            return self._ended(updates, asked, session, result)

        return ResponseStream[AgentResponseUpdate, AgentResponse](start, lambda: False)

    def _ended(
        self,
        updates: Sequence[AgentResponseUpdate],
        asked: Sequence[AgentResponseUpdate],
        session: AgentSession | None,
        result: WorkflowRunResult,
    ) -> AgentResponse:
        response = AgentResponse.from_updates([*updates, *asked])
        if session is not None:
            session.state["usage"] = dict(result.usage)
        return msgspec.structs.replace(response, agent_id=self.id, response_id=result.run_id)


class Speaking:
    """What events say: each text once, as it comes if it is streamed, else when it is there."""

    def __init__(self, agent: WorkflowAgent) -> None:
        self._graph = agent.workflow.graph
        self._name = agent.name
        self._streamed: set[str | None] = set()
        self._count = 0

    def said(self, event: WorkflowEvent) -> Iterator[AgentResponseUpdate]:
        if event.type == "data" and isinstance(event.data, AgentResponseUpdate):
            if self._is_heard(event.executor_id):
                self._streamed.add(event.executor_id)
                yield msgspec.structs.replace(event.data, message_id=f"{event.executor_id}-{self._count}")
        elif event.type in ("output", "intermediate"):
            self._count += 1
            if event.executor_id in self._streamed and isinstance(event.data, AgentResponse):
                self._streamed.discard(event.executor_id)
                usage = event.data.usage_details
                yield AgentResponseUpdate(
                    contents=(Content.from_usage(usage),) if usage else (), value=event.data.value
                )
                return
            yield from self._whole(event.data, event.executor_id or self._name)

    def _is_heard(self, executor_id: str | None) -> bool:
        """Only those whose outputs are the workflow's: what others say is between them."""
        return executor_id is not None and self._graph.designation.event_type(executor_id.split("/")[0]) is not None

    def _whole(self, data: Any, author: str) -> Iterator[AgentResponseUpdate]:
        value, usage, messages = None, None, None
        if isinstance(data, AgentResponse):
            messages, value, usage = data.messages, data.value, data.usage_details
        elif isinstance(data, AgentResponseUpdate):
            yield data
            return
        elif isinstance(data, (str, Message, Content)):
            messages = (as_spoken(data, author),)
        elif isinstance(data, (list, tuple)) and data and all(isinstance(one, (str, Message, Content)) for one in data):
            messages = tuple(as_spoken(one, author) for one in data)
        else:
            messages, value = (as_spoken(_as_text(data), author),), data
        for place, message in enumerate(messages):
            yield AgentResponseUpdate(
                contents=message.contents,
                role=message.role,
                author_name=message.author_name,
                message_id=f"{author}-{self._count}-{place}",
            )
        if usage or value is not None:
            yield AgentResponseUpdate(contents=(Content.from_usage(usage),) if usage else (), value=value)

    def asked(self, result: WorkflowRunResult) -> list[AgentResponseUpdate]:
        """All that is pending."""
        contents = tuple(_as_call(event) for event in result.get_request_info_events())
        if not contents:
            return []
        return [AgentResponseUpdate(contents=contents, role="assistant", author_name=self._name, message_id="requests")]


def _as_text(data: Any) -> str:
    try:
        return msgspec.json.encode(data).decode() if not isinstance(data, (int, float, bool)) else str(data)
    except (TypeError, ValueError):
        return str(data)


def _as_call(event: WorkflowEvent) -> Content:
    request_id = str(event.request_id)
    if isinstance(event.data, Content) and event.data.user_input_request:
        return msgspec.structs.replace(event.data, id=request_id)
    try:
        told = msgspec.to_builtins(event.data)
    except (TypeError, ValueError):
        told = str(event.data)
    arguments = msgspec.json.encode(RequestInfoFunctionArgs(request_id, told)).decode()
    return Content.from_function_call(request_id, REQUEST_INFO, arguments=arguments)


def _answers(messages: Iterable[Message]) -> Mapping[str, Any]:
    """By request id. Raises ValueError where something else is said beside them."""
    contents = [one for message in messages for one in message.contents]
    found = [one for one in contents if one.type in ANSWERS]
    if not found:
        return {}
    if len(found) < len(contents):
        raise ValueError("Answers to requests and new messages cannot be given in one turn: give the answers first.")
    return {
        str(one.id if one.type == "function_approval_response" else one.call_id): (
            one if one.type == "function_approval_response" else one.result
        )
        for one in found
    }
