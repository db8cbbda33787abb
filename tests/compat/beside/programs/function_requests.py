"""Function workflows that ask: ids, events, answers given once and again, and what refuses an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flows import RunContext, step, workflow

weighed: list[str] = []


@dataclass
class Draft:
    text: str


@dataclass
class Review:
    is_fine: bool


@step
async def weigh(fish: str) -> int:
    weighed.append(fish)
    return len(fish)


@step
async def ask(fish: str, ctx: RunContext) -> str:
    return await ctx.request_info({"of": fish}, response_type=str)


@workflow
async def landing(fish: str, ctx: RunContext) -> str:
    weight = await weigh(fish)
    place = await ctx.request_info({"fish": fish, "weight": weight}, response_type=str, request_id="place")
    return f"{await weigh(place)} {place}"


@workflow
async def three(fish: str, ctx: RunContext) -> list:
    return [await ctx.request_info("one", str), await ctx.request_info("two", str), await ctx.request_info("two", str)]


@workflow
async def in_steps(fish: str, ctx: RunContext) -> list:
    return [await ask(fish), await ctx.request_info("between", str), await ask("other")]


@workflow
async def looping(fish: str, ctx: RunContext) -> str:
    for number in range(9):
        if await ctx.request_info(number, str, request_id=f"round {number}") == "stop":
            return f"stopped at {number}"
    return "never"


@workflow
async def reviewed(text: str, ctx: RunContext) -> bool:
    try:
        review = await ctx.request_info(Draft(text), Review, request_id="review")
    except Exception:  # noqa: BLE001  # a pause is no error
        return False
    return review.is_fine


def built(flow: Any) -> Any:
    return flow.build() if hasattr(flow, "build") else flow


def shown(events: Any) -> list[Any]:
    return [
        [event.type, event.state and event.state.name, repr(event.data)]
        + ([event.request_id, event.source_executor_id] if event.type == "request_info" else [event.executor_id])
        for event in events
    ]


async def answer_all(flow: Any, *, again: bool) -> Any:
    """Answer each question; `again` with all answers so far."""
    answers, ids = {}, []
    result = await flow.run("cod")
    while result.get_request_info_events():
        (request,) = result.get_request_info_events()
        ids.append(request.request_id)
        answers[request.request_id] = "stop" if len(ids) == 3 else f"answer {len(ids)}"
        result = await flow.run(responses=dict(answers))
    return ids, result.get_outputs()


async def refused(flow: Any, responses: dict[str, Any]) -> bool:
    try:
        await flow.run(responses=responses)
    except ValueError:
        return True
    return False


async def main() -> Any:
    weighed.clear()
    results: list[Any] = []
    flow = built(landing)
    asked = await flow.run("cod")
    results.append([shown(asked), asked.get_final_state().name, [e.state.name for e in asked.status_timeline()]])
    answered = await flow.run(responses={"place": "cellar"})
    results.append([shown(answered), answered.get_outputs(), answered.get_final_state().name, list(weighed)])
    results.append(await refused(flow, {"place": "market"}))

    flow = built(landing)
    results.append(await refused(flow, {"place": "market"}))
    results.append([shown([event async for event in flow.run("eel", stream=True)])])
    results.append(await refused(flow, {"other": "market"}))
    streamed = flow.run(responses={"place": "market"}, stream=True)
    results.append([shown([event async for event in streamed])])

    flow = built(landing)
    await flow.run("cod")
    second = await flow.run("salmon")  # in place of the first
    results.append([request.data for request in second.get_request_info_events()])
    results.append((await flow.run(responses={"place": "market"})).get_outputs())

    for asking in (three, in_steps, looping):
        flow = built(asking)
        results.append([await answer_all(flow, again=True), await answer_all(flow, again=True)])

    flow = built(reviewed)
    (request,) = (await flow.run("words")).get_request_info_events()
    results.append([request.data.text, request.request_type.__name__, request.response_type.__name__])
    results.append((await flow.run(responses={"review": Review(True)})).get_outputs())
    return results
