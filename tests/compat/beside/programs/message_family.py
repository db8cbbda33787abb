"""Messages of either framework go in everywhere, and come out as the annotation says; nothing of them is lost."""

from typing import Any, Never

import agent_framework as af
import flows
from flows import (
    AgentExecutor,
    AgentExecutorRequest,
    AgentExecutorResponse,
    Executor,
    InMemoryCheckpointStorage,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    handler,
    response_handler,
)


def rich(kind: Any, content: Any) -> Any:
    """A message with every field that a conversation may need later."""
    contents = [
        content.from_text("text", annotations=[{"type": "citation", "url": "https://x"}]),
        content.from_text_reasoning(id="r1", text="why", protected_data="secret"),
        content.from_hosted_file("f1", media_type="text/plain"),
        content.from_code_interpreter_tool_result(call_id="c", outputs=[content.from_text("2")]),
        content.from_function_call("c2", "look", arguments={"q": 1}),
        content.from_function_result("c2", result=[content.from_text("a"), content.from_text("b")]),
    ]
    return kind("user", contents, author_name="ann", message_id="m1", additional_properties={"k": {"a": 1}})


def shown(message: Any) -> Any:
    data = message.to_dict()
    for content in data["contents"]:
        content.pop("hosted", None)  # new in 1.23, and False
    nested = [item.text for content in message.contents for item in content.items or ()]
    return [data, nested, message.text, message.additional_properties]


def is_theirs(value: Any) -> bool:
    return type(value).__module__.startswith("agent_framework.")


