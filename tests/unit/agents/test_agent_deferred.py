"""Tools that are only declared: the caller provides their results, in a workflow and without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pydantic_ai
import pytest
from pydantic_ai.exceptions import CallDeferred
from pydantic_ai.messages import ModelMessage, ToolCallPart, ToolReturnPart
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ExternalToolset
from tests.unit.agents.agent_models import Script, call, last_contents

from perdure import SqliteCheckpointStorage, Workflow, WorkflowBuilder
from perdure.agents import AgentResponse, AgentSession, Content, Message, tool
from perdure.agents.pydantic.agent import Agent
from perdure.errors import InvalidRun
from perdure.events import WorkflowRunState
from perdure.workflows.agent import WorkflowAgent

LOOKS = [call("look", {"place": place}, f"c{place}") for place in (1, 2)]
PENDING = WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
EXTERNAL = ExternalToolset[Any](
    [ToolDefinition(name="look", parameters_json_schema={"type": "object", "properties": {"place": {}}})]
)


class Desk:
    """An agent whose `look` and `later` run outside, and `post` too, once it is approved. `pay` needs
    approval, `add` is just called."""

    def __init__(self, replies: Any, folder: Path | None = None) -> None:
        self.script = Script(replies)
        self.done: list[str] = []
        self.folder = folder
        self.session = AgentSession()

    def agent(self) -> Agent:
        @tool(approval=True)
        def pay(amount: int) -> str:
            self.done.append(f"paid {amount}")
            return f"paid {amount}"

        def add(number: int) -> int:
            self.done.append(f"added {number}")
            return number + 1

        def later(number: int) -> int:
            self.done.append(f"sent {number}")
            raise CallDeferred

        def post(number: int) -> int:
            self.done.append(f"posted {number}")
            raise CallDeferred

        tools = [pay, add, later, pydantic_ai.Tool(post, requires_approval=True)]
        return Agent(self.script.model(), name="clerk", tools=tools, toolsets=[EXTERNAL])

    def flow(self) -> Workflow:
        """A new one each time, as in another process."""
        assert self.folder is not None
        storage = SqliteCheckpointStorage(self.folder / "threads.db", synchronous="NORMAL")
        return WorkflowBuilder(
            start_executor=self.agent(), checkpoint_storage=storage, name="desk", output_from="all"
        ).build()

    async def ask(self, text: str = "Look.") -> dict[str, Any]:
        """By call id, or the id of the call to approve: the request's event."""
        result = await self.flow().run(text, thread_id="t")
        assert result.get_final_state() == PENDING
        return _by_call(result)

    async def answer(self, responses: dict[str, Any]) -> Any:
        return await self.flow().run(thread_id="t", responses=responses)

    async def run(self, *contents: Any, role: str = "tool") -> AgentResponse:
        """Outside of a workflow. The session comes back from wherever it was kept."""
        self.session = AgentSession.from_dict(self.session.to_dict())
        return await self.agent().run(Message(role, contents), session=self.session)


def _by_call(result: Any) -> dict[str, Any]:
    events = {}
    for event in result.get_request_info_events():
        asked: Content = event.data
        events[str(asked.call_id or (asked.function_call and asked.function_call.call_id))] = event
    return events


def _last(result: Any) -> AgentResponse:
    assert result.get_final_state() == WorkflowRunState.IDLE
    response: AgentResponse = result.get_outputs()[-1]
    return response


def _results(messages: list[ModelMessage]) -> dict[str, tuple[Any, str]]:
    parts = [part for message in messages for part in message.parts]
    return {part.tool_call_id: (part.content, part.outcome) for part in parts if isinstance(part, ToolReturnPart)}


def _calls(messages: list[ModelMessage]) -> list[str]:
    return [part.tool_call_id for message in messages for part in message.parts if isinstance(part, ToolCallPart)]


# ---------------------------------------------------------------- in a workflow


async def test_external_call_is_a_request_and_its_answer_is_the_result(tmp_path: Path) -> None:
    desk = Desk([LOOKS[0], "Seen.", "And on."], tmp_path)
    event = (await desk.ask())["c1"]
    request: Content = event.data
    assert (request.type, request.name, request.parse_arguments()) == ("function_call", "look", {"place": 1})
    assert request.user_input_request
    response = _last(await desk.answer({event.request_id: {"seen": [1, None]}}))
    assert response.text == "Seen."
    assert response.user_input_requests == []
    assert last_contents(desk.script.received[-1]) == [{"seen": [1, None]}]
    assert desk.script.requests == 2


