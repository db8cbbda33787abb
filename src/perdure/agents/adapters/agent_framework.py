"""Agents of agent-framework-core: their messages, their sessions, and answers to their requests for approval."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import agent_framework
import msgspec
import pydantic

from perdure.agents.base import BaseAgent, agent_name, is_from, parameters_of
from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import FRAMEWORK_STATE, AgentSession, Message, as_messages
from perdure.agents.conversation.response import AgentResponse, as_response
from perdure.agents.conversation.twins import session_to_framework, to_framework
from perdure.agents.conversation.update import AgentResponseUpdate, as_update
from perdure.agents.recording import edited_arguments
from perdure.agents.tools import FRAMEWORK_OPTIONS, Tool, as_tool
from perdure.engine.run.stream import ResponseStream

ResponseStream.made_by = agent_framework.ResponseStream  # its chat clients reject streams of any other class

CALL_TYPES = ("function_call", "function_result", "function_approval_request", "function_approval_response")

PENDING = ("tool_approval", "pending_approval_requests")
"""The path of pending requests in the state of the framework's session."""


def messages_for_agent(
    agent_name: str, before: Sequence[Message], new: Sequence[Message]
) -> tuple[list[Message], list[Content]]:
    """`new` without approvals of other agents, and without calls that have no result and results that have no call,
    which models reject. And approvals in it with changed arguments."""
    own = [content for message in (*before, *new) if is_from(message, agent_name) for content in message.contents]
    calls = {content.call_id for content in own if content.type == "function_call"}
    pairs = calls_with_results(new)
    requests = {content.id: content for content in own if content.type == "function_approval_request"}
    messages: list[Message] = []
    edited: list[Content] = []
    for message in new:
        answers = [answer for answer in message.of_type("function_approval_response") if answer.id in requests]
        results = [result for result in message.of_type("function_result") if result.call_id in calls]
        is_own = is_from(message, agent_name)
        contents = [
            content
            for content in message.contents
            if is_own
            or content.type not in CALL_TYPES
            or content in (*answers, *results)
            or (content.call_id in pairs and content.type in ("function_call", "function_result"))
        ]
        if contents or not message.contents:
            messages.append(msgspec.structs.replace(message, contents=list(map(_to_their_content, contents))))
        edited += [
            answer for answer in answers if edited_arguments(answer, requests[answer.id].function_call) is not None
        ]
        messages += [Message("user", _reason(answer)) for answer in answers if answer.reason and not answer.approved]
    return messages, edited


def calls_with_results(messages: Sequence[Message]) -> set[str | None]:
    """The ids of the calls whose results are in these messages too."""
    calls = {content.call_id for message in messages for content in message.of_type("function_call")}
    return calls & {content.call_id for message in messages for content in message.of_type("function_result")}


def put_in_session(edited: Sequence[Content], messages: list[Message], session: Any) -> list[Message]:
    """The framework calls a tool with the arguments in its session, not with those of the answer. So approved arguments
    are put into the session; if that fails, the call is rejected and the model gets the approved arguments."""
    state = getattr(session, "state", {}).get(PENDING[0])
    pending = state.get(PENDING[1]) if isinstance(state, Mapping) else None
    for answer in edited:
        call = answer.function_call
        matches = [item for item in pending or () if isinstance(item, dict) and _is_about(item, answer)]
        if call is not None and matches and isinstance(matches[0].get("function_call"), dict):
            matches[0]["function_call"]["arguments"] = call.parse_arguments()
            continue
        messages = [_with_rejected(message, answer) for message in messages]
        messages.append(Message("user", _approved_instead(answer)))
    return messages


def _to_their_content(content: Content) -> Content:
    """Without fields that the framework does not have, and with an error as the result, which its model sees."""
    if content.type == "function_approval_response":
        return msgspec.structs.replace(content, reason=None)
    if content.type == "function_result" and content.result is None:
        return msgspec.structs.replace(content, result=content.exception)
    return content


def _is_about(request: Mapping[str, Any], answer: Content) -> bool:
    call = request.get("function_call")
    return answer.id in (request.get("id"), call.get("id") if isinstance(call, Mapping) else None)


