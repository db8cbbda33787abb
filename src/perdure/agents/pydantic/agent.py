"""Agent: pydantic-ai's models, tools and structured output, with recorded calls; and agents that pydantic-ai made."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints, is_typeddict

import msgspec
import pydantic_ai
from pydantic_ai import ModelRetry, NativeOutput, PromptedOutput, StructuredDict, TextOutput, ToolOutput
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.models import Model
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset
from pydantic_ai.usage import UsageLimits

from perdure.agents.base import RecordingAgent, agent_name
from perdure.agents.conversation.json_struct import framework_class
from perdure.agents.conversation.message import AgentSession, Message
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.pydantic.turn import PydanticTurn
from perdure.agents.tools import Tool, as_tool
from perdure.graph.policy import RetryPolicy, Seconds, step_policy

OutputMode: TypeAlias = Literal["native", "tool"]


def output_spec(output_type: Any, mode: OutputMode | None = None) -> list[Any]:
    """The value for `output_type=` of pydantic-ai; text by default. `mode` selects how the model returns a value: by
    the schema of its answer, or by a tool; by default pydantic-ai chooses."""
    types = [str] if output_type is None else output_type
    if get_origin(types) in (Union, UnionType):
        types = get_args(types)
    specs = [_as_their_type(kind) for kind in (types if isinstance(types, (list, tuple)) else [types])]
    if mode is not None and output_type is not None:
        specs = [NativeOutput(specs)] if mode == "native" else [ToolOutput(spec) for spec in specs]
    return [*specs, DeferredToolRequests]


def value_types(output_type: Any) -> tuple[Any, ...]:
    """The types of structured outputs, for the codec of checkpoints."""
    if isinstance(output_type, (list, tuple)):
        return tuple(kind for kinds in map(value_types, output_type) for kind in kinds)
    if isinstance(output_type, ToolOutput):
        return value_types(output_type.output)
    if isinstance(output_type, (NativeOutput, PromptedOutput)):
        return value_types(output_type.outputs)
    if inspect.isroutine(output_type):  # its result is the value
        return value_types(get_type_hints(output_type).get("return"))
    is_known = output_type in (None, str, DeferredToolRequests) or isinstance(output_type, TextOutput)
    return () if is_known else (output_type,)


def _as_their_type(kind: Any) -> Any:
    """pydantic supports no Structs, and not every TypedDict: the model gets the schema, and msgspec converts the
    output."""
    if not ((isinstance(kind, type) and issubclass(kind, msgspec.Struct)) or is_typeddict(kind)):
        return kind
    (schema,), components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    name = str(schema["$ref"]).rpartition("/")[2]
    shape = {**components.pop(name), **({"$defs": components} if components else {})}

    def convert(value: Any) -> Any:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            raise ModelRetry(f"Not a {kind.__name__}: {error}") from error

    convert.__name__ = kind.__name__
    convert.__doc__ = kind.__doc__
    convert.__annotations__ = {"value": StructuredDict(shape, name=kind.__name__)}
    return convert


MAX_RETRIES = 3
"""How often a model may repeat a call or an output that did not validate."""


class Agent(RecordingAgent):
    """`Agent("openai:gpt-5", name="writer", instructions="Write.", tools=[search])`: any model of pydantic-ai, by name
    or as an object.

    Each model request is a step of the workflow, with `retry` and `timeout`, and so is each call of a tool. `tools` are
    functions, `Tool`s, and tools of pydantic-ai; `toolsets` are its toolsets, including MCP servers. `output_type`
    requests structured output: `response.value`. `usage_limits` apply to one turn: UsageLimits of pydantic-ai, or a
    dict of its fields.
    """

    def __new__(cls, *args: Any, **options: Any) -> Any:
        """With a chat client of Agent Framework, an agent of that framework."""
        client = options.get("client", args[0] if args else None)
        if isinstance(client, framework_class("BaseChatClient") or ()):
            return framework_class("Agent")(*args, **options)
        return super().__new__(cls)

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
        tool_retries: int = MAX_RETRIES,
    ) -> None:
        super().__init__(name, id=id, description=description)
        if not isinstance(model, (Model, str)):
            raise TypeError(f"Agent {name!r}: expected a model of pydantic-ai or the name of one, got {model!r}.")
        step_policy(f"{name}.model", retry, timeout, "stop")  # rejects invalid values
        self.model = model
        self.instructions = instructions
        self.output_type = output_type
        self.value_types = value_types(output_type)
        self._settings = dict(model_settings or {})
        self._policy: dict[str, Any] = {"retry": retry, "timeout": timeout}
        self._limits = _limits(usage_limits)
        self._retries = tool_retries
        self.tools, self._toolsets = self._sort_tools(tools)
        self._toolsets += tuple(toolsets)
        retries: Any = dict.fromkeys(("tools", "output"), tool_retries)
        self._agent = pydantic_ai.Agent(None, name=name, instructions=instructions, retries=retries)

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
        more, toolsets = self._sort_tools(tools, self.tools)
        all_tools = {**self.tools, **more}
        output_type = self.output_type if response_format is None else response_format
        settings = {**self._settings, **(client_kwargs or {}), **(model_settings or {})}
        turn = PydanticTurn(
            name=self.name,
            id=self.id,
            agent=self._agent,
            model=self.model,
            toolsets=(toolset_of(all_tools.values(), self._retries), *self._toolsets, *toolsets),
            tools=all_tools,
            output_type=output_spec(output_type, output_mode),
            has_value=output_type is not None and output_type is not str,
            usage_limits=self._limits if usage_limits is None else _limits(usage_limits),
            options={"model_settings": settings} if settings else {},
            policy=self._policy,
        )
        return await turn.take([*(session.messages if session is not None else ()), *messages])

    def _sort_tools(
        self, tools: Iterable[Any], known: Mapping[str, Tool] | None = None
    ) -> tuple[dict[str, Tool], tuple[AbstractToolset[Any], ...]]:
        """Our tools by name, and toolsets. Raises ValueError for a repeated name."""
        own: dict[str, Tool] = {}
        toolsets: list[AbstractToolset[Any]] = []
        theirs = []
        for item in tools:
            if isinstance(item, AbstractToolset):
                toolsets.append(item)
            elif isinstance(item, pydantic_ai.Tool):
                theirs.append(item)
            else:
                tool = as_tool(item)
                if tool.name in own or tool.name in (known or {}):
                    raise ValueError(f"Agent {self.name!r} has two tools named {tool.name!r}. Rename one of them.")
                own[tool.name] = tool
        if theirs:
            toolsets.append(FunctionToolset(theirs, max_retries=self._retries))
        return own, tuple(toolsets)


def _limits(limits: UsageLimits | Mapping[str, Any] | None) -> UsageLimits | None:
    """Raises TypeError for an unknown limit."""
    return UsageLimits(**limits) if isinstance(limits, Mapping) else limits


def toolset_of(tools: Iterable[Tool], max_retries: int) -> FunctionToolset[Any]:
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
    visible.__annotations__ = {each.name: each.annotation for each in parameters if each.annotation is not each.empty}
    bare = signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
    visible.__signature__ = bare  # type: ignore[attr-defined]
    return visible


RUN_OPTIONS = ("deps", "model_settings", "usage_limits", "metadata", "instructions")
"""Arguments that are passed on to its `run`."""


class PydanticAgent(RecordingAgent):
    """Runs an agent of pydantic-ai with the messages of the session."""

    def __init__(self, agent: AbstractAgent[Any, Any]) -> None:
        description = agent.description if isinstance(agent.description, str) else None
        super().__init__(agent_name(agent), description=description)
        if agent.model is None:
            raise ValueError(f"The agent {self.name!r} of pydantic-ai has no model: Agent('openai:...', name=...).")
        self.agent = agent
        self.value_types = value_types(agent.output_type)

    async def turn(
        self,
        messages: list[Message],
        session: AgentSession | None,
        *,
        tools: Iterable[Any] = (),
        response_format: Any = None,
        output_mode: OutputMode | None = None,
        **kwargs: Any,
    ) -> AgentResponse:
        own = {tool.name: tool for tool in map(as_tool, tools)}
        options = {name: kwarg for name, kwarg in kwargs.items() if name in RUN_OPTIONS}
        more = (toolset_of(own.values(), max_retries=1),) if own else ()
        turn = PydanticTurn(
            name=self.name,
            id=self.id,
            agent=self.agent,
            model=self.agent.model or "",
            toolsets=(*self.agent.toolsets, *more),
            tools=own,
            output_type=self._output_type(response_format, output_mode),
            has_value=response_format is not None or self.agent.output_type is not str,
            usage_limits=options.pop("usage_limits", None),
            options=options,
        )
        return await turn.take([*(session.messages if session is not None else ()), *messages])

    def _output_type(self, response_format: Any, output_mode: OutputMode | None) -> Any:
        """Its own output type, with deferred calls. An agent with output validators does not allow another type."""
        if response_format is not None:
            return output_spec(response_format, output_mode)
        own = self.agent.output_type
        several = own if isinstance(own, (list, tuple)) else (own,)
        is_fixed = isinstance(self.agent, pydantic_ai.Agent) and bool(getattr(self.agent, "_output_validators", ()))
        return None if is_fixed or DeferredToolRequests in several else [*several, DeferredToolRequests]


adapt = PydanticAgent
