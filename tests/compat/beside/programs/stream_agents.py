"""Agents in a graph: a streamed run emits their updates as outputs, another run their responses."""

from typing import Any

from _scripted import KINDS, Echo, streamed, texts
from flows import Message, SequentialBuilder, WorkflowBuilder, WorkflowContext, WorkflowExecutor, executor


def chain(**designated: str) -> Any:
    first, second, third = Echo("first", "one ", "two"), Echo("second", "three"), Echo("third", "four ", "five")
    agents = {"first": first, "third": third}
    builder = WorkflowBuilder(start_executor=first, **{option: [agents[name]] for option, name in designated.items()})
    return builder.add_edge(first, second).add_edge(second, third).build()


@executor(id="start")
async def start(text: str, ctx: WorkflowContext[list[Message]]) -> None:
    await ctx.send_message([Message("user", [text])])


def around() -> Any:
    """A sub-workflow whose output is the output of the workflow."""
    inner = SequentialBuilder(participants=[Echo("first", "one ", "two"), Echo("second", "three ", "four")]).build()
    child = WorkflowExecutor(inner, id="child", allow_direct_output=True)
    return WorkflowBuilder(start_executor=start).add_edge(start, child).build()


async def main() -> Any:
    results: list[Any] = []
    for options in ({}, {"output_from": "third"}, {"output_from": "third", "intermediate_output_from": "first"}):
        events, result = await streamed(chain(**options), "hi")
        listed = [[event.type, type(event.data).__name__] for event in result if event.type in KINDS]
        results.append([events, listed, await texts(chain(**options), "hi")])
    results.append([(await streamed(around(), "hi"))[0], await texts(around(), "hi")])
    return results
