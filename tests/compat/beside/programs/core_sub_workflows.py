"""Requests of sub-workflows: answered by an executor of the parent, from outside, and several at once."""

from dataclasses import dataclass
from typing import Any, Never

from flows import (
    Executor,
    SubWorkflowRequestMessage,
    SubWorkflowResponseMessage,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowExecutor,
    handler,
    response_handler,
)


@dataclass
class Question:
    text: str


@dataclass
class Result:
    text: str


class Asks(Executor):
    @handler
    async def take(self, message: str, ctx: WorkflowContext[Never, Result]) -> None:
        await ctx.request_info(Question(message), bool)

    @response_handler
    async def go_on(self, question: Question, response: bool, ctx: WorkflowContext[Never, Result]) -> None:
        await ctx.yield_output(Result(f"{question.text}={response}"))


class Parent(Executor):
    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.requests: dict[str, SubWorkflowRequestMessage] = {}

    @handler
    async def begin(self, messages: list[str], ctx: WorkflowContext[str]) -> None:
        for message in messages:
            await ctx.send_message(message, target_id="sub")

    @handler
    async def take_request(
        self, request: SubWorkflowRequestMessage, ctx: WorkflowContext[SubWorkflowResponseMessage]
    ) -> None:
        event = request.source_event
        if event.data.text == "known":
            await ctx.send_message(request.create_response(True), target_id=request.executor_id)
            return
        self.requests[event.request_id] = request
        await ctx.request_info(event.data, event.response_type, request_id=event.request_id)

    @response_handler
    async def pass_on(
        self, question: Question, response: bool, ctx: WorkflowContext[SubWorkflowResponseMessage]
    ) -> None:
        request = self.requests[str(ctx.request_id)]
        await ctx.send_message(request.create_response(response), target_id=request.executor_id)

    @handler
    async def end(self, result: Result, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(result.text)


def team() -> Any:
    parent = Parent("parent")
    sub = WorkflowExecutor(WorkflowBuilder(start_executor=Asks("asks"), name="child").build(), id="sub")
    return WorkflowBuilder(start_executor=parent).add_edge(parent, sub).add_edge(sub, parent).build()


async def ask(*messages: str) -> Any:
    workflow = team()
    result = await workflow.run(list(messages))
    requests = result.get_request_info_events()
    seen = [[event.source_executor_id, event.data.text, event.response_type.__name__] for event in requests]
    states = [result.get_final_state().value]
    outputs = result.get_outputs()
    if requests:
        result = await workflow.run(responses={event.request_id: event.data.text == "yes" for event in requests})
        states.append(result.get_final_state().value)
    return [sorted(seen), states, outputs, sorted(result.get_outputs())]


async def propagate() -> Any:
    child = WorkflowBuilder(start_executor=Asks("asks")).build()
    sub = WorkflowExecutor(child, id="sub", propagate_request=True, allow_direct_output=True)
    workflow = WorkflowBuilder(start_executor=sub).build()
    events = [event async for event in workflow.run("yes", stream=True)]
    [request] = [event for event in events if event.type == "request_info"]
    states = [event.state.value for event in events if event.state is not None]
    events = [event async for event in workflow.run(responses={request.request_id: True}, stream=True)]
    assert [kind.__name__ for kind in sub.input_types] == ["str", "SubWorkflowResponseMessage"]
    return [states, [[event.executor_id, event.data.text] for event in events if event.type == "output"]]


def wrong_response() -> Any:
    event = WorkflowEvent.request_info("1", "asks", Question("?"), bool)
    try:
        SubWorkflowRequestMessage(event, "sub").create_response("text")
    except TypeError as error:
        return ["Response data type <class 'str'> does not match expected type <class 'bool'>" in str(error)]


async def main() -> Any:
    return [await ask("known"), await ask("yes"), await ask("no", "known", "yes"), await propagate(), wrong_response()]
