"""`@step`: a function as a step, with a RunContext if it takes one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from perdure.engine.delivery.context import DeliveryContext, step_name
from perdure.engine.delivery.lane import current_context
from perdure.engine.delivery.recorder import Work, is_context
from perdure.engine.functions import RunContext, get_run_context, hints_or_any, is_run_context
from perdure.graph.policy import STOP, RetryPolicy, Seconds, step_policy

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")


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

    def make(function: Callable[..., Any]) -> StepWrapper[Any, Any]:
        return StepWrapper(function, name, retry, timeout, on_error, replay_key)

    return make if func is None else make(func)