class Echo(af.BaseAgent):
    """Keeps what it gets, and answers with contents of the framework."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self.got: list[Any] = []

    async def run(self, messages: Any = None, *, stream: bool = False, session: Any = None, **kwargs: Any) -> Any:
        new = af.normalize_messages(messages)
        self.got.append([isinstance(session, af.AgentSession), [isinstance(message, af.Message) for message in new]])
        self.got.append([shown(message) for message in new])
        answer = rich(af.Message, af.Content)
        answer.role, answer.author_name = "assistant", self.name
        return af.AgentResponse(messages=[answer], response_id="r", additional_properties={"p": 1})


async def through_handlers() -> Any:
    seen: list[Any] = []

    @executor(id="theirs")
    async def theirs(message: af.Message, ctx: WorkflowContext[flows.Message]) -> None:
        seen.append([is_theirs(message), shown(message)])
        ctx.set_state("message", message)
        ctx.set_state("all", {"content": message.contents[0], "response": af.AgentResponse(messages=[message])})
        await ctx.send_message(message)  # type: ignore[arg-type]

    @executor(id="ours")
    async def ours(message: flows.Message, ctx: WorkflowContext[list[flows.Message]]) -> None:
        seen.append([isinstance(message, flows.Message), shown(message)])
        await ctx.send_message([message, flows.Message("user", ["more"])])

    @executor(id="list")
    async def several(messages: list[af.Message], ctx: WorkflowContext[Never, Any]) -> None:
        stored, others = ctx.get_state("message"), ctx.get_state("all")
        seen.append([[is_theirs(message) for message in messages], shown(messages[0]), messages[1].text])
        kinds = [is_theirs(stored), is_theirs(others["content"]), is_theirs(others["response"])]
        seen.append([kinds, shown(stored), others["content"].to_dict(), others["response"].text])
        await ctx.yield_output(messages[0])

    storage = InMemoryCheckpointStorage()
    builder = WorkflowBuilder(start_executor=theirs, name="types", checkpoint_storage=storage)
    workflow = builder.add_edge(theirs, ours).add_edge(ours, several).build()
    result = await workflow.run(rich(af.Message, af.Content))
    checkpoints = sorted(await storage.list_checkpoints(workflow_name="types"), key=lambda item: item.iteration_count)
    again = [await workflow.run(checkpoint_id=item.checkpoint_id) for item in checkpoints[:-1]]
    outputs = [shown(output) for each in (result, *again) for output in each.get_outputs()]
    return [seen[:4], len(outputs), all(output == outputs[0] for output in outputs), outputs[0]]


async def through_agents() -> Any:
    first, second = Echo("first"), Echo("second")

    class Start(Executor):
        @handler
        async def begin(self, message: af.Message, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
            await ctx.send_message(AgentExecutorRequest(messages=[message]))

    class End(Executor):
        @handler
        async def end(self, response: AgentExecutorResponse, ctx: WorkflowContext[Never, Any]) -> None:
            await ctx.yield_output([shown(message) for message in response.full_conversation])

    start, end = Start(id="start"), End(id="end")
    writer, critic = AgentExecutor(first, session=af.AgentSession(session_id="s")), AgentExecutor(second)
    workflow = WorkflowBuilder(start_executor=start, output_from=[end]).add_chain([start, writer, critic, end]).build()
    result = await workflow.run(rich(af.Message, af.Content))
    return [first.got, second.got, result.get_outputs()]


async def as_agents() -> Any:
    results = []
    for kind, content, session in (
        (af.Message, af.Content, af.AgentSession()),
        (flows.Message, flows.Content, flows.AgentSession()),
    ):
        echo = Echo("echo")
        agent = WorkflowBuilder(start_executor=AgentExecutor(echo)).build().as_agent("team")
        inputs: list[Any] = [kind("user", ["one"]), [kind("user", ["two"]), "three"], [content.from_text("four")]]
        for message in inputs:
            response = await agent.run(message, session=session)
            results.append([response.text, len(response.messages)])
    return results


async def answers() -> Any:
    class Asking(Executor):
        @handler
        async def ask(self, text: str, ctx: WorkflowContext[Never, Any]) -> None:
            await ctx.request_info(af.Message("assistant", [text]), af.Message)

        @response_handler
        async def answer(self, question: af.Message, answer: af.Message, ctx: WorkflowContext[Never, Any]) -> None:
            await ctx.yield_output([is_theirs(question), question.text, is_theirs(answer), answer.text])

    results = []
    for kind in (af.Message, flows.Message):
        workflow = WorkflowBuilder(start_executor=Asking(id="asking")).build()
        [request] = (await workflow.run("why?")).get_request_info_events()
        result = await workflow.run(responses={request.request_id: kind("user", ["because"])})
        results.append(result.get_outputs())
    return results


async def to_their_agents() -> Any:
    """Ours go to agents and chat clients of the framework that the program calls itself."""

    class Model(af.BaseChatClient):  # type: ignore[type-arg]
        def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **kwargs: Any) -> Any:
            texts = [message.text for message in messages]
            response = af.ChatResponse(messages=flows.Message("assistant", [flows.Content.from_text(" ".join(texts))]))

            async def answer() -> Any:
                return response

            async def updates() -> Any:
                yield af.ChatResponseUpdate(contents=[flows.Content.from_text(text) for text in texts])

            return af.ResponseStream(updates(), finalizer=af.ChatResponse.from_updates) if stream else answer()

    agent, session = af.Agent(client=Model(), name="echo"), flows.AgentSession(session_id="s")
    results: list[Any] = []
    for message in (
        "a",
        flows.Message("user", ["b"]),
        flows.Content.from_text("c"),
        [flows.Message("user", ["d"]), "e"],
    ):
        response = await agent.run(message, session=session)
        results.append([response.text, response.messages[0].author_name, isinstance(response, flows.AgentResponse)])
    results.append((await Model().get_response([flows.Message("user", ["f"])])).text)
    stream = agent.run(flows.Message("user", ["g"]), stream=True)
    results.append([update.text async for update in stream])
    results.append((await stream.get_final_response()).text)
    message, content = flows.Message("user", ["h"]), flows.Content.from_text("i")
    results.append([isinstance(message, af.Message), isinstance(content, af.Content)])
    theirs: Any = af.Message("user", [content])
    results.append([theirs.to_dict(), [isinstance(theirs, flows.Message)]])
    updates = [flows.AgentResponseUpdate(contents=[flows.Content.from_text(text)], role="assistant") for text in "jk"]
    results.append(af.AgentResponse.from_updates(updates).text)
    return results


async def main() -> Any:
    return {
        "handlers": await through_handlers(),
        "agents": await through_agents(),
        "as agents": await as_agents(),
        "answers": await answers(),
        "calls": await to_their_agents(),
    }
