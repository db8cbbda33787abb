"""Annotations written as text, turned into the types they name."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, ForwardRef, Literal, cast, get_args, get_origin, get_type_hints

from perdure.graph.annotations import NoneType, rebuilt


def resolve_annotation(
    annotation: object,
    globalns: Mapping[str, object] | None = None,
    localns: Mapping[str, object] | None = None,
) -> object:
    """The annotation with every text in it, at any depth, turned into the type it names; Annotated is kept.

    Raises ValueError if a name is not known or the text is no annotation.
    """
    try:
        return _evaluated(annotation, globalns or {}, localns or {})
    except Exception as error:
        raise ValueError(f"The annotation {annotation!r} cannot be resolved: {error}. Use the type itself.") from error


def hints_of(function: Callable[..., object]) -> dict[str, object]:
    """Parameter and return annotations of a function, as types; Annotated is kept, None becomes NoneType.

    Names are looked up in the function's module, then among what it closes over, then in the calling frames of
    that module: a decorator runs while the local classes it needs are still visible there.
    Raises ValueError if a name cannot be found.
    """
    plain = _plain_function(function)
    globalns, localns = getattr(plain, "__globals__", {}), _enclosed_names(plain)
    hints = {}
    for name, annotation in _annotations(plain).items():
        try:
            hints[name] = _evaluated_with_frames(annotation, globalns, localns)
        except Exception as error:
            raise ValueError(_unresolved(plain, name, annotation, error)) from error
    return hints


def _unresolved(function: Any, name: str, annotation: object, error: Exception) -> str:
    where = "return annotation" if name == "return" else f"annotation of {name!r}"
    return (
        f"The {where} of {function.__module__}.{function.__qualname__}, {annotation!r}, cannot be resolved: {error}. "
        "Import the name at module level (not under TYPE_CHECKING), or give explicit types: "
        "@handler(input=..., output=...)."
    )


def _plain_function(function: Any) -> Any:
    while isinstance(function, functools.partial | functools.partialmethod):
        function = function.func
    function = inspect.unwrap(function)
    return function if inspect.isroutine(function) else type(function).__call__


def _annotations(function: Any) -> dict[str, object]:
    if sys.version_info >= (3, 14):  # annotations are computed when asked for; unknown names must not raise yet
        import annotationlib

        return dict(annotationlib.get_annotations(function, format=annotationlib.Format.FORWARDREF))
    return dict(inspect.get_annotations(function))


def _enclosed_names(function: Any) -> dict[str, object]:
    names: dict[str, object] = {variable.__name__: variable for variable in getattr(function, "__type_params__", ())}
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    for name, cell in zip(code.co_freevars if code else (), cells or (), strict=False):
        with contextlib.suppress(ValueError):  # a cell that is filled only later
            names[name] = cell.cell_contents
    return names


def _evaluated_with_frames(annotation: object, globalns: dict[str, object], localns: dict[str, object]) -> object:
    while True:
        try:
            return _evaluated(annotation, globalns, localns)
        except NameError as error:
            # Only the missing name is taken from a frame: frames as a whole would hide names of the module.
            # test_a_name_of_the_module_is_not_hidden_by_a_callers_local holds this.
            if error.name is None or error.name in localns or not _copy_from_frames(error.name, globalns, localns):
                raise


def _copy_from_frames(name: str, globalns: dict[str, object], localns: dict[str, object]) -> bool:
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals is globalns and name in frame.f_locals:
            localns[name] = frame.f_locals[name]
            return True
        frame = frame.f_back
    return False


def _evaluated(annotation: object, globalns: Mapping[str, object], localns: Mapping[str, object]) -> object:
    if annotation is None:
        return NoneType
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        return _evaluated(_named_by(annotation, globalns, localns), globalns, localns)
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return cast(Any, Annotated)[(_evaluated(args[0], globalns, localns), *args[1:])]
    if not args or origin is Literal or not _contains_text(args):
        return annotation
    return rebuilt(annotation, lambda arg: _evaluated(arg, globalns, localns))


def _named_by(text: str, globalns: Mapping[str, object], localns: Mapping[str, object]) -> object:
    holder = types.SimpleNamespace(__annotations__={"it": text})
    return get_type_hints(holder, dict(globalns), dict(localns), include_extras=True)["it"]


def _contains_text(args: Iterable[object]) -> bool:
    return any(
        isinstance(arg, str | ForwardRef)
        or (get_origin(arg) is not Literal and _contains_text(arg if isinstance(arg, list) else get_args(arg)))
        for arg in args
    )
