"""The tools of an agent, each call a recorded step under its call id, some of them only if somebody agrees."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic_ai
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.messages import ModelResponse, ToolReturn, ToolReturnContent
from pydantic_ai.tools import RunContext
from pydantic_ai.toolsets import FunctionToolset, ToolsetTool, WrapperToolset
from pydantic_core import PydanticSerializationError, to_json

from perdure.agents.conversation.content import Content
from perdure.agents.pydantic.messages import as_builtin
from perdure.agents.pydantic.model import RecordingModel
from perdure.agents.tools import ApprovalNeeded, Rejected, Tool, ToolContext, approved, performed

CONTENT: TypeAdapter[Any] = TypeAdapter(ToolReturnContent)
RETURN: TypeAdapter[Any] = TypeAdapter(ToolReturn)
BINARY: TypeAdapter[Any] = TypeAdapter(ToolReturnContent, config=ConfigDict(ser_json_bytes="base64"))
"""For what holds bytes that are no text. Their base64 is URL-safe."""
RAISED = {"retry": ModelRetry, "failed": ToolFailed, "approval": ApprovalRequired, "deferred": CallDeferred}
"""What a tool may raise to say something of its call, as it is recorded."""


class ToolCalls:
    """What was called in one turn."""

    def __init__(self, model: RecordingModel) -> None:
        self._model = model
        self._used: dict[str, list[int]] = {}
        """By call id: the requests to the model that gave calls of it."""
        self.made: set[str] = set()
        """By call id: those that were not taken from the record."""
        self.ended_by: set[str] = set()
        """By call id: those of tools that end the turn."""
        self.finished: dict[str, bool] = {}
        """By the name of each call that was begun: whether there is something to tell the model of it."""

    def name_of(self, call_id: str) -> str:
        """What tells a call from the others of the turn: its id, though some models use one again."""
        used = self._used.setdefault(call_id, [])
        if self._model.requests not in used:
            used.append(self._model.requests)
        number = used.index(self._model.requests) + 1
        return call_id if number == 1 else f"{call_id} #{number}"


@dataclass
class RecordingToolset(WrapperToolset[Any]):  # type: ignore[misc]  # pydantic-ai is not looked at
    """Another toolset, for one turn of an agent: a call that was recorded is not made again."""

    agent_name: str
    tools: Mapping[str, Tool]
    """Those that are ours, by name."""
    calls: ToolCalls

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        call_name = self.calls.name_of(str(ctx.tool_call_id))
        finished = self.calls.finished
        finished[call_name] = False
        try:
            result = await self._call(name, tool_args, ctx, tool)
        except ToolFailed:
            finished[call_name] = True
            raise
        except Exception:
            del finished[call_name]  # it is not for the model, or the model is to make it again
            raise
        finished[call_name] = True
        return result

    async def _call(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]) -> Any:
        call = _as_call(name, ctx, self.calls.name_of(str(ctx.tool_call_id)))
        own = self.tools.get(name)

        async def do(arguments: Mapping[str, Any], context: ToolContext) -> Any:
            if own is not None:
                return await own.call(arguments, context)
            return await self.wrapped.call_tool(name, dict(arguments), ctx, tool)

        def begin() -> None:
            self.calls.made.add(str(ctx.tool_call_id))

        made = _Made(own, name, do)
        try:
            arguments = await self._agreed(made, call, tool_args, ctx, tool)
            told = await performed(made, call, arguments, self.agent_name, begin)
        except ApprovalNeeded as error:
            raise ApprovalRequired from error
        except ToolFailed:
            raise
        except Rejected as error:
            raise ToolFailed(str(error)) from error
        except Exception as error:  # whatever a tool raises is for the model to deal with
            raise ToolFailed(_described(error)) from error
        if made.ends_turn:
            self.calls.ended_by.add(str(ctx.tool_call_id))
        return _result(told)

    async def _agreed(
        self, made: Tool, call: Content, given: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> dict[str, Any]:
        if ctx.tool_call_approved:
            return given
        asked = call.parse_arguments()
        agreed = await approved(made, call, asked)
        if agreed == asked:
            return given
        try:
            found: dict[str, Any] = tool.args_validator.validate_python(dict(agreed))
        except ValidationError as error:
            raise ToolFailed(f"The call was approved with arguments that do not fit: {error}") from error
        return found


class _NotMade(Exception):
    """A call that is not in the record."""


async def finished_calls(response: ModelResponse, calls: ToolCalls, agent_name: str) -> set[str]:
    """Ids of the calls in the model's last answer that came to an end, good or bad. One that was cut short because
    another failed may have been recorded nevertheless."""
    found: set[str] = set()
    for part in response.tool_calls:
        name = calls.name_of(part.tool_call_id)
        is_finished = calls.finished.get(name)
        if is_finished or (is_finished is False and await _is_recorded(part.tool_name, name, agent_name)):
            found.add(part.tool_call_id)
    return found


async def _is_recorded(tool_name: str, call_name: str, agent_name: str) -> bool:
    async def refuse(arguments: Mapping[str, Any], context: ToolContext) -> Any:
        raise _NotMade(f"The call {call_name!r} of {tool_name!r} was cut short.")

    call = Content.from_function_call(call_name, tool_name)
    try:
        _result(await performed(_Made(None, tool_name, refuse), call, {}, agent_name))
    except (_NotMade, ModelRetry, ApprovalRequired, CallDeferred):
        return False
    except Exception:  # noqa: BLE001  # whatever the tool raised is told to the model
        return True
    return True


class _Made(Tool):
    """A tool whose outcome can be recorded: JSON, whatever it gives or raises."""

    def __init__(self, own: Tool | None, name: str, do: Callable[[Mapping[str, Any], ToolContext], Any]) -> None:
        options: dict[str, Any] = {}
        if own is not None:
            options = {"approval": own.approval, "retry": own.retry, "timeout": own.timeout}
            options["ends_turn"] = own.ends_turn
        super().__init__(do, name=name, description="", **options)

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        try:
            result = await self.function(arguments, context)
        except ApprovalRequired as error:
            return _json({"approval": error.metadata})
        except CallDeferred as error:
            return _json({"deferred": error.metadata})
        except ModelRetry as error:
            return _json({"retry": error.message})
        except ToolFailed as error:
            return _json({"failed": error.message})
        except Exception as error:
            if self.retry is not None:  # it is tried again first
                raise
            return _json({"failed": _described(error)})
        return _recordable(result)


def as_result(given: Any) -> Any:
    """What the model is told of a result that somebody else gave: the same as if a tool had given it."""
    return _result(_recordable(given))


def _recordable(result: Any) -> str:
    kind, adapter = ("returned", RETURN) if isinstance(result, ToolReturn) else ("content", CONTENT)
    given = msgspec.to_builtins(result) if isinstance(result, msgspec.Struct) else result
    try:
        told = adapter.dump_json(given, fallback=as_builtin)
    except PydanticSerializationError:  # bytes that are no UTF-8
        told = BINARY.dump_json(given, fallback=as_builtin)
    return f'{{"{kind}":{told.decode()}}}'


def _result(told: str) -> Any:
    """Raises what the tool raised."""
    found = msgspec.json.decode(told, type=dict[str, msgspec.Raw])
    if "content" in found:
        return CONTENT.validate_json(bytes(found["content"]))
    if "returned" in found:
        return RETURN.validate_json(bytes(found["returned"]))
    kind, message = next(iter(found.items()))
    raise RAISED[kind](msgspec.json.decode(message))


def _json(value: Any) -> str:
    return to_json(value).decode()


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _as_call(name: str, ctx: RunContext[Any], call_id: str) -> Content:
    """The call as the model made it. Once it is approved it is another step than the attempt that asked for that."""
    response = next((message for message in reversed(ctx.messages) if isinstance(message, ModelResponse)), None)
    calls = () if response is None else response.tool_calls
    arguments = next((call.args for call in calls if call.tool_call_id == ctx.tool_call_id), None)
    call_id = f"{call_id} approved" if ctx.tool_call_approved else call_id
    return Content.from_function_call(call_id, name, arguments=arguments)


# ---------------------------------------------------------------- our tools as theirs


def toolset_of(tools: Iterable[Tool], max_retries: int) -> FunctionToolset[Any]:
    """What the model sees of our tools."""
    return FunctionToolset([_as_theirs(tool) for tool in tools], max_retries=max_retries)


def _as_theirs(tool: Tool) -> pydantic_ai.Tool[Any]:
    is_own_text = tool.description != (inspect.getdoc(tool.function) or "")
    return pydantic_ai.Tool(
        _visible(tool),
        name=tool.name,
        description=tool.description if is_own_text else None,  # parsed: what it says of parameters goes to them
        takes_ctx=False,
    )


def _visible(tool: Tool) -> Callable[..., Any]:
    """The function as the model sees it: without the parameter that takes the ToolContext, and without the type of its
    result, which may be one that pydantic does not know."""
    try:
        signature = inspect.signature(tool.function, eval_str=True)
    except NameError:  # types that are there only for checkers: pydantic-ai makes of it what it can
        return tool.function
    parameters = [parameter for name, parameter in signature.parameters.items() if name != tool.context_parameter]

    def visible(**arguments: Any) -> None:
        """Never called: only its signature is looked at."""

    visible.__name__ = tool.name
    visible.__doc__ = inspect.getdoc(tool.function)
    visible.__module__ = getattr(tool.function, "__module__", __name__)
    visible.__annotations__ = {
        parameter.name: parameter.annotation for parameter in parameters if parameter.annotation is not parameter.empty
    }
    bare = signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
    visible.__signature__ = bare  # type: ignore[attr-defined]
    return visible
