"""Tools: any callable, recorded under the id of its call, some only after approval."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Awaitable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agents.logs import begun

from perdure import Executor, InMemoryCheckpointStorage, RetryPolicy, WorkflowBuilder, WorkflowContext, handler
from perdure.agents.conversation.content import Content
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.tools import ApprovalNeeded, Tool, ToolContext, as_tool, tool
from perdure.errors import AnswerRejected
from perdure.testing import assert_survives_crash
from perdure.testing.scripted import Call, ScriptedAgent
from perdure.workflows.workflow import Workflow

language: ContextVar[str] = ContextVar("language", default="none")


def plain(text: str) -> str:
    """Return the text, the language and the thread."""
    return f"{text} in {language.get()} on {threading.current_thread() is threading.main_thread()}"


async def later(text: str) -> str:
    await asyncio.sleep(0)
    return text


def gives_a_coroutine(text: str) -> Awaitable[str]:
    return later(text)


class Shop:
    """A shop."""

    def price(self, item: str) -> str:
        """What it costs."""
        return f"{item}: 3"

    async def __call__(self, item: str) -> str:
        return f"sold {item}"


def results(response: AgentResponse) -> list[tuple[Any, str | None]]:
    contents = [content for message in response.messages for content in message.of_type("function_result")]
    return [(content.result, content.exception) for content in contents]


async def called(function: Any, arguments: dict[str, Any] | str) -> tuple[Any, str | None]:
    made = as_tool(function)
    agent = ScriptedAgent("agent", [Call(made.name, arguments), "done"], tools=[made])
    [result] = results(await agent.run("go"))
    return result


@pytest.mark.parametrize(
    ("function", "name", "description", "argument", "result"),
    [
        pytest.param(later, "later", "", "text", "x", id="async function"),
        pytest.param(Shop().price, "price", "What it costs.", "item", "x: 3", id="method"),
        pytest.param(Shop(), "Shop", "A shop.", "item", "sold x", id="object with an async __call__"),
        pytest.param(functools.partial(later), "later", "", "text", "x", id="partial"),
        pytest.param(
            functools.partial(functools.partial(Shop().price)),
            "price",
            "What it costs.",
            "item",
            "x: 3",
            id="partial of a partial",
        ),
        pytest.param(gives_a_coroutine, "gives_a_coroutine", "", "text", "x", id="function that gives a coroutine"),
    ],
)
async def test_any_callable_is_a_tool(function: Any, name: str, description: str, argument: str, result: str) -> None:
    made = as_tool(function)
    assert (made.name, made.description) == (name, description)
    assert await called(made, {argument: "x"}) == (result, None)


async def test_sync_function_runs_in_a_thread_with_the_context_of_the_caller() -> None:
    language.set("French")
    assert await called(plain, {"text": "hello"}) == ("hello in French on False", None)
    assert await called(plain, '{"text": "hello"}') == ("hello in French on False", None)


@pytest.mark.parametrize("function", [3, None, "plain"])
def test_object_that_is_not_callable_is_rejected(function: Any) -> None:
    with pytest.raises(TypeError, match="A tool is a function"):
        as_tool(function)


@pytest.mark.parametrize("arguments", ["no json", "[1]", {"wrong": 1}, {}])
async def test_invalid_arguments_are_an_error_result(arguments: Any) -> None:
    result, exception = await called(plain, arguments)
    assert result is None and exception is not None


async def test_failing_and_unknown_tools_do_not_fail_the_turn() -> None:
    def broken() -> None:
        raise RuntimeError("out of order")

    agent = ScriptedAgent("agent", [[Call("broken"), Call("unknown")], "sorry"], tools=[broken])
    response = await agent.run("go")
    assert results(response) == [(None, "RuntimeError: out of order"), (None, "No tool 'unknown' exists.")]
    assert response.messages[-1].text == "sorry"


async def test_tool_can_have_the_name_of_an_internal_record() -> None:
    def model() -> str:
        return "T"

    def turn() -> str:
        return "U"

    agent = ScriptedAgent("agent", [[Call("model"), Call("turn")], "done"], tools=[model, turn])
    result = await WorkflowBuilder(start_executor=agent).build().run("go")
    assert results(result.get_outputs()[0]) == [("T", None), ("U", None)]


# ---------------------------------------------------------------- context


def test_context_parameter_is_detected_by_every_form_of_its_annotation() -> None:
    def optional(text: str, about: ToolContext | None = None) -> None: ...
    def unreadable(text: Missing, about: ToolContext) -> None: ...  # type: ignore[name-defined]  # noqa: F821
    def none(text: str) -> None: ...

    assert [Tool(function).context_parameter for function in (optional, unreadable, none)] == ["about", "about", None]


async def test_tool_receives_its_call_and_the_same_key_in_every_attempt() -> None:
    seen: list[ToolContext] = []

    @tool(retry=RetryPolicy(3, initial_delay=0))
    def order(item: str, context: ToolContext) -> str:
        seen.append(context)
        if len(seen) < 3:
            raise ConnectionError("again")
        return context.agent_name

    agent = ScriptedAgent("buyer", [Call("order", {"item": "lamp"}, call_id="c1"), "done"], tools=[order])
    workflow = WorkflowBuilder(start_executor=agent, checkpoint_storage=InMemoryCheckpointStorage()).build()
    arguments = {"user": "ann"}
    result = await workflow.run("go", thread_id="t", function_invocation_kwargs=arguments)
    assert results(result.get_outputs()[0]) == [("buyer", None)]
    assert len(seen) == 3 and seen[0] == seen[1] == seen[2]
    assert (seen[0].call_id, seen[0].thread_id, seen[0].function_invocation_kwargs) == ("c1", "t", arguments)


@pytest.mark.parametrize("is_inside", [False, True])
async def test_tool_that_exhausts_retries_or_times_out_is_an_error_result(is_inside: bool) -> None:
    tries: list[str] = []

    @tool(retry=RetryPolicy(2, initial_delay=0))
    def failing() -> None:
        tries.append("failing")
        raise ConnectionError("no line")

    @tool(timeout=0.01)
    async def slow() -> None:
        await asyncio.Event().wait()

    agent = ScriptedAgent("agent", [[Call("failing"), Call("slow")], "done"], tools=[failing, slow])
    if is_inside:
        response = (await WorkflowBuilder(start_executor=agent).build().run("go")).get_outputs()[0]
    else:
        response = await agent.run("go")
    (_, failed), (_, late) = results(response)
    assert failed == "ConnectionError: no line" and len(tries) == 2
    assert late is not None and late.startswith("TimedOut") and "did not end within 0.01 s" in late


async def test_agent_called_by_a_tool_is_not_in_the_stream_of_the_caller() -> None:
    other = ScriptedAgent("other", ["a secret"])

    async def ask(question: str) -> str:
        return (await other.run(question)).text

    stream = ScriptedAgent("agent", [Call("ask", {"question": "?"}), "done"], tools=[ask]).run("go", stream=True)
    updates = [update async for update in stream]
    assert {update.author_name for update in updates} == {"agent", None}
    assert AgentResponse.from_updates(updates) == await stream.get_final_response()


# ---------------------------------------------------------------- approval


def expensive(arguments: Mapping[str, Any]) -> bool:
    return bool(arguments["amount"] > 10)


def pay(amount: int) -> str:
    return f"paid {amount}"


def paying(storage: Any = None, *, log: Path | None = None) -> Workflow:
    calls = [Call("pay", {"amount": amount}) for amount in (5, 50, 500)]
    payer = ScriptedAgent("payer", [calls, "done"], tools=[Tool(pay, approval=expensive)], log=log)
    return WorkflowBuilder(name="paying", start_executor=payer, checkpoint_storage=storage).build()


async def test_predicate_selects_calls_for_approval_and_several_can_wait(tmp_path: Path) -> None:
    storage, log = InMemoryCheckpointStorage(), tmp_path / "log"
    result = await paying(storage, log=log).run("go", thread_id="t")
    first, second = result.get_request_info_events()
    amounts = [event.data.function_call.parse_arguments()["amount"] for event in (first, second)]
    assert amounts == [50, 500]
    result = await paying(storage, log=log).run(responses={second.request_id: second.data.reject()}, thread_id="t")
    assert [event.request_id for event in result.get_request_info_events()] == [first.request_id]
    answer = first.data.approve({"amount": 49})
    result = await paying(storage, log=log).run(responses={first.request_id: answer}, thread_id="t")
    expected = [("paid 5", None), ("paid 49", None), (None, "Rejected: The call was not approved.")]
    assert results(result.get_outputs()[0]) == expected
    assert sorted(begun(log)) == [
        "payer: call payer-0-1",
        "payer: call payer-0-2",
        "payer: request 0",
        "payer: request 1",
    ]


async def test_approvals_survive_a_crash_at_every_write() -> None:
    survival = await assert_survives_crash(paying, "go", answers=lambda event: event.data.approve())
    assert len(survival.points) > 12


CALL = Content.from_function_call("c1", "pay", arguments={"amount": 50})


@pytest.mark.parametrize(
    "answer",
    [
        "yes",
        True,
        {},
        {"approved": "yes"},
        {"approved": True, "arguments": "{bad"},
        Content.from_text("sure"),
        Content("function_approval_response", id="x"),
        Content.from_function_approval_request("x", CALL),
        Content.from_function_approval_request("x", CALL).approve("no json"),
    ],
)
async def test_invalid_approval_answer_is_rejected_and_the_request_stays(answer: Any) -> None:
    storage = InMemoryCheckpointStorage()
    [first, _] = (await paying(storage).run("go", thread_id="t")).get_request_info_events()
    with pytest.raises(AnswerRejected):
        await paying(storage).run(responses={first.request_id: answer}, thread_id="t")
    assert len((await paying(storage).run(thread_id="t")).get_request_info_events()) == 2


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"approved": True}, ("paid 50", None)),
        ({"approved": True, "arguments": {"amount": 49}}, ("paid 49", None)),
        ({"approved": False, "reason": "no"}, (None, "Rejected: no")),
        (Content("function_approval_response", approved=True), ("paid 50", None)),
    ],
)
async def test_approval_answer_can_be_plain_data(answer: Any, expected: Any) -> None:
    storage = InMemoryCheckpointStorage()
    first, second = (await paying(storage).run("go", thread_id="t")).get_request_info_events()
    answers = {first.request_id: answer, second.request_id: second.data.reject("too much")}
    result = await paying(storage).run(responses=answers, thread_id="t")
    assert results(result.get_outputs()[0])[1] == expected


async def test_the_same_agent_twice_at_once_asks_twice() -> None:
    payer = ScriptedAgent("payer", [Call("pay", {"amount": 50}), "done"], tools=[Tool(pay, approval=True)])

    class Twice(Executor):
        @handler
        async def go(self, text: str, ctx: WorkflowContext[Any, str]) -> None:
            first, second = await asyncio.gather(payer.run(text), payer.run(text))
            await ctx.yield_output(f"{results(first)} {results(second)}")

    workflow = WorkflowBuilder(start_executor=Twice("twice"), checkpoint_storage=InMemoryCheckpointStorage()).build()
    result = await workflow.run("go", thread_id="t")
    requests = result.get_request_info_events()
    assert len({event.request_id for event in requests}) == 2
    answers = {
        requests[0].request_id: requests[0].data.approve(),
        requests[1].request_id: requests[1].data.reject("no"),
    }
    result = await workflow.run(responses=answers, thread_id="t")
    assert result.get_outputs() == ["[('paid 50', None)] [(None, 'Rejected: no')]"]


async def test_approval_outside_of_a_workflow_raises() -> None:
    payer = ScriptedAgent("payer", [Call("pay", {"amount": 50}), "done"], tools=[Tool(pay, approval=True)])
    with pytest.raises(ApprovalNeeded, match="'pay' needs approval") as caught:
        await payer.run("go")
    assert caught.value.request.user_input_request


def test_async_predicate_is_rejected() -> None:
    async def ask(arguments: Mapping[str, Any]) -> bool:
        return True

    with pytest.raises(TypeError, match="which is async"):
        Tool(pay, approval=ask)  # type: ignore[arg-type]


async def test_tool_that_ends_the_turn_is_its_last_step_unless_it_failed() -> None:
    ending = Tool(pay, ends_turn=True)
    agent = ScriptedAgent("agent", [Call("pay", {"amount": 1}), "never said"], tools=[ending])
    assert [message.role for message in (await agent.run("go")).messages] == ["assistant", "tool"]
    script: list[Any] = [Call("pay", {"price": 1}), Call("pay", {"amount": 1}), "never said"]
    response = await ScriptedAgent("agent", script, tools=[ending]).run("go")
    (_, refused), paid = results(response)
    assert refused is not None and paid == ("paid 1", None)
