"""`@handler` and `@response_handler`: the types that an executor accepts, and the handler of a message.

The types come from annotations or explicit arguments.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable
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
    """The arguments of a decorator."""

    is_response: bool
    explicit: dict[str, Any] | None
    """None: infer from annotations."""
    early_hints: dict[str, Any] | None
    """Hints resolved while decorating, when classes of an enclosing function are still visible. None: a name in them is
    defined later, so the annotations are read when the class is first used."""


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
            "A handler with explicit type parameters must specify 'input' type: @handler(input=..., output=...). "
            "Explicit types replace all annotations."
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
    if any(kind is not None for kind in (request, response, output, workflow_output)):
        missing = "request" if request is None else "response" if response is None else None
        if missing is not None:
            raise ValueError(
                f"A response handler with explicit type parameters must specify {missing!r} type: "
                "@response_handler(request=..., response=...). Explicit types replace all annotations."
            )
    explicit = {"request": request, "input": response, "output": output, "workflow_output": workflow_output}
    return _decorate(func, None if request is None else explicit, is_response=True)


def _decorate(func: F | None, explicit: dict[str, Any] | None, *, is_response: bool) -> Any:
    """The marked function or, without one, the decorator that marks it."""

    def mark(function: F) -> F:
        early = None
        with contextlib.suppress(ValueError):  # refers to a class that is defined later: read again at first use
            early = {} if explicit is not None else hints_of(function)
        declaration = Declaration(is_response, explicit, early)
        if early is not None and not any(isinstance(kind, str) for kind in (explicit or {}).values()):
            read_handler(function, declaration)  # wrong annotations are rejected where they are written
        setattr(function, MARK, declaration)
        return function

    return mark if func is None else mark(func)


def read_handler(function: Callable[..., Any], declaration: Declaration) -> Handler:
    """The handler that a marked method declares. Raises ValueError for missing or wrong annotations."""
    role = "Response handler" if declaration.is_response else "Handler"
    roles = ["original_request", "response"] if declaration.is_response else ["message"]
    names = _parameters(function, role, ["self", *roles])[1:]
    takes_context = len(names) > len(roles)
    explicit = declaration.explicit
    if explicit is not None:
        stated = _explicit_types(function, explicit)
        types = [normalize(stated[name]) for name in ("request", "input") if name in stated]
        sent, yielded = flatten_union(stated.get("output", Never)), flatten_union(stated.get("workflow_output", Never))
        sent, yielded, returns = _real(sent), _real(yielded), Returns.NOTHING
    else:
        hints = declaration.early_hints if declaration.early_hints is not None else hints_of(function)
        types = [_declared_type(function, role, hints, *pair) for pair in zip(names, roles, strict=False)]
        is_open = not takes_context or (declaration.is_response and names[-1] not in hints)
        sent, yielded = ((), ()) if is_open else _context_types(function, role, hints, names[-1])
        sent, yielded, returns = _with_return(hints.get("return"), sent, yielded)
    request = types[0] if declaration.is_response else None
    own = cancels_itself(function)
    return Handler(_short_name(function), function, types[-1], request, sent, yielded, takes_context, returns, own)


def read_function(function: Callable[..., Any], explicit: dict[str, Any]) -> Handler:
    """The handler that a function is: each explicit type replaces what its annotations say."""
    role = "Function instance"
    names = _parameters(function, role, ["message"])
    stated = _explicit_types(function, explicit)
    try:
        hints = hints_of(function)
    except ValueError:
        if "input" not in stated:
            raise
        hints = {}
    if "input" in stated:
        kind = normalize(stated["input"])
    else:
        kind = _declared_type(function, role, hints, names[0], "message")
    sent, yielded = (), ()
    if len(names) > 1 and ("input" not in stated or get_origin(hints.get(names[1])) is WorkflowContext):
        sent, yielded = _context_types(function, role, hints, names[1])
    sent = _real(flatten_union(stated["output"])) if "output" in stated else sent
    yielded = _real(flatten_union(stated["workflow_output"])) if "workflow_output" in stated else yielded
    returns = Returns.NOTHING
    if not stated:
        sent, yielded, returns = _with_return(hints.get("return"), sent, yielded)
    own = cancels_itself(function)
    return Handler(_short_name(function), function, kind, None, sent, yielded, len(names) > 1, returns, own)


def _parameters(function: Callable[..., Any], role: str, expected: list[str]) -> list[str]:
    """The names of its positional parameters: the expected ones, and a context, which only response handlers need."""
    parameters = inspect.signature(function).parameters.values()
    keywords = [parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    required = [parameter.name for parameter in keywords if parameter.default is parameter.empty]
    if required:
        raise ValueError(
            f"{role} {_short_name(function)} requires the keyword {required[0]!r}, but handlers are called with the "
            "message and the context, by position. Give the keyword a default, or remove it."
        )
    names = [parameter.name for parameter in parameters if parameter not in keywords]
    needed = len(expected) + (role == "Response handler")
    if not needed <= len(names) <= len(expected) + 1:
        raise ValueError(f"{role} {_short_name(function)} must have {_SIGNATURES[role]}. Got {len(names)} parameters.")
    return names


_SIGNATURES = {
    "Handler": "(self, message: T, ctx: WorkflowContext[U, V])",
    "Response handler": "(self, original_request, response, ctx)",
    "Function instance": "(message: T) or (message: T, ctx: WorkflowContext[U])",
}


def cancels_itself(function: Any) -> bool:
    """Whether its own code uses a TaskGroup or a timeout, which cancel the task that it runs in."""
    code = getattr(function, "__code__", None)
    return code is not None and not {"TaskGroup", "timeout", "timeout_at"}.isdisjoint(code.co_names)


def _name(function: Any) -> str:
    """The function's name in messages. A partial or a callable object has the name of its class."""
    name: str = getattr(function, "__qualname__", None) or type(function).__qualname__
    return name


