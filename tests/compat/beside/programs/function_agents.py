"""Function workflows as agents: any input, the text of any output, streams, and requests for approval."""

from __future__ import annotations

from typing import Any

from agent_framework import Message
from flows import FunctionalWorkflowAgent, RunContext, workflow


@workflow
async def greeting(name: str) -> str:
    return f"hello {name}"


@workflow(name="untyped", description="takes anything")
async def any_type(value) -> str:
    return type(value).__name__


@workflow
async def counting(number: int) -> dict:
    return {"number": number}


@workflow
async def reading(messages: list) -> str:
    return " ".join(message.text for message in messages)


@workflow
async def listing(name: str) -> list:
    return [name, name]


@workflow
async def silent(name: str) -> None:
    return None


@workflow
async def asking(name: str, ctx: RunContext) -> str:
    return "answer: " + await ctx.request_info({"of": name}, response_type=str, request_id="question")


@workflow
async def failing(name: str) -> str:
    raise LookupError(name)


def built(flow: Any) -> Any:
    return flow.build() if hasattr(flow, "build") else flow


def shown(response: Any) -> Any:
    messages = [(str(m.role), m.text, [content.type for content in m.contents]) for m in response.messages]
    return messages, response.text, len(response.user_input_requests)


async def streamed(agent: Any, *args: Any, **options: Any) -> Any:
    stream = agent.run(*args, stream=True, **options)
    updates = [(u.text, str(u.role), u.author_name, [c.type for c in u.contents]) async for u in stream]
    return updates, shown(await stream.get_final_response())


async def main() -> Any:
    results: list[Any] = []
    for flow, value in (
        (greeting, "Ann"),
        (any_type, "Ann"),
        (any_type, 5),
        (counting, 5),
        (listing, "Ann"),
        (silent, "Ann"),
    ):
        results.append(shown(await built(flow).as_agent().run(value)))
    results.append(shown(await built(reading).as_agent().run([Message("user", ["one"]), Message("user", ["two"])])))
    results.append(await streamed(built(greeting).as_agent(name="host"), "Ann"))

    agents = [built(greeting).as_agent(), built(any_type).as_agent(), built(any_type).as_agent("n", description="d")]
    results.append([(agent.name, agent.id, agent.description) for agent in agents if agent.name != "greeting"])
    results.append([agents[0].pending_requests, isinstance(agents[0], FunctionalWorkflowAgent)])

    agent = built(asking).as_agent()
    asked = await agent.run("Ann")
    (request,) = asked.user_input_requests
    call = request.function_call
    results.append([shown(asked), list(agent.pending_requests), agent.pending_requests["question"].data])
    results.append([request.type, request.id, request.additional_properties, call.name, call.call_id, call.arguments])
    results.append([agent.REQUEST_INFO_FUNCTION_NAME, shown(await agent.run(responses={"question": "yes"}))])
    results.append(list(agent.pending_requests))

    agent = built(asking).as_agent()
    results.append([await streamed(agent, "Ann"), list(agent.pending_requests)])
    results.append(await streamed(agent, responses={"question": "no"}))
    try:
        await built(failing).as_agent().run("Ann")
    except LookupError as error:
        results.append(str(error))
    return results
