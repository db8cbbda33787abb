"""Approval outside of a workflow: the response asks, and the next run in the session answers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.agents.agent_models import Script, call, last_contents

from perdure.agents import AgentSession, Content, Message, tool
from perdure.agents.pydantic.agent import Agent
from perdure.errors import InvalidRun

CALLS = [call("pay", {"amount": amount}, f"c{amount}") for amount in (5, 20, 30)]


class Till:
    def __init__(self, calls: Any = CALLS) -> None:
        self.paid: list[int] = []
        self.script = Script([calls, "Done.", "And on."])

        @tool(approval=lambda arguments: arguments["amount"] > 10)
        def pay(amount: int) -> str:
            self.paid.append(amount)
            return f"paid {amount}"

        self.agent = Agent(self.script.model(), name="payer", tools=[pay])
        self.session = AgentSession()

    async def ask(self) -> list[Content]:
        response = await self.agent.run("Pay.", session=self.session)
        return response.user_input_requests

    async def answer(self, *answers: Content) -> Any:
        # The session comes back from wherever it was kept.
        self.session = AgentSession.from_dict(self.session.to_dict())
        return await self.agent.run(Message("user", answers), session=self.session)


async def test_response_asks_for_approval_where_needed_and_makes_other_calls() -> None:
    till = Till()
    requests = await till.ask()
    assert [request.function_call and request.function_call.parse_arguments() for request in requests] == [
        {"amount": 20},
        {"amount": 30},
    ]
    assert till.paid == [5]
    assert till.script.requests == 1


async def test_calls_follow_the_answers() -> None:
    till = Till()
    first, second = await till.ask()
    response = await till.answer(first.approve({"amount": 12}), second.reject("too much"))
    assert response.text == "Done."
    assert till.paid == [5, 12]
    assert sorted(map(str, last_contents(till.script.received[1]))) == ["paid 12", "paid 5", "too much"]


async def test_approved_call_runs_unchanged() -> None:
    till = Till(CALLS[1])
    (request,) = await till.ask()
    assert (await till.answer(request.approve())).text == "Done."
    assert till.paid == [20]


async def test_missing_answer_is_requested_again_and_no_call_is_made_before() -> None:
    till = Till()
    first, second = await till.ask()
    response = await till.answer(second.approve())
    assert response.user_input_requests == [first]
    assert till.paid == [5]
    assert (await till.answer(first.approve())).text == "Done."
    assert till.paid in ([5, 20, 30], [5, 30, 20])
    assert till.script.requests == 2


async def test_conversation_continues_after_the_answers() -> None:
    till = Till()
    await till.answer(*(request.approve() for request in await till.ask()))
    assert (await till.agent.run("Thanks.", session=till.session)).text == "And on."


async def test_input_other_than_an_answer_is_rejected_and_session_is_unchanged() -> None:
    till = Till()
    first, second = await till.ask()
    before = till.session.version
    with pytest.raises(InvalidRun, match=r"'payer' waits for an answer about its calls of 'pay', 'pay'"):
        await till.agent.run("Never mind.", session=till.session)
    assert till.session.version == before
    assert (await till.answer(first.reject(), second.reject())).text == "Done."
