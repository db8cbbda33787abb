"""One turn of any agent, with messages and responses of other frameworks as ours."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from perdure.agents.adapters import adapted
from perdure.agents.conversation.content import Content, add_usage
from perdure.agents.conversation.message import AgentSession, Message
from perdure.agents.conversation.response import AgentResponse, AgentResponseUpdate
from perdure.agents.recording import (
    ApprovalResponse,
    completed,
    heard_by,
    is_heard,
    latest_answer,
    record_whole_turn,
    repeat,
    request_id_for,
    tell,
    working_for,
)
from perdure.errors import InvalidRun
from perdure.graph.sub_workflow import agent_name


def as_response(given: Any, agent_name: str) -> AgentResponse:
    """Of whatever an agent's `run` gave. Raises TypeError for what says nothing."""
    if isinstance(given, AgentResponse):
        return given
    if isinstance(given, (str, Message, Content)) or (isinstance(given, (list, tuple)) and given):
        return AgentResponse(messages=tuple(as_spoken(one, agent_name) for one in _several(given)))
    messages = getattr(given, "messages", None)
    if isinstance(messages, Sequence) and not isinstance(messages, str):
        return AgentResponse(
            messages=tuple(as_spoken(message, agent_name) for message in messages),
            response_id=_text(given, "response_id"),
            created_at=_text(given, "created_at"),
            finish_reason=_text(given, "finish_reason"),
            usage_details=_counts(getattr(given, "usage_details", None)),
            value=getattr(given, "value", None),
            additional_properties=_properties(given),
        )
    raise TypeError(
        f"Agent {agent_name!r} gave {given!r}. Expected an AgentResponse, a text, a Message, or something with "
        "`.messages`."
    )


def as_update(given: Any, agent_name: str) -> AgentResponseUpdate:
    """Of whatever an agent's stream gave."""
    if isinstance(given, AgentResponseUpdate):
        return given
    if isinstance(given, str):
        return AgentResponseUpdate(contents=(Content.from_text(given),), role="assistant", author_name=agent_name)
    contents = getattr(given, "contents", None)
    if contents is None:
        raise TypeError(f"Agent {agent_name!r} streamed {given!r}. Expected an AgentResponseUpdate or a text.")
    return AgentResponseUpdate(
        contents=tuple(as_content(content) for content in contents),
        role=_text(given, "role"),
        author_name=_text(given, "author_name") or agent_name,
        response_id=_text(given, "response_id"),
        message_id=_text(given, "message_id"),
        created_at=_text(given, "created_at"),
        finish_reason=_text(given, "finish_reason"),
        additional_properties=_properties(given),
    )


def as_spoken(given: Any, agent_name: str) -> Message:
    """A message that an agent said: it has an author."""
    if isinstance(given, (str, Content)):
        return Message("assistant", (as_content(given),), agent_name)
    if isinstance(given, Message):
        return given
    role = getattr(given, "role", None)
    contents = getattr(given, "contents", None)
    if role is None or contents is None:
        raise TypeError(f"Agent {agent_name!r} gave {given!r} as a message.")
    spoken = tuple(as_content(content) for content in contents)
    speaks_as = str(getattr(role, "value", role))
    author = _text(given, "author_name") or (agent_name if speaks_as == "assistant" else None)
    return Message(speaks_as, spoken, author, _text(given, "message_id"), _properties(given))


def as_content(given: Any) -> Content:
    """A content of another framework, by the names of its fields."""
    if isinstance(given, Content):
        return given
    if isinstance(given, str):
        return Content.from_text(given)
    to_dict = getattr(given, "to_dict", None)
    told = to_dict() if callable(to_dict) else given
    if not isinstance(told, Mapping) or not isinstance(told.get("type"), str):
        raise TypeError(f"Expected a Content, got {given!r}.")
    return Content.from_dict(told)


def _several(given: Any) -> Sequence[Any]:
    return given if isinstance(given, (list, tuple)) else [given]


def _properties(given: Any) -> dict[str, Any] | None:
    found = getattr(given, "additional_properties", None)
    return dict(found) if isinstance(found, Mapping) and found else None


def _text(given: Any, name: str) -> str | None:
    found = getattr(given, name, None)
    return None if found is None else str(getattr(found, "value", found))


def _counts(given: Any) -> dict[str, int] | None:
    if not isinstance(given, Mapping):
        return None
    return {str(name): count for name, count in given.items() if isinstance(count, int)} or None


