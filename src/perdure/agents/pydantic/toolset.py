"""The tools of an agent: each call is a recorded step under its call id, and may need approval."""

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

from perdure.agents.conversation.message import Content
from perdure.agents.pydantic.messages import as_builtin
from perdure.agents.pydantic.model import RecordingModel
from perdure.agents.tools import ApprovalNeeded, Rejected, Tool, ToolContext, perform_call, request_approval

CONTENT: TypeAdapter[Any] = TypeAdapter(ToolReturnContent)
RETURN: TypeAdapter[Any] = TypeAdapter(ToolReturn)
BINARY: TypeAdapter[Any] = TypeAdapter(ToolReturnContent, config=ConfigDict(ser_json_bytes="base64"))
"""For values with bytes that are not UTF-8. Their base64 is URL-safe."""
RAISED = {"retry": ModelRetry, "failed": ToolFailed, "approval": ApprovalRequired, "deferred": CallDeferred}
"""Exceptions by which a tool reports about its call, by their recorded name."""


class ToolCalls:
    """The calls of one turn."""

    def __init__(self, model: RecordingModel) -> None:
        self._model = model
        self._used: dict[str, list[int]] = {}
        """By call id: the model requests whose answers had this id."""
        self.performed: set[str] = set()
        """By call id: calls that were performed, not replayed."""
        self.ended_by: set[str] = set()
        """By call id: calls of tools that end the turn."""
        self.finished: dict[str, bool] = {}
        """By the name of each started call: whether it has a result for the model."""

    def name_of(self, call_id: str) -> str:
        """Distinguishes a call from other calls of the turn: some models repeat ids."""
        used = self._used.setdefault(call_id, [])
        if self._model.requests not in used:
            used.append(self._model.requests)
        number = used.index(self._model.requests) + 1
        return call_id if number == 1 else f"{call_id} #{number}"


