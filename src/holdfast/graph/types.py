"""What a type annotation means while a workflow runs: does a value fit it, can one annotation feed another.

Annotations are plain objects here (`int`, `list[int]`, `A | None`, `Literal["x"]`, ...). A text annotation must
be resolved first, by `hints_of` or `resolve_annotation`; the matching functions raise TypeError for one.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import inspect
import itertools
import sys
import types
import typing
from abc import ABCMeta
from collections import abc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ForwardRef, Literal, Never, NoReturn, TypeVar, Union, cast, get_args, get_origin

NoneType = type(None)

_ANYTHING: tuple[object, ...] = (Any, object)
_NOTHING: tuple[object, ...] = (Never, NoReturn)
_CALLABLE: object = abc.Callable
_UNIONS: tuple[object, ...] = (Union, types.UnionType)
_QUALIFIERS = frozenset({"Required", "NotRequired", "ReadOnly", "Final", "ClassVar"})

_ELEMENT_WISE: frozenset[object] = frozenset(
    (list, set, frozenset, collections.deque, abc.Collection, abc.Iterable, abc.Reversible, abc.Container)
) | {abc.Sequence, abc.MutableSequence, abc.Set, abc.MutableSet, abc.KeysView, abc.ValuesView}
_PAIR_WISE: frozenset[object] = frozenset(
    (dict, collections.defaultdict, collections.OrderedDict, collections.ChainMap, collections.Counter)
) | {abc.Mapping, abc.MutableMapping, types.MappingProxyType}
_ELEMENT_OF: dict[object, object] = {str: str, bytes: int, bytearray: int, memoryview: int, range: int}
"""Sequences whose elements all have one known type: looking at the first one is enough."""


# ---------------------------------------------------------------- the shape of an annotation


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
    return _rebuilt(annotation, normalize)


def flatten_union(annotation: object) -> tuple[object, ...]:
    """The members of a union, nested ones and aliases opened, each once; of anything else, that alone."""
    plain = normalize(annotation)
    opened = _opened_alias(plain)
    if opened is not plain:
        return flatten_union(opened)
    if get_origin(plain) not in _UNIONS:
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


def depends_on_value(annotation: object) -> bool:
    """False if `is_instance_of` gives one answer for all values of one type, so that it may be cached by type."""
    bare = _bare(annotation)
    origin, args = get_origin(bare), get_args(bare)
    if origin in _UNIONS:
        return any(map(depends_on_value, args))
    if isinstance(bare, type):
        return _class_depends_on_value(bare)
    if origin is tuple:
        return not (len(args) == 2 and args[1] is Ellipsis and _bare(args[0]) in _ANYTHING)
    if origin in _ELEMENT_WISE or origin in _PAIR_WISE:
        return any(_bare(arg) not in _ANYTHING for arg in args)
    if origin is Literal or origin is type:
        return True
    return isinstance(origin, type) and _class_depends_on_value(origin)


def _class_depends_on_value(cls: type) -> bool:
    if _is_typed_dict(cls) or _is_protocol(cls):
        return True
    # ABCMeta (and pydantic's metaclass, built on it) looks at the class of a value only; another one may not.
    return not isinstance(cls, ABCMeta) and type(cls).__instancecheck__ is not type.__instancecheck__


def _bare(annotation: object) -> object:
    """What is left to match against once aliases, NewTypes, qualifiers and TypeVars are looked through."""
    while type(annotation) is not type:
        inner = _looked_through(annotation)
        if inner is annotation:
            break
        annotation = inner
    return annotation


def _looked_through(annotation: object) -> object:
    """One layer off; the annotation itself if it has none."""
    if annotation is None:
        return NoneType
    if isinstance(annotation, str | ForwardRef):
        raise TypeError(f"{annotation!r} is text, not a type: resolve it with resolve_annotation() before matching.")
    if annotation is typing.LiteralString:
        return str
    if isinstance(annotation, TypeVar):
        return _limit_of(annotation)
    if isinstance(annotation, typing.NewType):
        return annotation.__supertype__
    origin = get_origin(annotation)
    if origin is Annotated or getattr(origin, "_name", None) in _QUALIFIERS:
        return get_args(annotation)[0]
    if origin is not None and not hasattr(annotation, "__args__"):
        return origin
    return _opened_alias(annotation)


def _limit_of(variable: TypeVar) -> object:
    if variable.__constraints__:
        return cast(Any, Union)[variable.__constraints__]
    return Any if variable.__bound__ is None else variable.__bound__


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


def _rebuilt(annotation: object, change: Callable[[object], object]) -> object:
    """The same generic with every argument changed. The parameters of a Callable come as a list: go into it."""
    args = tuple(
        [change(each) for each in arg] if isinstance(arg, list) else arg if arg is Ellipsis else change(arg)
        for arg in get_args(annotation)
    )
    origin = get_origin(annotation)
    if origin in _UNIONS:
        return cast(Any, Union)[args]
    return cast(Any, origin)[args[0] if len(args) == 1 else args]


def _is_typed_dict(cls: object) -> bool:
    # By shape: typing.is_typeddict does not know the TypedDict of typing_extensions, which pydantic asks for.
    return isinstance(cls, type) and issubclass(cls, dict) and hasattr(cls, "__required_keys__")


@functools.lru_cache(maxsize=512)
def _fields_of(typed_dict: Any) -> dict[str, object]:
    """Field types of a TypedDict. One that names a class nobody can find from here accepts anything."""
    try:
        return dict(typing.get_type_hints(typed_dict, include_extras=True))
    except NameError:
        raw = typing.cast(dict[str, object], typed_dict.__annotations__)
        return {name: Any if isinstance(hint, str | ForwardRef) else hint for name, hint in raw.items()}


@functools.lru_cache(maxsize=512)
def _required_keys(typed_dict: Any) -> frozenset[str]:
    # __required_keys__ alone is wrong in a module with postponed annotations: NotRequired was only text then.
    marks = {name: getattr(get_origin(hint), "_name", "") for name, hint in _fields_of(typed_dict).items()}
    declared = typed_dict.__required_keys__
    return frozenset(
        name for name, mark in marks.items() if mark == "Required" or (name in declared and mark != "NotRequired")
    )


def _is_protocol(cls: object) -> bool:
    return isinstance(cls, type) and getattr(cls, "_is_protocol", False)


@functools.lru_cache(maxsize=512)
def _members_of(protocol: type) -> frozenset[str]:
    declaring = [base for base in protocol.__mro__ if _is_protocol(base) and base.__name__ != "Protocol"]
    names = {name for base in declaring for name in (*vars(base), *inspect.get_annotations(base))}
    return frozenset(name for name in names if name not in _NOT_MEMBERS and not name.startswith("_abc_"))


class _NoMembers(typing.Protocol):
    """Whatever this has, every Protocol has."""


_NOT_MEMBERS = frozenset(vars(_NoMembers)) | {
    *("__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__", "__conditional_annotations__"),
    *("__class_getitem__", "__match_args__", "__slots__", "__firstlineno__", "__static_attributes__"),
    *("__orig_bases__", "__type_params__", "__protocol_attrs__", "__non_callable_proto_members__"),
    "_is_runtime_protocol",
}


# ---------------------------------------------------------------- a value against an annotation


def is_instance_of(value: object, annotation: object) -> bool:
    """True if the value fits the annotation, elements of containers included.

    As `isinstance`: a bool is an int, an int is no float. A TypedDict has no other keys than its own. An iterator
    fits `Iterable[X]` unseen, since looking would use it up.
    """
    if type(annotation) is type:
        return isinstance(value, annotation)
    bare = _bare(annotation)
    if bare in _ANYTHING:
        return True
    if bare in _NOTHING:
        return False
    if isinstance(bare, type):
        return _is_instance_of_class(value, bare)
    return _is_instance_of_generic(value, get_origin(bare), get_args(bare), bare)


def _is_instance_of_class(value: object, cls: type) -> bool:
    if _is_typed_dict(cls):
        return _is_typed_dict_value(value, cls)
    if _is_protocol(cls) and not getattr(cls, "_is_runtime_protocol", False):
        return cls in type(value).__mro__ or _has_members(value, cls)
    return isinstance(value, cls)


def _is_instance_of_generic(value: object, origin: object, args: tuple[Any, ...], annotation: object) -> bool:
    if origin in _UNIONS:
        return any(is_instance_of(value, arg) for arg in args)
    if origin is Literal:
        return any(type(value) is type(arg) and value == arg for arg in args)
    if not isinstance(origin, type):
        raise TypeError(f"A value cannot be matched against {annotation!r}: use a class, a generic or a union.")
    if not _is_instance_of_class(value, origin):
        return False
    if origin is type:
        return _is_class_of(cast(type, value), args[0])
    if origin is tuple:
        return _fits_tuple(cast(tuple[object, ...], value), args)
    return all(is_instance_of(each, arg) for each, arg in _parts(value, origin, args))


def _parts(value: object, origin: object, args: tuple[object, ...]) -> Iterator[tuple[object, object]]:
    """Every (element, annotation) pair a container has to satisfy; none for generics matched by origin alone."""
    if origin in _ELEMENT_WISE:
        for element in _elements(value):
            yield element, args[0]
    elif origin in _PAIR_WISE:
        value_type = args[1] if len(args) == 2 else Any  # Counter has one argument
        for key, element in cast(Mapping[object, object], value).items():
            yield key, args[0]
            yield element, value_type


def _elements(value: object) -> Iterable[object]:
    if type(value) in _ELEMENT_OF:
        return cast(Sequence[object], value)[:1]
    return value if isinstance(value, abc.Collection) else ()


def _fits_tuple(value: tuple[object, ...], args: tuple[object, ...]) -> bool:
    if len(args) == 2 and args[1] is Ellipsis:
        return all(is_instance_of(each, args[0]) for each in value)
    return len(value) == len(args) and all(map(is_instance_of, value, args))


def _is_typed_dict_value(value: object, cls: Any) -> bool:
    if not isinstance(value, dict):
        return False
    fields = _fields_of(cls)
    return _required_keys(cls) <= value.keys() <= fields.keys() and all(
        is_instance_of(each, fields[key]) for key, each in value.items()
    )


def _has_members(value: object, protocol: type) -> bool:
    return all(_has_member(value, protocol, name) for name in _members_of(protocol))


def _has_member(value: object, protocol: type, name: str) -> bool:
    # Static: running a property only to learn that it is there may do work, or raise.
    found = inspect.getattr_static(value, name, _has_member)
    if found is None:  # `__hash__ = None` says "not this method"
        return not callable(getattr(protocol, name, None))
    return found is not _has_member


def _is_class_of(cls: type, annotation: object) -> bool:
    """True if `cls` may be given for `type[annotation]`."""
    bare = _bare(annotation)
    if get_origin(bare) in _UNIONS:
        return any(_is_class_of(cls, member) for member in get_args(bare))
    base = bare if isinstance(bare, type) else get_origin(bare)
    return bare in _ANYTHING or (isinstance(base, type) and _is_subclass(cls, base))


def _is_subclass(cls: type, base: type) -> bool:
    if _is_typed_dict(base):
        return cls is base
    if not _is_protocol(base):
        return issubclass(cls, base)
    return base in cls.__mro__ or all(_class_has_member(cls, base, name) for name in _members_of(base))


def _class_has_member(cls: type, protocol: type, name: str) -> bool:
    for base in cls.__mro__:
        if name in vars(base):
            return vars(base)[name] is not None or not callable(getattr(protocol, name, None))
        if name in inspect.get_annotations(base):
            return True
    # An attribute set in __init__ cannot be seen from the class: where instances can have one, allow it.
    return cls.__dictoffset__ != 0 and not callable(getattr(protocol, name, None))


# ---------------------------------------------------------------- an annotation against another


def is_type_compatible(source: object, target: object) -> bool:
    """True if some value annotated `source` could be given where `target` is wanted.

    One fitting member of a union is enough, and what is left open (Any, object, a bare `list`, `str` for a
    Literal of strings) fits. A base class does not fit its subclass, nor an int a float.
    """
    source, target = _bare(source), _bare(target)
    if source in _NOTHING or target in _NOTHING:
        return False
    if source in _ANYTHING or target in _ANYTHING or source == target:
        return True
    if get_origin(source) in _UNIONS:
        return any(is_type_compatible(member, target) for member in get_args(source))
    if get_origin(target) in _UNIONS:
        return any(is_type_compatible(source, member) for member in get_args(target))
    if get_origin(source) is Literal:
        return any(is_instance_of(value, target) for value in get_args(source))
    if get_origin(target) is Literal:
        return any(is_instance_of(value, source) for value in get_args(target))
    return _is_generic_compatible(source, target)


def _is_generic_compatible(source: object, target: object) -> bool:
    if _is_typed_dict(target):
        return _fits_typed_dict(source, target)
    if _is_typed_dict(source):
        return _typed_dict_fits(source, target)
    (source_class, source_args), (target_class, target_args) = _split(source), _split(target)
    if not _is_subclass(source_class, target_class):
        return False
    if source_args is None or target_args is None or target_class is _CALLABLE:
        return True
    if source_class is tuple and target_class is tuple:
        return _are_tuples_compatible(source_args, target_args)
    if target_class in _ELEMENT_WISE:
        elements = _element_types(source_class, source_args)
        return all(is_type_compatible(element, target_args[0]) for element in elements)
    if source_class is target_class or (source_class in _PAIR_WISE and target_class in _PAIR_WISE):
        return all(map(is_type_compatible, source_args, target_args))
    return True  # how the arguments of two different generic classes relate is not known: matched by origin


def _split(annotation: object) -> tuple[type, tuple[object, ...] | None]:
    """(class, arguments); arguments is None where nothing is said about them."""
    if isinstance(annotation, type):
        return annotation, (_ELEMENT_OF[annotation],) if annotation in _ELEMENT_OF else None
    origin, args = get_origin(annotation), get_args(annotation)
    if not isinstance(origin, type):
        raise TypeError(f"{annotation!r} cannot be compared with another type: use a class, a generic or a union.")
    return origin, (*args, int) if origin is collections.Counter else args


def _element_types(cls: type, args: tuple[object, ...]) -> tuple[object, ...]:
    """What iterating over `cls[args]` gives; nothing if that is not known."""
    if cls is tuple:
        return tuple(arg for arg in args if arg is not Ellipsis)
    return args[:1] if cls in _ELEMENT_WISE or cls in _PAIR_WISE or cls in _ELEMENT_OF else ()


def _are_tuples_compatible(source: tuple[object, ...], target: tuple[object, ...]) -> bool:
    if Ellipsis in source and Ellipsis in target:
        return is_type_compatible(source[0], target[0])
    if Ellipsis in source:
        source = source[:1] * len(target)
    elif Ellipsis in target:
        target = target[:1] * len(source)
    return len(source) == len(target) and all(map(is_type_compatible, source, target))


def _typed_dict_fits(source: object, target: object) -> bool:
    target_class, target_args = _split(target)
    if not _is_subclass(dict, target_class):
        return False
    if target_args is None:
        return True
    fits_keys = is_type_compatible(str, target_args[0])
    if target_class not in _PAIR_WISE:
        return fits_keys
    return fits_keys and all(is_type_compatible(hint, target_args[1]) for hint in _fields_of(source).values())


def _fits_typed_dict(source: Any, target: Any) -> bool:
    fields, required = _fields_of(target), _required_keys(target)
    if _is_typed_dict(source):
        given = _fields_of(source)
        shared = given.keys() & fields.keys()
        keys_fit = required <= given.keys() and _required_keys(source) <= fields.keys()
        return keys_fit and all(is_type_compatible(given[key], fields[key]) for key in shared)
    source_class, args = _split(source)
    if not issubclass(source_class, dict):
        return False
    if args is None or source_class not in _PAIR_WISE:
        return True
    return is_type_compatible(args[0], str) and all(is_type_compatible(args[1], fields[key]) for key in required)


# ---------------------------------------------------------------- the best of several annotations

_Rank = tuple[int, int, int, tuple[Any, ...]]
"""(steps up from the class of the value, minus the depth of a virtual base, refinement, ranks of the parts)."""
_LITERAL, _SHAPED, _PARAMETERISED, _BARE = range(4)


def most_specific(value: object, annotations: Sequence[object]) -> int | None:
    """Index of the annotation that says most about the value; None if it fits none. Of equals, the first.

    The nearest base class wins; then Literal, fixed tuple and TypedDict, other parameterised generics, the bare
    class. Protocols and ABCs the value only happens to satisfy come after real bases, `object` and Any last.
    """
    fitting = [index for index, annotation in enumerate(annotations) if is_instance_of(value, annotation)]
    if len(fitting) < 2:
        return fitting[0] if fitting else None
    return min(fitting, key=lambda index: _rank(value, annotations[index]))


def _rank(value: object, annotation: object) -> _Rank:
    """How specific an annotation that fits is; the smaller, the more."""
    bare = _bare(annotation)
    origin, args = get_origin(bare), get_args(bare)
    if origin in _UNIONS:
        return min(_rank(value, member) for member in args if is_instance_of(value, member))
    if origin is Literal:
        return (0, 0, _LITERAL, ())
    steps, depth = _place(type(value).__mro__, bare)
    if _is_typed_dict(bare):
        return (steps, depth, _SHAPED, ((-len(_fields_of(bare)),),))
    if origin is None:
        return (steps, depth, _BARE, ())
    refinement = _SHAPED if origin is tuple and Ellipsis not in args else _PARAMETERISED
    return (steps, depth, refinement, _ranks_of_parts(value, origin, args))


def _place(mro: tuple[type, ...], bare: object) -> tuple[int, int]:
    if bare in _ANYTHING:
        return (len(mro), 0)
    cls = cast(type, bare if isinstance(bare, type) else get_origin(bare))
    cls = dict if _is_typed_dict(cls) else cls
    return (mro.index(cls), 0) if cls in mro else (len(mro) - 1, -len(cls.__mro__))


def _ranks_of_parts(value: Any, origin: object, args: tuple[object, ...]) -> tuple[Any, ...]:
    if origin is type:
        members = [member for member in flatten_union(_bare(args[0])) if _is_class_of(value, member)]
        return (min(_place(value.__mro__, _bare(member)) for member in members),)
    if origin is tuple and Ellipsis not in args:
        return tuple(map(_rank, value, args))
    parts = zip(value, itertools.repeat(args[0])) if origin is tuple else _parts(value, origin, args)
    return _worst_by_argument(parts)


def _worst_by_argument(parts: Iterable[tuple[object, object]]) -> tuple[_Rank, ...]:
    worst: dict[int, _Rank] = {}
    for element, annotation in parts:
        rank = _rank(element, annotation)
        worst[id(annotation)] = max(rank, worst.get(id(annotation), rank))
    return tuple(worst.values())


# ---------------------------------------------------------------- annotations written as text


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
        return _evaluated(eval(annotation, dict(globalns), localns), globalns, localns)
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return cast(Any, Annotated)[(_evaluated(args[0], globalns, localns), *args[1:])]
    if not args or origin is Literal or not _contains_text(args):
        return annotation
    return _rebuilt(annotation, lambda arg: _evaluated(arg, globalns, localns))


def _contains_text(args: Iterable[object]) -> bool:
    return any(
        isinstance(arg, str | ForwardRef)
        or (get_origin(arg) is not Literal and _contains_text(arg if isinstance(arg, list) else get_args(arg)))
        for arg in args
    )
