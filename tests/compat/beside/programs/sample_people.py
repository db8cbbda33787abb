"""People in the loop: a guessing game, feedback for a writer, approvals, and a tool of the caller."""

from dataclasses import dataclass, field
from typing import Any, Never

from _samples import call, printed, show_updates, talker
from agent_framework import FunctionTool, tool
from flows import (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    Content,
    Executor,
    Message,
    SequentialBuilder,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
)
from pydantic import BaseModel


class Guess(BaseModel):
    guess: int


@dataclass
class Hint:
    prompt: str


class Turns(Executor):
    @handler
    async def start(self, _: str, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
        await ctx.send_message(AgentExecutorRequest(messages=[Message("user", ["Guess"])], should_respond=True))

    @handler
    async def guessed(self, result: AgentExecutorResponse, ctx: WorkflowContext) -> None:
        print(type(result.agent_response.value).__name__, result.agent_response.value, len(result.full_conversation))
        guess = Guess.model_validate_json(result.agent_response.text).guess
        await ctx.request_info(request_data=Hint(f"Is it {guess}?"), response_type=str)

    @response_handler
    async def hinted(self, hint: Hint, answer: str, ctx: WorkflowContext[AgentExecutorRequest, str]) -> None:
        if answer == "correct":
            await ctx.yield_output(f"{hint.prompt} Yes.")
        else:
            await ctx.send_message(AgentExecutorRequest(messages=[Message("user", [answer])], should_respond=True))


@dataclass
class Feedback:
    draft: str = ""
    conversation: list[Message] = field(default_factory=list)


class Coordinator(Executor):
    @handler
    async def drafted(self, draft: AgentExecutorResponse, ctx: WorkflowContext[Never, AgentResponse]) -> None:
        if draft.executor_id == "editor":
            await ctx.yield_output(draft.agent_response)
        else:
            await ctx.request_info(Feedback(draft.agent_response.text, list(draft.full_conversation)), str)

    @response_handler
    async def judged(self, asked: Feedback, note: str, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
        messages = [*asked.conversation, Message("user", [note])]
        target = "editor" if note == "approve" else "writer"
        await ctx.send_message(AgentExecutorRequest(messages=messages, should_respond=True), target_id=target)


@tool(approval_mode="never_require")
def brief(product: str) -> str:
    """Describes a product."""
    return f"{product}: a lamp"


@tool(approval_mode="always_require")
def send(to: str) -> str:
    """Sends the mail."""
    return f"sent to {to}"


@printed
async def main() -> None:
    player, turns = (
        talker("player", '{"guess": 5}', '{"guess": 8}', default_options={"response_format": Guess}),
        Turns("t"),
    )
    game = WorkflowBuilder(start_executor=turns).add_edge(turns, player).add_edge(player, turns).build()
    requests, answers = await show_updates(game.run("start", stream=True)), iter(["higher", "correct"])
    while requests:
        print([request.prompt for request in requests.values()])
        requests = await show_updates(game.run(stream=True, responses=dict.fromkeys(requests, next(answers))))
    print(player.client.seen)

    writer = talker("writer", [call("brief", product="lamp")], "draft one", "draft two", tools=[brief])
    editor, coordinator = talker("editor", "final copy"), Coordinator("coordinator")
    builder = WorkflowBuilder(start_executor=writer).add_edge(writer, coordinator).add_edge(coordinator, writer)
    workflow = builder.add_edge(editor, coordinator).add_edge(coordinator, editor).build()
    async for event in workflow.run("A lamp", stream=True):
        if event.type == "output":
            for content in event.data.contents:
                print(event.executor_id, content.type, content.name, content.arguments, content.result, content.text)
        elif event.type == "request_info":
            requests = {event.request_id: event.data}
    answers = iter(["shorter", "approve"])
    while requests:
        for asked in requests.values():
            parts = [(str(m.role), m.text, [content.type for content in m.contents]) for m in asked.conversation]
            print(asked.draft, parts)
        requests = await show_updates(workflow.run(stream=True, responses=dict.fromkeys(requests, next(answers))))

    for is_approved in (True, False):
        mailer = talker("mailer", [call("brief", product="lamp"), call("send", to="bob")], "Done", tools=[brief, send])
        workflow = SequentialBuilder(participants=[mailer, talker("reporter", "All said")]).build()
        requests, responses = await show_updates(workflow.run("Mail bob", stream=True)), {}
        for request_id, asked in requests.items():
            print(
                asked.type, asked.function_call.name, asked.function_call.parse_arguments(), isinstance(asked, Content)
            )
            responses[request_id] = asked.to_function_approval_response(approved=is_approved)
        await show_updates(workflow.run(stream=True, responses=responses))
        print(len(mailer.client.seen))

    schema: Any = {"type": "object", "properties": {"reason": {"type": "string"}}}
    locate = FunctionTool(name="locate", func=None, description="Where the user is.", input_model=schema)
    weather = talker("weather", [call("locate", reason="needed")], "Rain in Oslo", tools=[locate])
    workflow = WorkflowBuilder(start_executor=weather).build()
    result = await workflow.run("Weather?")
    [event] = result.get_request_info_events()
    print(event.data.type, event.data.name, event.data.parse_arguments(), event.data.user_input_request)
    answer = Content.from_function_result(call_id=event.data.call_id, result="Oslo")
    result = await workflow.run(responses={event.request_id: answer})
    print([output.text for output in result.get_outputs()], result.get_final_state(), weather.client.seen)
