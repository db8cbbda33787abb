"""Recorded calls of a delivery: stable keys that identify each, in this run and the next."""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import msgspec

from perdure.checkpoints.migration.migrations import RenamedType, restore_type_names
from perdure.codec import Codec
from perdure.engine.thread.effects import Effects
from perdure.errors import StepArgumentsUnsavable, StepNameTaken, UnsavableValue
from perdure.events import WorkflowEvent
from perdure.isolation import is_immutable, same_structure


@dataclass(frozen=True)
class StepCall:
    """One call of a step, a sleep or a request, as its records identify it."""

    name: str
    key: str
    after: str | None
    """The call before it in the same flow of control. A difference shows that the code changed."""
    within: str | None
    """The enclosing step."""


class Frame:
    """Effects of one running attempt of a step. They count, and are recorded, only if the attempt succeeds."""

    __slots__ = ("call", "effects", "emitted", "outer", "owner", "private", "read", "seen", "waiting", "written")

    def __init__(self, call: StepCall, owner: object, outer: Frame | None) -> None:
        self.call = call
        self.owner = owner
        """Its delivery: a workflow that runs inside a step has deliveries of its own."""
        self.outer = outer
        self.effects = Effects()
        self.emitted: list[WorkflowEvent] = []
        """Events of its own that have left the engine."""
        self.waiting = 0
        """Calls in it that wait."""
        self.read: dict[str, Any] = {}
        """State keys that it read, with their values then, to detect in-place changes."""
        self.private: dict[str, Any] = {}
        """Keys of the executor's private state that it used, with their values before."""
        self.seen: Counter[str] = Counter()
        """How often each call was made in it."""
        self.written: dict[str, Any] = {}
        """State keys that it wrote, with the writes before."""


_current_frame: ContextVar[Frame | None] = ContextVar("perdure_frame", default=None)
"""The innermost step that runs in this task."""


def enter_frame(call: StepCall, owner: object) -> Frame:
    frame = Frame(call, owner, _current_frame.get())
    _current_frame.set(frame)
    return frame


def leave_frame(frame: Frame) -> None:
    _current_frame.set(frame.outer)


def frame_of(owner: object) -> Frame | None:
    """The innermost step of this delivery that runs in this task."""
    frame = _current_frame.get()
    return frame if frame is not None and frame.owner is owner else None


def frames_of(owner: object) -> Iterator[Frame]:
    frame = frame_of(owner)
    while frame is not None and frame.owner is owner:
        yield frame
        frame = frame.outer


_last_call: ContextVar[tuple[object, str] | None] = ContextVar("perdure_last_call", default=None)
"""A mark of the delivery, and the key of the last call of this flow of control. Tasks inherit it."""


def name_in(key: str) -> str:
    """The name of a call, from its key."""
    match = re.match(r"(.+?) (?:= |[0-9a-f]{16}(?: |$))", key)
    return match.group(1) if match is not None else key.partition(" ")[0]


def inside(key: str) -> str:
    """The suffix of the keys of calls inside this step."""
    return f" in {key}"


class Calls:
    """Names the calls of one delivery: by name, digest of the arguments, and occurrence among equals."""

    def __init__(self, owner: object, codec: Codec, renamed: Sequence[RenamedType] = ()) -> None:
        self._owner = owner
        self._mark = object()
        """Identifies the delivery. References keep it alive; the `id()` of an ended delivery could be reused."""
        self._codec = codec
        self._renamed = renamed
        """Types renamed since the thread began."""
        self._names: dict[str, Any] = {}
        """Step name -> its code."""
        self._seen: Counter[str] = Counter()

    def identify(self, name: str, arguments: Sequence[Any], keywords: Mapping[str, Any], key: str | None) -> StepCall:
        """The call's identity. Raises StepArgumentsUnsavable for arguments without a digest, if `key` is None."""
        if key is not None:
            return self._call(name, f"{name} = {key}")
        digest = f"{name} {self._digest(name, arguments, keywords)}"
        frame = frame_of(self._owner)
        seen = self._seen if frame is None else frame.seen  # a retried step repeats its calls
        seen[digest] += 1
        return self._call(name, digest if seen[digest] == 1 else f"{digest} #{seen[digest]}")

    def _call(self, name: str, key: str) -> StepCall:
        last = _last_call.get()
        frame = frame_of(self._owner)
        key = key if frame is None else key + inside(frame.call.key)
        after = last[1] if last is not None and last[0] is self._mark else None
        return StepCall(name, key, after, None if frame is None else frame.call.key)

    @property
    def last(self) -> Any:
        return _last_call.get()

    def go_back(self, last: Any) -> None:
        """Ignore calls since `last`: they belong to a failed attempt."""
        _last_call.set(last)

    def mark_returned(self, call: StepCall) -> None:
        """Note that the call returned: the next call of this flow of control follows it."""
        _last_call.set((self._mark, call.key))

    def _digest(self, name: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> str:
        path = f"arguments of {name!r}"
        try:
            named = [[key, self._codec.encode(keywords[key], f"{path}.{key}")] for key in sorted(keywords)]
            tree = [self._codec.encode(list(arguments), path), named]
        except UnsavableValue as error:
            raise StepArgumentsUnsavable(name, error) from error
        if self._renamed:
            tree = restore_type_names(tree, self._renamed)
        return hashlib.blake2b(msgspec.json.encode(tree), digest_size=8).hexdigest()

    def check_name(self, name: str, function: Any) -> None:
        """Raises StepNameTaken if the delivery called another function by the name."""
        code = code_of(function)
        first = self._names.setdefault(name, code)
        if first is not code and first != code:
            raise StepNameTaken(name)


def normalise_arguments(function: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by parameter name, without defaults, so that every spelling of a call has one identity. Unchanged
    if the function has no readable signature."""
    try:
        signature = _signature_of(function)
        bound = signature.bind(*arguments, **keywords).arguments
    except (TypeError, ValueError):
        return {"arguments": list(arguments), **keywords}
    named: dict[str, Any] = {}
    for name, value in bound.items():
        parameter = signature.parameters[name]
        if parameter.kind is parameter.VAR_KEYWORD:
            named.update(value)
        elif not _is_default(value, parameter.default):
            named[name] = value
    return named


def _is_default(value: Any, default: Any) -> bool:
    return type(value) is type(default) and same_structure(value, default)


@functools.lru_cache(256)
def _signature_of(function: Any) -> inspect.Signature:
    return inspect.signature(function)


def code_of(function: Any) -> Any:
    """The code that identifies a function: a lambda in a loop is a new object each time, with the same code."""
    while isinstance(function, functools.partial) or hasattr(function, "__wrapped__"):
        function = function.func if isinstance(function, functools.partial) else function.__wrapped__
    function = getattr(function, "__func__", function)
    if not hasattr(function, "__code__") and not isinstance(function, type):
        function = type(function).__call__  # a callable object
    return getattr(function, "__code__", function)


def bound_arguments(function: Any) -> tuple[list[Any], dict[str, Any]]:
    """Arguments bound by a partial, or by a method of a value. They identify a call like any argument."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    while isinstance(function, functools.partial):
        positional = [*function.args, *positional]
        named = {**function.keywords, **named}
        function = function.func
    owner = getattr(function, "__self__", None)
    # Not a mutable object: its digest would change.
    if owner is not None and not isinstance(owner, (type, ModuleType)) and is_immutable(owner):
        positional = [owner, *positional]
    return positional, named
