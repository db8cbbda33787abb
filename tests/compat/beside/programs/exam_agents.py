"""What a workflow as an agent makes of outputs of several kinds, whole and streamed."""

from dataclasses import dataclass
from typing import Any, Never

from flows import AgentResponse, Content, Executor, Message, WorkflowBuilder, WorkflowContext, handler


@dataclass
class Order:
    number: int = 0


class Yields(Executor):
    def __init__(self, *outputs: Any) -> None:
        super().__init__(id="yields")
        self.outputs = outputs

    @handler
    async def take(self, messages: list[Message], ctx: WorkflowContext[Never, Any]) -> None:
        for output in self.outputs:
            await ctx.yield_output(output)


def agent(*outputs: Any) -> Any:
    return WorkflowBuilder(start_executor=Yields(*outputs)).build().as_agent(name="agent")


OUTPUTS: dict[str, list[Any]] = {
    "texts": ["a", "b"],
    "message": [Message("assistant", ["x"], author_name="me")],
    "messages": [[Message("user", ["u"], author_name="you"), Message("assistant", ["x"], author_name="me")]],
    "content": [Content.from_text("c")],
    "number": [5],
    "response": [AgentResponse(messages=[Message("assistant", ["r"], author_name="me")])],
    "nothing": [],
}


async def main() -> Any:
    results: dict[str, Any] = {}
    for name, outputs in OUTPUTS.items():
        whole = await agent(*outputs).run("q")
        stream = agent(*outputs).run("q", stream=True)
        updates = [[update.role, update.text, update.author_name] async for update in stream]
        final = await stream.get_final_response()
        results[name] = [
            [[message.role, message.text, message.author_name] for message in whole.messages],
            updates,
            [final.text, len(final.messages)],
        ]
    results["object"] = len([update async for update in agent(Order(3)).run("q", stream=True)])
    return results
