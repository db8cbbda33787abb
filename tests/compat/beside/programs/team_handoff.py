"""Handoffs: who asks the user, how many requests a model gets, routes, ends, and autonomous agents."""

from typing import Any

from _team import chat_agent, described, failure_of, plain
from flows import HandoffAgentUserRequest, HandoffBuilder, Message


def requests_of(*agents: Any) -> dict[str, Any]:
    return {agent.name: agent.client.requests for agent in agents}


def two(*answers: Any) -> tuple[Any, Any]:
    triage = chat_agent("triage", {"handoff_to_refunds": {}}, "anything else?", description="Sorts.")
    refunds = chat_agent("refunds", *(answers or ("Which order?", "It is refunded.")), description="Refunds.")
    return triage, refunds


async def answer_all(workflow: Any, result: Any, answer: Any) -> Any:
    return await workflow.run(responses={event.request_id: answer for event in result.get_request_info_events()})


async def main() -> Any:
    results: dict[str, Any] = {}
    triage, refunds = two()
    workflow = HandoffBuilder(participants=[triage, refunds]).with_start_agent(triage).build()
    result = await workflow.run("I want my money back.")
    results["first"] = described(result), requests_of(triage, refunds)
    results["events"] = [
        [event.type, event.data.source, event.data.target] for event in result if event.type == "handoff_sent"
    ]
    results["tools"] = sorted(tool.name for tool in triage.client.options[0].get("tools") or [])
    results["several calls"] = triage.client.options[0].get("allow_multiple_tool_calls")
    answer = HandoffAgentUserRequest.create_response("Order 5.")
    result = await answer_all(workflow, result, answer)
    results["second"] = described(result), requests_of(triage, refunds)
    result = await answer_all(workflow, result, HandoffAgentUserRequest.terminate())
    results["ended"] = described(result), requests_of(triage, refunds)

    triage, refunds = two()
    builder = HandoffBuilder(participants=[triage, refunds]).with_start_agent(triage)
    workflow = builder.with_termination_condition(lambda conversation: len(conversation) > 3).build()
    result = await workflow.run("I want my money back.")
    result = await answer_all(workflow, result, HandoffAgentUserRequest.create_response("Order 5."))
    results["condition"] = described(result), requests_of(triage, refunds)

    async def is_done(conversation: list[Message]) -> bool:
        return any("refunded" in message.text for message in conversation)

    triage, refunds = two("It is refunded.")
    workflow = (
        HandoffBuilder(participants=[triage, refunds], termination_condition=is_done).with_start_agent(triage).build()
    )
    results["async condition"] = described(await workflow.run("I want my money back."))

    triage, refunds = two("Let me see.", "Well.", "Done.")
    builder = HandoffBuilder(participants=[triage, refunds]).with_start_agent(triage)
    workflow = builder.with_autonomous_mode(agents=[refunds], turn_limits={"refunds": 2}).build()
    results["autonomous"] = described(await workflow.run("I want my money back.")), requests_of(triage, refunds)
    triage, refunds = two("Let me see.", "Well.", "Done.")
    builder = HandoffBuilder(
        participants=[triage, refunds], termination_condition=lambda conversation: "Done." in conversation[-1].text
    )
    workflow = builder.with_start_agent(triage).with_autonomous_mode(prompts={"refunds": "Go on."}).build()
    results["prompted"] = described(await workflow.run("I want my money back.")), requests_of(triage, refunds)

    triage, refunds = (
        chat_agent("triage", {"handoff_to_refunds": {}}, "Again."),
        chat_agent("refunds", "Which?", {"handoff_to_triage": {}}),
    )
    workflow = HandoffBuilder(participants=[triage, refunds]).with_start_agent(triage).build()
    streamed = [event async for event in workflow.run("I want my money back.", stream=True)]
    [request] = [event for event in streamed if event.type == "request_info"]
    answer = {request.request_id: HandoffAgentUserRequest.create_response("Order 5.")}
    streamed += [event async for event in workflow.run(responses=answer, stream=True)]
    results["streamed"] = [
        [event.executor_id, type(event.data).__name__, [content.type for content in event.data.contents]]
        for event in streamed
        if event.type == "output"
    ]
    results["streamed requests"] = requests_of(triage, refunds)

    first = chat_agent("first", {"handoff_to_second": {}}, "first again")
    second = chat_agent("second", {"handoff_to_third": {}}, "second again")
    third = chat_agent("third", "third is here", {"handoff_to_first": {}})
    builder = HandoffBuilder(participants=[first, second, third]).with_start_agent(first)
    builder = builder.add_handoff(first, [second]).add_handoff(second, [third], description="For more.")
    builder = builder.add_handoff(third, [first])
    workflow = builder.build()
    result = await workflow.run("Hello.")
    results["chain"] = described(result), requests_of(first, second, third)
    results["chain tools"] = [
        [[tool.name, tool.description] for tool in agent.client.options[0].get("tools") or []]
        for agent in (first, second, third)
    ]
    result = await answer_all(workflow, result, [Message("user", ["Back, please."])])
    results["back"] = described(result), requests_of(first, second, third)

    first = chat_agent("first", "Whom do you want?", {"handoff_to_second": {"reason": "asked"}})
    second = chat_agent("second", "Here I am.")
    workflow = HandoffBuilder(participants=[first, second]).with_start_agent(first).build()
    result = await workflow.run([Message("user", ["Hello."]), Message("user", ["Is it you?"])])
    results["asked"] = described(result)
    result = await answer_all(workflow, result, HandoffAgentUserRequest.create_response(["The second.", "Please."]))
    results["then"] = described(result), requests_of(first, second)

    responses = [
        HandoffAgentUserRequest.create_response("a"),
        HandoffAgentUserRequest.create_response(["a", Message("user", ["b"])]),
        HandoffAgentUserRequest.create_response(Message("user", ["c"])),
        HandoffAgentUserRequest.terminate(),
    ]
    results["responses"] = plain(responses)
    stranger = chat_agent("stranger", "x")
    results["errors"] = [
        await failure_of(lambda: HandoffAgentUserRequest.create_response(5)),
        await failure_of(lambda: HandoffAgentUserRequest.create_response([5])),
        await failure_of(lambda: HandoffBuilder(participants=[first, first])),
        await failure_of(lambda: HandoffBuilder(participants=[object()])),
        await failure_of(lambda: HandoffBuilder().build()),
        await failure_of(lambda: HandoffBuilder(participants=[first, second]).participants([first])),
        await failure_of(lambda: HandoffBuilder().participants([])),
        await failure_of(lambda: HandoffBuilder().with_start_agent(first)),
        await failure_of(lambda: HandoffBuilder(participants=[first, second]).with_start_agent(stranger)),
        await failure_of(lambda: HandoffBuilder().add_handoff(first, [second])),
        await failure_of(lambda: HandoffBuilder(participants=[first, second]).add_handoff(stranger, [second])),
        await failure_of(lambda: HandoffBuilder(participants=[first, second]).add_handoff(first, [stranger])),
    ]
    for name, options in {
        "first": {"output_from": ["refunds"]},
        "intermediate": {"intermediate_output_from": ["triage"]},
    }.items():
        triage, refunds = two()
        workflow = HandoffBuilder(participants=[triage, refunds], **options).with_start_agent(triage).build()
        results[f"outputs {name}"] = described(await workflow.run("I want my money back."))
    return results
