"""Tools: functions that an agent may call. Each call is a recorded step, and may need approval."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, get_args, overload

import msgspec

from perdure.agents.conversation.content import Content
from perdure.agents.conversation.json_struct import framework_class
from perdure.agents.recording import ask_for_approval, current_delivery, emit_updates_to, record_call, request_id_for
from perdure.engine.delivery.recorder import Work
from perdure.graph.executor import is_async
from perdure.graph.policy import DEFAULT, RetryPolicy, Seconds

Approval: TypeAlias = bool | Callable[[Mapping[str, Any]], bool]
"""Whether a call needs approval: always, never, or by a function of its arguments."""


class FrameworkToolOptions(TypedDict, total=False):
    """The options that only Agent Framework's `tool` has."""

    approval_mode: Literal["always_require", "never_require"] | None
    kind: str | None
    schema: Any
    max_invocations: int | None
    max_invocation_exceptions: int | None
    additional_properties: dict[str, Any] | None
    result_parser: Any


FRAMEWORK_OPTIONS = FrameworkToolOptions.__annotations__.keys()


class ToolOptions(FrameworkToolOptions, total=False):
    """The options of `tool`."""

    name: str | None
    description: str | None
    approval: Approval
    retry: RetryPolicy | int | None
    timeout: Seconds | None
    ends_turn: bool


class ToolContext(msgspec.Struct, frozen=True):
    """Facts about a call, for its tool: a parameter with this annotation receives it, and the model does not see it."""

    call_id: str
    agent_name: str
    idempotency_key: str
    """For external services: equal in every attempt of this call, across crashes and resumes."""
    thread_id: str | None = None
    """None outside of a workflow."""
    function_invocation_kwargs: dict[str, Any] = {}  # msgspec copies it
    """The run's arguments for tools: `workflow.run(..., function_invocation_kwargs={...})`."""


class Tool:
    """A function as a tool. Plain functions are converted; `@tool(...)` sets options."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        approval: Approval = False,
        retry: RetryPolicy | int | None = None,
        timeout: Seconds | None = None,
        ends_turn: bool = False,
    ) -> None:
        plain = function
        while isinstance(plain, functools.partial):
            plain = plain.func
        if callable(approval) and is_async(approval):
            raise TypeError(f"approval= expects a plain function of the arguments, got {approval!r}, which is async.")
        self.function = function
        self.name = name or str(getattr(plain, "__name__", type(plain).__name__))
        self.description = description if description is not None else inspect.getdoc(plain) or ""
        self.approval = approval
        self.retry = retry
        self.timeout = timeout
        self.ends_turn = ends_turn
        """Whether the turn ends after the call, without another model request. A failed call does not end the turn: the
        model gets the error and continues."""
        functools.update_wrapper(self, function, updated=())

    @functools.cached_property
    def context_parameter(self) -> str | None:
        """The name of the parameter for the ToolContext."""
        return next((name for name, annotation in self._annotations.items() if _is_context(annotation)), None)

    @property
    def returns(self) -> Any:
        """The annotation of its result; None if it has none."""
        return self._annotations.get("return")

    @functools.cached_property
    def _annotations(self) -> dict[str, Any]:
        """As classes if they can be resolved, else as text."""
        for is_read in (True, False):
            try:
                signature = inspect.signature(self.function, eval_str=is_read)
            except Exception:  # noqa: BLE001, S112  # evaluating an annotation may raise anything
                continue
            annotations = {name: parameter.annotation for name, parameter in signature.parameters.items()}
            returns = signature.return_annotation
            return {"return": None if returns is signature.empty else returns, **annotations}
        return {}

    def needs_approval(self, arguments: Mapping[str, Any]) -> bool:
        return self.approval(arguments) if callable(self.approval) else bool(self.approval)

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """The function's result. A function that is not async runs in a worker thread. Raises its exceptions, and
        TypeError for unexpected arguments."""
        keywords = dict(arguments)
        if self.context_parameter is not None:
            keywords[self.context_parameter] = context
        with contextlib.suppress(ValueError):  # a builtin may have no signature
            inspect.signature(self.function).bind(**keywords)
        return await Work(self.function, (), keywords, DEFAULT).perform()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"


@overload
def tool(function: Callable[..., Any], **options: Unpack[ToolOptions]) -> Tool: ...
@overload
def tool(function: None = None, **options: Unpack[ToolOptions]) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Make a function a tool: `@tool`, or `@tool(approval=True)` if each call needs approval. The options are those of
    `Tool`.

    `approval` may be a function of the arguments. `retry` and `timeout` are those of a step. Beside Agent Framework the
    tool is one of that framework too, and takes its options, such as `approval_mode`.
    """
    if function is None:
        return functools.partial(tool, **options)
    theirs = ", ".join(sorted(FRAMEWORK_OPTIONS & options.keys()))
    if framework_class("FunctionTool") is not None or theirs:
        try:
            adapter = import_module("perdure.agents.adapters.agent_framework")
        except ModuleNotFoundError as error:
            raise TypeError(f"tool() takes {theirs} only if agent-framework-core is installed.") from error
        return adapter.make_tool(function, options)
    return Tool(function, **options)


