"""Sequential and concurrent teams and group chats: prints of their streams, aggregators, reviews, and as agents."""

import json
from typing import Any, Never

from _samples import call, printed, show_updates, talker
from agent_framework import tool
from flows import (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentRequestInfoResponse,
    AgentResponse,
    ConcurrentBuilder,
    Executor,
    GroupChatBuilder,
    GroupChatState,
    InMemoryCheckpointStorage,
    Message,
    SequentialBuilder,
    WorkflowContext,
    handler,
)


class Expert(Executor):
    """An executor with an agent."""

    def __init__(self, name: str) -> None:
        super().__init__(id=name)
        self.agent = talker(name, f"{name} knows")

    @handler
    async def answer(self, request: AgentExecutorRequest, ctx: WorkflowContext[AgentExecutorResponse]) -> None:
        response = await self.agent.run(request.messages)
        conversation = [*request.messages, *response.messages]
        await ctx.send_message(AgentExecutorResponse(self.id, response, full_conversation=conversation))


class Summary(Executor):
    @handler
    async def summarize(self, response: AgentExecutorResponse, ctx: WorkflowContext[Never, AgentResponse]) -> None:
        text = ", ".join(f"{message.role}: {message.text}" for message in response.full_conversation)
        await ctx.yield_output(AgentResponse(messages=[Message("assistant", [text])]))


async def joined(results: list[AgentExecutorResponse]) -> str:
    return " | ".join(f"{result.executor_id}: {result.agent_response.text}" for result in results)


async def counted(results: list[AgentExecutorResponse], ctx: WorkflowContext[Never, str]) -> None:
    await ctx.yield_output(f"{len(results)} results")


def next_of(state: GroupChatState) -> str:
    print("selects", state.current_round, list(state.participants), len(state.conversation))
    return list(state.participants)[state.current_round % 2]


def pair() -> list[Any]:
    return [talker("ann", "one", "two"), talker("bob", "three")]


def lines_of(outputs: list[Any]) -> list[Any]:
    messages = [output.messages if hasattr(output, "messages") else output for output in outputs]
    return [
        [(m.author_name, str(m.role), m.text) for m in each] if isinstance(each, list) else each for each in messages
    ]


@tool(approval_mode="always_require")
def deploy(place: str) -> str:
    """Deploys."""
    return f"deployed to {place}"


@printed
async def main() -> None:
    sequences = [pair(), [talker("ann", "one two"), Summary(id="summary")]]
    for participants in sequences:
        workflow = SequentialBuilder(participants=participants, intermediate_output_from="all_other").build()
        await show_updates(workflow.run("Begin", stream=True))
        print(lines_of((await workflow.run([Message("user", ["Begin"])])).get_outputs()))
    for aggregator in (joined, counted, None):
        builder = ConcurrentBuilder(participants=[Expert("law"), Expert("market")])
        workflow = (builder.with_aggregator(aggregator) if aggregator else builder).build()
        print(lines_of((await workflow.run("Begin")).get_outputs()))

    builder = GroupChatBuilder(
        participants=pair(),
        selection_func=next_of,
        termination_condition=lambda messages: len(messages) > 3,
        orchestrator_name="chair",
        intermediate_output_from="all_other",
    )
    async for event in builder.build().run("Talk", stream=True):
        if event.type == "group_chat":
            print(type(event.data).__name__, event.data.round_index, event.data.participant_name)
        elif event.type in ("output", "intermediate"):
            print(event.type, event.executor_id, event.data.author_name, event.data.text)

    def led(name: str | None, final: str | None = None) -> str:
        return json.dumps({"terminate": final is not None, "reason": "", "next_speaker": name, "final_message": final})

    leader = talker("leader", led("bob"), led("ann"), led(None, "All said"))
    workflow = GroupChatBuilder(participants=pair(), orchestrator_agent=leader).build()
    print(lines_of((await workflow.run("Talk")).get_outputs()))

    team = pair()
    workflow = SequentialBuilder(participants=team).with_request_info(agents=["ann"]).build()
    requests = await show_updates(workflow.run("Write", stream=True))
    print([(request.executor_id, request.agent_response.text) for request in requests.values()])
    feedback = AgentRequestInfoResponse.from_strings(["More, please"])
    requests = await show_updates(workflow.run(stream=True, responses=dict.fromkeys(requests, feedback)))
    print([request.agent_response.text for request in requests.values()], team[0].client.seen)
    approval = AgentRequestInfoResponse.approve()
    await show_updates(workflow.run(stream=True, responses=dict.fromkeys(requests, approval)))

    operator = talker("operator", [call("deploy", place="prod")], "It is done", tools=[deploy])
    workflow = GroupChatBuilder(
        participants=[talker("ann", "go"), operator], selection_func=next_of, max_rounds=2
    ).build()
    [asked] = (await workflow.run("Deploy")).get_request_info_events()
    print(asked.source_executor_id, asked.data.function_call.name, asked.data.function_call.parse_arguments())
    result = await workflow.run(responses={asked.request_id: asked.data.to_function_approval_response(approved=True)})
    print([[text for *_, text in lines] for lines in lines_of(result.get_outputs())])

    chat: Any = {"selection_func": next_of, "max_rounds": 2, "orchestrator_name": "chair"}
    for kind, options in ((SequentialBuilder, {}), (ConcurrentBuilder, {}), (GroupChatBuilder, chat)):
        agent = kind(participants=pair(), **options).build().as_agent(name="team")
        print(sorted(lines_of([await agent.run("Begin")])[0]))
        agent = kind(participants=pair(), **options).build().as_agent(name="team")
        print(sorted([(update.author_name, update.text) async for update in agent.run("Begin", stream=True)]))

    storage = InMemoryCheckpointStorage()
    workflow = ConcurrentBuilder(participants=pair(), checkpoint_storage=storage).build()
    await workflow.run("Begin")
    stored = sorted(await storage.list_checkpoints(workflow_name=workflow.name), key=lambda each: each.iteration_count)
    result = await workflow.run(checkpoint_id=stored[1].checkpoint_id)
    print([each.iteration_count for each in stored], lines_of(result.get_outputs()), result.get_final_state())
