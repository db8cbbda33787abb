"""Calls without a result: found in a conversation, requested, and answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied

from perdure.agents.base import is_from
from perdure.agents.conversation.message import Content, Message
from perdure.agents.pydantic.toolset import as_result
from perdure.agents.recording import ask, ask_for_approval, current_delivery, edited_arguments, request_id_for
from perdure.agents.tools import Rejected
from perdure.errors import InvalidRun

APPROVE = "Message('user', [request.approve()]) or request.reject()"
GIVE_RESULT = "Message('tool', [Content.from_function_result(request.call_id, result=...)])"


class PendingCalls(msgspec.Struct, frozen=True):
    """The calls of an agent that have no result yet, with their requests and answers."""

    agent_name: str
    calls: tuple[Content, ...] = ()
    requests: dict[str, Content] = {}  # msgspec copies it
    """By call id: the requests."""
    answers: dict[str, Content] = {}
    """By call id."""

    @classmethod
    def find_in(cls, conversation: Sequence[Message], agent_name: str) -> PendingCalls:
        """Raises InvalidRun if another message comes before the answers."""
        calls_by_message = [_calls_in(message, agent_name) for message in without_requests(conversation)]
        last = next((index for index in range(len(conversation) - 1, -1, -1) if calls_by_message[index]), None)
        if last is None:
            return cls(agent_name)
        after = [content for message in conversation[last + 1 :] for content in message.contents]
        finished = {content.call_id for content in after if content.type == "function_result"}
        calls = tuple(call for call in calls_by_message[last] if call.call_id not in finished)
        pending = cls(agent_name, calls, *_requests_and_answers(after))
        if pending.unanswered_calls and any(content.type in ("text", "data", "uri") for content in after):
            raise pending.refusal()
        return pending

    @property
    def unanswered_calls(self) -> list[Content]:
        return [call for call in self.calls if call.call_id not in self.answers]

    @property
    def is_waiting(self) -> bool:
        """Whether a request has no answer yet."""
        return any(call.call_id in self.requests for call in self.unanswered_calls)

    def refusal(self) -> InvalidRun:
        calls = self.unanswered_calls
        names = ", ".join(repr(call.name) for call in calls)
        requests = [self.requests.get(str(call.call_id)) for call in calls]
        needs_result = [request is not None and request.type == "function_call" for request in requests]
        advice = [APPROVE] * (not all(needs_result)) + [GIVE_RESULT] * any(needs_result)
        return InvalidRun(
            f"Agent {self.agent_name!r} waits for an answer about its calls of {names}, and got another message. "
            f"Nothing was done. Answer with {', and with '.join(advice)} first."
        )

    def repeat_requests(self) -> Message:
        """The requests without an answer."""
        open_calls = {call.call_id for call in self.unanswered_calls}
        return Message(
            "assistant", [request for call, request in self.requests.items() if call in open_calls], self.agent_name
        )

    def results(self) -> DeferredToolResults | None:
        """For pydantic-ai, once all calls are answered. Results of tools are part of the conversation."""
        if not self.calls or self.unanswered_calls:
            return None
        return DeferredToolResults(
            approvals={str(call.call_id): _verdict(call, self.answers[str(call.call_id)]) for call in self.calls}
        )


def without_requests(conversation: Iterable[Message]) -> list[Message]:
    """The messages for the model: a request for the result of a call repeats that call, and is removed."""
    messages: list[Message] = []
    seen: set[str | None] = set()
    for message in conversation:
        calls = message.of_type("function_call")
        requests = [call for call in calls if call.user_input_request and call.call_id in seen]
        seen.update(call.call_id for call in calls)
        remaining = tuple(content for content in message.contents if content not in requests)
        messages.append(msgspec.structs.replace(message, contents=remaining) if requests else message)
    return messages


def _requests_and_answers(contents: Iterable[Content]) -> tuple[dict[str, Content], dict[str, Content]]:
    """By call id. An approved call may have a second request: for its result."""
    requests: dict[str, Content] = {}
    answers: dict[str, Content] = {}
    for content in contents:
        call = content if content.type == "function_call" else content.function_call
        if call is None:
            continue
        call_id = str(call.call_id)
        if content.type == "function_approval_response":
            answers[call_id] = content
        elif content.user_input_request:
            requests[call_id] = content
            answers.pop(call_id, None)
    return requests, answers


def _calls_in(message: Message, agent_name: str) -> list[Content]:
    return message.of_type("function_call") if is_from(message, agent_name) else []


async def ask_for_results(deferred: DeferredToolRequests, name_of: Callable[[str], str]) -> DeferredToolResults | None:
    """Ask for the approvals and results of the calls. None outside of a workflow, which cannot ask. `name_of`
    distinguishes a call from other calls of the turn."""
    if current_delivery() is None or not (deferred.calls or deferred.approvals):
        return None
    answers = await asyncio.gather(
        *(_ask_for_approval(part, request_id_for(name_of(part.tool_call_id))) for part in deferred.approvals),
        *(_ask_for_result(part, request_id_for(name_of(part.tool_call_id))) for part in deferred.calls),
    )
    ids = [part.tool_call_id for part in (*deferred.approvals, *deferred.calls)]
    answers_by_id = list(zip(ids, answers, strict=True))
    count = len(deferred.approvals)
    return DeferredToolResults(approvals=dict(answers_by_id[:count]), calls=dict(answers_by_id[count:]))


async def _ask_for_approval(part: ToolCallPart, request_id: str) -> ToolApproved | ToolDenied:
    call = _as_call(part)
    answer = await ask_for_approval(Content.from_function_approval_request(request_id, call), key=request_id)
    assert answer is not None  # noqa: S101  # called only inside of a workflow
    return _verdict(call, answer)


async def _ask_for_result(part: ToolCallPart, request_id: str) -> Any:
    """The answer is the result, or a `function_result`."""
    answer = await ask(_result_request(part), Any, request_id)
    if not isinstance(answer, Content) or answer.type != "function_result":
        return as_result(answer)
    return as_result(answer.result) if answer.exception is None else ToolFailed(answer.exception)


def request_message(deferred: DeferredToolRequests, agent_name: str) -> Message:
    """The requests, for the caller of the agent."""
    requests = [
        Content.from_function_approval_request(part.tool_call_id, _as_call(part)) for part in deferred.approvals
    ]
    return Message("assistant", [*requests, *map(_result_request, deferred.calls)], agent_name)


def _result_request(part: ToolCallPart) -> Content:
    return msgspec.structs.replace(_as_call(part), user_input_request=True)


def _as_call(part: ToolCallPart) -> Content:
    return Content.from_function_call(part.tool_call_id, part.tool_name, arguments=part.args)


def _verdict(call: Content, answer: Content) -> ToolApproved | ToolDenied:
    if not answer.approved:
        return ToolDenied(str(Rejected(answer.reason)))
    return ToolApproved(override_args=edited_arguments(answer, call))
