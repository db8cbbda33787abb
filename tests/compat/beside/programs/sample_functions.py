"""Function workflows with agents, questions in a loop, checkpoints, events, and as agents in teams."""

import asyncio
from typing import Any

from _samples import printed, talker
from flows import (
    InMemoryCheckpointStorage,
    RunContext,
    WorkflowEvent,
    step,
    workflow,
)


def built(definition: Any) -> Any:
    """Later versions build an instance for each conversation."""
    return definition.build() if hasattr(definition, "build") else definition


classifier, writer = talker("classifier", "urgent mail"), talker("writer", "Dear you", "Dear all")


@step
async def classify(text: str) -> str:
    print("classifies", text)
    return (await classifier.run(text)).text


@step(name="measure")
async def count(text: str) -> int:
    return len(text)


@workflow
async def reply(text: str) -> str:
    if "urgent" in await classify(text):
        return f"!! {(await writer.run(text)).text}"
    return "later"


@workflow(name="refined")
async def refine(text: str, ctx: RunContext) -> str:
    draft = await classify(text)
    while True:
        note = await ctx.request_info({"draft": draft}, response_type=str)
        if note == "ok":
            return draft
        draft = f"{draft}, {note}"


@workflow
async def add_up(limit: int, ctx: RunContext) -> int:
    sizes = await asyncio.gather(*(count("x" * number) for number in range(limit)))
    ctx.set_state("last", sizes[-1])
    await ctx.add_event(WorkflowEvent("data", data="added"))
    return sum(sizes) + ctx.get_state("last", 0)


@workflow
async def fail(text: str) -> str:
    raise ValueError(f"no {text}")


@printed
async def main() -> None:
    result = await built(reply).run("Help")
    print(result.get_outputs(), result.get_final_state(), [(event.type, event.executor_id) for event in result])
    async for event in built(reply).run("Help", stream=True):
        print(event)
    result = await built(add_up).run(4)
    print(result.get_outputs(), [event.data for event in result if event.type == "data"])
    try:
        await built(fail).run("luck")
    except ValueError as error:
        print(error)

    flow, answers = built(refine), {}
    result = await flow.run("Mail")
    for note in ("shorter", "kinder", "ok"):
        [asked] = [event for event in result.get_request_info_events() if event.request_id not in answers]
        print(asked.data, result.get_final_state())
        answers[asked.request_id] = note
        result = await flow.run(responses=answers)
    print(result.get_outputs(), result.get_final_state())

    storage = InMemoryCheckpointStorage()
    result = await built(refine).run("Mail", checkpoint_storage=storage)
    [asked] = result.get_request_info_events()
    latest = await storage.get_latest(workflow_name="refined")
    options: Any = {"checkpoint_id": latest.checkpoint_id, "checkpoint_storage": storage}
    result = await built(refine).run(responses={asked.request_id: "ok"}, **options)
    print(result.get_outputs(), result.get_final_state())
    print((await built(reply).as_agent(name="replier").run("Help")).text)