async def test_thread_continues_after_the_result(tmp_path: Path) -> None:
    desk = Desk([LOOKS[0], "Seen.", LOOKS[1], "Seen too."], tmp_path)
    event = (await desk.ask())["c1"]
    await desk.answer({event.request_id: 1})
    event = (await desk.ask("Again."))["c2"]
    assert _last(await desk.answer({event.request_id: 2})).text == "Seen too."
    assert _results(desk.script.received[-1]) == {"c1": (1, "success"), "c2": (2, "success")}
    assert _calls(desk.script.received[-1]) == ["c1", "c2"]


@pytest.mark.parametrize("value", [None, 0, "", "text", True, 1.5, [1, {"a": None}], {"type": "function_result"}])
async def test_any_value_of_json_is_a_result(tmp_path: Path, value: Any) -> None:
    desk = Desk([LOOKS[0], "Seen."], tmp_path)
    event = (await desk.ask())["c1"]
    assert _last(await desk.answer({event.request_id: value})).text == "Seen."
    assert last_contents(desk.script.received[-1]) == [value]


async def test_function_result_answers_with_its_value_or_its_error(tmp_path: Path) -> None:
    desk = Desk([LOOKS, "Seen."], tmp_path)
    events = await desk.ask()
    good = Content.from_function_result("c1", result=[7])
    bad = Content.from_function_result("c2", exception=ValueError("nobody is in"))
    response = _last(await desk.answer({events["c1"].request_id: good, events["c2"].request_id: bad}))
    assert _results(desk.script.received[-1]) == {"c1": ([7], "success"), "c2": ("nobody is in", "failed")}
    results = [content for message in response.messages for content in message.of_type("function_result")]
    assert [(content.call_id, content.result, content.exception) for content in results] == [
        ("c1", [7], None),
        ("c2", None, "nobody is in"),
    ]


async def test_several_external_calls_are_answered_one_by_one(tmp_path: Path) -> None:
    desk = Desk([LOOKS, "Seen."], tmp_path)
    events = await desk.ask()
    result = await desk.answer({events["c2"].request_id: "two"})
    assert result.get_final_state() == PENDING
    assert list(_by_call(result)) == ["c1"]
    assert desk.script.requests == 1
    assert _last(await desk.answer({events["c1"].request_id: "one"})).text == "Seen."
    assert _results(desk.script.received[-1]) == {"c1": ("one", "success"), "c2": ("two", "success")}


async def test_a_tool_that_defers_its_call_is_called_once(tmp_path: Path) -> None:
    desk = Desk([call("later", {"number": 3}, "c3"), "Seen."], tmp_path)
    event = (await desk.ask())["c3"]
    assert _last(await desk.answer({event.request_id: 4})).text == "Seen."
    assert desk.done == ["sent 3"]
    assert last_contents(desk.script.received[-1]) == [4]


MIXED = [
    call("pay", {"amount": 5}, "p"),
    *LOOKS,
    call("add", {"number": 1}, "a"),
    call("later", {"number": 3}, "l"),
]


async def test_external_calls_mix_with_approvals_and_ordinary_calls(tmp_path: Path) -> None:
    desk = Desk([MIXED, "Done."], tmp_path)
    answers = {"p": lambda request: request.reject("too much"), "c1": 1, "c2": 2, "l": 3}
    asked: set[str] = set()
    result = await desk.flow().run("Go.", thread_id="t")
    while result.get_final_state() == PENDING:  # a workflow object of its own for each answer
        name, event = next(iter(_by_call(result).items()))
        asked.add(name)
        answer: Any = answers[name]
        result = await desk.answer({event.request_id: answer(event.data) if callable(answer) else answer})
    assert asked == answers.keys()
    assert _last(result).text == "Done."
    assert sorted(desk.done) == ["added 1", "sent 3"]
    contents = {name: content for name, (content, _) in _results(desk.script.received[-1]).items()}
    assert contents == {"p": "too much", "c1": 1, "c2": 2, "a": 2, "l": 3}
    assert desk.script.requests == 2


POST = [call("post", {"number": 1}, "c1"), call("add", {"number": 1}, "a"), LOOKS[1]]


async def test_deferred_call_that_needs_approval_makes_two_requests(tmp_path: Path) -> None:
    desk = Desk([POST, "Done."], tmp_path)
    events = await desk.ask()
    approval = events["c1"]
    result = await desk.answer({approval.request_id: approval.data.approve(), events["c2"].request_id: 2})
    assert result.get_final_state() == PENDING
    event = _by_call(result)["c1"]
    assert event.data.type == "function_call"
    assert _last(await desk.answer({event.request_id: "posted"})).text == "Done."
    assert sorted(desk.done) == ["added 1", "posted 1"]
    assert {name: result[0] for name, result in _results(desk.script.received[-1]).items()} == {
        "c1": "posted",
        "a": 2,
        "c2": 2,
    }