async def take_turn(
    agent: Any, messages: Sequence[Message], session: AgentSession | None = None, **kwargs: Any
) -> AgentResponse:
    """What the agent answers, its questions to people answered meanwhile. The session goes on with it."""
    agent = adapted(agent)
    given = list(messages)
    said: list[Message] = []
    usage: dict[str, int] | None = None
    while True:
        response = await _one_turn(agent, given, session, kwargs)
        said += response.messages
        usage = response.usage_details if usage is None else add_usage(usage, response.usage_details)
        asked = response.user_input_requests
        if not asked or working_for() is None:
            break
        answers = await asyncio.gather(*map(_answered, asked))
        is_result = all(answer.type == "function_result" for answer in answers)
        answering = Message("tool" if is_result else "user", answers)
        knows = session is not None or getattr(agent, "keeps_conversation", False)
        given = [answering] if knows else [*given, *response.messages, answering]
        said.append(answering)
    if len(said) == len(response.messages):
        return response
    return msgspec.structs.replace(response, messages=tuple(said), usage_details=usage)


async def take_live_turn(
    agent: Any, messages: Sequence[Message], session: AgentSession | None = None, **kwargs: Any
) -> AgentResponse:
    """The same in a handler: updates stream to whoever watches the run, but those that it was told before."""
    context = working_for()
    if context is None:
        raise InvalidRun("Outside of a workflow nobody watches: use `agent.run`.")
    name = agent_name(agent)

    def listen(update: AgentResponseUpdate, *, replayed: bool) -> None:
        is_named = update.author_name is not None or update.role not in (None, "assistant")
        told = update if is_named else msgspec.structs.replace(update, author_name=name)
        if replayed:
            repeat(context.delivery.lane.full_id, told)
        else:
            context.emit_live(told)

    with heard_by(listen if context.is_streaming() else None):
        return await take_turn(agent, messages, session, **kwargs)


async def _answered(request: Content) -> Content:
    context = working_for()
    assert context is not None  # noqa: S101  # asked only where there is one
    request_id = request_id_for(str(request.id or request.call_id))
    if request.type == "function_approval_request":
        approval = await context.ask(request, ApprovalResponse, request_id=request_id, deadline=latest_answer())
        return completed(request, approval)
    if request.type != "function_call":
        answer: Content = await context.ask(request, Content, request_id=request_id, deadline=latest_answer())
        return msgspec.structs.replace(answer, id=request.id)
    # Any: whatever the function gives.
    given = await context.ask(request, Any, request_id=request_id, deadline=latest_answer())
    if isinstance(given, Content) and given.type == "function_result":
        return msgspec.structs.replace(given, call_id=request.call_id)
    return Content.from_function_result(str(request.call_id), result=given)


async def _one_turn(agent: Any, messages: list[Message], session: AgentSession | None, kwargs: Any) -> AgentResponse:
    if getattr(agent, "records_itself", False):
        response: AgentResponse = await agent.run(messages, session=session, **kwargs)
        return response
    name = agent_name(agent)
    return await record_whole_turn(name, messages, session, lambda given, own: _run(agent, name, given, own, kwargs))


async def _run(
    agent: Any, name: str, messages: list[Message], session: AgentSession | None, kwargs: Any
) -> AgentResponse:
    """An agent that takes no session is told all that was said before."""
    takes = _parameters(agent)
    options = {key: value for key, value in kwargs.items() if takes is None or key in takes}
    if takes is None or "session" in takes:
        options["session"] = session
    elif session is not None:
        messages = [*session.messages, *messages]
    if is_heard() and (takes is None or "stream" in takes):
        return await _streamed(agent, name, messages, options)
    return as_response(await _awaited(agent.run(messages, **options)), name)


async def _streamed(agent: Any, name: str, messages: list[Message], options: Any) -> AgentResponse:
    stream, updates = await _awaited(agent.run(messages, stream=True, **options)), []
    async for one in stream:
        updates.append(as_update(one, name))
        tell(updates[-1])
    final = getattr(stream, "get_final_response", None)
    if final is not None:  # what it gives when it is not streamed
        return as_response(await _awaited(final()), name)
    return AgentResponse.from_updates(updates)


async def _awaited(given: Any) -> Any:
    """Some agents give a stream, others a coroutine that gives one."""
    return await given if inspect.isawaitable(given) and not hasattr(given, "__aiter__") else given


def _parameters(agent: Any) -> frozenset[str] | None:
    """The names that its `run` takes; None if it takes any."""
    try:
        parameters = inspect.signature(agent.run).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters)
