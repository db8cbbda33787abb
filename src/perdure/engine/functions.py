"""Function workflows: their context, their executor, and `@step`."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from perdure.engine.delivery.context import DeliveryContext, step_name
from perdure.engine.delivery.lane import current_context
from perdure.errors import InvalidRun, StepOutsideWorkflow
from perdure.events import WorkflowEvent
from perdure.graph.annotations import flatten_union, hints_of
from perdure.graph.executor import Executor
from perdure.graph.handlers import Handler, HandlerTable, Returns
from perdure.graph.policy import STOP, RetryPolicy, Seconds, step_policy

T = TypeVar("T")


class RunContext:
    """Handed to a function marked `@workflow` that takes it; `get_run_context()` finds it inside steps."""

    __slots__ = ("_inner",)

    is_context_of_perdure = True

    def __init__(self, inner: DeliveryContext) -> None:
        self._inner = inner

    @overload
    async def request_info(
        self,
        request_data: object,
        response_type: type[T],
        *,
        request_id: str | None = None,
        deadline: datetime | None = None,
        default: Any = ...,
        assignee: str | None = None,
    ) -> T: ...
    @overload
    async def request_info(
        self,
        request_data: object,
        response_type: Any,
        *,
        request_id: str | None = None,
        deadline: datetime | None = None,
        default: Any = ...,
        assignee: str | None = None,
    ) -> Any: ...
    async def request_info(
        self,
        request_data: object,
        response_type: Any,
        *,
        request_id: str | None = None,
        deadline: datetime | None = None,
        default: Any = ...,
        assignee: str | None = None,
    ) -> Any:
        """Request input from outside and return the answer, maybe weeks later and in another process.

        When `deadline` passes without an answer, returns `default`; without a default raises RequestExpired.
        """
        return await self._inner.ask(
            request_data,
            response_type,
            request_id=request_id,
            deadline=deadline,
            default=default,
            assignee=assignee,
        )

    @overload
    async def step(
        self,
        function: Callable[..., Awaitable[T]],
        *arguments: Any,
        name: str | None = None,
        key: str | None = None,
        retry: RetryPolicy | int | None = None,
        timeout: Seconds | None = None,
        on_error: Any = STOP,
    ) -> T: ...
    @overload
    async def step(
        self,
        function: Callable[..., T],
        *arguments: Any,
        name: str | None = None,
        key: str | None = None,
        retry: RetryPolicy | int | None = None,
        timeout: Seconds | None = None,
        on_error: Any = STOP,
    ) -> T: ...
    async def step(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        name: str | None = None,
        key: str | None = None,
        retry: RetryPolicy | int | None = None,
        timeout: Seconds | None = None,
        on_error: Any = STOP,
    ) -> Any:
        """Call any function as a step: its result is recorded, and a recorded step is not called again."""
        return await self._inner.step(
            function, *arguments, name=name, key=key, retry=retry, timeout=timeout, on_error=on_error
        )

    async def sleep(self, duration: float | timedelta | datetime) -> None:
        """Wait for a duration or until a time, across restarts."""
        await self._inner.sleep(duration)

    async def add_event(self, event: WorkflowEvent) -> None:
        """Emit an event of your own to the run's consumer, now."""
        await self._inner.add_event(event)

    def get_state(self, key: str, default: Any = None) -> Any:
        return self._inner.get_state(key, default)

    def set_state(self, key: str, value: Any) -> None:
        """Store a value with the thread, also from a step that is replayed later."""
        if str(key).startswith("_"):
            raise InvalidRun(f"State keys that start with '_' are reserved, got {key!r}.")
        self._inner.set_state(key, value)

    def delete_state(self, key: str) -> None:
        self._inner.delete_state(key)

    @property
    def state(self) -> MutableMapping[str, Any]:
        return self._inner.state

    def is_streaming(self) -> bool:
        """Whether the run's events are streamed."""
        return self._inner.is_streaming()

    @property
    def idempotency_key(self) -> str:
        """For outside services: stable over all attempts of this call of the function, or of the present step."""
        return self._inner.idempotency_key

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """Adds thread, run and workflow to every line."""
        return self._inner.logger

    @property
    def function_invocation_kwargs(self) -> Mapping[str, Any]:
        """Arguments of this run for tools."""
        return self._inner.function_invocation_kwargs

    @property
    def client_kwargs(self) -> Mapping[str, Any]:
        """Arguments of this run for model clients."""
        return self._inner.client_kwargs

    @property
    def thread_id(self) -> str:
        return self._inner.thread_id

    @property
    def run_id(self) -> str:
        return self._inner.run_id


current_run_context: ContextVar[RunContext | None] = ContextVar("perdure_run_context", default=None)


def get_run_context() -> RunContext | None:
    """The context of the function workflow that runs in this task; None outside of one."""
    return current_run_context.get()


