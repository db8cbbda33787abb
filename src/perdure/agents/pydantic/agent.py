"""Agent: pydantic-ai's models, tools and structured output, with recorded calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints, is_typeddict

import msgspec
import pydantic_ai
from pydantic_ai import ModelRetry, NativeOutput, PromptedOutput, StructuredDict, TextOutput, ToolOutput
from pydantic_ai.models import Model
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset
from pydantic_ai.usage import UsageLimits

from perdure.agents.base import RecordingAgent
from perdure.agents.conversation.message import AgentSession, Message
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.pydantic.toolset import toolset_of
from perdure.agents.pydantic.turn import Setting, Turn
from perdure.agents.tools import Tool, as_tool
from perdure.graph.policy import RetryPolicy, Seconds, step_policy

OutputMode: TypeAlias = Literal["native", "tool"]


def output_spec(output_type: Any, mode: OutputMode | None = None) -> list[Any]:
    """For `output_type=` of pydantic-ai. Text where none is given. `mode`: how the model is asked for a value, by the
    schema of its answer or by a tool; as pydantic-ai chooses where it is left out."""
    given = [str] if output_type is None else output_type
    if get_origin(given) in (Union, UnionType):
        given = get_args(given)
    several = [_as_theirs(one) for one in (given if isinstance(given, (list, tuple)) else [given])]
    if mode is not None and output_type is not None:
        several = [NativeOutput(several)] if mode == "native" else [ToolOutput(one) for one in several]
    return [*several, DeferredToolRequests]


def value_types(output_type: Any) -> tuple[Any, ...]:
    """The types that values may have, for what has to store them."""
    if isinstance(output_type, (list, tuple)):
        return tuple(one for several in map(value_types, output_type) for one in several)
    if isinstance(output_type, ToolOutput):
        return value_types(output_type.output)
    if isinstance(output_type, (NativeOutput, PromptedOutput)):
        return value_types(output_type.outputs)
    if inspect.isroutine(output_type):  # it makes the value
        return value_types(get_type_hints(output_type).get("return"))
    is_known = output_type in (None, str, DeferredToolRequests) or isinstance(output_type, TextOutput)
    return () if is_known else (output_type,)


def _as_theirs(one: Any) -> Any:
    is_struct = isinstance(one, type) and issubclass(one, msgspec.Struct)
    return _maker(one) if is_struct or is_typeddict(one) else one


def _maker(kind: Any) -> Callable[[Any], Any]:
    """pydantic takes no Struct, and not every TypedDict: the model is told the schema, and what it gives is made one by
    msgspec."""
    (schema,), components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    name = str(schema["$ref"]).rpartition("/")[2]
    shape = {**components.pop(name), **({"$defs": components} if components else {})}

    def make(value: Any) -> Any:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            raise ModelRetry(f"No {kind.__name__}: {error}") from error

    make.__name__ = kind.__name__
    make.__doc__ = kind.__doc__
    make.__annotations__ = {"value": StructuredDict(shape, name=kind.__name__)}
    return make


MOST_RETRIES = 3
"""How often a model may make a call again whose arguments did not fit, or an output."""


class Agent(RecordingAgent):
    """`Agent("openai:gpt-5", name="writer", instructions="Write.", tools=[search])`: any model that pydantic-ai knows,
    by name or as an object.

    Each request to the model is a step of the workflow that the agent works in, with `retry` and `timeout`; each call
    of a tool is one too. `tools` are functions, `Tool`s, and those of pydantic-ai; `toolsets` are toolsets of
    pydantic-ai, MCP servers among them. `output_type` asks for structured output: `response.value`. `usage_limits`
    are those of one turn: UsageLimits of pydantic-ai, or a dict of its fields.
    """

    def __init__(
        self,
        model: Model | str,
        *,
        name: str,
        instructions: str | None = None,
        tools: Iterable[Any] = (),
        toolsets: Iterable[AbstractToolset[Any]] = (),
        description: str | None = None,
        id: str | None = None,
        output_type: Any = None,
        model_settings: Mapping[str, Any] | None = None,
        retry: RetryPolicy | int | None = None,
        timeout: Seconds | None = None,
        usage_limits: UsageLimits | Mapping[str, Any] | None = None,
        tool_retries: int = MOST_RETRIES,
    ) -> None:
        super().__init__(name, id=id, description=description)
        if not isinstance(model, (Model, str)):
            raise TypeError(f"Agent {name!r}: expected a model of pydantic-ai or the name of one, got {model!r}.")
        step_policy(f"{name}.model", retry, timeout, "stop")  # complains about what makes no sense
        self.model = model
        self.instructions = instructions
        self.output_type = output_type
        self.value_types = value_types(output_type)
        self._settings = dict(model_settings or {})
        self._policy: dict[str, Any] = {"retry": retry, "timeout": timeout}
        self._limits = _limits(usage_limits)
        self._retries = tool_retries
        self.tools, self._toolsets = self._sorted(tools)
        self._toolsets += tuple(toolsets)
        self._agent = pydantic_ai.Agent(
            None, name=name, instructions=instructions, retries={"tools": tool_retries, "output": tool_retries}
        )

    async def turn(
        self,
        messages: list[Message],
        session: AgentSession | None,
        *,
        tools: Iterable[Any] = (),
        response_format: Any = None,
        output_mode: OutputMode | None = None,
        model_settings: Mapping[str, Any] | None = None,
        usage_limits: UsageLimits | Mapping[str, Any] | None = None,
        client_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> AgentResponse:
        more, toolsets = self._sorted(tools, self.tools)
        known = {**self.tools, **more}
        wanted = self.output_type if response_format is None else response_format
        settings = {**self._settings, **(client_kwargs or {}), **(model_settings or {})}
        setting = Setting(
            name=self.name,
            id=self.id,
            agent=self._agent,
            model=self.model,
            toolsets=(toolset_of(known.values(), self._retries), *self._toolsets, *toolsets),
            tools=known,
            output_type=output_spec(wanted, output_mode),
            has_value=wanted is not None and wanted is not str,
            usage_limits=self._limits if usage_limits is None else _limits(usage_limits),
            options={"model_settings": settings} if settings else {},
            **self._policy,
        )
        return await Turn(setting).take([*(session.messages if session is not None else ()), *messages])

    def _sorted(
        self, given: Iterable[Any], taken: Mapping[str, Tool] | None = None
    ) -> tuple[dict[str, Tool], tuple[AbstractToolset[Any], ...]]:
        """Our tools by name, and toolsets. Raises ValueError for two of one name."""
        own: dict[str, Tool] = {}
        toolsets: list[AbstractToolset[Any]] = []
        theirs = []
        for one in given:
            if isinstance(one, AbstractToolset):
                toolsets.append(one)
            elif isinstance(one, pydantic_ai.Tool):
                theirs.append(one)
            else:
                tool = as_tool(one)
                if tool.name in own or tool.name in (taken or {}):
                    raise ValueError(f"Agent {self.name!r} has two tools named {tool.name!r}. Give one another name.")
                own[tool.name] = tool
        if theirs:
            toolsets.append(FunctionToolset(theirs, max_retries=self._retries))
        return own, tuple(toolsets)


def _limits(given: UsageLimits | Mapping[str, Any] | None) -> UsageLimits | None:
    """Raises TypeError for a limit that there is not."""
    return UsageLimits(**given) if isinstance(given, Mapping) else given
