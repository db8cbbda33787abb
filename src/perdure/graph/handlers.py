"""`@handler` and `@response_handler`: the types that an executor accepts, and the handler of a message.

The types come from annotations or explicit arguments.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Never, NoReturn, TypeVar, get_args, get_origin, overload

from perdure.errors import type_name
from perdure.graph.annotations import contains_typevar, flatten_union, hints_of, normalize, resolve_annotation
from perdure.graph.context import WorkflowContext
from perdure.graph.matching import is_decided_by_type, is_instance_of, most_specific

F = TypeVar("F", bound=Callable[..., Any])

MARK = "__perdure_handler__"


class Returns(Enum):
    """How a handler's return value is used."""

    NOTHING = "nothing"
    SENT = "sent"
    YIELDED = "yielded"


@dataclass(frozen=True, slots=True)
class Handler:
    """One way into an executor."""

    name: str
    function: Callable[..., Any]
    message_type: Any
    """The accepted type; for a response handler, that of the answer."""
    request_type: Any
    """Response handlers: the type of the request. Otherwise None."""
    output_types: tuple[Any, ...]
    workflow_output_types: tuple[Any, ...]
    takes_context: bool
    returns: Returns
    own_task: bool = False
    """Whether it runs in a task of its own: `asyncio.timeout`, and a failing TaskGroup, cancel their task, which must
    not look like a cancellation of the run."""

    @property
    def is_response(self) -> bool:
        return self.request_type is not None


@dataclass(frozen=True, slots=True)
class Declaration:
    """The arguments of a decorator. The annotations are read when the class is first used."""

    is_response: bool
    explicit: dict[str, Any] | None
    """None: infer from annotations."""
    early_hints: dict[str, Any] | None
    """Hints resolved while decorating, when classes of an enclosing function are still visible."""


@overload
def handler(func: F) -> F: ...
@overload
def handler(
    func: None = None, *, input: Any = None, output: Any = None, workflow_output: Any = None
) -> Callable[[F], F]: ...
def handler(func: F | None = None, *, input: Any = None, output: Any = None, workflow_output: Any = None) -> Any:
    """Mark a method of an Executor as the handler for a type of message.

    The types come from its annotations, `async def m(self, message: T, ctx: WorkflowContext[Sent, Yielded])`, or, all
    of them, from `input=`, `output=` and `workflow_output=`.
    """
    if input is None and (output is not None or workflow_output is not None):
        raise ValueError(
            "@handler(output=..., workflow_output=...) also needs input=: explicit types replace all annotations."
        )
    explicit = None if input is None else {"input": input, "output": output, "workflow_output": workflow_output}
    return _decorate(func, explicit, is_response=False)


@overload
def response_handler(func: F) -> F: ...
@overload
def response_handler(
    func: None = None, *, request: Any = None, response: Any = None, output: Any = None, workflow_output: Any = None
) -> Callable[[F], F]: ...
def response_handler(
    func: F | None = None, *, request: Any = None, response: Any = None, output: Any = None, workflow_output: Any = None
) -> Any:
    """Mark a method as the receiver of answers: `async def m(self, original_request: R, response: S, ctx)`."""
    if (request is None) != (response is None):
        raise ValueError("@response_handler needs both request= and response=, or neither.")
    if request is None and (output is not None or workflow_output is not None):
        raise ValueError("@response_handler(output=...) also needs request= and response=.")
    explicit = {"request": request, "input": response, "output": output, "workflow_output": workflow_output}
    return _decorate(func, None if request is None else explicit, is_response=True)


def _decorate(func: F | None, explicit: dict[str, Any] | None, *, is_response: bool) -> Any:
    """The marked function or, without one, the decorator that marks it."""

    def mark(function: F) -> F:
        early = None
        if explicit is None:
            with contextlib.suppress(ValueError):  # refers to a class that is defined later: read again at first use
                early = hints_of(function)
        setattr(function, MARK, Declaration(is_response, explicit, early))
        return function

    return mark if func is None else mark(func)


