"""Calls that wait for somebody: found in a conversation, asked for, and answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied

from holdfast.agents.content import Content
from holdfast.agents.message import Message
from holdfast.agents.recording import answered, request_id_for, working_for
from holdfast.agents.tools import Rejected
from holdfast.errors import InvalidRun


class Pending(msgspec.Struct, frozen=True):
    """The calls of an agent that have no result yet, and what was said about them."""

    agent_name: str
    calls: tuple[Content, ...] = ()
    requests: tuple[Content, ...] = ()
    answers: dict[str, Content] = {}  # msgspec copies it
    """By call id."""

    @classmethod
    def among(cls, heard: Sequence[Message], agent_name: str) -> Pending:
        """Raises InvalidRun where something else is said instead of an answer."""
        place = next((place for place in range(len(heard) - 1, -1, -1) if _calls_in(heard[place], agent_name)), None)
        if place is None:
            return cls(agent_name)
        after = [one for message in heard[place + 1 :] for one in message.contents]
        done = {one.call_id for one in after if one.type == "function_result"}
        calls = tuple(one for one in _calls_in(heard[place], agent_name) if one.call_id not in done)
        given = [one for one in after if one.type == "function_approval_response" and one.function_call is not None]
        answers = {str(one.function_call.call_id): one for one in given if one.function_call is not None}
        requests = tuple(one for one in after if one.type == "function_approval_request")
        found = cls(agent_name, calls, requests, answers)
        if calls and any(one.type in ("text", "data", "uri") for one in after) and not found.is_answered:
            names = ", ".join(repr(one.name) for one in calls)
            raise InvalidRun(
                f"Agent {agent_name!r} waits for an answer about its calls of {names}, and was told something else. "
                "Nothing was done. Answer with Message('user', [request.approve()]) or request.reject() first."
            )
        return found

    @property
    def is_answered(self) -> bool:
        return all(one.call_id in self.answers for one in self.calls)

    @property
    def is_answered_in_part(self) -> bool:
        return not self.is_answered and any(one.call_id in self.answers for one in self.calls)

    def asked_again(self) -> Message:
        """What is still to be answered."""
        open_calls = {one.call_id for one in self.calls if one.call_id not in self.answers}
        asked = {one.function_call.call_id: one for one in self.requests if one.function_call is not None}
        return Message("assistant", [one for call, one in asked.items() if call in open_calls], self.agent_name)

    def results(self) -> DeferredToolResults | None:
        """For pydantic-ai, once everything is answered."""
        if not self.calls or not self.is_answered:
            return None
        return DeferredToolResults(
            approvals={str(call.call_id): _verdict(call, self.answers[str(call.call_id)]) for call in self.calls}
        )


def _calls_in(message: Message, agent_name: str) -> list[Content]:
    if message.role != "assistant" or message.author_name not in (None, agent_name):
        return []
    return message.of_type("function_call")


async def verdicts(asked: DeferredToolRequests) -> DeferredToolResults | None:
    """What somebody says to the calls. None outside of a workflow, and where something else than a word is wanted."""
    if working_for() is None or asked.calls or not asked.approvals:
        return None
    answers = await asyncio.gather(*map(_answer_to, asked.approvals))
    return DeferredToolResults(
        approvals={
            part.tool_call_id: _verdict(_as_call(part), answer)
            for part, answer in zip(asked.approvals, answers, strict=True)
        }
    )


async def _answer_to(part: ToolCallPart) -> Content:
    request_id = request_id_for(part.tool_call_id)
    request = Content.from_function_approval_request(request_id, _as_call(part))
    answer = await answered(request, key=request_id)
    assert answer is not None  # noqa: S101  # asked only inside of a workflow
    return answer


def asked_for(asked: DeferredToolRequests, agent_name: str) -> Message:
    """The requests, for whoever ran the agent."""
    requests = [Content.from_function_approval_request(one.tool_call_id, _as_call(one)) for one in asked.approvals]
    return Message("assistant", requests, agent_name)


def _as_call(part: ToolCallPart) -> Content:
    return Content.from_function_call(part.tool_call_id, part.tool_name, arguments=part.args)


def _verdict(call: Content, answer: Content) -> ToolApproved | ToolDenied:
    if not answer.approved:
        return ToolDenied(str(Rejected(answer.reason)))
    edited = answer.function_call
    if edited is None or edited.arguments is None or edited.parse_arguments() == call.parse_arguments():
        return ToolApproved()
    return ToolApproved(override_args=edited.parse_arguments())
