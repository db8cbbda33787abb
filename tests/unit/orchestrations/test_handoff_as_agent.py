"""A handoff that is spoken to as one agent: questions are function calls, answers their results."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.orchestrations.handoff_team import CONVERSATION, FIRST, REPLIES, support, talked, to_public

from perdure import InMemoryCheckpointStorage, RequestInfoFunctionArgs
from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import AgentSession, Message
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.conversation.update import AgentResponseUpdate


def asked(response: AgentResponse) -> list[Content]:
    """Return the contents that need an answer: the function calls named request_info, and the approvals."""
    contents = [content for message in response.messages for content in message.contents]
    return [
        content for content in contents if content.name == "request_info" or content.type == "function_approval_request"
    ]


def answered(request: Content, *, as_messages: bool) -> Content:
    if request.type == "function_approval_request":
        assert request.function_call is not None
        item = request.function_call.parse_arguments()["item"]
        return request.reject("too late") if item == "bulb" else request.approve({"item": "lamp", "amount": 80})
    question = RequestInfoFunctionArgs.from_dict(request.parse_arguments()).request_event.data.agent_response.text
    reply: Any = REPLIES[question]
    if as_messages:
        reply = [Message("user", reply).to_dict()]
    return Content.from_function_result(str(request.call_id), result=reply)


@pytest.mark.parametrize("as_messages", [False, True], ids=["a text", "a list of messages"])
async def test_support_case_works_through_one_agent_in_new_objects(as_messages: bool) -> None:
    storage = InMemoryCheckpointStorage()
    session = AgentSession(session_id="t")
    response = await support(storage).as_agent("desk").run(FIRST, session=session)
    while requests := asked(response):
        answers = Message("user", [answered(request, as_messages=as_messages) for request in requests])
        response = await support(storage).as_agent("desk").run(answers, session=session)
    assert to_public(await talked(storage, "t")) == CONVERSATION


async def test_resume_returns_the_same_text_and_asks_once() -> None:
    storage = InMemoryCheckpointStorage()
    session = AgentSession(session_id="t")
    first = await support(storage).as_agent("desk").run(FIRST, session=session)
    again = await support(storage).as_agent("desk").run(session=session)
    assert again.text == first.text == "What is the order?"
    assert asked(again) == asked(first)
    assert len(asked(again)) == 1


async def test_agent_streams_its_words() -> None:
    stream = support(InMemoryCheckpointStorage()).as_agent().run(FIRST, stream=True)
    updates: list[AgentResponseUpdate] = [update async for update in stream]
    assert [update.text for update in updates if update.text] == ["What", " is", " the", " order?"]
    assert (await stream.get_final_response()).text == "What is the order?"
