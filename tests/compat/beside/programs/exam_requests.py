"""Answers that are converted to the type that was asked for, and those that are refused."""

from dataclasses import dataclass
from typing import Any, Never

from flows import Executor, InMemoryCheckpointStorage, WorkflowBuilder, WorkflowContext, handler, response_handler
from pydantic import BaseModel


@dataclass
class Reply:
    ok: bool = False
    score: float = 0.0


class Form(BaseModel):
    number: int = 0


class Asker(Executor):
    def __init__(self, kind: Any) -> None:
        super().__init__(id="asker")
        self.kind = kind

    @handler
    async def take(self, message: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.request_info(message, self.kind, request_id="r")

    @response_handler
    async def number(self, request: str, answer: int, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"int {answer!r}")

    @response_handler
    async def share(self, request: str, answer: float, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"float {answer!r}")

    @response_handler
    async def reply(self, request: str, answer: Reply, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"{answer!r} to {ctx.request_id}")

    @response_handler
    async def form(self, request: str, answer: Form, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"{answer!r}")

    @response_handler
    async def names(self, request: str, answer: list[str], ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"list {answer!r}")

    @response_handler
    async def counts(self, request: str, answer: dict[str, int], ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"dict {answer!r}")


ANSWERS: list[tuple[Any, list[Any]]] = [
    (int, [1, "1", 1.5, None]),
    (float, [1, 1.5, "x"]),
    (Reply, [Reply(ok=True), {"ok": True, "score": 0.5}, "x"]),
    (Form, [Form(number=1), {"number": 2}, {"number": "bad"}, "x"]),
    (list[str], [["a"], [1], "a"]),
    (dict[str, int], [{"a": 1}, {"a": "b"}, []]),
]


def build(kind: Any, storage: Any = None) -> Any:
    return WorkflowBuilder(start_executor=Asker(kind), name="asking", checkpoint_storage=storage).build()


async def outcome(workflow: Any, **options: Any) -> Any:
    try:
        result = await workflow.run(**options)
    except ValueError as error:
        phrases = ("Response type mismatch for request ID r: expected", "Response provided for unknown request ID: x")
        return ["ValueError", *(phrase in str(error) for phrase in phrases)]
    return [result.get_outputs(), len(result.get_request_info_events())]


async def live() -> Any:
    results = []
    for kind, answers in ANSWERS:
        for answer in answers:
            workflow = build(kind)
            await workflow.run("q")
            results.append([repr(answer), await outcome(workflow, responses={"r": answer})])
    return results


async def stored() -> Any:
    storage = InMemoryCheckpointStorage()
    await build(Reply, storage).run("q")
    checkpoint = await storage.get_latest(workflow_name="asking")
    assert checkpoint is not None
    known = {"checkpoint_id": checkpoint.checkpoint_id}
    [(request_id, event)] = checkpoint.pending_request_info_events.items()
    return [
        [request_id, event.data, event.source_executor_id, event.response_type.__name__],
        await outcome(build(Reply, storage), **known, responses={"r": {"ok": True}}),
        await outcome(build(Reply, storage), **known, responses={"r": 5}),
        await outcome(build(Reply, storage), **known, responses={"x": 5}),
        (await build(Reply, storage).run(**known)).get_final_state().name,
    ]


async def main() -> Any:
    return {"live": await live(), "stored": await stored()}
