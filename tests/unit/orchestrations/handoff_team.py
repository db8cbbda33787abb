"""A support team that hands off, for the tests: triage, refunds with a tool that needs approval, and shipping."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import Message
from perdure.agents.tools import tool
from perdure.engine.run.run import WorkflowRunResult
from perdure.events import WorkflowEvent
from perdure.orchestrations.handoff import HandoffAgentUserRequest, HandoffSentEvent
from perdure.orchestrations.handoff_builder import HandoffBuilder
from perdure.testing.scripted import Call, ScriptedAgent
from perdure.workflows.workflow import Workflow

FIRST = "My lamp arrived broken, and so did the bulb."
REPLIES = {
    "What is the order?": "Order 7.",
    "The lamp is refunded, the bulb is not: too late.": "And where is my chair?",
    "It comes tomorrow.": "Thanks, that is all.",
}
CONVERSATION = [
    ("user", FIRST),
    ("triage", "What is the order?"),
    ("user", "Order 7."),
    ("triage", "Refunds will see to it."),
    ("refunds", "The lamp is refunded, the bulb is not: too late."),
    ("user", "And where is my chair?"),
    ("shipping", "It comes tomorrow."),
    ("user", "Thanks, that is all."),
]


@tool(approval=True)
def refund(item: str, amount: int) -> str:
    return f"{amount} paid back for the {item}"


def track(order: int) -> str:
    return f"order {order} is on its way"


def handing_off(text: str, agent: str, target: str) -> Message:
    """Return the reply of a model that explains itself while it hands off."""
    call = Content.from_function_call(f"to-{target}", f"handoff_to_{target}")
    return Message("assistant", [text, call], agent)


def support(storage: Any, log: Path | None = None) -> Workflow:
    triage = ScriptedAgent(
        "triage",
        ["What is the order?", handing_off("Refunds will see to it.", "triage", "refunds")],
        log=log,
    )
    refunds = ScriptedAgent(
        "refunds",
        [
            [
                Call("refund", {"item": "lamp", "amount": 90}),
                Call("refund", {"item": "bulb", "amount": 5}),
            ],
            "The lamp is refunded, the bulb is not: too late.",
            Call("handoff_to_shipping"),
        ],
        tools=[refund],
        description="Pays money back.",
        log=log,
    )
    shipping = ScriptedAgent("shipping", [Call("track", {"order": 7}), "It comes tomorrow."], tools=[track], log=log)
    return (
        HandoffBuilder(
            name="support",
            participants=[triage, refunds, shipping],
            checkpoint_storage=storage,
            termination_condition=lambda messages: "that is all" in messages[-1].text,
        )
        .add_handoff(triage, [refunds, shipping])
        .add_handoff("refunds", ["shipping"], description="Where things are.")
        .build()
    )


def team(storage: Any, *agents: ScriptedAgent, **options: Any) -> HandoffBuilder:
    return HandoffBuilder(participants=agents, checkpoint_storage=storage, **options)


def recording_script(log: list[list[Message]], replies: list[Any]) -> Any:
    """Return a script that records the messages of each request to its model."""

    def reply(messages: list[Message]) -> Any:
        log.append(messages)
        return replies.pop(0)

    return reply


def answer(event: WorkflowEvent) -> Any:
    if isinstance(event.data, HandoffAgentUserRequest):
        return event.data.create_response(REPLIES[event.data.agent_response.messages[-1].text])
    arguments = event.data.function_call.parse_arguments()
    if arguments["item"] == "bulb":
        return event.data.reject("too late")
    return event.data.approve({"item": "lamp", "amount": 80})


def answers(result: WorkflowRunResult) -> dict[str, Any]:
    return {str(event.request_id): answer(event) for event in result.get_request_info_events()}


def handoffs(result: WorkflowRunResult) -> list[HandoffSentEvent]:
    return [event.data for event in result if event.type == "handoff_sent"]


def question(result: WorkflowRunResult) -> tuple[str, HandoffAgentUserRequest]:
    [event] = result.get_request_info_events()
    return str(event.request_id), event.data


async def answer_question(workflow: Workflow, result: WorkflowRunResult, reply: Any) -> WorkflowRunResult:
    """Answer the only open question."""
    request_id, _ = question(result)
    return await workflow.run(responses={request_id: reply}, thread_id=result.thread_id)


async def talked(storage: Any, thread_id: str) -> list[Message]:
    """The conversation of a thread."""
    head = await storage.get_latest(thread_id=thread_id)
    messages: list[Message] = head.state["conversation"]
    return messages


def to_public(messages: list[Message]) -> list[tuple[str, str]]:
    return [(message.author_name or message.role, message.text) for message in messages]


def done_twice(log: Path) -> dict[str, int]:
    """Model requests and tool calls that were begun more than once."""
    lines = Counter(log.read_text(encoding="utf-8").splitlines())
    return {json.dumps(json.loads(line)): count for line, count in lines.items() if count > 1}