def _short_name(function: Any) -> str:
    return _name(function).rpartition(".")[2]


def _explicit_types(function: Callable[..., Any], explicit: dict[str, Any]) -> dict[str, Any]:
    namespace = getattr(function, "__globals__", {})
    types = {name: resolve_annotation(kind, namespace) for name, kind in explicit.items() if kind is not None}
    for name, kind in types.items():
        which = "response" if name == "input" and "request" in types else name
        _refuse_typevar(kind, f"Handler {_short_name(function)!r} has an unresolved TypeVar {{}} as its {which} type")
    return types


def _declared_type(function: Callable[..., Any], role: str, hints: dict[str, Any], name: str, what: str) -> Any:
    if name not in hints:
        raise ValueError(
            f"{role} {_short_name(function)} must have a type annotation for the {what} parameter {name!r}: it decides "
            "which messages arrive here. Annotate it, or give explicit types: @handler(input=...)."
        )
    _refuse_typevar(
        hints[name], f"{role} {_short_name(function)} has an unresolved TypeVar {{}} as its {what} type annotation"
    )
    return normalize(hints[name])


def _refuse_typevar(annotation: Any, complaint: str) -> None:
    if contains_typevar(annotation):
        raise ValueError(
            f"{complaint.format(repr(type_name(annotation)))}: no message can be matched with it. Use a concrete type, "
            "or @handler(input=..., output=...)."
        )


def _context_types(
    function: Callable[..., Any], role: str, hints: dict[str, Any], name: str
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The types in `WorkflowContext[Sent, Yielded]`; none for a bare annotation."""
    annotation = hints.get(name)
    if annotation is WorkflowContext:
        return (), ()
    if name not in hints:
        raise ValueError(
            f"{role} parameter {name!r} must have a WorkflowContext, WorkflowContext[T] or WorkflowContext[T, U] type "
            f"annotation, where T is the type of sent messages and U that of outputs. {_name(function)!r} has none."
        )
    if get_origin(annotation) is not WorkflowContext:
        raise ValueError(
            f"{role} parameter {name!r} must be annotated as WorkflowContext, WorkflowContext[T], or "
            f"WorkflowContext[T, U], got {type_name(annotation)} in {_name(function)!r}."
        )
    arguments = zip(get_args(annotation), ("OutT", "W_OutT"), strict=True)
    sent, yielded = (_context_argument(kind, f"{role} parameter {name!r} {variable}") for kind, variable in arguments)
    return sent, yielded


def _context_argument(annotation: Any, place: str) -> tuple[Any, ...]:
    _refuse_typevar(annotation, f"{place} contains an unresolved TypeVar in {{}}")
    members = flatten_union(annotation)
    wrong = [member for member in members if isinstance(member, int | float | bytes | list | tuple | dict | set)]
    if wrong:
        raise ValueError(f"{place} contains invalid type entry: {wrong[0]!r}. Use proper types or typing generics.")
    return _real(members)


def _real(members: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(member for member in members if member is not Never and member is not NoReturn)


def _with_return(
    annotation: Any, sent: tuple[Any, ...], yielded: tuple[Any, ...]
) -> tuple[tuple[Any, ...], tuple[Any, ...], Returns]:
    """The types with a declared return value, which is sent, or yielded if only outputs are declared."""
    returned = () if annotation is None else _real(flatten_union(annotation))
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
        matches = [handler for handler in self.responses if is_instance_of(response, handler.message_type)]
        best = most_specific(request, [handler.request_type for handler in matches])
        if best is None:
            return None
        kind = matches[best].request_type
        return _find_most_specific(response, [handler for handler in matches if handler.request_type == kind])


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
            asked = f"response handler for request type {type_name(handler.request_type)} and response"
            raise ValueError(
                f"Duplicate {asked if handler.is_response else 'handler for'} type {type_name(handler.message_type)} "
                f"in {owner}: {seen[key]!r} and {handler.name!r}. Keep one, or give them different types."
            )
        seen[key] = handler.name


def _hashable(annotation: Any) -> Any:
    try:
        hash(annotation)
    except TypeError:
        return repr(annotation)
    return annotation
