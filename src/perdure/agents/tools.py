"""Tools: functions that an agent may call, each call a recorded step, some of them only if somebody agrees."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, get_args, overload

import msgspec

from perdure.agents.conversation.content import Content
from perdure.agents.recording import answered, heard_by, record_call, request_id_for, working_for
from perdure.engine.steps.attempts import Work
from perdure.graph.function_executor import is_async
from perdure.graph.policy import DEFAULT, RetryPolicy, Seconds

Approval: TypeAlias = bool | Callable[[Mapping[str, Any]], bool]
"""Whether a call needs somebody's approval: always, never, or as a function of its arguments says."""


class ToolContext(msgspec.Struct, frozen=True):
    """What a tool may know of the call that it is for: a parameter with this annotation is given it, and the model does
    not see it."""

    call_id: str
    agent_name: str
    idempotency_key: str
    """For outside services: the same whenever this call is tried, across crashes and resumes."""
    thread_id: str | None = None
    """None outside of a workflow."""
    function_invocation_kwargs: dict[str, Any] = {}  # msgspec copies it
    """What was given to the run for tools: `workflow.run(..., function_invocation_kwargs={...})`."""


class Tool:
    """A function as a tool. Made of plain functions by itself; by `@tool(...)` where there is more to say."""

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
        """Whether the agent stops after it was called: the model is not asked what it makes of the result. If the call
        failed, the model is told, and goes on."""
        functools.update_wrapper(self, function, updated=())

    @functools.cached_property
    def context_parameter(self) -> str | None:
        """The parameter that takes the ToolContext."""
        return next((name for name, annotation in self._annotations.items() if _is_context(annotation)), None)

    @property
    def returns(self) -> Any:
        """The annotation of its result; None if it has none."""
        return self._annotations.get("return")

    @functools.cached_property
    def _annotations(self) -> dict[str, Any]:
        """As classes where they can be found, else as they are written."""
        for is_read in (True, False):
            try:
                signature = inspect.signature(self.function, eval_str=is_read)
            except Exception:  # noqa: BLE001, S112  # whatever an annotation raises that was never meant to be read
                continue
            found = {name: parameter.annotation for name, parameter in signature.parameters.items()}
            return {"return": _said(signature.return_annotation), **found}
        return {}

    def needs_approval(self, arguments: Mapping[str, Any]) -> bool:
        return self.approval(arguments) if callable(self.approval) else bool(self.approval)

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """What the function gives. One that is not async runs in a thread. Raises what it raises, and TypeError for
        arguments that it does not take."""
        given = dict(arguments)
        if self.context_parameter is not None:
            given[self.context_parameter] = context
        with contextlib.suppress(ValueError):  # of a builtin that does not tell its parameters
            inspect.signature(self.function).bind(**given)
        return await Work(self.function, (), given, DEFAULT).done()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself, as it was before."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"


@overload
def tool(function: Callable[..., Any]) -> Tool: ...
@overload
def tool(
    function: None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    approval: Approval = False,
    retry: RetryPolicy | int | None = None,
    timeout: Seconds | None = None,
    ends_turn: bool = False,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Make a function a tool: `@tool`, or `@tool(approval=True)` for one that is called only if somebody agrees.

    `approval` may be a function of the arguments. `retry` and `timeout` are those of a step.
    """
    return Tool(function, **options) if function is not None else functools.partial(Tool, **options)


def as_tool(given: Any) -> Tool:
    """Raises TypeError for what cannot be called."""
    if isinstance(given, Tool):
        return given
    if not callable(given):
        raise TypeError(f"A tool is a function, got {given!r}.")
    return Tool(given)


def types_of(agent: Any) -> tuple[Any, ...]:
    """Annotations of the values that its turns may hold: those of its own, and what its tools give."""
    tools = getattr(agent, "tools", None) or ()
    given = tools.values() if isinstance(tools, Mapping) else tools if isinstance(tools, (list, tuple)) else ()
    results = (one.returns for one in given if isinstance(one, Tool))
    return (
        *getattr(agent, "value_types", ()),
        *(result for result in results if not isinstance(result, (str, type(None)))),
    )


def _is_context(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.split(".")[-1].removesuffix(" | None") == ToolContext.__name__
    return annotation is ToolContext or ToolContext in get_args(annotation)


def _said(annotation: Any) -> Any:
    return None if annotation is inspect.Signature.empty else annotation


class Rejected(Exception):
    """A call that somebody did not approve. The model is told why, and goes on."""

    def __init__(self, reason: str | None) -> None:
        super().__init__(reason or "The call was not approved.")


class ApprovalNeeded(Exception):
    """A call that needs approval, outside of a workflow, where nobody can be asked while it waits."""

    def __init__(self, request: Content) -> None:
        super().__init__(f"The call of {request.function_call and request.function_call.name!r} needs approval.")
        self.request = request


async def approved(tool: Tool, call: Content, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments to call it with, once that is agreed to: those of the call, or others in their place.

    Waits as long as it takes, across restarts. Raises Rejected, and ApprovalNeeded outside of a workflow.
    """
    if not tool.needs_approval(arguments):
        return arguments
    request_id = request_id_for(str(call.call_id))
    request = Content.from_function_approval_request(request_id, call)
    answer = await answered(request, key=request_id)
    if answer is None:
        raise ApprovalNeeded(request)
    if not answer.approved:
        raise Rejected(answer.reason)
    return arguments if answer.function_call is None else answer.function_call.parse_arguments()


async def performed(
    tool: Tool, call: Content, arguments: Mapping[str, Any], agent_name: str, begin: Callable[[], None] | None = None
) -> Any:
    """The tool's result, recorded under the id of the call: it is found again by that, and not called twice. `begin`
    is called whenever the tool is."""

    async def make_call() -> Any:
        if begin is not None:
            begin()
        with heard_by(None):  # an agent that it asks says nothing here
            return await tool.call(arguments, _context_of(call, agent_name))

    name, key = f"{agent_name}.tool.{tool.name}", str(call.call_id)
    return await record_call(make_call, name=name, key=key, retry=tool.retry, timeout=tool.timeout)


def _context_of(call: Content, agent_name: str) -> ToolContext:
    call_id, context = str(call.call_id), working_for()
    if context is None:
        return ToolContext(call_id, agent_name, f"{agent_name}-{call_id}")
    kwargs = dict(context.function_invocation_kwargs)
    return ToolContext(call_id, agent_name, context.idempotency_key, context.thread_id, kwargs)


async def result_of(
    tool: Tool | None, call: Content, agent_name: str, begin: Callable[[], None] | None = None
) -> Content:
    """What the model is told of its call: the result, or what was wrong with the call. A tool that raises fails no
    turn: that is for the model to deal with."""
    call_id = str(call.call_id)
    if tool is None:
        return Content.from_function_result(call_id, exception=f"There is no tool {call.name!r}.")
    try:
        arguments = await approved(tool, call, call.parse_arguments())
        result = await performed(tool, call, arguments, agent_name, begin)
        return Content.from_function_result(call_id, result=result)
    except ApprovalNeeded:
        raise
    except Exception as error:  # noqa: BLE001  # whatever a tool raises
        return Content.from_function_result(call_id, exception=f"{type(error).__name__}: {error}")
