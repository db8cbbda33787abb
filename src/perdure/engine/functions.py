"""Function workflows: their context, their steps (`@step`), and their executor."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypedDict, TypeVar, Unpack, overload

from perdure.engine.delivery.context import DeliveryContext, step_name
from perdure.engine.delivery.lane import current_context
from perdure.engine.delivery.recorder import Work, is_context
from perdure.engine.thread.inputs import Terms
from perdure.errors import InvalidFunction, InvalidRun
from perdure.events import WorkflowEvent
from perdure.graph.annotations import flatten_union, hints_of
from perdure.graph.executor import Executor
from perdure.graph.handlers import Handler, HandlerTable, Returns
from perdure.graph.policy import STOP, RetryPolicy, Seconds, step_policy
from perdure.names import check_options

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")
Q = ParamSpec("Q")


class StepOptions(TypedDict, total=False):
    """The keyword arguments of `ctx.step`."""

    name: str | None
    key: str | None
    """Identifies the record, in place of the arguments."""
    retry: RetryPolicy | int | None
    timeout: Seconds | None
    on_error: Any


class _NoWorkflow:
    """In place of the engine's context, for a function that is tried without a workflow."""

    def __init__(self, name: str, is_streaming: bool) -> None:
        self._name = name
        self.is_streaming = lambda: is_streaming
        self.state: dict[str, Any] = {}
        self.get_state, self.set_state = self.state.get, self.state.__setitem__

    async def add_event(self, event: WorkflowEvent) -> None:
        """Nothing receives it."""

    def __getattr__(self, _: str) -> Any:
        raise InvalidRun(f"The RunContext {self._name!r} belongs to no run. A function gets one from its workflow.")


class RunContext:
    """Handed to a function marked `@workflow` or `@step` that takes it; `get_run_context()` finds it elsewhere.

    `RunContext("name")` tries a function without a workflow: it has state, and it cannot ask.
    """

    __slots__ = ("_inner",)

    is_context_of_perdure = True

    def __init__(self, inner: DeliveryContext | str, *, streaming: bool = False) -> None:
        alone: Any = _NoWorkflow(inner, streaming) if isinstance(inner, str) else inner
        self._inner: DeliveryContext = alone

    @overload
    async def request_info(
        self, request_data: object, response_type: type[T], *, request_id: str | None = None, **terms: Unpack[Terms]
    ) -> T: ...
    @overload
    async def request_info(
        self, request_data: object, response_type: Any, *, request_id: str | None = None, **terms: Unpack[Terms]
    ) -> Any: ...
    async def request_info(
        self, request_data: object, response_type: Any, *, request_id: str | None = None, **terms: Unpack[Terms]
    ) -> Any:
        """Request input from outside and return the answer, maybe weeks later and in another process.

        When `deadline` passes without an answer, returns `default`; without a default raises RequestExpired.
        """
        check_options("request_info", terms, Terms.__annotations__)
        return await self._inner.ask(request_data, response_type, request_id=request_id, **terms)

    @overload
    async def step(
        self, function: Callable[..., Awaitable[T]], *arguments: Any, **options: Unpack[StepOptions]
    ) -> T: ...
    @overload
    async def step(self, function: Callable[..., T], *arguments: Any, **options: Unpack[StepOptions]) -> T: ...
    async def step(self, function: Callable[..., Any], *arguments: Any, **options: Unpack[StepOptions]) -> Any:
        """Call any function as a step: its result is recorded, and a recorded step is not called again."""
        return await self._inner.step(function, *arguments, **options)

    async def sleep(self, duration: float | timedelta | datetime) -> None:
        """Wait for a duration or until a time, across restarts."""
        await self._inner.sleep(duration)

    async def add_event(self, event: WorkflowEvent) -> None:
        """Emit an event of your own to the run's consumer, now. The data of an `output` event is an output."""
        await (self._inner.yield_output(event.data) if event.type == "output" else self._inner.add_event(event))

    def get_state(self, key: str, default: Any = None) -> Any:
        return self._inner.get_state(key, default)

    def set_state(self, key: str, value: Any) -> None:
        """Store a value with the thread, also from a step that is replayed later."""
        if str(key).startswith("_"):
            raise InvalidRun(f"State key {key!r} starts with '_', which is reserved. Choose another name.")
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
        values = {parameter.name: value for parameter, value in pairs if parameter is not None}
        every = inspect.signature(self.function).parameters.values()
        taken = [each for each in every if each.name in values]
        named = {each.name: values[each.name] for each in taken if each.kind is each.KEYWORD_ONLY}
        return [values[each.name] for each in taken if each.name not in named], named


