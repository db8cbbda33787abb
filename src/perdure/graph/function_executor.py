"""Functions as executors: `@executor` and `FunctionExecutor`."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import Any, overload

from perdure.cancelling import await_uncancelled
from perdure.graph.executor import Executor, HandlerTable
from perdure.graph.handlers import Declaration, Handler, read_handler
from perdure.graph.policy import STOP, RetryPolicy, Seconds
from perdure.graph.types.matching import hints_of


class FunctionExecutor(Executor):
    """An executor made of one function: `func(message)` or `func(message, ctx)`. A sync function runs in a thread.

    `retry=`, `timeout=` and `on_error=` are those of every Executor.
    """

    is_stateless = True

    def __init__(
        self,
        func: Callable[..., Any],
        id: str | None = None,
        *,
        input: Any = None,
        output: Any = None,
        workflow_output: Any = None,
        retry: RetryPolicy | int | None = None,
        timeout: Seconds | None = None,
        on_error: Any = STOP,
    ) -> None:
        if not callable(func):
            raise ValueError(f"FunctionExecutor needs a function, got {func!r}.")
        if isinstance(func, (staticmethod, classmethod)):
            raise ValueError("FunctionExecutor does not take static or class methods: pass the plain function.")
        _refuse_generator(func)
        name = id or getattr(func, "__name__", "") or "function"
        super().__init__(name, defer_discovery=True, retry=retry, timeout=timeout, on_error=on_error)
        self.func = func
        self.table = HandlerTable(self.id, [_handler_of(func, input, output, workflow_output)])

    @property
    def code(self) -> Any:
        return self.func

    async def __call__(self, *args: Any) -> Any:
        """Call the function itself, as in a test."""
        if is_async(self.func):
            return await self.func(*args)
        return await asyncio.to_thread(self.func, *args)


@overload
def executor(func: Callable[..., Any]) -> FunctionExecutor: ...
@overload
def executor(
    func: None = None,
    *,
    id: str | None = None,
    input: Any = None,
    output: Any = None,
    workflow_output: Any = None,
    retry: RetryPolicy | int | None = None,
    timeout: Seconds | None = None,
    on_error: Any = STOP,
) -> Callable[[Callable[..., Any]], FunctionExecutor]: ...
def executor(
    func: Callable[..., Any] | None = None,
    *,
    id: str | None = None,
    input: Any = None,
    output: Any = None,
    workflow_output: Any = None,
    retry: RetryPolicy | int | None = None,
    timeout: Seconds | None = None,
    on_error: Any = STOP,
) -> Any:
    """Make a function an executor: `@executor` or `@executor(id="upper")`."""

    def make(function: Callable[..., Any]) -> FunctionExecutor:
        return FunctionExecutor(
            function,
            id,
            input=input,
            output=output,
            workflow_output=workflow_output,
            retry=retry,
            timeout=timeout,
            on_error=on_error,
        )

    return make if func is None else make(func)


def _handler_of(func: Callable[..., Any], input: Any, output: Any, workflow_output: Any) -> Handler:
    if input is None and (output is not None or workflow_output is not None):
        raise ValueError(
            "@executor(output=..., workflow_output=...) also needs input=: explicit types replace annotations."
        )
    explicit = None if input is None else {"input": input, "output": output, "workflow_output": workflow_output}
    hints = None if explicit is not None else hints_of(func)
    handler = read_handler(func, Declaration(False, explicit, hints), bound=False)
    return Handler(
        handler.name,
        _as_method(func),
        handler.message_type,
        None,
        handler.output_types,
        handler.workflow_output_types,
        handler.takes_context,
        handler.returns,
        handler.own_task,
    )


def _plain(func: Any) -> tuple[Any, ...]:
    """The called functions: the one under a partial, and the `__call__` of an object."""
    while isinstance(func, functools.partial):
        func = func.func
    return func, getattr(func, "__call__", None)  # noqa: B004  # asked what kind it is, not whether it can be called


def is_async(func: Callable[..., Any]) -> bool:
    return any(map(inspect.iscoroutinefunction, _plain(func)))


def _refuse_generator(func: Callable[..., Any]) -> None:
    if any(inspect.isgeneratorfunction(part) or inspect.isasyncgenfunction(part) for part in _plain(func)):
        raise ValueError(
            f"{func!r} is a generator: it would never run. Use a plain function, and `await ctx.yield_output(...)` or "
            "`await ctx.send_message(...)` in place of `yield`."
        )


def _as_method(func: Callable[..., Any]) -> Callable[..., Any]:
    """A handler that drops its first argument, the executor, and calls the function."""
    if is_async(func):

        @functools.wraps(func)
        async def in_loop(_: Executor, *args: Any) -> Any:
            return await func(*args)

        return in_loop

    @functools.wraps(func)
    async def in_thread(_: Executor, *args: Any) -> Any:
        # An OS thread cannot be cancelled, so await it: its side effects must not outlive the run.
        returned, cancelled = await await_uncancelled(asyncio.to_thread(_without_stop_iteration, func, args))
        if cancelled is not None:
            raise cancelled
        return await returned if inspect.isawaitable(returned) else returned

    return in_thread


def _without_stop_iteration(func: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Call the function, and replace StopIteration: a future cannot hold it, and its waiter would wait forever."""
    try:
        return func(*args)
    except StopIteration as error:
        raise RuntimeError(f"{func!r} raised StopIteration: {error!r}") from error