@dataclass
class RecordingToolset(WrapperToolset[Any]):  # type: ignore[misc]  # pydantic-ai is not type-checked
    """A wrapped toolset for one turn of an agent: a recorded call is not repeated."""

    agent_name: str
    tools: Mapping[str, Tool]
    """Our tools, by name."""
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
            del finished[call_name]  # the model does not get it, or the model repeats it
            raise
        finished[call_name] = True
        return result

    async def _call(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]) -> Any:
        call = _as_call(name, ctx, self.calls.name_of(str(ctx.tool_call_id)))
        own = self.tools.get(name)

        async def perform(arguments: Mapping[str, Any], context: ToolContext) -> Any:
            if own is not None:
                return await own.call(arguments, context)
            return await self.wrapped.call_tool(name, dict(arguments), ctx, tool)

        def begin() -> None:
            self.calls.performed.add(str(ctx.tool_call_id))

        recordable = _RecordableTool(own, name, perform)
        try:
            arguments = await self._approve(recordable, call, tool_args, ctx, tool)
            record = await perform_call(recordable, call, arguments, self.agent_name, begin)
        except ApprovalNeeded as error:
            raise ApprovalRequired from error
        except ToolFailed:
            raise
        except Rejected as error:
            raise ToolFailed(str(error)) from error
        except Exception as error:  # the model handles any exception of a tool
            raise ToolFailed(_describe(error)) from error
        if recordable.ends_turn:
            self.calls.ended_by.add(str(ctx.tool_call_id))
        return _result(record)

    async def _approve(
        self, recordable: Tool, call: Content, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> dict[str, Any]:
        if ctx.tool_call_approved:
            return tool_args
        requested = call.parse_arguments()
        approved = await request_approval(recordable, call, requested)
        if approved == requested:
            return tool_args
        try:
            validated: dict[str, Any] = tool.args_validator.validate_python(dict(approved))
        except ValidationError as error:
            raise ToolFailed(f"The call was approved with invalid arguments: {error}") from error
        return validated


class _NotRecorded(Exception):
    """A call without a record."""


async def finished_calls(response: ModelResponse, calls: ToolCalls, agent_name: str) -> set[str]:
    """Ids of the calls in the model's last answer that have ended, with or without success. A call that was cancelled
    because another failed may have a record."""
    finished: set[str] = set()
    for part in response.tool_calls:
        name = calls.name_of(part.tool_call_id)
        is_finished = calls.finished.get(name)
        if is_finished or (is_finished is False and await _is_recorded(part.tool_name, name, agent_name)):
            finished.add(part.tool_call_id)
    return finished


async def _is_recorded(tool_name: str, call_name: str, agent_name: str) -> bool:
    async def refuse(arguments: Mapping[str, Any], context: ToolContext) -> Any:
        raise _NotRecorded(f"The call {call_name!r} of {tool_name!r} was cut short.")

    call = Content.from_function_call(call_name, tool_name)
    try:
        _result(await perform_call(_RecordableTool(None, tool_name, refuse), call, {}, agent_name))
    except (_NotRecorded, ModelRetry, ApprovalRequired, CallDeferred):
        return False
    except Exception:  # noqa: BLE001  # the model gets any exception of the tool
        return True
    return True


class _RecordableTool(Tool):
    """A tool whose outcome is recorded as JSON: its result, or its exception."""

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
            if self.retry is not None:  # the retry policy comes first
                raise
            return _json({"failed": _describe(error)})
        return _recordable(result)


def as_result(value: Any) -> Any:
    """An external result for the model, as if a tool had returned it."""
    return _result(_recordable(value))


def _recordable(result: Any) -> str:
    kind, adapter = ("returned", RETURN) if isinstance(result, ToolReturn) else ("content", CONTENT)
    value = msgspec.to_builtins(result) if isinstance(result, msgspec.Struct) else result
    try:
        encoded = adapter.dump_json(value, fallback=as_builtin)
    except PydanticSerializationError:  # bytes that are not UTF-8
        encoded = BINARY.dump_json(value, fallback=as_builtin)
    return f'{{"{kind}":{encoded.decode()}}}'


def _result(record: str) -> Any:
    """Raises the tool's exception."""
    outcome = msgspec.json.decode(record, type=dict[str, msgspec.Raw])
    if "content" in outcome:
        return CONTENT.validate_json(bytes(outcome["content"]))
    if "returned" in outcome:
        return RETURN.validate_json(bytes(outcome["returned"]))
    kind, message = next(iter(outcome.items()))
    raise RAISED[kind](msgspec.json.decode(message))


def _json(value: Any) -> str:
    return to_json(value).decode()


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _as_call(name: str, ctx: RunContext[Any], call_id: str) -> Content:
    """The model's call. After an approval it is another step than the attempt that asked for it."""
    response = next((message for message in reversed(ctx.messages) if isinstance(message, ModelResponse)), None)
    calls = () if response is None else response.tool_calls
    arguments = next((call.args for call in calls if call.tool_call_id == ctx.tool_call_id), None)
    call_id = f"{call_id} approved" if ctx.tool_call_approved else call_id
    return Content.from_function_call(call_id, name, arguments=arguments)


def toolset_of(tools: Iterable[Tool], max_retries: int) -> FunctionToolset[Any]:
    """Our tools for the model."""
    return FunctionToolset([_as_theirs(tool) for tool in tools], max_retries=max_retries)


def _as_theirs(tool: Tool) -> pydantic_ai.Tool[Any]:
    is_own_text = tool.description != (inspect.getdoc(tool.function) or "")
    return pydantic_ai.Tool(
        _visible(tool),
        name=tool.name,
        description=tool.description if is_own_text else None,  # pydantic-ai parses the docstring's parameters
        takes_ctx=False,
    )


def _visible(tool: Tool) -> Callable[..., Any]:
    """The function for the model: without the parameter for the ToolContext, and without its return type, which
    pydantic may not support."""
    try:
        signature = inspect.signature(tool.function, eval_str=True)
    except NameError:  # types for checkers only: pydantic-ai handles it
        return tool.function
    parameters = [parameter for name, parameter in signature.parameters.items() if name != tool.context_parameter]

    def visible(**arguments: Any) -> None:
        """Never called: pydantic-ai reads its signature."""

    visible.__name__ = tool.name
    visible.__doc__ = inspect.getdoc(tool.function)
    visible.__module__ = getattr(tool.function, "__module__", __name__)
    visible.__annotations__ = {
        parameter.name: parameter.annotation for parameter in parameters if parameter.annotation is not parameter.empty
    }
    bare = signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
    visible.__signature__ = bare  # type: ignore[attr-defined]
    return visible