def _with_rejected(message: Message, answer: Content) -> Message:
    contents = [
        msgspec.structs.replace(content, approved=False)
        if content.type == "function_approval_response" and content.id == answer.id
        else content
        for content in message.contents
    ]
    return msgspec.structs.replace(message, contents=contents)


def _reason(answer: Content) -> str:
    call = answer.function_call
    return f"The call of {call.name if call else None!r} was not approved: {answer.reason}"


def _approved_instead(answer: Content) -> str:
    call = answer.function_call
    name, arguments = (call.name, msgspec.json.encode(call.parse_arguments()).decode()) if call else (None, "")
    return f"The call of {name!r} was not approved as it was. It is approved with these arguments: {arguments}"


class EndOfTurn(agent_framework.FunctionMiddleware):  # type: ignore[misc]  # an untyped base
    """Ends the turn after a call of one of these tools: the model gets no further request."""

    def __init__(self, tools: frozenset[str]) -> None:
        self._tools = tools

    async def process(self, context: agent_framework.FunctionInvocationContext, call_next: Any) -> None:
        await call_next()
        if context.function.name in self._tools:
            raise agent_framework.MiddlewareTermination(result=context.result)


class FrameworkAgent(BaseAgent):
    """Converts messages and sessions for the agent, and its responses."""

    def __init__(self, agent: Any) -> None:
        super().__init__(agent_name(agent), description=getattr(agent, "description", None))
        self.agent = agent
        self.tools = list(getattr(agent, "default_options", {}).get("tools") or ())
        self.reads_session = isinstance(agent, agent_framework.RawAgent)  # others are the program's own
        self.resends_results = bool(getattr(agent, "require_per_service_call_history_persistence", False))
        """Whether its next turn must begin with the results of a turn that EndOfTurn ended: it saves results with the
        next request to the model only."""

    def run(
        self,
        messages: Any = None,
        *,
        stream: bool = False,
        session: AgentSession | None = None,
        tools: Iterable[Any] = (),
        response_format: Any = None,
        **kwargs: Any,
    ) -> Any:
        new = as_messages(messages)
        takes = parameters_of(self.agent)
        options = {name: value for name, value in kwargs.items() if takes is None or name in takes}
        more = list(tools)
        if more and (takes is None or "tools" in takes):
            options["tools"] = [_as_their_tool(tool) for tool in more]
        ending = frozenset(tool.name for tool in more if getattr(tool, "ends_turn", False))
        if ending and "middleware" in inspect.signature(self.agent.run).parameters:
            options["middleware"] = [EndOfTurn(ending)]
            options["options"] = {**options.get("options", {}), "allow_multiple_tool_calls": False}
        if response_format is not None:
            options["options"] = {**options.get("options", {}), "response_format": _as_their_format(response_format)}
        options["session"] = own = self._own_session(session)
        theirs = self._their_messages(new, session, own)
        if stream:
            started = self.agent.run(theirs, stream=True, **options)
            return _Stream(started, self.name, lambda: _save_session(session, own))
        return self._run(theirs, session, options)

    async def _run(self, theirs: list[Any], session: AgentSession | None, options: dict[str, Any]) -> AgentResponse:
        response = as_response(await self.agent.run(theirs, **options), self.name)
        _save_session(session, options["session"])
        return response

    def _their_messages(self, new: Sequence[Message], session: AgentSession | None, own: Any) -> list[Any]:
        """The new messages in the framework's types. A new session of the framework gets all earlier messages too."""
        before: Sequence[Message] = () if session is None else session.messages
        if session is not None and FRAMEWORK_STATE not in session.state and session.service_session_id is None:
            before, new = (), [*before, *new]
        messages, edited = messages_for_agent(self.name, before, new)
        if isinstance(self.agent, agent_framework.RawAgent):  # it calls with the arguments in its session
            messages = put_in_session(edited, messages, own)
        return list(map(to_framework, messages))

    def _own_session(self, session: AgentSession | None) -> Any:
        if session is None:
            return None
        state = session.state.get(FRAMEWORK_STATE)
        return session_to_framework(session) if state is None else agent_framework.AgentSession.from_dict(state)


