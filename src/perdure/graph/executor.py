"""Executor: the unit of work of a graph, and how it finds the handler for a message."""

from __future__ import annotations

import inspect
from difflib import get_close_matches
from typing import Any, ClassVar, Self

from perdure.errors import type_name
from perdure.graph.handlers import MARK, Declaration, Handler, read_handler
from perdure.graph.policy import DEFAULT, STOP, FailurePolicy, RetryPolicy, Seconds, executor_policy
from perdure.graph.types.matching import (
    depends_on_value,
    flatten_union,
    is_instance_of,
    is_type_compatible,
    most_specific,
)
from perdure.records import WorkflowMessage

_UNSEEN = object()


class HandlerTable:
    """The handlers of one executor class, or of one function; shared by all its instances."""

    def __init__(self, owner: str, handlers: list[Handler]) -> None:
        self.handlers = [handler for handler in handlers if not handler.is_response]
        self.responses = [handler for handler in handlers if handler.is_response]
        self._types = [handler.message_type for handler in self.handlers]
        self._by_type: dict[type, Handler | None] = {}
        self._cacheable = not any(depends_on_value(annotation) for annotation in self._types)
        _refuse_duplicates(owner, self.handlers, self.responses)

    def find(self, message: object) -> Handler | None:
        """The most specific handler that accepts the message."""
        kind = type(message)
        cached = self._by_type.get(kind, _UNSEEN)
        if cached is not _UNSEEN:
            return cached  # type: ignore[return-value]  # the sentinel is excluded above
        index = most_specific(message, self._types)
        handler = None if index is None else self.handlers[index]
        if self._cacheable:
            self._by_type[kind] = handler
        return handler

    def find_response(self, request: object, response: object) -> Handler | None:
        matches = [handler for handler in self.responses if is_instance_of(request, handler.request_type)]
        matches = [handler for handler in matches if is_instance_of(response, handler.message_type)]
        if len(matches) < 2:
            return matches[0] if matches else None
        best = most_specific(request, [handler.request_type for handler in matches])
        matches = [handler for handler in matches if handler.request_type == matches[best or 0].request_type]
        return matches[most_specific(response, [handler.message_type for handler in matches]) or 0]


def _refuse_duplicates(owner: str, handlers: list[Handler], responses: list[Handler]) -> None:
    seen: dict[Any, str] = {}
    for handler in (*handlers, *responses):
        key = (
            str(handler.request_type),
            str(handler.message_type),
            handler.request_type,
            _hashable(handler.message_type),
        )
        if key in seen:
            raise ValueError(
                f"{owner} has two handlers for {type_name(handler.message_type)}: {seen[key]!r} and {handler.name!r}. "
                "Keep one, or give them different types."
            )
        seen[key] = handler.name


def _hashable(annotation: Any) -> Any:
    try:
        hash(annotation)
    except TypeError:
        return repr(annotation)
    return annotation


class Executor:
    """Base of every executor: a class with an `id` and methods marked `@handler`.

    One instance serves one thread. Checkpoints contain attributes of `self` only through `on_checkpoint_save` and
    `on_checkpoint_restore`: they are then restored after a failed superstep, and in another process. Without these
    hooks a stored thread starts each run with new instances, except the first thread of a workflow object, which
    uses the original instances.
    """

    _table: ClassVar[HandlerTable | None] = None
    _made_with: tuple[tuple[Any, ...], dict[str, Any]]

    id: str
    table: HandlerTable
    policy: FailurePolicy = DEFAULT

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        instance = super().__new__(cls)
        # Other threads get instances of their own from the same arguments. Containers are copied now, because
        # the caller may change them; other objects (clients, connections) are shared between the instances.
        instance._made_with = _own(args), _own(kwargs)
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
        self.id = _checked_id(id)
        _refuse_misspelt(others)
        self.policy = executor_policy(id, retry, timeout, on_error)
        self.type = type_ or type or self.__class__.__name__
        if not defer_discovery:
            self.table = table_of(self.__class__)
            if not self.table.handlers and not self.table.responses:
                raise ValueError(
                    f"Executor {self.__class__.__qualname__} has no handlers. Mark a method with @handler: "
                    "`@handler async def handle(self, message: str, ctx: WorkflowContext[str]) -> None`."
                )

    # Open signatures, so that a subclass may write its hooks with or without `ctx`.

    async def on_checkpoint_save(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the state of `self` to save: `async def on_checkpoint_save(self)`, or `(self, ctx: HookContext)`."""
        return {}

    async def on_checkpoint_restore(self, *args: Any, **kwargs: Any) -> None:
        """Restore the saved state: `on_checkpoint_restore(self, state)`, or `(self, state, ctx: HookContext)`."""

    def fresh(self) -> Executor:
        """A new instance from the same arguments, for another thread; itself if its class `is_stateless`."""
        kind = type(self)
        if "is_stateless" in vars(kind) and kind.is_stateless:
            return self
        args, kwargs = self._made_with
        return kind(*_own(args), **_own(kwargs))

    def can_handle(self, message: WorkflowMessage) -> bool:
        if message.original_request_info_event is not None:
            question = message.original_request_info_event.data
            return self.table.find_response(question, message.data) is not None
        return self.table.find(message.data) is not None

    @property
    def input_types(self) -> list[Any]:
        types = [member for handler in self.table.handlers for member in flatten_union(handler.message_type)]
        return list(dict.fromkeys(types))

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


def _checked_id(executor_id: object) -> str:
    if not isinstance(executor_id, str) or not executor_id:
        raise ValueError(f"An executor needs a non-empty id, got {executor_id!r}. Checkpoints find its state by it.")
    return executor_id


def _refuse_misspelt(others: dict[str, Any]) -> None:
    """Accept other keywords that a class passes on, but reject a misspelt policy, which would have no effect."""
    for name in others:
        near = get_close_matches(name, ("retry", "timeout", "on_error"), 1, 0.65)
        if near:
            raise TypeError(f"Executor() got an unexpected keyword argument {name!r}: did you mean {near[0]!r}?")


_CONTAINERS = (dict, list, tuple, set)


def _own(container: Any) -> Any:
    """A copy of the container and of those in it, at any depth; other contents are shared."""
    if type(container) is dict:
        return {key: _own(part) if type(part) in _CONTAINERS else part for key, part in container.items()}
    return type(container)([_own(part) if type(part) in _CONTAINERS else part for part in container])