def read_handler(function: Callable[..., Any], declaration: Declaration, *, bound: bool = True) -> Handler:
    """The handler that a marked function declares. Raises ValueError for missing or wrong annotations."""
    parameters = inspect.signature(function).parameters.values()
    keywords = [parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    required = [parameter.name for parameter in keywords if parameter.default is parameter.empty]
    if required:
        raise ValueError(
            f"Handler {_name(function)!r} requires the keyword {required[0]!r}, but handlers are called with the "
            "message and the context, by position. Give the keyword a default, or remove it."
        )
    names = [parameter.name for parameter in parameters if parameter not in keywords][1 if bound else 0 :]
    values = 2 if declaration.is_response else 1
    if not values <= len(names) <= values + 1:
        raise ValueError(
            f"Handler {_name(function)!r} must take {'request, response' if values == 2 else 'a message'} and, "
            f"optionally, a context; it takes ({', '.join(names)})."
        )
    takes_context = len(names) == values + 1
    if declaration.explicit is not None:
        types, sent, yielded = _explicit_types(function, declaration.explicit)
        returns = Returns.NOTHING
    else:
        hints = declaration.early_hints if declaration.early_hints is not None else hints_of(function)
        types = [_declared_type(function, hints, name) for name in names[:values]]
        sent, yielded = _context_types(function, hints.get(names[values])) if takes_context else ((), ())
        sent, yielded, returns = _with_return(hints.get("return"), sent, yielded)
    request, own = types[0] if declaration.is_response else None, cancels_itself(function)
    name = _name(function).rpartition(".")[2]
    return Handler(name, function, types[-1], request, sent, yielded, takes_context, returns, own)


def cancels_itself(function: Any) -> bool:
    """Whether its own code uses a TaskGroup or a timeout, which cancel the task that it runs in."""
    code = getattr(function, "__code__", None)
    return code is not None and not {"TaskGroup", "timeout", "timeout_at"}.isdisjoint(code.co_names)


def _name(function: Any) -> str:
    """The function's name in messages. A partial or a callable object has the name of its class."""
    name: str = getattr(function, "__qualname__", None) or type(function).__qualname__
    return name


def _explicit_types(
    function: Callable[..., Any], explicit: dict[str, Any]
) -> tuple[list[Any], tuple[Any, ...], tuple[Any, ...]]:
    """The types of the parameters, and those that are sent and yielded."""
    namespace = getattr(function, "__globals__", {})
    types = {name: resolve_annotation(kind, namespace) for name, kind in explicit.items() if kind is not None}
    accepted = [normalize(types[name]) for name in ("request", "input") if name in explicit]
    _refuse_typevar(function, accepted[-1])
    sent, yielded = (flatten_union(types[name]) if name in types else () for name in ("output", "workflow_output"))
    return accepted, sent, yielded


def _declared_type(function: Callable[..., Any], hints: dict[str, Any], name: str) -> Any:
    if name not in hints:
        raise ValueError(
            f"Handler {_name(function)!r} needs a type annotation on {name!r}: it decides which messages arrive "
            "here. Annotate it, or give explicit types: @handler(input=...)."
        )
    _refuse_typevar(function, hints[name])
    return normalize(hints[name])


def _refuse_typevar(function: Callable[..., Any], annotation: Any) -> None:
    if contains_typevar(annotation):
        raise ValueError(
            f"Handler {_name(function)!r} is annotated with {type_name(annotation)}, a type variable, which no "
            "message can be matched with. Use a concrete type, or @handler(input=...)."
        )


def _context_types(function: Callable[..., Any], annotation: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The types in `WorkflowContext[Sent, Yielded]`; none for a bare or missing annotation."""
    if annotation is None or annotation is Any or annotation is WorkflowContext:
        return (), ()
    if get_origin(annotation) is not WorkflowContext:
        raise ValueError(
            f"Handler {_name(function)!r}: the context parameter is annotated with {type_name(annotation)}, "
            "expected WorkflowContext, WorkflowContext[Sent] or WorkflowContext[Sent, Yielded]."
        )
    sent, yielded = get_args(annotation)
    return _spread(sent), _spread(yielded)


def _spread(annotation: Any) -> tuple[Any, ...]:
    return tuple(member for member in flatten_union(annotation) if member is not Never and member is not NoReturn)


def _with_return(
    annotation: Any, sent: tuple[Any, ...], yielded: tuple[Any, ...]
) -> tuple[tuple[Any, ...], tuple[Any, ...], Returns]:
    """The types with a declared return value, which is sent, or yielded if only outputs are declared."""
    returned = () if annotation is None else _spread(annotation)
    if not returned or returned == (type(None),):
        return sent, yielded, Returns.NOTHING
    if yielded and not sent:
        return sent, tuple(dict.fromkeys((*yielded, *returned))), Returns.YIELDED
    return tuple(dict.fromkeys((*sent, *returned))), yielded, Returns.SENT


class HandlerTable:
    """The handlers of one executor class, or of one function; shared by all its instances."""

    def __init__(self, owner: str, handlers: list[Handler]) -> None:
        self.handlers = [handler for handler in handlers if not handler.is_response]
        self.responses = [handler for handler in handlers if handler.is_response]
        self._decided: dict[type, Handler | None] = {}
        """By the type of a message: its handler, where the type decides."""
        self._possible: dict[type, list[Handler]] = {}
        """By the type of a message: the handlers that may accept it, where its contents decide."""
        _refuse_duplicates(owner, self.handlers, self.responses)

    def find(self, message: object) -> Handler | None:
        """The most specific handler that accepts the message."""
        kind = type(message)
        if kind in self._decided:
            return self._decided[kind]
        handlers = self._possible.get(kind)
        if handlers is None:
            answers = [is_decided_by_type(message, handler.message_type) for handler in self.handlers]
            pairs = zip(self.handlers, answers, strict=True)
            handlers = [handler for handler, answer in pairs if answer is not False]
            if None not in answers:
                self._decided[kind] = _find_most_specific(message, handlers)
                return self._decided[kind]
            self._possible[kind] = handlers
        return _find_most_specific(message, handlers)

    def find_response(self, request: object, response: object) -> Handler | None:
        matches = [handler for handler in self.responses if is_instance_of(request, handler.request_type)]
        matches = [handler for handler in matches if is_instance_of(response, handler.message_type)]
        if len(matches) < 2:
            return matches[0] if matches else None
        best = most_specific(request, [handler.request_type for handler in matches])
        matches = [handler for handler in matches if handler.request_type == matches[best or 0].request_type]
        return matches[most_specific(response, [handler.message_type for handler in matches]) or 0]


def _find_most_specific(message: object, handlers: list[Handler]) -> Handler | None:
    index = most_specific(message, [handler.message_type for handler in handlers])
    return None if index is None else handlers[index]


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
