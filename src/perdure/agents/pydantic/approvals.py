"""Calls that wait for somebody: found in a conversation, asked for, and answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied

from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import Message
from perdure.agents.pydantic.toolset import as_result
from perdure.agents.recording import answered, latest_answer, request_id_for, working_for
from perdure.agents.tools import Rejected
from perdure.errors import InvalidRun

APPROVE = "Message('user', [request.approve()]) or request.reject()"
GIVE_RESULT = "Message('tool', [Content.from_function_result(request.call_id, result=...)])"


class Pending(msgspec.Struct, frozen=True):
    """The calls of an agent that have no result yet, and what was said about them."""

    agent_name: str
    calls: tuple[Content, ...] = ()
    requests: dict[str, Content] = {}  # msgspec copies it
    """By call id: what somebody was asked."""
    answers: dict[str, Content] = {}
    """By call id."""

    @classmethod
    def among(cls, heard: Sequence[Message], agent_name: str) -> Pending:
        """Raises InvalidRun where something else is said instead of an answer."""
        called = [_calls_in(message, agent_name) for message in without_requests(heard)]
        place = next((place for place in range(len(heard) - 1, -1, -1) if called[place]), None)
        if place is None:
            return cls(agent_name)
        after = [content for message in heard[place + 1 :] for content in message.contents]
        done = {one.call_id for one in after if one.type == "function_result"}
        calls = tuple(one for one in called[place] if one.call_id not in done)
        found = cls(agent_name, calls, *_asked_and_answered(after))
        if found.unanswered and any(one.type in ("text", "data", "uri") for one in after):
            raise found.refusal()
        return found

    @property
    def unanswered(self) -> list[Content]:
        return [call for call in self.calls if call.call_id not in self.answers]

    @property
    def is_waiting(self) -> bool:
        """Whether somebody was asked, and did not answer yet."""
        return any(one.call_id in self.requests for one in self.unanswered)

    def refusal(self) -> InvalidRun:
        calls = self.unanswered
        names = ", ".join(repr(call.name) for call in calls)
        asked = [self.requests.get(str(call.call_id)) for call in calls]
        is_result = [one is not None and one.type == "function_call" for one in asked]
        ways = [APPROVE] * (not all(is_result)) + [GIVE_RESULT] * any(is_result)
        return InvalidRun(
            f"Agent {self.agent_name!r} waits for an answer about its calls of {names}, and was told something else. "
            f"Nothing was done. Answer with {', and with '.join(ways)} first."
        )

    def asked_again(self) -> Message:
        """What is still to be answered."""
        open_calls = {one.call_id for one in self.unanswered}
        return Message(
            "assistant", [request for call, request in self.requests.items() if call in open_calls], self.agent_name
        )

    def results(self) -> DeferredToolResults | None:
        """For pydantic-ai, once everything is answered. Results that were given stand in the conversation."""
        if not self.calls or self.unanswered:
            return None
        return DeferredToolResults(
            approvals={str(call.call_id): _verdict(call, self.answers[str(call.call_id)]) for call in self.calls}
        )


def without_requests(heard: Iterable[Message]) -> list[Message]:
    """What is for the model: a call whose result somebody was asked for was made before, and only once."""
    found: list[Message] = []
    made: set[str | None] = set()
    for message in heard:
        calls = message.of_type("function_call")
        asked = [call for call in calls if call.user_input_request and call.call_id in made]
        made.update(call.call_id for call in calls)
        left = tuple(content for content in message.contents if content not in asked)
        found.append(msgspec.structs.replace(message, contents=left) if asked else message)
    return found


def _asked_and_answered(contents: Iterable[Content]) -> tuple[dict[str, Content], dict[str, Content]]:
    """By call id. A call that was approved may be asked about once more: for its result."""
    asked: dict[str, Content] = {}
    answers: dict[str, Content] = {}
    for content in contents:
        call = content if content.type == "function_call" else content.function_call
        if call is None:
            continue
        call_id = str(call.call_id)
        if content.type == "function_approval_response":
            answers[call_id] = content
        elif content.user_input_request:
            asked[call_id] = content
            answers.pop(call_id, None)
    return asked, answers


def _calls_in(message: Message, agent_name: str) -> list[Content]:
    if message.role != "assistant" or message.author_name not in (None, agent_name):
        return []
    return message.of_type("function_call")


async def verdicts(asked: DeferredToolRequests, name_of: Callable[[str], str]) -> DeferredToolResults | None:
    """What somebody says to the calls, or gives as their results. None outside of a workflow, where nobody can be asked
    while they wait. `name_of` a call tells it from others of the turn."""
    if working_for() is None or not (asked.calls or asked.approvals):
        return None
    answers = await asyncio.gather(
        *(_answer_to(part, request_id_for(name_of(part.tool_call_id))) for part in asked.approvals),
        *(_result_of(part, request_id_for(name_of(part.tool_call_id))) for part in asked.calls),
    )
    ids = [part.tool_call_id for part in (*asked.approvals, *asked.calls)]
    given = list(zip(ids, answers, strict=True))
    count = len(asked.approvals)
    return DeferredToolResults(approvals=dict(given[:count]), calls=dict(given[count:]))


async def _answer_to(part: ToolCallPart, request_id: str) -> ToolApproved | ToolDenied:
    call = _as_call(part)
    answer = await answered(Content.from_function_approval_request(request_id, call), key=request_id)
    assert answer is not None  # noqa: S101  # asked only inside of a workflow
    return _verdict(call, answer)


async def _result_of(part: ToolCallPart, request_id: str) -> Any:
    """The answer is the result, or a `function_result`."""
    context = working_for()
    assert context is not None  # noqa: S101  # asked only inside of a workflow
    answer = await context.ask(_asking(part), Any, request_id=request_id, deadline=latest_answer())
    if not isinstance(answer, Content) or answer.type != "function_result":
        return as_result(answer)
    return as_result(answer.result) if answer.exception is None else ToolFailed(answer.exception)


def asked_for(asked: DeferredToolRequests, agent_name: str) -> Message:
    """The requests, for whoever ran the agent."""
    requests = [
        Content.from_function_approval_request(approval.tool_call_id, _as_call(approval))
        for approval in asked.approvals
    ]
    return Message("assistant", [*requests, *map(_asking, asked.calls)], agent_name)


def _asking(part: ToolCallPart) -> Content:
    return msgspec.structs.replace(_as_call(part), user_input_request=True)


def _as_call(part: ToolCallPart) -> Content:
    return Content.from_function_call(part.tool_call_id, part.tool_name, arguments=part.args)


def _verdict(call: Content, answer: Content) -> ToolApproved | ToolDenied:
    if not answer.approved:
        return ToolDenied(str(Rejected(answer.reason)))
    edited = answer.function_call
    if edited is None or edited.arguments is None or edited.parse_arguments() == call.parse_arguments():
        return ToolApproved()
    return ToolApproved(override_args=edited.parse_arguments())
