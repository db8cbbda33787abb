"""A workflow as an agent: the updates of its stream, and its requests as function calls."""

from dataclasses import dataclass
from typing import Any, Never

from _scripted import Echo
from flows import (
    Content,
    Executor,
    Message,
    WorkflowAgent,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
)


@dataclass
class Question:
    text: str


class Plain(Executor):
    def __init__(self, output: Any) -> None:
        super().__init__("plain")
        self.output = output

    @handler
    async def go(self, messages: list[Message], ctx: WorkflowContext[Never, Any]) -> None:
        await ctx.yield_output(self.output)


class Asker(Executor):
    @handler
    async def go(self, messages: list[Message], ctx: WorkflowContext[Never, str]) -> None:
        await ctx.request_info(Question("why?"), str, request_id="q1")

    @response_handler
    async def answered(self, question: Question, answer: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"{question.text} because {answer}")


def contents_of(item: Any) -> list[Any]:
    return [[content.type, content.text or content.name] for content in item.contents]


async def streamed(agent: Any, *args: Any) -> tuple[list[Any], Any]:
    stream = agent.run(*args, stream=True)
    updates = [update async for update in stream]
    shown = [[contents_of(update), str(update.role), update.author_name] for update in updates]
    has_ids = all(update.message_id and update.response_id for update in updates)
    return [*shown, has_ids], await stream.get_final_response()


async def run(agent: Any, *args: Any) -> tuple[list[Any], Any]:
    response = await agent.run(*args)
    return [[str(message.role), message.text, bool(response.response_id)] for message in response.messages], response


async def chain() -> Any:
    first, second = Echo("first", "one ", "two"), Echo("second", "three ", "four")
    builder = WorkflowBuilder(start_executor=first, output_from=[second], intermediate_output_from=[first])
    team = builder.add_edge(first, second).build().as_agent("team", description="Two of them.")
    stream = team.run("hi", stream=True)
    ids = [[update.response_id, update.message_id] async for update in stream]
    merged = WorkflowAgent.merge_updates([update async for update in team.run("hi", stream=True)], "r0")
    return [
        [team.name, team.description],
        ids,
        (await streamed(team, "hi"))[0],
        (await run(team, "hi"))[0],
        [merged.response_id, [message.author_name for message in merged.messages], merged.text],
    ]


async def outputs() -> Any:
    made: list[Any] = [
        "text",
        Content.from_text("content"),
        Message("assistant", ["message"]),
        [Message("assistant", ["first"]), Message("assistant", ["second"], author_name="other")],
        ["x", "y"],
        7,
    ]
    shown = []
    for output in made:
        agent = WorkflowBuilder(start_executor=Plain(output)).build().as_agent("desk")
        shown.append((await streamed(agent, "hi"))[0])
    return shown


async def requests(go: Any) -> Any:
    agent = WorkflowBuilder(start_executor=Asker("asker")).build().as_agent("desk")
    asked, response = await go(agent, "hi")
    [call] = [content for message in response.messages for content in message.contents]
    args = WorkflowAgent.RequestInfoFunctionArgs.from_dict(call.parse_arguments())
    event = args.request_event
    assert isinstance(event.data, Question)
    question = [event.data.text, event.source_executor_id, event.response_type.__name__]
    answer = Message("tool", [Content.from_function_result(call.call_id, result="so it is")])
    answered, _ = await go(agent, answer)
    is_named = call.name == WorkflowAgent.REQUEST_INFO_FUNCTION_NAME
    try:
        WorkflowAgent.RequestInfoFunctionArgs.from_dict({"request_id": "q1"})
    except ValueError:
        return asked, is_named, call.call_id, args.request_id, sorted(args.to_dict()), question, answered


async def main() -> Any:
    return [await chain(), await outputs(), await requests(streamed), await requests(run)]
