"""What updates of a workflow's agent carry of each output, and how updates are merged."""

from typing import Any, Never

from flows import (
    AgentResponse,
    AgentResponseUpdate,
    Content,
    Executor,
    Message,
    WorkflowAgent,
    WorkflowBuilder,
    WorkflowContext,
    handler,
)


class Order:
    def __init__(self, number: int) -> None:
        self.number = number

    def __str__(self) -> str:
        return f"order {self.number}"


class Yields(Executor):
    def __init__(self, *outputs: Any) -> None:
        super().__init__(id="yields")
        self.outputs = outputs

    @handler
    async def take(self, messages: list[Message], ctx: WorkflowContext[Never, Any]) -> None:
        for output in self.outputs:
            await ctx.yield_output(output)


OUTPUTS: dict[str, Any] = {
    "text": "hello",
    "content": Content.from_uri(uri="https://example.org/a.png", media_type="image/png"),
    "message": Message("assistant", ["x"], author_name="me"),
    "response": AgentResponse(messages=[Message("assistant", ["r"], author_name="me")]),
    "number": 5,
    "dict": {"a": [1, None]},
    "list": ["a", 2, {"b": 3}],
    "object": Order(7),
}


def part(text: str, response_id: str | None, **fields: Any) -> AgentResponseUpdate:
    return AgentResponseUpdate(contents=[Content.from_text(text)], role="assistant", response_id=response_id, **fields)


async def main() -> Any:
    results: dict[str, Any] = {}
    for name, output in OUTPUTS.items():
        whole = await WorkflowBuilder(start_executor=Yields(output)).build().as_agent(name="agent").run("q")
        stream = WorkflowBuilder(start_executor=Yields(output)).build().as_agent(name="agent").run("q", stream=True)
        updates = [update async for update in stream]
        results[name] = [
            [[message.text, [content.type for content in message.contents]] for message in whole.messages],
            [
                [update.text, getattr(update.raw_representation, "text", str(update.raw_representation))]
                for update in updates
            ],
            [isinstance(update.raw_representation, type(output)) for update in updates],
        ]
    merged = WorkflowAgent.merge_updates(
        [
            part("a", "A", message_id="1", additional_properties={"k": 1}),
            part("b", "B", additional_properties={"l": 2}),
        ],
        "merged",
    )
    results["merged"] = [merged.response_id, merged.text, merged.additional_properties]
    return results
