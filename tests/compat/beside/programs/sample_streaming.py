"""Agents in a workflow, printed as they stream: by speaker, by event, and between the prints of handlers."""

from typing import Never

from _samples import printed, show_updates, talker
from flows import (
    AgentExecutor,
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    AgentResponseUpdate,
    AgentSession,
    Executor,
    Message,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    handler,
)


class Writer(Executor):
    """Holds an agent and calls it."""

    def __init__(self, agent: object) -> None:
        super().__init__(id="held")
        self.agent = agent

    @handler
    async def write(self, message: Message, ctx: WorkflowContext[list[Message]]) -> None:
        print("is asked", message.text)
        response = await self.agent.run([message])
        await ctx.send_message([message, *response.messages])


class Reviewer(Executor):
    def __init__(self, agent: object) -> None:
        super().__init__(id="reviewer")
        self.agent = agent

    @handler
    async def review(self, messages: list[Message], ctx: WorkflowContext[Never, AgentResponseUpdate]) -> None:
        print("reads", [(str(message.role), message.text, message.author_name) for message in messages])
        async for update in self.agent.run(messages, stream=True):
            await ctx.yield_output(update)


@executor(id="notes")
async def note(response: AgentExecutorResponse, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
    print(response.executor_id, response.agent_response.text, [m.text for m in response.full_conversation])
    messages = [*response.full_conversation, Message("user", ["Shorter, please."])]
    await ctx.send_message(AgentExecutorRequest(messages=messages, should_respond=True))


@printed
async def main() -> None:
    writer, editor = talker("writer", "Go electric now"), talker("editor", "Go now")
    workflow = WorkflowBuilder(start_executor=writer).add_edge(writer, note).add_edge(note, editor).build()
    for message in ("A slogan", Message("user", ["A slogan"]), [Message("user", ["A"]), Message("user", ["slogan"])]):
        await show_updates(workflow.run(message, stream=True))
        result = await workflow.run(message)
        print([(event.type, event.executor_id) for event in result if event.type.startswith("executor")])
        for output in result.get_outputs():
            first = output.messages[0]
            print(type(output).__name__, isinstance(output, AgentResponse), first.author_name, output.text)
            print(output.response_id, output.usage_details, first.message_id)
        print(first.to_json(), first.to_json(indent=1, sort_keys=True))
    print(writer.client.requests, editor.client.requests)
    held = Writer(talker("writer", "One draft"))
    reviewer = Reviewer(talker("reviewer", "Good draft"))
    workflow = WorkflowBuilder(start_executor=held).add_edge(held, reviewer).build()
    async for event in workflow.run(Message("user", ["Write"]), stream=True):
        if event.type == "output" and isinstance(event.data, AgentResponseUpdate):
            print("update", event.data.author_name, event.data.text)
        elif event.type == "status":
            print("status", event.state)
        else:
            print(event.type, event.executor_id, type(event.data).__name__)
    stream = workflow.run(Message("user", ["Write"]), stream=True)
    print((await stream.get_final_response()).get_final_state())
    for mode in ("full", "last_agent"):
        first, second = talker("first", "Said"), talker("second", "Heard")
        chain = [AgentExecutor(first), AgentExecutor(second, context_mode=mode)]
        await WorkflowBuilder(start_executor=chain[0]).add_chain(chain).build().run("Say")
        print(mode, second.client.seen)
    agent = talker("owner", "one", "two")
    owner = AgentExecutor(agent, session=AgentSession(session_id="kept"), id="own-id")
    workflow = WorkflowBuilder(start_executor=owner).build()
    await workflow.run("first")
    await workflow.run("second")
    print(owner.id, agent.client.seen)
