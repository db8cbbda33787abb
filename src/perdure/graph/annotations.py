"""The structure of a type annotation, independent of its spelling."""

from __future__ import annotations

import collections
import contextlib
import functools
import inspect
import sys
import types
import typing
from collections import abc
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ForwardRef, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

NoneType = type(None)

UNIONS: tuple[object, ...] = (Union, types.UnionType)
_QUALIFIERS = frozenset({"Required", "NotRequired", "ReadOnly", "Final", "ClassVar"})

ELEMENT_WISE: frozenset[object] = frozenset(
    (list, tuple, set, frozenset, collections.deque, abc.Collection, abc.Iterable, abc.Reversible, abc.Container)
) | {abc.Sequence, abc.MutableSequence, abc.Set, abc.MutableSet, abc.KeysView, abc.ValuesView}
PAIR_WISE: frozenset[object] = frozenset(
    (dict, collections.defaultdict, collections.OrderedDict, collections.ChainMap, collections.Counter)
) | {abc.Mapping, abc.MutableMapping, types.MappingProxyType}
ELEMENT_OF: dict[object, object] = {str: str, bytes: int, bytearray: int, memoryview: int, range: int}
"""Sequences whose elements all have one type: checking the first is enough."""


def normalize(annotation: object) -> object:
    """The annotation with None as NoneType, Annotated stripped and `typing.List[X]` as `list[X]`, at every depth.

    Aliases and NewTypes are kept, since their names are what a reader of a message knows.
    """
    if annotation is None:
        return NoneType
    origin = get_origin(annotation)
    if origin is None or origin is Literal:
        return annotation
    if origin is Annotated:
        return normalize(get_args(annotation)[0])
    if not hasattr(annotation, "__args__"):  # typing.List, typing.Tuple: the bare class, not tuple[()]
        return origin
    args = tuple(
        [normalize(each) for each in arg] if isinstance(arg, list) else arg if arg is Ellipsis else normalize(arg)
        for arg in get_args(annotation)
    )
    return cast(Any, Union if origin in UNIONS else origin)[args[0] if len(args) == 1 else args]


def flatten_union(annotation: object) -> tuple[object, ...]:
    """The members of a union, with nested unions and aliases expanded, each once; any other annotation alone."""
    plain = normalize(annotation)
    opened = _opened_alias(plain)
    if opened is not plain:
        return flatten_union(opened)
    if get_origin(plain) not in UNIONS:
        return (plain,)
    return tuple(dict.fromkeys(member for arg in get_args(plain) for member in flatten_union(arg)))


def contains_typevar(annotation: object) -> bool:
    """True if the annotation leaves a type open: a TypeVar, ParamSpec or TypeVarTuple, at any depth."""
    if isinstance(annotation, TypeVar | typing.ParamSpec | typing.TypeVarTuple):
        return True
    if isinstance(annotation, list):  # the parameters of a Callable
        return any(map(contains_typevar, annotation))
    if get_origin(annotation) is Annotated:
        return contains_typevar(get_args(annotation)[0])
    if _is_alias(annotation) and cast(Any, annotation).__type_params__:
        return True
    return any(map(contains_typevar, get_args(annotation)))


def bare_of(annotation: object) -> object:
    """The annotation without aliases, NewTypes, qualifiers and TypeVars."""
    while type(annotation) is not type:
        inner = _looked_through(annotation)
        if inner is annotation:
            break
        annotation = inner
    return annotation


def _looked_through(annotation: object) -> object:
    """The annotation without its outer layer; itself if it has none."""
    if annotation is None:
        return NoneType
    if isinstance(annotation, str | ForwardRef):
        raise TypeError(f"{annotation!r} is text, not a type: resolve it with resolve_annotation() before matching.")
    if annotation is typing.LiteralString:
        return str
    if isinstance(annotation, TypeVar):
        limit = cast(Any, Union)[annotation.__constraints__] if annotation.__constraints__ else annotation.__bound__
        return Any if limit is None else limit
    if isinstance(annotation, typing.NewType):
        return annotation.__supertype__
    origin = get_origin(annotation)
    if origin is Annotated or getattr(origin, "_name", None) in _QUALIFIERS:
        return get_args(annotation)[0]
    if origin is not None and not hasattr(annotation, "__args__"):
        return origin
    return _opened_alias(annotation)


