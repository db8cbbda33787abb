"""Executor: the unit of work of a graph, as a class with handlers or, with `@executor`, as a function."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, ClassVar, Self, overload

from perdure.clock import await_uncancelled
from perdure.graph.handlers import MARK, Declaration, Handler, HandlerTable, read_function, read_handler
from perdure.graph.matching import is_type_compatible
from perdure.graph.policy import DEFAULT, STOP, FailurePolicy, RetryPolicy, Seconds, executor_policy
from perdure.records import WorkflowMessage


class Executor:
    """Base of every executor: a class with an `id` and methods marked `@handler`.

    One instance serves one thread. Checkpoints contain attributes of `self` only through `on_checkpoint_save` and
    `on_checkpoint_restore`: they are then restored after a failed superstep, and in another process. Without these
    hooks a stored thread starts each run with new instances, except the first thread of a workflow object, which
    uses the original instances, also in its sub-workflows. New instances of that thread share the lists, dicts and
    objects of the constructor; those of other threads get copies of lists, dicts, tuples and sets.
    """

    _table: ClassVar[HandlerTable | None] = None
    _arguments: tuple[tuple[Any, ...], dict[str, Any]]
    """The arguments of its constructor."""
    _made_with: tuple[tuple[Any, ...], dict[str, Any]]
    """The same, in containers that the caller cannot change."""

    id: str
    table: HandlerTable
    policy: FailurePolicy = DEFAULT

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        instance = super().__new__(cls)
        # Other threads get instances of their own from the same arguments. Containers are copied now, because
        # the caller may change them; other objects (clients, connections) are shared between the instances.
        instance._arguments, instance._made_with = (args, kwargs), (own_containers(args), own_containers(kwargs))
        return instance

    def __init__(
        self,
        id: str,
        *,
        type: str | None = None,
        type_: str | None = None,
        defer_discovery: bool = False,
        retry: RetryPolicy | int | None = None,
        timeout: Seconds | None = None,
        on_error: Any = STOP,
        **others: Any,
    ) -> None:
        if not isinstance(id, str) or not id:  # type: ignore[redundant-expr]  # of untyped callers
            raise ValueError(f"Executor ID must be a non-empty string, got {id!r}. Checkpoints find its state by it.")
        self.id = id
        _refuse_misspelt(others)
        self.policy = executor_policy(id, retry, timeout, on_error)
        self.type = type_ or type or self.__class__.__name__
        self.table = HandlerTable(id, []) if defer_discovery else table_of(self.__class__)
        if not defer_discovery and not self.table.handlers:
            raise ValueError(
                f"Executor {self.__class__.__name__} has no handlers defined. Mark a method with @handler: "
                "`@handler async def handle(self, message: str, ctx: WorkflowContext[str]) -> None`."
            )

    # Open signatures, so that a subclass may write its hooks with or without `ctx`.

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.is_stateless = vars(cls).get("is_stateless", False)

    async def on_checkpoint_save(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the state of `self` to save: `async def on_checkpoint_save(self)`, or `(self, ctx: HookContext)`."""
        return {}

    async def on_checkpoint_restore(self, *args: Any, **kwargs: Any) -> None:
        """Restore the saved state: `on_checkpoint_restore(self, state)`, or `(self, state, ctx: HookContext)`."""

    def fresh(self, *, shares: bool = False) -> Executor:
        """A new instance from the same arguments; itself if its class `is_stateless`. One for another thread gets
        copies of their containers; with `shares` it gets the containers themselves."""
        if self.is_stateless:
            return self
        args, kwargs = self._arguments if shares else map(own_containers, self._made_with)
        return type(self)(*args, **kwargs)

    def can_handle(self, message: WorkflowMessage) -> bool:
        if message.original_request_info_event is not None:
            question = message.original_request_info_event.data
            return self.table.find_response(question, message.data) is not None
        return self.table.find(message.data) is not None

    @property
    def input_types(self) -> list[Any]:
        return list(dict.fromkeys(handler.message_type for handler in self.table.handlers))

    @property
    def output_types(self) -> list[Any]:
        return _union(self.table, "output_types")

    @property
    def workflow_output_types(self) -> list[Any]:
        return _union(self.table, "workflow_output_types")

    @property
    def is_request_response_capable(self) -> bool:
        return bool(self.table.responses)

    def is_request_supported(self, request_type: Any, response_type: Any) -> bool:
        return any(
            is_type_compatible(request_type, handler.request_type)
            and is_type_compatible(response_type, handler.message_type)
            for handler in self.table.responses
        )

    @property
    def saves_state(self) -> bool:
        """Whether the class has checkpoint hooks of its own."""
        kind = self.__class__
        return (
            kind.on_checkpoint_save is not Executor.on_checkpoint_save
            or kind.on_checkpoint_restore is not Executor.on_checkpoint_restore
        )

    may_end_here = False
    """Whether a message that no edge takes needs no warning, because it has been yielded already."""
    streams_output = False
    """Whether it is like an agent for the consumer of a streamed run: its response arrives as updates."""
    value_types: tuple[Any, ...] = ()
    """Types of its checkpoints beside those of its handlers."""
    is_stateless = False
    """Whether instances hold nothing that belongs to a thread, so that all threads share one. Subclasses do not inherit
    it: they may add state."""
    is_function = False
    """Whether it is a function workflow, whose steps have their own names in events."""

    @property
    def code(self) -> Any:
        """The user's class or function. It names the executor in a signature, and declares the data types beside it."""
        return type(self)

    def to_dict(self) -> dict[str, Any]:
        return {"id": self.id, "type": self.type}

    def to_json(self) -> str:
        return json.dumps(self.to_dict())

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(id={self.id!r})"


