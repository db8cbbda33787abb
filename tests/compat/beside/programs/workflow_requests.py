"""Requests to the outside: asked, answered, restored, refused; statuses and events on the way."""

import json
from dataclasses import dataclass
from typing import Any, Never

from flows import (
    Executor,
    InMemoryCheckpointStorage,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    executor,
    handler,
    response_handler,
)


@dataclass
class Approval:
    what: str
    amount: int = 1


@dataclass
class Verdict:
    approved: bool
    comment: str = ""


class Clerk(Executor):
    def __init__(self, id: str = "clerk") -> None:
        super().__init__(id=id)
        self.asked: list[str] = []

    @handler
    async def take(self, message: str, ctx: WorkflowContext[str, str]) -> None:
        self.asked.append(message)
        for part in message.split(","):
            await ctx.request_info(Approval(part), bool, request_id=f"r-{part}")

    @handler
    async def verdicts(self, message: int, ctx: WorkflowContext[str, str]) -> None:
        await ctx.request_info(Approval("numbers", message), Verdict)
        await ctx.request_info("text", str, request_id="text")

    @response_handler
    async def approve(self, request: Approval, answer: bool, ctx: WorkflowContext[str, str]) -> None:
        await ctx.send_message(f"{request.what}:{answer}:{ctx.request_id}")

    @response_handler
    async def verdict(self, request: Approval, answer: Verdict, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output(f"{request.amount}:{answer.approved}:{answer.comment}")

    @response_handler
    async def text(self, request: str, answer: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output(f"{request}:{answer}")


@executor(id="end")
async def end(message: str, ctx: WorkflowContext[Never, str]) -> None:
    await ctx.yield_output(message)


def build(**options: Any) -> Any:
    clerk = Clerk()
    return WorkflowBuilder(start_executor=clerk, name="desk", **options).add_edge(clerk, end).build()


def show(event: Any) -> list[Any]:
    executor_id = None if event.type == "request_info" else event.executor_id
    return [event.type, executor_id, None if event.state is None else event.state.value]


def requests(result: Any) -> list[Any]:
    return [
        [event.request_id, event.source_executor_id, event.request_type.__name__, event.response_type.__name__]
        for event in result.get_request_info_events()
    ]


async def refused(call: Any) -> Any:
    try:
        return (await call()).get_outputs()
    except Exception as error:  # noqa: BLE001
        return next(kind.__name__ for kind in (RuntimeError, ValueError) if isinstance(error, kind))


async def asked_and_answered() -> Any:
    workflow = build()
    first = await workflow.run("a,b")
    asked = [requests(first), first.get_final_state().value, workflow.status.value]
    timeline = [event.state.value for event in first.status_timeline()]
    events = [show(event) for event in first]
    second = await workflow.run(responses={"r-a": True})
    still = [second.get_outputs(), [show(event) for event in second if event.type != "request_info"]]
    third = await workflow.run(responses={"r-b": False})
    return [asked, timeline, events, still, third.get_outputs(), third.get_final_state().value]


async def both_at_once() -> Any:
    workflow = build()
    await workflow.run("a,b")
    result = await workflow.run(responses={"r-b": False, "r-a": True})
    return [sorted(result.get_outputs()), result.get_final_state().value, result.get_request_info_events()]


async def streamed() -> Any:
    workflow = build()
    asked, events = {}, []
    async for event in workflow.run("a", stream=True):
        events.append(show(event))
        if event.type == "request_info":
            asked[event.request_id] = event.data.what == "a"
    answered = [show(event) async for event in workflow.run(stream=True, responses=asked)]
    return [events, answered]


async def coerced() -> Any:
    workflow = build()
    [first, second] = (await workflow.run(3)).get_request_info_events()
    answers = {first.request_id: {"approved": True, "comment": "fine"}, second.request_id: "yes"}
    return sorted((await workflow.run(responses=answers)).get_outputs())


async def wrong_answers() -> Any:
    workflow = build()
    results: list[Any] = [await refused(lambda: workflow.run(responses={"r-a": True}))]
    await workflow.run("a")
    results.append(await refused(lambda: workflow.run(responses={"other": True})))
    results.append(await refused(lambda: workflow.run(responses={"r-a": "text"})))
    results.append(await refused(lambda: workflow.run(responses={"r-a": True})))
    return results


async def new_message_meanwhile() -> Any:
    workflow = build()
    await workflow.run("a")
    second = await workflow.run("b")
    final = await workflow.run(responses={"r-a": True, "r-b": False})
    return [second.get_final_state().value, sorted(final.get_outputs())]


async def restored() -> Any:
    storage = InMemoryCheckpointStorage()
    await build(checkpoint_storage=storage).run("a,b")
    latest = await storage.get_latest(workflow_name="desk")
    pending = sorted(latest.pending_request_info_events)
    alone = await build(checkpoint_storage=storage).run(checkpoint_id=latest.checkpoint_id)
    seen = [requests(alone), alone.get_final_state().value, alone.get_outputs()]
    both = build(checkpoint_storage=storage)
    answers = {"r-a": True, "r-b": True}
    result = await both.run(checkpoint_id=latest.checkpoint_id, responses=answers)
    other = build()
    late = await other.run(checkpoint_id=latest.checkpoint_id, checkpoint_storage=storage, responses={"r-a": True})
    kinds = [event.type for event in late if event.type == "request_info"]
    return [pending, seen, sorted(result.get_outputs()), late.get_outputs(), len(kinds), late.get_final_state().value]


async def without_a_response_handler() -> Any:
    @executor(id="asks")
    async def asks(message: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.request_info(message, str, request_id="r")

    workflow = WorkflowBuilder(start_executor=asks).build()
    return requests(await workflow.run("x"))


async def as_data() -> Any:
    event = WorkflowEvent.request_info("r", "clerk", "why?", str)
    again = WorkflowEvent.from_dict(event.to_dict())
    tree = event.to_dict()
    names = ("type", "data", "request_id", "source_executor_id")
    assert json.dumps({name: tree[name] for name in names})
    return [[tree[name] for name in names], again.request_type is str, again.response_type is str, again.data]


async def loop_of_questions() -> Any:
    class Guess(Executor):
        @handler
        async def start(self, message: int, ctx: WorkflowContext[Never, str]) -> None:
            ctx.set_state("tries", 0)
            await ctx.request_info(message, int)

        @response_handler
        async def guessed(self, target: int, guess: int, ctx: WorkflowContext[Never, str]) -> None:
            ctx.set_state("tries", ctx.get_state("tries") + 1)
            if guess == target:
                await ctx.yield_output(f"after {ctx.get_state('tries')}")
            else:
                await ctx.request_info(target, int)

    workflow = WorkflowBuilder(start_executor=Guess(id="guess")).build()
    result = await workflow.run(3)
    for guess in (1, 2, 3):
        [event] = result.get_request_info_events()
        result = await workflow.run(responses={event.request_id: guess})
    return [result.get_outputs(), result.get_final_state().value]


async def main() -> Any:
    parts = (
        *(asked_and_answered, both_at_once, streamed, coerced, wrong_answers, new_message_meanwhile, restored),
        *(without_a_response_handler, as_data, loop_of_questions),
    )
    return {part.__name__: await part() for part in parts}
