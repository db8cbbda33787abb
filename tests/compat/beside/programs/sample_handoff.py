"""Handoff teams: a support desk that asks the user, on its own, from a checkpoint, and as an agent."""

from typing import Any

from _samples import call, printed, talker
from agent_framework import tool
from flows import (
    Content,
    HandoffAgentUserRequest,
    HandoffBuilder,
    InMemoryCheckpointStorage,
    Message,
)

KEPT: Any = {"require_per_service_call_history_persistence": True}


@tool(approval_mode="never_require")
def look_up(order: str) -> str:
    """Finds an order."""
    return f"order {order} is a lamp"


@tool(approval_mode="always_require")
def refund(order: str) -> str:
    """Pays it back."""
    return f"paid for {order}"


def desk(storage: Any = None) -> tuple[Any, list[Any]]:
    triage = talker("triage", [call("handoff_to_money")], **KEPT)
    replies: list[Any] = ["Which?", [call("look_up", order="42")], [call("refund", order="42")], "Paid. Goodbye"]
    money = talker("money", *replies, tools=[look_up, refund], **KEPT)
    builder = HandoffBuilder(
        name="desk",
        participants=[triage, money],
        checkpoint_storage=storage,
        termination_condition=lambda messages: "Goodbye" in messages[-1].text,
    )
    return builder.with_start_agent(triage).build(), [triage, money]


def show(events: Any) -> Any:
    """Prints the events, and returns the answers to the requests among them."""
    answers: dict[str, Any] = {}
    for event in events:
        data = event.data
        if event.type == "handoff_sent":
            print("handoff", data.source, data.target)
        elif event.type == "output":
            # The last output of the team is the conversation.
            texts = [(m.author_name, m.text) for m in data] if isinstance(data, list) else getattr(data, "text", data)
            print("output", event.executor_id, type(data).__name__, texts)
        elif event.type == "request_info" and isinstance(data, HandoffAgentUserRequest):
            print("asks", event.source_executor_id, [(m.author_name, m.text) for m in data.agent_response.messages])
            answers[event.request_id] = HandoffAgentUserRequest.create_response("It is 42")
        elif event.type == "request_info":
            print("approval", data.function_call.name, data.function_call.parse_arguments())
            answers[event.request_id] = data.to_function_approval_response(approved=True)
        elif event.type == "status":
            print("status", event.state)
    return answers


@printed
async def main() -> None:
    for is_streamed in (False, True):
        workflow, agents = desk()

        async def run(*args: Any, workflow: Any = workflow, is_streamed: bool = is_streamed, **options: Any) -> Any:
            if is_streamed:
                return show([event async for event in workflow.run(*args, stream=True, **options)])
            return show(await workflow.run(*args, **options))

        answers = await run("A refund, please")
        while answers:
            answers = await run(responses=answers)
        print([agent.client.seen for agent in agents])

    storage = InMemoryCheckpointStorage()
    workflow, _ = desk(storage)
    first = await workflow.run("A refund, please")
    latest = await storage.get_latest(workflow_name="desk")
    print(sorted(latest.pending_request_info_events) == [first.get_request_info_events()[0].request_id])
    restored, agents = desk(storage)
    result = await restored.run(checkpoint_id=latest.checkpoint_id)
    [again] = result.get_request_info_events()
    print(again.source_executor_id, result.get_final_state())
    agents[1].client.requests = 1  # the question is answered
    result = await restored.run(responses={again.request_id: HandoffAgentUserRequest.create_response("It is 42")})
    print([type(event.data).__name__ for event in result.get_request_info_events()])
    workflow, _ = desk()
    [asked] = (await workflow.run("A refund, please")).get_request_info_events()
    ended = await workflow.run(responses={asked.request_id: HandoffAgentUserRequest.terminate()})
    print(ended.get_final_state(), ended.get_request_info_events())

    ann = talker("ann", [call("handoff_to_bob")], "all done", **KEPT)
    bob = talker("bob", "step one", "step two", [call("handoff_to_ann")], **KEPT)
    builder = HandoffBuilder(
        participants=[ann, bob],
        termination_condition=lambda messages: any(m.author_name == "ann" and m.text for m in messages),
    )
    builder = builder.with_start_agent(ann).add_handoff(ann, [bob]).add_handoff(bob, [ann])
    workflow = builder.with_autonomous_mode(turn_limits={"ann": 5, "bob": 5}).build()
    show([event async for event in workflow.run("Research", stream=True)])

    agent = desk()[0].as_agent(name="desk")
    response = await agent.run("A refund, please")
    for message in response.messages:
        print(message.author_name, str(message.role), [(item.type, item.name, item.text) for item in message.contents])
    asked = response.messages[-1].contents[-1]
    answer = Content("function_result", call_id=asked.call_id, result=HandoffAgentUserRequest.create_response("42"))
    response = await agent.run(Message("tool", [answer]))
    print([[item.type for item in message.contents] for message in response.messages])
