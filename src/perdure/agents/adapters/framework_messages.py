"""What an agent of agent-framework-core is told of a conversation, and of the answers to its requests for approval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from perdure.agents.content import Content
from perdure.agents.message import Message

OF_CALLS = ("function_call", "function_result", "function_approval_request", "function_approval_response")

PENDING = ("tool_approval", "pending_approval_requests")
"""Where the framework keeps its requests, in the state of its session."""


def told_to(
    agent_name: str, before: Sequence[Message], given: Sequence[Message]
) -> tuple[list[Message], list[Content]]:
    """`given` without calls of other agents and what came of them, since the agent has other tools. And the approvals
    among it of other arguments than its request had."""
    own = [one for message in (*before, *given) if _is_own(message, agent_name) for one in message.contents]
    calls = {one.call_id for one in own if one.type == "function_call"}
    asked = {one.id: one for one in own if one.type == "function_approval_request"}
    told: list[Message] = []
    edited: list[Content] = []
    for message in given:
        answers = [one for one in message.of_type("function_approval_response") if one.id in asked]
        results = [one for one in message.of_type("function_result") if one.call_id in calls]
        is_own = _is_own(message, agent_name)
        kept = [one for one in message.contents if is_own or one.type not in OF_CALLS or one in (*answers, *results)]
        if kept or not message.contents:
            told.append(msgspec.structs.replace(message, contents=tuple(map(_as_told, kept))))
        edited += [one for one in answers if _is_edited(one, asked[one.id])]
        told += [Message("user", _reason(one)) for one in answers if one.reason and not one.approved]
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
        msgspec.structs.replace(one, approved=False)
        if one.type == "function_approval_response" and one.id == answer.id
        else one
        for one in message.contents
    )
    return msgspec.structs.replace(message, contents=contents)


def _reason(answer: Content) -> str:
    call = answer.function_call
    return f"The call of {call.name if call else None!r} was not approved: {answer.reason}"


def _approved_instead(answer: Content) -> str:
    call = answer.function_call
    name, arguments = (call.name, msgspec.json.encode(call.parse_arguments()).decode()) if call else (None, "")
    return f"The call of {name!r} was not approved as it was. It is approved with these arguments: {arguments}"
