"""What an agent of agent-framework-core is told of a conversation, and of the answers to its requests for approval."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

import agent_framework
import msgspec

from perdure.agents.base import BaseAgent
from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import AgentSession, Message, as_messages
from perdure.agents.conversation.response import AgentResponse, AgentResponseUpdate
from perdure.agents.tools import as_tool
from perdure.agents.turn import as_response, as_update
from perdure.graph.sub_workflow import agent_name

OF_CALLS = ("function_call", "function_result", "function_approval_request", "function_approval_response")

PENDING = ("tool_approval", "pending_approval_requests")
"""Where the framework keeps its requests, in the state of its session."""


def told_to(
    agent_name: str, before: Sequence[Message], given: Sequence[Message]
) -> tuple[list[Message], list[Content]]:
    """`given` without calls of other agents and what came of them, since the agent has other tools. And the approvals
    among it of other arguments than its request had."""
    own = [content for message in (*before, *given) if _is_own(message, agent_name) for content in message.contents]
    calls = {one.call_id for one in own if one.type == "function_call"}
    asked = {one.id: one for one in own if one.type == "function_approval_request"}
    told: list[Message] = []
    edited: list[Content] = []
    for message in given:
        answers = [one for one in message.of_type("function_approval_response") if one.id in asked]
        results = [one for one in message.of_type("function_result") if one.call_id in calls]
        is_own = _is_own(message, agent_name)
        kept = [
            content
            for content in message.contents
            if is_own or content.type not in OF_CALLS or content in (*answers, *results)
        ]
        if kept or not message.contents:
            told.append(msgspec.structs.replace(message, contents=tuple(map(_as_told, kept))))
        edited += [answer for answer in answers if _is_edited(answer, asked[answer.id])]
        told += [Message("user", _reason(answer)) for answer in answers if answer.reason and not answer.approved]
    return told, edited


def put_in_session(edited: Sequence[Content], told: list[Message], session: Any) -> list[Message]:
    """The framework calls a tool with the arguments that it keeps in its session, whatever the answer says. Those that
    were approved are put there; where that cannot be done, the call is rejected, and the model told what is approved.
    """
    kept = getattr(session, "state", {}).get(PENDING[0])
    pending = kept.get(PENDING[1]) if isinstance(kept, Mapping) else None
    for answer in edited:
        call = answer.function_call
        found = [one for one in pending or () if isinstance(one, dict) and _is_about(one, answer)]
        if call is not None and found and isinstance(found[0].get("function_call"), dict):
            found[0]["function_call"]["arguments"] = call.parse_arguments()
            continue
        told = [_with_rejected(message, answer) for message in told]
        told.append(Message("user", _approved_instead(answer)))
    return told


def _is_own(message: Message, agent_name: str) -> bool:
    return message.role == "assistant" and message.author_name in (None, agent_name)


def _as_told(content: Content) -> Content:
    """Without what theirs has no field for, and with an error where its model sees it."""
    if content.type == "function_approval_response":
        return msgspec.structs.replace(content, reason=None)
    if content.type == "function_result" and content.result is None:
        return msgspec.structs.replace(content, result=content.exception)
    return content


def _is_edited(answer: Content, request: Content) -> bool:
    given, asked = answer.function_call, request.function_call
    if not answer.approved or given is None or given.arguments is None:
        return False
    return asked is None or given.parse_arguments() != asked.parse_arguments()


def _is_about(request: Mapping[str, Any], answer: Content) -> bool:
    call = request.get("function_call")
    return answer.id in (request.get("id"), call.get("id") if isinstance(call, Mapping) else None)


def _with_rejected(message: Message, answer: Content) -> Message:
    contents = tuple(
        msgspec.structs.replace(content, approved=False)
        if content.type == "function_approval_response" and content.id == answer.id
        else content
        for content in message.contents
    )
    return msgspec.structs.replace(message, contents=contents)


def _reason(answer: Content) -> str:
    call = answer.function_call
    return f"The call of {call.name if call else None!r} was not approved: {answer.reason}"


def _approved_instead(answer: Content) -> str:
    call = answer.function_call
    name, arguments = (call.name, msgspec.json.encode(call.parse_arguments()).decode()) if call else (None, "")
    return f"The call of {name!r} was not approved as it was. It is approved with these arguments: {arguments}"


# ---------------------------------------------------------------- agent framework


STATE = "agent_framework"
"""In the session's state: the session of the agent's own kind, as a dict."""


class FrameworkAgent(BaseAgent):
    """Gives the agent what it expects, and takes what it answers."""

    def __init__(self, agent: Any) -> None:
        super().__init__(agent_name(agent), description=getattr(agent, "description", None))
        self.agent = agent

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
        given = as_messages(messages)
        options = {
            name: kwarg for name, kwarg in kwargs.items() if name in inspect.signature(self.agent.run).parameters
        }
        more = [_as_their_tool(tool) for tool in tools]
        if more:
            options["tools"] = more
        if response_format is not None:
            options["options"] = {**options.get("options", {}), "response_format": response_format}
        return self._stream(given, session, options) if stream else self._run(given, session, options)

    async def _run(
        self, given: Sequence[Message], session: AgentSession | None, options: dict[str, Any]
    ) -> AgentResponse:
        own = self._own_session(session)
        response = as_response(await self.agent.run(self._told(given, session, own), session=own, **options), self.name)
        _keep(session, own)
        return response

    async def _stream(
        self, given: Sequence[Message], session: AgentSession | None, options: dict[str, Any]
    ) -> AsyncIterator[AgentResponseUpdate]:
        own = self._own_session(session)
        told = self._told(given, session, own)
        async for update in self.agent.run(told, stream=True, session=own, **options):
            yield as_update(update, self.name)
        _keep(session, own)

    def _told(self, given: Sequence[Message], session: AgentSession | None, own: Any) -> list[Any]:
        """What it is given, in its own types, with what people said of its calls in its own session. One that is new
        knows nothing yet: it is told what was said before, too."""
        before: Sequence[Message] = () if session is None else session.messages
        if session is not None and STATE not in session.state and session.service_session_id is None:
            before, given = (), [*before, *given]
        told, edited = told_to(self.name, before, given)
        if isinstance(self.agent, agent_framework.RawAgent):  # which takes the call as it was asked for
            told = put_in_session(edited, told, own)
        return [agent_framework.Message.from_dict(one.to_dict()) for one in told]

    def _own_session(self, session: AgentSession | None) -> Any:
        if session is None:
            return None
        kept = session.state.get(STATE)
        if kept is not None:
            return agent_framework.AgentSession.from_dict(kept)
        return agent_framework.AgentSession(
            session_id=session.session_id, service_session_id=session.service_session_id
        )


def _keep(session: AgentSession | None, own: Any) -> None:
    if session is not None:
        session.state[STATE] = own.to_dict()
        kept = own.service_session_id
        session.service_session_id = kept if isinstance(kept, str) else None


def _as_their_tool(given: Any) -> Any:
    """One of theirs as it is; one of ours as the function that it is made of."""
    if isinstance(given, agent_framework.FunctionTool):
        return given
    tool = as_tool(given)
    approval = "always_require" if tool.approval is True else "never_require"
    return agent_framework.tool(tool.function, name=tool.name, description=tool.description, approval_mode=approval)


def adapt(agent: Any) -> Any:
    return FrameworkAgent(agent)
