"""The response of a streamed agent is its own final response: structured values, declared tools, approvals."""

from typing import Any, Never

import agent_framework as af
from _scripted import agent, streamed
from flows import AgentExecutorResponse, Content, WorkflowBuilder, WorkflowContext, executor
from pydantic import BaseModel


class City(BaseModel):
    name: str
    people: int


@executor(id="end")
async def end(reply: AgentExecutorResponse, ctx: WorkflowContext[Never, Any]) -> None:
    value = reply.agent_response.value
    await ctx.yield_output([type(value).__name__, getattr(value, "people", None), len(reply.full_conversation)])


@af.tool(approval_mode="always_require")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def call(name: str, arguments: str) -> Any:
    return af.Content.from_function_call("c1", name, arguments=arguments)


async def structured(is_streamed: bool) -> Any:
    reply = ['{"name": "Ulm", "people": 7}'] if not is_streamed else ['{"name": "Ulm",', ' "people": 7}']
    clerk = agent("clerk", reply, default_options={"response_format": City})
    workflow = WorkflowBuilder(start_executor=clerk, output_from=[end]).add_edge(clerk, end).build()
    result = (await streamed(workflow, "hi"))[1] if is_streamed else await workflow.run("hi")
    return result.get_outputs()


async def declared(is_streamed: bool) -> Any:
    """A tool without a function: the caller gives its result."""
    schema = {"type": "object", "properties": {"question": {"type": "string"}}}
    ask = af.FunctionTool(name="ask", description="Ask.", func=None, input_model=schema)
    workflow = WorkflowBuilder(
        start_executor=agent("clerk", [call("ask", '{"question": "why?"}')], ["Thanks."], tools=[ask])
    ).build()
    result = (await streamed(workflow, "hi"))[1] if is_streamed else await workflow.run("hi")
    [request] = result.get_request_info_events()
    asked = [request.source_executor_id, request.data.type, request.data.name, request.data.call_id]
    answers = {request.request_id: Content.from_function_result("c1", result="because")}
    if is_streamed:
        events, result = await streamed(workflow, responses=answers)
        return asked, events, result.get_final_state().value
    result = await workflow.run(responses=answers)
    return asked, result.get_outputs()[-1].text, result.get_final_state().value


async def approved() -> Any:
    workflow = WorkflowBuilder(
        start_executor=agent("clerk", ["I pay. ", call("pay", '{"amount": 5}')], ["Done."], tools=[pay])
    ).build()
    before, result = await streamed(workflow, "hi")
    [request] = result.get_request_info_events()
    answer = request.data.to_function_approval_response(True)
    after, result = await streamed(workflow, responses={request.request_id: answer})
    asked = request.data.function_call
    return before, [request.data.type, asked.name, asked.parse_arguments()], after, result.get_final_state().value


async def main() -> Any:
    return [
        await structured(is_streamed=False),
        await structured(is_streamed=True),
        await declared(is_streamed=False),
        await declared(is_streamed=True),
        await approved(),
    ]