async def test_reused_call_id_is_another_request(tmp_path: Path) -> None:
    desk = Desk([LOOKS[0], call("look", {"place": 9}, "c1"), "Seen."], tmp_path)
    first = (await desk.ask())["c1"]
    result = await desk.answer({first.request_id: "one"})
    second = _by_call(result)["c1"]
    assert second.request_id != first.request_id
    assert _last(await desk.answer({second.request_id: "two"})).text == "Seen."
    assert [last_contents(messages) for messages in desk.script.received[1:]] == [["one"], ["two"]]


async def test_a_workflow_as_an_agent_asks_for_the_result(tmp_path: Path) -> None:
    desk = Desk([LOOKS[0], "Seen."], tmp_path)
    session = AgentSession(session_id="t")
    (request,) = (await WorkflowAgent(desk.flow()).run("Look.", session=session)).user_input_requests
    assert (request.type, request.name) == ("function_call", "look")
    answer = Message("tool", [Content.from_function_result(str(request.call_id), result=42)])
    assert (await WorkflowAgent(desk.flow()).run(answer, session=session)).text == "Seen."
    assert last_contents(desk.script.received[-1]) == [42]


# ---------------------------------------------------------------- outside of a workflow


@pytest.mark.parametrize("role", ["tool", "user"])
async def test_the_response_asks_and_the_next_run_answers(role: str) -> None:
    desk = Desk([[*LOOKS, call("add", {"number": 1}, "a")], "Seen.", "And on."])
    response = await desk.run("Look.", role="user")
    assert [request.call_id for request in response.user_input_requests] == ["c1", "c2"]
    assert {request.type for request in response.user_input_requests} == {"function_call"}
    bad = Content.from_function_result("c2", exception="nobody is in")
    response = await desk.run(Content.from_function_result("c1", result={"a": 1}), bad, role=role)
    assert response.text == "Seen."
    received = desk.script.received[-1]
    assert _results(received) == {"a": (2, "success"), "c1": ({"a": 1}, "success"), "c2": ("nobody is in", "failed")}
    assert _calls(received) == ["c1", "c2", "a"]
    assert (await desk.run("Thanks.", role="user")).text == "And on."
    assert _calls(desk.script.received[-1]) == ["c1", "c2", "a"]


async def test_ordinary_calls_ask_for_nothing() -> None:
    desk = Desk([call("add", {"number": 1}, "a"), "Added."])
    response = await desk.run("Add.", role="user")
    calls = [content for message in response.messages for content in message.of_type("function_call")]
    assert [content.user_input_request for content in calls] == [None]
    assert response.user_input_requests == []


async def test_a_call_that_is_a_request_is_the_same_in_json() -> None:
    response = await Desk([LOOKS[0]]).run("Look.", role="user")
    assert AgentResponse.from_dict(response.to_dict()) == response
    (request,) = AgentResponse.from_json(response.to_json()).user_input_requests
    assert Content.from_dict(request.to_dict()) == request
    assert request.to_dict()["user_input_request"] is True


async def test_conversation_without_a_session_is_passed_again_in_full() -> None:
    desk = Desk([LOOKS[0], "Seen."])
    response = await desk.agent().run("Look.")
    answer = Message("tool", [Content.from_function_result("c1", result=1)])
    assert (await desk.agent().run(["Look.", *response.messages, answer])).text == "Seen."
    assert _calls(desk.script.received[-1]) == ["c1"]


async def test_missing_result_is_requested_again_without_a_model_request() -> None:
    desk = Desk([LOOKS, "Seen."])
    first, _ = (await desk.run("Look.", role="user")).user_input_requests
    assert (await desk.run(Content.from_function_result("c2", result=2))).user_input_requests == [first]
    assert (await desk.agent().run(session=desk.session)).user_input_requests == [first]
    assert desk.script.requests == 1
    assert (await desk.run(Content.from_function_result("c1", result=1))).text == "Seen."
    assert _results(desk.script.received[-1]) == {"c1": (1, "success"), "c2": (2, "success")}


