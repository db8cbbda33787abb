"""One turn of any agent, with messages and responses of other frameworks as ours."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from perdure.agents.adapters import adapt_agent
from perdure.agents.conversation.content import Content, add_usage
from perdure.agents.conversation.message import AgentSession, Message
from perdure.agents.conversation.response import AgentResponse, AgentResponseUpdate
from perdure.agents.recording import (
    ApprovalResponse,
    ask,
    complete_answer,
    current_delivery,
    emit_replay,
    emit_update,
    emit_updates_to,
    is_streaming,
    record_whole_turn,
    request_id_for,
)
from perdure.errors import InvalidRun
from perdure.graph.sub_workflow import agent_name


def as_response(value: Any, agent_name: str) -> AgentResponse:
    """The return value of an agent's `run` as a response. Raises TypeError for other values."""
    if isinstance(value, AgentResponse):
        return value
    if isinstance(value, (str, Message, Content)) or (isinstance(value, (list, tuple)) and value):
        return AgentResponse(messages=tuple(as_agent_message(item, agent_name) for item in _as_list(value)))
    messages = getattr(value, "messages", None)
    if isinstance(messages, Sequence) and not isinstance(messages, str):
        return AgentResponse(
            messages=tuple(as_agent_message(message, agent_name) for message in messages),
            response_id=_text(value, "response_id"),
            created_at=_text(value, "created_at"),
            finish_reason=_text(value, "finish_reason"),
            usage_details=_counts(getattr(value, "usage_details", None)),
            value=getattr(value, "value", None),
            additional_properties=_properties(value),
        )
    raise TypeError(
        f"Agent {agent_name!r} returned {value!r}. Expected an AgentResponse, a text, a Message, or an object with "
        "`.messages`."
    )


def as_update(value: Any, agent_name: str) -> AgentResponseUpdate:
    """An item of an agent's stream as an update."""
    if isinstance(value, AgentResponseUpdate):
        return value
    if isinstance(value, str):
        return AgentResponseUpdate(contents=(Content.from_text(value),), role="assistant", author_name=agent_name)
    contents = getattr(value, "contents", None)
    if contents is None:
        raise TypeError(f"Agent {agent_name!r} streamed {value!r}. Expected an AgentResponseUpdate or a text.")
    return AgentResponseUpdate(
        contents=tuple(as_content(content) for content in contents),
        role=_text(value, "role"),
        author_name=_text(value, "author_name") or agent_name,
        response_id=_text(value, "response_id"),
        message_id=_text(value, "message_id"),
        created_at=_text(value, "created_at"),
        finish_reason=_text(value, "finish_reason"),
        additional_properties=_properties(value),
    )


def as_agent_message(value: Any, agent_name: str) -> Message:
    """A message of an agent, with its author."""
    if isinstance(value, (str, Content)):
        return Message("assistant", (as_content(value),), agent_name)
    if isinstance(value, Message):
        return value
    role = getattr(value, "role", None)
    contents = getattr(value, "contents", None)
    if role is None or contents is None:
        raise TypeError(f"Agent {agent_name!r} returned {value!r} as a message.")
    converted = tuple(as_content(content) for content in contents)
    role_name = str(getattr(role, "value", role))
    author = _text(value, "author_name") or (agent_name if role_name == "assistant" else None)
    return Message(role_name, converted, author, _text(value, "message_id"), _properties(value))


def as_content(value: Any) -> Content:
    """A content of another framework, by the names of its fields."""
    if isinstance(value, Content):
        return value
    if isinstance(value, str):
        return Content.from_text(value)
    to_dict = getattr(value, "to_dict", None)
    data = to_dict() if callable(to_dict) else value
    if not isinstance(data, Mapping) or not isinstance(data.get("type"), str):
        raise TypeError(f"Expected a Content, got {value!r}.")
    return Content.from_dict(data)


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]


def _properties(value: Any) -> dict[str, Any] | None:
    field = getattr(value, "additional_properties", None)
    return dict(field) if isinstance(field, Mapping) and field else None


def _text(value: Any, name: str) -> str | None:
    field = getattr(value, name, None)
    return None if field is None else str(getattr(field, "value", field))


def _counts(value: Any) -> dict[str, int] | None:
    if not isinstance(value, Mapping):
        return None
    return {str(name): count for name, count in value.items() if isinstance(count, int)} or None


