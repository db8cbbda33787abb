"""`@step`: a function whose results are recorded wherever a workflow calls it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from perdure.engine.delivery.context import step_name
from perdure.engine.delivery.lane import current_context
from perdure.errors import StepOutsideWorkflow
from perdure.graph.policy import STOP, RetryPolicy, Seconds, step_policy

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")


class StepWrapper(Generic[P, R]):
    """What `@step` makes of a function: call it in a workflow, and it is not called again once it has ended."""

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
        """Raises StepOutsideWorkflow where there is nothing to record it in."""
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
        """As a method: the instance is not among the arguments that tell one call from another."""
        if instance is None:
            return self
        bound = StepWrapper.__new__(type(self))
        bound.__dict__.update(self.__dict__)
        bound.function = self.function.__get__(instance, owner)
        return bound

    def __repr__(self) -> str:
        return f"StepWrapper({self.name!r})"


class StepMaker(Protocol):
    """What `@step(...)` with arguments gives: it makes a step of a function, async or not."""

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

    Async or not: one that is not runs in a thread. Its result is found again by its name and arguments.
    """

    def make(function: Callable[..., Any]) -> StepWrapper[Any, Any]:
        return StepWrapper(function, name=name, retry=retry, timeout=timeout, on_error=on_error)

    return make if func is None else make(func)