class _Stream:
    """The updates of a framework's stream, and its own final response: it has what updates do not have."""

    def __init__(self, stream: Any, agent_name: str, end: Callable[[], None]) -> None:
        self._stream = stream
        self._agent_name = agent_name
        self._end = end
        self._updates: list[Any] = []

    async def __aiter__(self) -> AsyncIterator[AgentResponseUpdate]:
        if inspect.isawaitable(self._stream) and not hasattr(self._stream, "__aiter__"):
            self._stream = await self._stream
        async for update in self._stream:
            self._updates.append(update)
            yield as_update(update, self._agent_name)

    async def get_final_response(self) -> AgentResponse:
        if hasattr(self._stream, "get_final_response"):
            response = await self._stream.get_final_response()
        else:  # the async generator of an agent of the user's
            response = agent_framework.AgentResponse.from_updates(self._updates)
        self._end()
        return as_response(response, self._agent_name)


def _save_session(session: AgentSession | None, own: Any) -> None:
    if session is not None:
        session.state[FRAMEWORK_STATE] = own.to_dict()
        session.service_session_id = own.service_session_id


class _PlainModel(pydantic.BaseModel):
    """A model whose value is a dict, which any checkpoint holds."""

    model_config = pydantic.ConfigDict(
        extra="forbid", json_schema_extra=lambda schema: schema.update(required=list(schema["properties"]))
    )

    @classmethod
    def model_validate_json(cls, json_data: Any, **options: Any) -> Any:
        return super().model_validate_json(json_data, **options).model_dump()


def _as_their_format(kind: Any) -> Any:
    """A Struct as a model of pydantic, because the framework's clients accept no other class."""
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return kind
    fields: dict[str, Any] = {
        field.name: (field.type, ... if field.required else field.default) for field in msgspec.structs.fields(kind)
    }
    return pydantic.create_model(kind.__name__, __base__=_PlainModel, __doc__=kind.__doc__, **fields)


class FunctionTool(Tool, agent_framework.FunctionTool):  # type: ignore[misc]  # an untyped base
    """A tool of ours and of the framework: its agents and chat clients call it, and ours record its calls."""

    DEFAULT_EXCLUDE: ClassVar[set[str]] = agent_framework.FunctionTool.DEFAULT_EXCLUDE | {
        *("function", "approval", "retry", "timeout", "ends_turn")
    }
    __call__ = agent_framework.FunctionTool.__call__

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
        Tool.__init__(self, function, **options)
        mode = "always_require" if self.approval else "never_require"
        agent_framework.FunctionTool.__init__(
            self,
            **{"name": self.name, "description": self.description, "func": function, "approval_mode": mode}
            | {"additional_properties": {}, **theirs},
        )

    def __get__(self, owner: Any, cls: type | None = None) -> Any:
        """For a method: the tool of this object."""
        bound = super().__get__(owner, cls)
        if bound is not self:
            bound.function = self.function.__get__(owner)
        return bound


def make_tool(function: Callable[..., Any], options: Mapping[str, Any]) -> Tool:
    """The function as a tool of both frameworks. A tool of ours alone if it has parameters that pydantic does not know,
    and no option of the framework."""
    theirs = {name: options[name] for name in FRAMEWORK_OPTIONS & options.keys()}
    own = {name: option for name, option in options.items() if name not in theirs}
    if "schema" in theirs:
        theirs["input_model"] = theirs.pop("schema")
    if theirs.get("approval_mode") == "always_require":
        own["approval"] = True
    try:
        return FunctionTool(function, own, theirs)
    except Exception:
        if theirs:
            raise
        return Tool(function, **own)  # raises again, unless pydantic could not read the parameters


def _as_their_tool(value: Any) -> Any:
    """A tool of the framework unchanged, such as one of an MCP server; our tool, or a function, by its function."""
    if isinstance(value, agent_framework.FunctionTool) or not (isinstance(value, Tool) or callable(value)):
        return value
    tool = as_tool(value)
    options = {"name": tool.name, "description": tool.description, "approval": tool.approval}
    return FunctionTool(tool.function, options, {})


adapt = FrameworkAgent