def accepts(executor: Executor, kind: Any) -> bool:
    """Whether some handler may accept values of this type."""
    return any(is_type_compatible(kind, accepted) for accepted in executor.input_types)


def table_of(kind: type[Executor]) -> HandlerTable:
    """The class's handlers, base classes included; an overridden method counts once, as overridden."""
    table = kind.__dict__.get("_table")
    if table is None:
        marked: dict[str, Any] = {}
        for base in reversed(kind.__mro__):
            for name, member in vars(base).items():
                if isinstance(getattr(member, MARK, None), Declaration):
                    marked[name] = member
                elif name in marked:
                    del marked[name]
        handlers = [read_handler(member, getattr(member, MARK)) for member in marked.values()]
        _refuse_sync(handlers)
        table = HandlerTable(kind.__qualname__, handlers)
        kind._table = table
    return table


def _refuse_sync(handlers: list[Handler]) -> None:
    for handler in handlers:
        if inspect.isasyncgenfunction(handler.function):
            raise ValueError(
                f"Handler {handler.function.__qualname__!r} is a generator: it would never run. Use "
                "`await ctx.yield_output(...)` or `await ctx.send_message(...)` in place of `yield`."
            )
        if not inspect.iscoroutinefunction(handler.function):
            raise ValueError(
                f"Handler {handler.function.__qualname__!r} must be an `async def`. For a plain function use "
                "@executor: it runs in a thread."
            )


def _union(table: HandlerTable, field: str) -> list[Any]:
    types = (member for handler in (*table.handlers, *table.responses) for member in getattr(handler, field))
    return list(dict.fromkeys(types))


def _refuse_misspelt(others: dict[str, Any]) -> None:
    """Accept other keywords that a class passes on, but reject a misspelt policy, which would have no effect."""
    for name in others:
        near = get_close_matches(name, ("retry", "timeout", "on_error"), 1, 0.65)
        if near:
            raise TypeError(f"Executor() got an unexpected keyword argument {name!r}: did you mean {near[0]!r}?")


_CONTAINERS = (dict, list, tuple, set)


def own_containers(container: Any) -> Any:
    """A copy of the container and of those in it, at any depth; other contents are shared."""
    if type(container) is dict:
        return {key: own_containers(part) if type(part) in _CONTAINERS else part for key, part in container.items()}
    return type(container)([own_containers(part) if type(part) in _CONTAINERS else part for part in container])


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
        if isinstance(func, (staticmethod, classmethod)):
            raise ValueError(
                f"The @executor decorator cannot be used with @{type(func).__name__}. It takes standalone module-level "
                "functions; write an Executor, and use @handler on instance methods."
            )
        if not callable(func):
            raise ValueError(f"FunctionExecutor needs a function, got {func!r}.")
        if any(inspect.isgeneratorfunction(part) or inspect.isasyncgenfunction(part) for part in _plain(func)):
            raise ValueError(
                f"{func!r} is a generator: it would never run. Use a plain function, and `await ctx.yield_output(...)` "
                "or `await ctx.send_message(...)` in place of `yield`."
            )
        name = id or getattr(func, "__name__", "") or "function"
        super().__init__(name, defer_discovery=True, retry=retry, timeout=timeout, on_error=on_error)
        self.func = func
        handler = read_function(func, {"input": input, "output": output, "workflow_output": workflow_output})
        self.table = HandlerTable(self.id, [replace(handler, function=_as_method(func))])

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
    types: dict[str, Any] = {"input": input, "output": output, "workflow_output": workflow_output}
    policy: dict[str, Any] = {"retry": retry, "timeout": timeout, "on_error": on_error}
    make: Callable[..., FunctionExecutor] = functools.partial(FunctionExecutor, id=id, **types, **policy)
    return make if func is None else make(func)


def _plain(func: Any) -> tuple[Any, ...]:
    """The called functions: the one under a partial, and the `__call__` of an object."""
    while isinstance(func, functools.partial):
        func = func.func
    return func, getattr(func, "__call__", None)  # noqa: B004  # asked what kind it is, not whether it can be called


def is_async(func: Callable[..., Any]) -> bool:
    return any(map(inspect.iscoroutinefunction, _plain(func)))


def _as_method(func: Callable[..., Any]) -> Callable[..., Any]:
    """A handler that drops its first argument, the executor, and calls the function."""
    runs_in_loop = is_async(func)

    @functools.wraps(func)
    async def call(_: Executor, *args: Any) -> Any:
        return await (func(*args) if runs_in_loop else call_in_thread(func, args, {}))

    return call


async def call_in_thread(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The result of a function that is not async, and awaited if it is awaitable."""

    def call() -> Any:
        try:
            return func(*args, **kwargs)
        except StopIteration as error:  # a future cannot hold it, and its waiter would wait forever
            raise RuntimeError(f"{func!r} raised StopIteration: {error!r}") from error

    # An OS thread cannot be cancelled, so await it: its side effects must not outlive the delivery.
    returned, cancelled = await await_uncancelled(asyncio.to_thread(call))
    if cancelled is not None:
        raise cancelled
    return await returned if inspect.isawaitable(returned) else returned