@dataclass(frozen=True)
class FunctionShape:
    function: Callable[..., Any]
    name: str
    message_type: Any
    """The annotation of its first parameter; `None` if it takes no message."""
    output_type: Any
    message: inspect.Parameter | None
    context: inspect.Parameter | None
    parameters: int

    def arguments(self, message: Any, context: Any) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments of a call."""
        pairs = ((self.message, message), (self.context, context))
        passed = [(parameter, value) for parameter, value in pairs if parameter is not None]
        named = {parameter.name: value for parameter, value in passed if parameter.kind is parameter.KEYWORD_ONLY}
        by_place = [(parameter, value) for parameter, value in passed if parameter.name not in named]
        order = list(inspect.signature(self.function).parameters)
        by_place.sort(key=lambda pair: order.index(pair[0].name))
        return [value for _, value in by_place], named


def read_function(function: Any) -> FunctionShape:
    """The parameters of a workflow function. Raises TypeError for a function that cannot be a workflow."""
    name = getattr(function, "__name__", "") or type(function).__name__
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise TypeError(
            f"@workflow: {name!r} is a generator, which would never run. Return the result, and report progress with "
            "`await ctx.add_event(...)`."
        )
    if not inspect.iscoroutinefunction(function):
        what = "must be an `async def`" if callable(function) else "is not a function"
        raise TypeError(f"@workflow: {name!r} {what}. Put code that is not async into a @step, which runs in a thread.")
    every = inspect.signature(function).parameters.values()
    parameters = [parameter for parameter in every if parameter.kind is not parameter.VAR_KEYWORD]
    hints = hints_of(function)
    contexts = [parameter for parameter in parameters if _is_context(parameter, hints)]
    others = [parameter for parameter in parameters if parameter not in contexts]
    needed = [parameter for parameter in others[1:] if parameter.default is parameter.empty]
    if needed or len(contexts) > 1 or (contexts and parameters.index(contexts[0]) > 1):
        names = ", ".join(parameter.name for parameter in parameters)
        raise TypeError(
            f"@workflow: {name!r} takes {names}; expected a message, a RunContext, or both: "
            "`async def f(message: T, ctx: RunContext) -> R`."
        )
    message_type = hints.get(others[0].name, Any) if others else None
    output = hints.get("return", Any)
    message, context = next(iter(others), None), next(iter(contexts), None)
    return FunctionShape(function, name, message_type, output, message, context, len(parameters))


def _is_context(parameter: inspect.Parameter, hints: dict[str, Any]) -> bool:
    hint = hints.get(parameter.name)
    return any(member is RunContext for member in flatten_union(hint)) or (hint is None and parameter.name == "ctx")


class FunctionNode(Executor):
    """The executor of a function workflow: each message runs the function from the start."""

    is_function = True
    is_stateless = True

    def __init__(self, shape: FunctionShape, id: str) -> None:
        super().__init__(id, defer_discovery=True)
        self._shape = shape
        accepted = type(None) if shape.message_type is None else shape.message_type
        outputs = () if shape.output_type in (None, type(None)) else tuple(flatten_union(shape.output_type))
        self.table = HandlerTable(
            id, [Handler(id, FunctionNode.run, accepted, None, (), outputs, True, Returns.YIELDED, own_task=True)]
        )

    @property
    def code(self) -> Any:
        return self._shape.function

    async def run(self, message: Any, ctx: DeliveryContext) -> Any:
        shape = self._shape
        context = RunContext(ctx)
        arguments, named = shape.arguments(message, context)
        outer = current_run_context.get()
        current_run_context.set(context)
        try:
            return await shape.function(*arguments, **named)
        finally:
            current_run_context.set(outer)


P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")


class StepWrapper(Generic[P, R]):
    """A function as a step: a workflow records its result and does not call it again."""

    def __init__(
        self,
        function: Callable[P, Any],
        *,
        name: str | None = None,
        retry: RetryPolicy | int | None = None,
        timeout: Seconds | None = None,
        on_error: Any = STOP,
    ) -> None:
        self.function = function
        """The plain function, for calls outside of a workflow."""
        self.name = step_name(function, name)
        self._policy = step_policy(self.name, retry, timeout, on_error)
        functools.update_wrapper(self, function, updated=())

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Raises StepOutsideWorkflow outside of a workflow."""
        context = current_context.get()
        if context is None:
            raise StepOutsideWorkflow(self.name)
        result: R = await context.delivery.session.step(self.function, args, kwargs, self.name, None, self._policy)
        return result

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(
        self: StepWrapper[Concatenate[Any, Q], R], instance: object, owner: type | None = None
    ) -> StepWrapper[Q, R]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """As a method: the instance does not identify the call."""
        if instance is None:
            return self
        bound = StepWrapper.__new__(type(self))
        bound.__dict__.update(self.__dict__)
        bound.function = self.function.__get__(instance, owner)
        return bound

    def __repr__(self) -> str:
        return f"StepWrapper({self.name!r})"


class StepMaker(Protocol):
    """The decorator that `@step(...)` returns: makes a step of a function, async or not."""

    @overload
    def __call__(self, func: Callable[P, Coroutine[Any, Any, R]], /) -> StepWrapper[P, R]: ...
    @overload
    def __call__(self, func: Callable[P, R], /) -> StepWrapper[P, R]: ...


@overload
def step(func: Callable[P, Coroutine[Any, Any, R]]) -> StepWrapper[P, R]: ...
@overload
def step(func: Callable[P, R]) -> StepWrapper[P, R]: ...
@overload
def step(
    func: None = None,
    *,
    name: str | None = None,
    retry: RetryPolicy | int | None = None,
    timeout: Seconds | None = None,
    on_error: Any = STOP,
) -> StepMaker: ...
def step(
    func: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    retry: RetryPolicy | int | None = None,
    timeout: Seconds | None = None,
    on_error: Any = STOP,
) -> Any:
    """Make a function a step: `@step` or `@step(name="fetch", retry=RetryPolicy(3), timeout=30)`.

    A function that is not async runs in a thread. Name and arguments identify the recorded result.
    """

    def make(function: Callable[..., Any]) -> StepWrapper[Any, Any]:
        return StepWrapper(function, name=name, retry=retry, timeout=timeout, on_error=on_error)

    return make if func is None else make(func)