@pytest.mark.parametrize("is_at_once", [True, False])
async def test_results_and_approvals_are_answered_in_any_order(is_at_once: bool) -> None:
    desk = Desk([MIXED, "Done."])
    response = await desk.run("Go.", role="user")
    requests = {request.call_id or "p": request for request in response.user_input_requests}
    assert requests.keys() == {"p", "c1", "c2", "l"}
    results = [Content.from_function_result(call_id, result=call_id) for call_id in ("l", "c1", "c2")]
    answers = [results[0], requests["p"].approve(), *results[1:]]
    if is_at_once:
        response = await desk.run(*answers, role="user")
    for place, answer in enumerate([] if is_at_once else answers):
        assert len(response.user_input_requests) == len(answers) - place
        assert desk.script.requests == 1
        response = await desk.run(answer, role="user")
    assert response.text == "Done."
    assert sorted(desk.done[:2]) == ["added 1", "sent 3"]
    assert desk.done[2:] == ["paid 5"]
    contents = {name: content for name, (content, _) in _results(desk.script.received[-1]).items()}
    assert contents == {"p": "paid 5", "c1": "c1", "c2": "c2", "a": 2, "l": "l"}


async def test_approved_deferred_call_is_not_repeated_before_its_result() -> None:
    desk = Desk([POST, "Done."])
    approval, _ = (await desk.run("Go.", role="user")).user_input_requests
    answers = approval.approve(), Content.from_function_result("c2", result=2)
    (request,) = (await desk.run(*answers, role="user")).user_input_requests
    assert (request.type, request.call_id) == ("function_call", "c1")
    assert (await desk.agent().run(session=desk.session)).user_input_requests == [request]
    with pytest.raises(InvalidRun, match=r"calls of 'post', and got another"):
        await desk.run("Hello?", role="user")
    assert (await desk.run(Content.from_function_result("c1", result="posted"))).text == "Done."
    assert desk.done == ["added 1", "posted 1"]
    assert {name: result[0] for name, result in _results(desk.script.received[-1]).items()} == {
        "c1": "posted",
        "a": 2,
        "c2": 2,
    }


async def test_a_call_id_of_an_earlier_turn_is_another_call() -> None:
    desk = Desk([LOOKS[0], "Seen.", call("look", {"place": 9}, "c1"), "Seen too."])
    for place, text in ((1, "Seen."), (9, "Seen too.")):
        (request,) = (await desk.run("Look.", role="user")).user_input_requests
        assert request.parse_arguments() == {"place": place}
        assert (await desk.run(Content.from_function_result("c1", result=place))).text == text
        assert last_contents(desk.script.received[-1]) == [place]
    assert _calls(desk.script.received[-1]) == ["c1", "c1"]


async def test_input_other_than_a_result_is_rejected_and_session_is_unchanged() -> None:
    desk = Desk([LOOKS[0], "Seen."])
    await desk.run("Look.", role="user")
    before = desk.session.version
    with pytest.raises(InvalidRun, match=r"calls of 'look'.*Content\.from_function_result") as raised:
        await desk.run("Hello?", role="user")
    assert "approve" not in str(raised.value)
    assert desk.session.version == before
    assert (await desk.run(Content.from_function_result("c1", result=1))).text == "Seen."


async def test_streamed_updates_join_to_the_response() -> None:
    desk = Desk([["Wait.", *LOOKS], "Seen."])
    stream = desk.agent().run("Look.", stream=True, session=desk.session)
    updates = [update async for update in stream]
    response = await stream.get_final_response()
    assert AgentResponse.from_updates(updates) == response
    assert [request.call_id for update in updates for request in update.user_input_requests] == ["c1", "c2"]


async def test_session_that_waits_for_a_result_continues_in_a_workflow(tmp_path: Path) -> None:
    desk = Desk([LOOKS, "Seen."], tmp_path)
    waiting = await desk.run("Look.", role="user")
    messages = [Message("user", ["Look."]), *waiting.messages]
    result = await desk.flow().run(messages, thread_id="t")
    events = _by_call(result)
    assert events.keys() == {"c1", "c2"}
    response = _last(await desk.answer({event.request_id: name for name, event in events.items()}))
    assert response.text == "Seen."
    assert _results(desk.script.received[-1]) == {"c1": ("c1", "success"), "c2": ("c2", "success")}
    assert _calls(desk.script.received[-1]) == ["c1", "c2"]


# ---------------------------------------------------------------- bytes


async def test_bytes_inside_results_reach_the_model_in_base64() -> None:
    def fetch(kind: str) -> Any:
        value = {"name": b"abc", "bytes": b"\xff"}
        return {"plain": b"abc", "dict": value, "return": pydantic_ai.ToolReturn(value)}[kind]

    script = Script([[call("fetch", {"kind": kind}, kind) for kind in ("plain", "dict", "return")], "Done."])
    response = await Agent(script.model(), name="clerk", tools=[fetch]).run("Fetch.")
    assert response.text == "Done."
    encoded = {"name": "YWJj", "bytes": "_w=="}
    assert _results(script.received[-1]) == {
        "plain": ("abc", "success"),
        "dict": (encoded, "success"),
        "return": (encoded, "success"),
    }
