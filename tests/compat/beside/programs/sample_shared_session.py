"""Two agents with one session, which the program reads; a workflow as a tool; and as an agent, shown by response."""

from typing import Any

from _samples import call, printed, talker
from agent_framework import Agent, InMemoryHistoryProvider
from flows import (
    AgentExecutor,
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    AgentSession,
    Executor,
    SequentialBuilder,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    handler,
)


@executor(id="silence")
async def silence(response: AgentExecutorResponse, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
    """The next agent gets no messages: it reads the shared session."""
    print("between", response.agent_response.additional_properties)
    await ctx.send_message(AgentExecutorRequest(messages=[]))


class Marked(Executor):
    @handler
    async def mark(self, text: str, ctx: WorkflowContext[None, AgentResponse]) -> None:
        await ctx.yield_output(AgentResponse(messages=[], additional_properties={"text": text}))


def show(session: Any) -> None:
    for message in session.state["memory"]["messages"]:
        print(" ", message.author_name or str(message.role), message.text)


@printed
async def main() -> None:
    memory: Any = {"context_providers": [InMemoryHistoryProvider("memory")]}
    writer, critic = talker("writer", "A draft", "Another", **memory), talker("critic", "Too long", "Fine", **memory)
    session = writer.create_session()
    hosts = [AgentExecutor(writer, session=session), AgentExecutor(critic, session=session)]
    workflow = WorkflowBuilder(start_executor=hosts[0]).add_chain([hosts[0], silence, hosts[1]]).build()
    for text in ("A slogan", "Shorter"):
        result = await workflow.run(text)
        print([output.text for output in result.get_outputs()])
        show(session)
    print(critic.client.seen)
    used, alone = AgentSession(session_id="used"), talker("alone", "Early", "First", "Second", **memory)
    await alone.run("Before", session=used)
    workflow = WorkflowBuilder(start_executor=AgentExecutor(alone, session=used)).build()
    for text in ("One", "Two"):
        await workflow.run(text)
    show(used)
    print(used.session_id, sorted(used.state), alone.client.seen[-1])
    result = await WorkflowBuilder(start_executor=(marked := Marked(id="marked"))).build().run("kept")
    print(result.get_outputs()[0].additional_properties, marked.id)

    team = SequentialBuilder(participants=[talker("ann", "one"), talker("bob", "two three")]).build()
    tool = team.as_agent(name="team", description="Two people").as_tool()
    print(tool.name, tool.description, sorted(tool.parameters()["properties"]))
    client = type(writer.client)([call("team", task="Count")], ["It is two three"])
    print((await Agent(client=client, name="asks", tools=[tool]).run("How many?")).text)

    speaker = None
    async for update in team.as_agent(name="team").run("Count", stream=True):
        if (update.author_name, update.response_id is None) != speaker:
            speaker = (update.author_name, update.response_id is None)
            print("speaker", speaker)
        print(" ", repr(update.text))