def read_function(function: Any) -> FunctionShape:
    """The parameters of a workflow function. Raises InvalidFunction."""
    name = getattr(function, "__name__", "") or type(function).__name__
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise InvalidFunction(
            f"@workflow: {name!r} is a generator, which would never run. Return the result, and report progress with "
            "`await ctx.add_event(...)`."
        )
    if not inspect.iscoroutinefunction(function):
        what = "must be an `async def`" if callable(function) else "is not a function"
        raise InvalidFunction(
            f"@workflow: {name!r} {what}. Put code that is not async into a @step, which runs in a thread."
        )
    every = inspect.signature(function).parameters.values()
    parameters = [each for each in every if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]
    hints = hints_or_any(function)
    contexts = [parameter for parameter in parameters if is_run_context(parameter, hints)]
    others = [parameter for parameter in parameters if parameter not in contexts]
    needed = [parameter for parameter in others[1:] if parameter.default is parameter.empty]
    if needed or len(contexts) > 1 or (contexts and parameters.index(contexts[0]) > 1):
        names = ", ".join(parameter.name for parameter in parameters)
        raise InvalidFunction(
            f"@workflow function {name!r} declares multiple non-RunContext parameters or contexts. {name!r} takes "
            f"{names}; expected at most one parameter for the message, and a RunContext: `async def f(message: T, ctx: "
            "RunContext) -> R`. Join several values in one dataclass or dict."
        )
    message_type = hints.get(others[0].name, Any) if others else None
    output = hints.get("return", Any)
    message, context = next(iter(others), None), next(iter(contexts), None)
    return FunctionShape(function, name, message_type, output, message, context, len(parameters))


def hints_or_any(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations as types. If a name in them is only for type checkers, those that are text count as Any."""
    try:
        return hints_of(function)
    except ValueError:
        raw = inspect.get_annotations(function)
        return {name: Any if isinstance(hint, str) and hint != "RunContext" else hint for name, hint in raw.items()}


def is_run_context(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> bool:
    """Whether the parameter takes a RunContext."""
    hint = hints.get(parameter.name)
    is_named_so = parameter.name == "ctx" and hint in (None, Any)
    return is_named_so or any(member in (RunContext, "RunContext") for member in flatten_union(hint))


class FunctionNode(Executor):
    """The executor of a function workflow: each message runs the function from the start."""

    is_function = True
    is_stateless = True

    def __init__(self, shape: FunctionShape, id: str) -> None:
        super().__init__(id, defer_discovery=True)
        self._shape = shape
        accepted = type(None) if shape.message_type is None else shape.message_type
        outputs = () if shape.output_type in (None, type(None)) else tuple(flatten_union(shape.output_type))
        handler = Handler(id, FunctionNode.run, accepted, None, (), outputs, True, Returns.YIELDED, own_task=True)
        self.table = HandlerTable(id, [handler])

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


def _parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except ValueError:  # of a function in C
        return {}


class StepWrapper(Generic[P, R]):
    """A function as a step: a workflow records its result and does not call it again."""

    def __init__(
        self,
        function: Callable[P, Any],
        name: str | None = None,
        retry: RetryPolicy | int | None = None,
        timeout: Seconds | None = None,
        on_error: Any = STOP,
        replay_key: Callable[..., str] | None = None,
    ) -> None:
        self.function = function
        """The plain function."""
        self.name = step_name(function, name)
        self._policy = step_policy(self.name, retry, timeout, on_error)
        self._replay_key = replay_key
        parameters, hints = _parameters_of(function), hints_or_any(function)
        takers = (name for name, parameter in parameters.items() if is_run_context(parameter, hints))
        self._context_name = next(takers, None)
        """The parameter that takes a RunContext, if it has one."""
        functools.update_wrapper(self, function, updated=())

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Outside of a workflow: calls the function, and records nothing."""
        context = current_context.get()
        result: R
        if context is None:
            result = await Work(self.function, args, kwargs, self._policy).perform()
            return result
        key = None if self._replay_key is None else self._replay_key(*args, **kwargs) or ""
        passed, named = self._with_context(context, args, kwargs)
        result = await context.delivery.session.step(Work(self.function, passed, named, self._policy), self.name, key)
        return result

    def _with_context(
        self, context: DeliveryContext, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with a RunContext at the place of its parameter, unless the caller passes one."""
        name = self._context_name
        if name is None or name in kwargs or any(map(is_context, args)):
            return args, kwargs
        parameters = _parameters_of(self.function)
        run_context, place = get_run_context() or RunContext(context), list(parameters).index(name)
        if parameters[name].kind is not inspect.Parameter.KEYWORD_ONLY and len(args) >= place:
            return (*args[:place], run_context, *args[place:]), kwargs
        return args, {**kwargs, name: run_context}

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
    replay_key: Callable[..., str] | None = None,
) -> StepMaker: ...
def step(
    func: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    retry: RetryPolicy | int | None = None,
    timeout: Seconds | None = None,
    on_error: Any = STOP,
    replay_key: Callable[..., str] | None = None,
) -> Any:
    """Make a function a step: `@step` or `@step(name="fetch", retry=RetryPolicy(3), timeout=30)`.

    A function that is not async runs in a thread. A workflow passes a `RunContext` to the parameter that has this type.
    Name and arguments identify the recorded result; `replay_key`, called with the arguments, replaces the arguments.
    """
    policy: dict[str, Any] = {"retry": retry, "timeout": timeout, "on_error": on_error}
    make: Callable[..., Any] = functools.partial(StepWrapper, name=name, **policy, replay_key=replay_key)
    return make if func is None else make(func)