def as_tool(value: Any) -> Tool:
    """Raises TypeError for a value that is not callable."""
    if isinstance(value, Tool):
        return value
    if not callable(value):
        raise TypeError(f"A tool is a function, got {value!r}.")
    return Tool(value)


def types_of(agent: Any) -> tuple[Any, ...]:
    """Annotations of the values that its turns may hold: its own value types, and results of its tools."""
    tools = getattr(agent, "tools", None) or ()
    values = tools.values() if isinstance(tools, Mapping) else tools if isinstance(tools, (list, tuple)) else ()
    results = [tool.returns for tool in values if isinstance(tool, Tool)]
    return (*getattr(agent, "value_types", ()), *(kind for kind in results if not isinstance(kind, (str, type(None)))))


def _is_context(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.split(".")[-1].removesuffix(" | None") == ToolContext.__name__
    return annotation is ToolContext or ToolContext in get_args(annotation)


class Rejected(Exception):
    """A rejected call. The model gets the reason and continues."""

    def __init__(self, reason: str | None) -> None:
        super().__init__(reason or "The call was not approved.")


class ApprovalNeeded(Exception):
    """A call that needs approval, outside of a workflow, which cannot ask."""

    def __init__(self, request: Content) -> None:
        super().__init__(f"The call of {request.function_call and request.function_call.name!r} needs approval.")
        self.request = request


async def request_approval(tool: Tool, call: Content, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The approved arguments: those of the call, or the answer's.

    Waits without limit, across restarts. Raises Rejected, and ApprovalNeeded outside of a workflow.
    """
    if not tool.needs_approval(arguments):
        return arguments
    request_id = request_id_for(str(call.call_id))
    request = Content.from_function_approval_request(request_id, call)
    answer = await ask_for_approval(request, key=request_id)
    if answer is None:
        raise ApprovalNeeded(request)
    if not answer.approved:
        raise Rejected(answer.reason)
    return arguments if answer.function_call is None else answer.function_call.parse_arguments()


async def perform_call(
    tool: Tool, call: Content, arguments: Mapping[str, Any], agent_name: str, begin: Callable[[], None] | None = None
) -> Any:
    """The tool's result, recorded under the id of the call, so that the call is not repeated. `begin` runs before each
    call."""

    async def make_call() -> Any:
        if begin is not None:
            begin()
        with emit_updates_to(None):  # agents inside of a tool emit no updates here
            return await tool.call(arguments, _context_of(call, agent_name))

    name, key = f"{agent_name}.tool.{tool.name}", str(call.call_id)
    return await record_call(make_call, name=name, key=key, retry=tool.retry, timeout=tool.timeout)


def _context_of(call: Content, agent_name: str) -> ToolContext:
    call_id, context = str(call.call_id), current_delivery()
    if context is None:
        return ToolContext(call_id, agent_name, f"{agent_name}-{call_id}")
    kwargs = dict(context.function_invocation_kwargs)
    return ToolContext(call_id, agent_name, context.idempotency_key, context.thread_id, kwargs)


async def result_of(
    tool: Tool | None, call: Content, agent_name: str, begin: Callable[[], None] | None = None
) -> Content:
    """The result of a call for the model: the tool's result, or the error. An exception of a tool does not fail the
    turn: the model handles it."""
    call_id = str(call.call_id)
    if tool is None:
        return Content.from_function_result(call_id, exception=f"No tool {call.name!r} exists.")
    try:
        arguments = await request_approval(tool, call, call.parse_arguments())
        result = await perform_call(tool, call, arguments, agent_name, begin)
        return Content.from_function_result(call_id, result=result)
    except ApprovalNeeded:
        raise
    except Exception as error:  # noqa: BLE001  # a tool may raise anything
        return Content.from_function_result(call_id, exception=f"{type(error).__name__}: {error}")
