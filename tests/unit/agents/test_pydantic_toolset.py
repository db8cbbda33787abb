"""Toolsets of pydantic-ai, an MCP server among them: their calls are recorded like those of our own tools."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Self

import pydantic_ai
import pytest
from mcp import Client, StdioServerParameters
from pydantic_ai.messages import BinaryImage, ModelResponse, ToolReturn
from pydantic_ai.tools import RunContext, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema
from tests.unit.agents.agent_models import Script, call, last_contents, note, notes
from tests.unit.agents.test_agent_in_workflows import Boom, flow, last

from perdure.agents import tool
from perdure.agents.pydantic.agent import Agent

ROOT = Path(__file__).parents[3]


class ServerToolset(AbstractToolset[Any]):  # type: ignore[misc]  # pydantic-ai is not looked at
    """The tools of an MCP server in a process of its own. (pydantic-ai's own class for it needs another package.)"""

    def __init__(self, log: Path) -> None:
        arguments = ["-m", "tests.unit.agents.mcp_server", str(log)]
        self._server = StdioServerParameters(command=sys.executable, args=arguments, cwd=ROOT)
        self._client: Any = None

    @property
    def id(self) -> str:
        return "weather"

    async def __aenter__(self) -> Self:
        self._client = Client(self._server)
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        await self._client.__aexit__(*error)
        return None

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        listed = await self._client.list_tools()
        return {
            tool.name: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=tool.name, description=tool.description, parameters_json_schema=tool.input_schema
                ),
                max_retries=1,
                args_validator=SchemaValidator(core_schema.dict_schema(core_schema.str_schema())),
            )
            for tool in listed.tools
        }

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
        result = await self._client.call_tool(name, tool_args)
        return result.content[0].text


def died_at(place: int, script: Script) -> Script:
    """Return a script that raises Boom at the request with this number."""

    class Dying(Script):
        def _next(self, messages: Any, info: Any) -> list[Any]:
            if sum(isinstance(message, ModelResponse) for message in messages) == place:
                raise Boom
            return super()._next(messages, info)

    return Dying(script._replies)


async def test_mcp_call_is_not_repeated_after_a_pause_in_the_middle_of_the_turn(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    calls = [call("forecast", {"town": "Ulm"}, "c1"), call("book", {"town": "Ulm"}, "c2")]
    script = Script([calls, "Take a coat."])

    @tool(approval=True)
    def book(town: str) -> str:
        return f"booked {town}"

    def agent() -> Agent:
        return Agent(script.model(), name="guide", tools=[book], toolsets=[ServerToolset(log)])

    (request,) = (await flow(agent(), tmp_path).run("Weather?", thread_id="t")).get_request_info_events()
    assert notes(log) == [{"asked": "Ulm"}]
    answer = {request.request_id: request.data.approve()}
    result = await flow(agent(), tmp_path).run(responses=answer, thread_id="t")
    assert last(result).text == "Take a coat."
    assert last_contents(script.received[1]) == ["Rain in Ulm.", "booked Ulm"]
    assert notes(log) == [{"asked": "Ulm"}]
    assert script.requests == 2


async def test_tool_results_and_retries_replay_unchanged_from_the_record(tmp_path: Path) -> None:
    picture = BinaryImage(b"\xff\xfe\x00", media_type="image/png")

    def look() -> ToolReturn[Any]:
        note(tmp_path / "log", looked=True)
        return ToolReturn({"seen": [1.5, None]}, content=["Here it is:", picture], metadata={"by": "camera"})

    def retry() -> str:
        note(tmp_path / "log", retried=True)
        raise pydantic_ai.ModelRetry("Look again.")

    script = Script([[call("look", {}, "c1"), call("retry", {}, "c2")], "Seen."])
    doomed = Agent(died_at(1, script).model(), name="eye", toolsets=[FunctionToolset([look, retry])])
    with pytest.raises(Boom):
        await flow(doomed, tmp_path).run("Look.", thread_id="t")
    agent = Agent(script.model(), name="eye", toolsets=[FunctionToolset([look, retry])])
    result = await flow(agent, tmp_path).run(thread_id="t")
    assert last(result).messages[-1].text == "Seen."
    contents = [part.content for part in script.received[0][-1].parts]
    assert {"seen": [1.5, None]} in contents
    assert ["Here it is:", picture] in contents
    assert any("Look again." in str(content) for content in contents)
    assert sorted(notes(tmp_path / "log"), key=str) == [{"looked": True}, {"retried": True}]


async def test_pydantic_ai_tool_can_be_used_among_our_tools() -> None:
    def with_context(ctx: RunContext[Any], number: int) -> str:
        return f"{ctx.tool_name} {number}"

    script = Script([call("with_context", {"number": 1}, "c1"), "Good."])
    await Agent(script.model(), name="eye", tools=[pydantic_ai.Tool(with_context)]).run("Go")
    assert last_contents(script.received[1]) == ["with_context 1"]