async def take_turn(
    agent: Any, messages: Sequence[Message], session: AgentSession | None = None, **kwargs: Any
) -> AgentResponse:
    """The response of an agent. Requests that it makes are answered during the turn. The session gets all messages."""
    agent = adapt_agent(agent)
    new = list(messages)
    recorded: list[Message] = []
    usage: dict[str, int] | None = None
    while True:
        response = await _take_recorded_turn(agent, new, session, kwargs)
        recorded += response.messages
        usage = response.usage_details if usage is None else add_usage(usage, response.usage_details)
        requests = response.user_input_requests
        if not requests or current_delivery() is None:
            break
        answers = await asyncio.gather(*map(_ask, requests))
        is_result = all(answer.type == "function_result" for answer in answers)
        answering = Message("tool" if is_result else "user", answers)
        has_memory = session is not None or getattr(agent, "keeps_conversation", False)
        new = [answering] if has_memory else [*new, *response.messages, answering]
        recorded.append(answering)
    if len(recorded) == len(response.messages):
        return response
    return msgspec.structs.replace(response, messages=tuple(recorded), usage_details=usage)


async def take_live_turn(
    agent: Any, messages: Sequence[Message], session: AgentSession | None = None, **kwargs: Any
) -> AgentResponse:
    """`take_turn` in a handler: new updates are emitted to subscribers of the run."""
    context = current_delivery()
    if context is None:
        raise InvalidRun("take_live_turn needs a workflow. Outside of a workflow use `agent.run`.")
    name = agent_name(agent)

    def listen(update: AgentResponseUpdate, *, replayed: bool) -> None:
        is_named = update.author_name is not None or update.role not in (None, "assistant")
        named = update if is_named else msgspec.structs.replace(update, author_name=name)
        if replayed:
            emit_replay(context.delivery.lane.full_id, named)
        else:
            context.emit_live(named)

    with emit_updates_to(listen if context.is_streaming() else None):
        return await take_turn(agent, messages, session, **kwargs)


async def _ask(request: Content) -> Content:
    request_id = request_id_for(str(request.id or request.call_id))
    if request.type == "function_approval_request":
        return complete_answer(request, await ask(request, ApprovalResponse, request_id))
    if request.type != "function_call":
        answer: Content = await ask(request, Content, request_id)
        return msgspec.structs.replace(answer, id=request.id)
    result = await ask(request, Any, request_id)  # any: the result of the function
    if isinstance(result, Content) and result.type == "function_result":
        return msgspec.structs.replace(result, call_id=request.call_id)
    return Content.from_function_result(str(request.call_id), result=result)


async def _take_recorded_turn(
    agent: Any, messages: list[Message], session: AgentSession | None, kwargs: Any
) -> AgentResponse:
    if getattr(agent, "records_itself", False):
        response: AgentResponse = await agent.run(messages, session=session, **kwargs)
        return response
    name = agent_name(agent)
    return await record_whole_turn(name, messages, session, lambda new, own: _run(agent, name, new, own, kwargs))


async def _run(
    agent: Any, name: str, messages: list[Message], session: AgentSession | None, kwargs: Any
) -> AgentResponse:
    """An agent without a `session` parameter gets all earlier messages."""
    takes = _parameters(agent)
    options = {key: value for key, value in kwargs.items() if takes is None or key in takes}
    if takes is None or "session" in takes:
        options["session"] = session
    elif session is not None:
        messages = [*session.messages, *messages]
    if is_streaming() and (takes is None or "stream" in takes):
        return await _stream(agent, name, messages, options)
    return as_response(await _resolve(agent.run(messages, **options)), name)


async def _stream(agent: Any, name: str, messages: list[Message], options: Any) -> AgentResponse:
    stream, updates = await _resolve(agent.run(messages, stream=True, **options)), []
    async for item in stream:
        updates.append(as_update(item, name))
        emit_update(updates[-1])
    final = getattr(stream, "get_final_response", None)
    if final is not None:  # the response of a run without streaming
        return as_response(await _resolve(final()), name)
    return AgentResponse.from_updates(updates)


async def _resolve(value: Any) -> Any:
    """Some agents return a stream, others a coroutine that returns one."""
    return await value if inspect.isawaitable(value) and not hasattr(value, "__aiter__") else value


def _parameters(agent: Any) -> frozenset[str] | None:
    """The parameter names of its `run`; None if it accepts any."""
    try:
        parameters = inspect.signature(agent.run).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters)
