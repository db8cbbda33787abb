"""Events of a program: a subclass with its own constructor, and plain ones, printed as they are."""

from typing import Any, Never

from _samples import printed
from flows import WorkflowBuilder, WorkflowContext, WorkflowEvent, executor


class DatabaseEvent(WorkflowEvent):  # type: ignore[type-arg]  # as programs write it
    def __init__(self, row: str) -> None:
        super().__init__("database_event", data=row)


@executor(id="store")
async def store(text: str, ctx: WorkflowContext[Never, str]) -> None:
    await ctx.add_event(DatabaseEvent(f"row {text}"))
    await ctx.add_event(WorkflowEvent("progress", data={"done": 3}))
    await ctx.yield_output(text)


@printed
async def main() -> None:
    workflow: Any = WorkflowBuilder(start_executor=store).build()
    async for event in workflow.run("x", stream=True):
        if isinstance(event, DatabaseEvent):
            print("database", event)
        print(f"{event}")
    for event in await workflow.run("y"):
        print(event)
    print(DatabaseEvent("z"))