def _is_alias(annotation: object) -> bool:
    # By name: typing has TypeAliasType from 3.12 on, typing_extensions gives its own to 3.11.
    return type(annotation).__name__ == "TypeAliasType"


def _opened_alias(annotation: object) -> object:
    origin = get_origin(annotation)
    if _is_alias(annotation):
        return cast(object, cast(Any, annotation).__value__)
    if _is_alias(origin):
        return cast(object, cast(Any, origin).__value__[get_args(annotation)])
    return annotation


def is_typed_dict(cls: object) -> bool:
    # By shape: typing.is_typeddict rejects the TypedDict of typing_extensions, which pydantic requires.
    return isinstance(cls, type) and issubclass(cls, dict) and hasattr(cls, "__required_keys__")


@functools.lru_cache(maxsize=512)
def typed_dict_fields(typed_dict: Any) -> dict[str, object]:
    """Field types of a TypedDict. A field whose class cannot be resolved accepts anything."""
    try:
        return dict(typing.get_type_hints(typed_dict, include_extras=True))
    except NameError:
        raw = typing.cast(dict[str, object], typed_dict.__annotations__)
        return {name: Any if isinstance(hint, str | ForwardRef) else hint for name, hint in raw.items()}


@functools.lru_cache(maxsize=512)
def required_keys(typed_dict: Any) -> frozenset[str]:
    """The keys a TypedDict demands. Its __required_keys__ is wrong if annotations are text: NotRequired is not seen."""
    marks = {name: getattr(get_origin(hint), "_name", "") for name, hint in typed_dict_fields(typed_dict).items()}
    by_default = typed_dict.__required_keys__ - {name for name, mark in marks.items() if mark == "NotRequired"}
    return frozenset(by_default | {name for name, mark in marks.items() if mark == "Required"})


def is_protocol(cls: object) -> bool:
    return isinstance(cls, type) and getattr(cls, "_is_protocol", False)


@functools.lru_cache(maxsize=512)
def protocol_members(protocol: type) -> frozenset[str]:
    declaring = [base for base in protocol.__mro__ if is_protocol(base) and base.__name__ != "Protocol"]
    names = {name for base in declaring for name in (*vars(base), *inspect.get_annotations(base))}
    return frozenset(name for name in names if name not in _NOT_MEMBERS and not name.startswith("_abc_"))


_NOT_MEMBERS = frozenset(vars(types.new_class("NoMembers", (typing.Protocol,)))) | {
    *("__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__", "__conditional_annotations__"),
    *("__class_getitem__", "__match_args__", "__slots__", "__firstlineno__", "__static_attributes__"),
    *("__orig_bases__", "__type_params__", "__protocol_attrs__", "__non_callable_proto_members__"),
    "_is_runtime_protocol",
}


class UnresolvedAnnotation(ValueError, NameError):
    """A name in a type that is given as text does not exist."""


def resolve_annotation(
    annotation: object, globalns: Mapping[str, object] | None = None, localns: Mapping[str, object] | None = None
) -> object:
    """The annotation with every text in it, at any depth, turned into the type it names; Annotated is kept.

    Raises UnresolvedAnnotation for an unknown name, or a text that is not an annotation.
    """
    try:
        return _evaluate(annotation, globalns or {}, localns or {})
    except Exception as error:
        raise UnresolvedAnnotation(
            f"Could not resolve type annotation {annotation!r}. Make sure the type is defined or imported, or use the "
            f"type itself: {error}."
        ) from error


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
            where = "return annotation" if name == "return" else f"annotation of {name!r}"
            raise ValueError(
                f"The {where} of {plain.__module__}.{plain.__qualname__}, {annotation!r}, cannot be resolved: {error}. "
                "Import the name at module level (not under TYPE_CHECKING), or give explicit types: "
                "@handler(input=..., output=...)."
            ) from error
    return hints


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
            return _evaluate(annotation, globalns, localns)
        except NameError as error:
            # Take only the missing name from a frame: a whole frame would hide names of the module.
            # test_a_name_of_the_module_is_not_hidden_by_a_callers_local checks this.
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


def _evaluate(annotation: object, globalns: Mapping[str, object], localns: Mapping[str, object]) -> object:
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    return get_type_hints(holder, dict(globalns), dict(localns), include_extras=True)["it"]
