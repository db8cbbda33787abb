"""A support team that hands a case from agent to agent, waits for people, and continues in another process each time.

Triage, refunds and shipping decide which agent is next. The conversation pauses when it is the customer's turn, and
when a refund needs the approval of the supervisor. Each of these turns is a process of its own, which knows only the id
of the thread. No model is asked twice for the same reply.

    python examples/support_handoff.py

Without a key the agents follow a script. To use a model, set PERDURE_MODEL, such as `openai:gpt-5-mini`, and the key of
its provider (`pip install "perdure[agents]"`).
"""

import asyncio
import os
import subprocess
import sys
from tempfile import TemporaryDirectory
from typing import Any

from perdure import SqliteCheckpointStorage, Workflow
from perdure.agents import Message, ToolContext, tool
from perdure.orchestrations import HandoffAgentUserRequest, HandoffBuilder
from perdure.testing import Call, ScriptedAgent

CUSTOMER = ["The lamp that I ordered arrived broken.", "Order 7. It was 90.", "And where is my chair?"]
GOODBYE = "Thanks, that is all."


@tool(approval=True)
def refund(order: int, amount: int, ctx: ToolContext) -> str:
    """Pay money back to the customer."""
    print(f"  [{amount} are paid back for order {order}]")  # a real tool passes ctx.idempotency_key to the bank
    return f"{amount} paid back"


def track(order: int) -> str:
    """Where an order is."""
    return f"the rest of order {order} arrives tomorrow"


# ---------------------------------------------------------------- the team

ROLES: dict[str, dict[str, Any]] = {
    "triage": {
        "description": "Finds out what the customer needs.",
        "instructions": "Find out what the customer needs. Ask for the order's number, then hand off.",
        "tools": [],
        "script": ["I am sorry. Which order is it, and what did it cost?", Call("handoff_to_refunds")],
    },
    "refunds": {
        "description": "Pays money back.",
        "instructions": "Refund what arrived broken. You know nothing of deliveries: hand off for these.",
        "tools": [refund],
        "script": [
            Call("refund", {"order": 7, "amount": 90}),
            "80 are on their way to you. Is there anything else?",
            Call("handoff_to_shipping"),
        ],
    },
    "shipping": {
        "description": "Knows where parcels are.",
        "instructions": "Tell the customer where things are.",
        "tools": [track],
        "script": [Call("track", {"order": 7}), "Your chair arrives tomorrow."],
    },
}


def agent(name: str, description: str, instructions: str, tools: list[Any], script: list[Any]) -> Any:
    model = os.environ.get("PERDURE_MODEL")
    if model is None:
        return ScriptedAgent(name, script, tools=tools, description=description)
    from perdure.agents import Agent

    return Agent(model, instructions=instructions, tools=tools, name=name, description=description)


def is_over(messages: list[Message]) -> bool:
    return messages[-1].role == "user" and messages[-1].text == GOODBYE


def team(storage: SqliteCheckpointStorage) -> Workflow:
    return HandoffBuilder(
        name="support",
        participants=[agent(name, **role) for name, role in ROLES.items()],
        checkpoint_storage=storage,
        termination_condition=is_over,
    ).build()


# ---------------------------------------------------------------- one process


async def take_part(role: str, text: str) -> None:
    """Send a message to the team or decide on an approval, and print the events until the team pauses."""
    async with SqliteCheckpointStorage("support.db") as storage:
        workflow = team(storage)
        if role == "customer-first":
            result = await workflow.run(text, thread_id="case-1")
        else:
            waiting = await workflow.run(thread_id="case-1")  # reads the pending requests: no agent runs
            answers = {str(event.request_id): decide(event.data, text) for event in waiting.get_request_info_events()}
            result = await workflow.run(responses=answers, thread_id="case-1")
        for event in result:
            if event.type == "handoff_sent":
                print(f"  ({event.data.source} hands off to {event.data.target})")
            elif event.type == "output" and event.data.text:
                print(f"  {event.executor_id}: {event.data.text}")
        for event in result.get_request_info_events():
            print(f"  waits for the {addressee(event.data)}")


def addressee(question: Any) -> str:
    return "customer" if isinstance(question, HandoffAgentUserRequest) else "supervisor"


def decide(question: Any, text: str) -> Any:
    if isinstance(question, HandoffAgentUserRequest):
        return question.create_response(text)
    asked = question.function_call.parse_arguments()
    print(f"  supervisor: {asked['amount']} is asked for, 80 is fine")
    return question.approve({**asked, "amount": min(asked["amount"], 80)})


# ---------------------------------------------------------------- the customer, and a process for each turn


def main() -> None:
    lines, role, text = iter(CUSTOMER), "customer-first", ""
    with TemporaryDirectory() as folder:
        while role:
            text = next(lines, GOODBYE) if role.startswith("customer") else ""
            print(f"a process for what the customer says: {text}" if text else "a process for the supervisor")
            done = subprocess.run(
                [sys.executable, __file__, role, text], cwd=folder, stdout=subprocess.PIPE, text=True, check=True
            )
            print(done.stdout, end="")
            role = next(
                (person for person in ("supervisor", "customer") if f"waits for the {person}" in done.stdout), ""
            )
    print("the case is closed")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main()
    else:
        asyncio.run(take_part(sys.argv[1], sys.argv[2]))
