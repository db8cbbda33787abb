"""Matching at run time: whether a value matches an annotation, and whether two annotations are compatible.

Annotations are plain objects here (`int`, `list[int]`, `A | None`, `Literal["x"]`, ...). A text annotation must
be resolved first, by `hints_of` or `resolve_annotation`; the matching functions raise TypeError for one.
"""

from __future__ import annotations

import collections
import inspect
import itertools
from collections import abc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast, get_args, get_origin

from perdure.graph.types.annotations import (
    ANYTHING,
    ELEMENT_OF,
    ELEMENT_WISE,
    NOTHING,
    PAIR_WISE,
    UNIONS,
    bare_of,
    contains_typevar,
    depends_on_value,
    flatten_union,
    hints_of,
    is_protocol,
    is_typed_dict,
    normalize,
    protocol_members,
    required_keys,
    resolve_annotation,
    typed_dict_fields,
)

__all__ = [
    "contains_typevar",
    "depends_on_value",
    "flatten_union",
    "hints_of",
    "is_instance_of",
    "is_type_compatible",
    "most_specific",
    "normalize",
    "required_keys",
    "resolve_annotation",
]

_CALLABLE: object = abc.Callable


def is_instance_of(value: object, annotation: object) -> bool:
    """True if the value matches the annotation, elements of containers included.

    As `isinstance`: a bool is an int, an int is not a float. A TypedDict has no other keys than its own. An iterator
    fits `Iterable[X]` unseen, since looking would use it up.
    """
    if type(annotation) is type:
        return isinstance(value, annotation)
    bare = bare_of(annotation)
    if bare in ANYTHING:
        return True
    if bare in NOTHING:
        return False
    if isinstance(bare, type):
        return _is_instance_of_class(value, bare)
    return _is_instance_of_generic(value, get_origin(bare), get_args(bare), bare)


def _is_instance_of_class(value: object, cls: type) -> bool:
    if is_typed_dict(cls):
        return _is_typed_dict_value(value, cls)
    if is_protocol(cls) and not getattr(cls, "_is_runtime_protocol", False):
        return cls in type(value).__mro__ or _has_members(value, cls)
    return isinstance(value, cls)


def _is_instance_of_generic(value: object, origin: object, args: tuple[Any, ...], annotation: object) -> bool:
    if origin in UNIONS:
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
    if origin in ELEMENT_WISE and type(args[0]) is type and _are_all(_elements(value), args[0]):
        return True
    return all(is_instance_of(each, arg) for each, arg in _parts(value, origin, args))


def _are_all(elements: Iterable[object], cls: type) -> bool:
    """Checked once per type instead of once per element: a join of a hundred messages is matched twice."""
    return all(issubclass(kind, cls) for kind in set(map(type, elements)))


def _parts(value: object, origin: object, args: tuple[object, ...]) -> Iterator[tuple[object, object]]:
    """Every (element, annotation) pair a container has to satisfy; none for generics matched by origin alone."""
    if origin in ELEMENT_WISE:
        for element in _elements(value):
            yield element, args[0]
    elif origin in PAIR_WISE:
        value_type = args[1] if len(args) == 2 else Any  # Counter has one argument
        for key, element in cast(Mapping[object, object], value).items():
            yield key, args[0]
            yield element, value_type


def _elements(value: object) -> Iterable[object]:
    if type(value) in ELEMENT_OF:  # one element is enough, and a range may be very long
        return cast(Sequence[object], value)[:1]
    return value if isinstance(value, abc.Collection) else ()


def _fits_tuple(value: tuple[object, ...], args: tuple[object, ...]) -> bool:
    if len(args) == 2 and args[1] is Ellipsis:
        return all(is_instance_of(each, args[0]) for each in value)
    return len(value) == len(args) and all(map(is_instance_of, value, args))


def _is_typed_dict_value(value: object, cls: Any) -> bool:
    if not isinstance(value, dict):
        return False
    fields = typed_dict_fields(cls)
    return required_keys(cls) <= value.keys() <= fields.keys() and all(
        is_instance_of(each, fields[key]) for key, each in value.items()
    )


def _has_members(value: object, protocol: type) -> bool:
    return all(_has_member(value, protocol, name) for name in protocol_members(protocol))


def _has_member(value: object, protocol: type, name: str) -> bool:
    # Static: calling a property only to test for it may do work, or raise.
    member = inspect.getattr_static(value, name, _has_member)
    if member is None:  # `__hash__ = None` removes the method
        return not callable(getattr(protocol, name, None))
    return member is not _has_member


def _is_class_of(cls: type, annotation: object) -> bool:
    """True if `cls` is valid for `type[annotation]`."""
    bare = bare_of(annotation)
    if get_origin(bare) in UNIONS:
        return any(_is_class_of(cls, member) for member in get_args(bare))
    base = bare if isinstance(bare, type) else get_origin(bare)
    return bare in ANYTHING or (isinstance(base, type) and _is_subclass(cls, base))


def _is_subclass(cls: type, base: type) -> bool:
    if is_typed_dict(base):
        return cls is base
    if not is_protocol(base):
        return issubclass(cls, base)
    return base in cls.__mro__ or all(_class_has_member(cls, base, name) for name in protocol_members(base))


def _class_has_member(cls: type, protocol: type, name: str) -> bool:
    for base in cls.__mro__:
        if name in vars(base):
            return vars(base)[name] is not None or not callable(getattr(protocol, name, None))
        if name in inspect.get_annotations(base):
            return True
    # An attribute set in __init__ is not visible in the class: allow it where instances can have attributes.
    return cls.__dictoffset__ != 0 and not callable(getattr(protocol, name, None))


def is_type_compatible(source: object, target: object) -> bool:
    """True if some value annotated `source` could be given where `target` is wanted.

    One fitting member of a union is enough, and what is left open (Any, object, a bare `list`, `str` for a
    Literal of strings) fits. A base class does not fit its subclass, nor an int a float.
    """
    source, target = bare_of(source), bare_of(target)
    if source in NOTHING or target in NOTHING:
        return False
    if source in ANYTHING or target in ANYTHING or source == target:
        return True
    if get_origin(source) in UNIONS:
        return any(is_type_compatible(member, target) for member in get_args(source))
    if get_origin(target) in UNIONS:
        return any(is_type_compatible(source, member) for member in get_args(target))
    if get_origin(source) is Literal:
        return any(is_instance_of(value, target) for value in get_args(source))
    if get_origin(target) is Literal:
        return any(is_instance_of(value, source) for value in get_args(target))
    return _is_generic_compatible(source, target)


def _is_generic_compatible(source: object, target: object) -> bool:
    if is_typed_dict(target):
        return _fits_typed_dict(source, target)
    if is_typed_dict(source):
        return _typed_dict_fits(source, target)
    (source_class, source_args), (target_class, target_args) = _split(source), _split(target)
    if not _is_subclass(source_class, target_class):
        return False
    if source_args is None or target_args is None or target_class is _CALLABLE:
        return True
    if source_class is tuple and target_class is tuple:
        return _are_tuples_compatible(source_args, target_args)
    if target_class in ELEMENT_WISE:
        elements = _element_types(source_class, source_args)
        return all(is_type_compatible(element, target_args[0]) for element in elements)
    if source_class is target_class or (source_class in PAIR_WISE and target_class in PAIR_WISE):
        return all(map(is_type_compatible, source_args, target_args))
    return True  # how the arguments of two different generic classes relate is not known: matched by origin


def _split(annotation: object) -> tuple[type, tuple[object, ...] | None]:
    """Class and arguments; arguments is None for a bare class."""
    if isinstance(annotation, type):
        return annotation, (ELEMENT_OF[annotation],) if annotation in ELEMENT_OF else None
    origin, args = get_origin(annotation), get_args(annotation)
    if not isinstance(origin, type):
        raise TypeError(f"{annotation!r} cannot be compared with another type: use a class, a generic or a union.")
    return origin, (*args, int) if origin is collections.Counter else args


def _element_types(cls: type, args: tuple[object, ...]) -> tuple[object, ...]:
    """The element types of `cls[args]`; none if unknown."""
    if cls is tuple:
        return tuple(arg for arg in args if arg is not Ellipsis)
    return args[:1] if cls in ELEMENT_WISE or cls in PAIR_WISE or cls in ELEMENT_OF else ()


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
    if target_class not in PAIR_WISE:
        return fits_keys
    return fits_keys and all(is_type_compatible(hint, target_args[1]) for hint in typed_dict_fields(source).values())


def _fits_typed_dict(source: Any, target: Any) -> bool:
    fields, required = typed_dict_fields(target), required_keys(target)
    if is_typed_dict(source):
        source_fields = typed_dict_fields(source)
        shared = source_fields.keys() & fields.keys()
        keys_fit = required <= source_fields.keys() and required_keys(source) <= fields.keys()
        return keys_fit and all(is_type_compatible(source_fields[key], fields[key]) for key in shared)
    source_class, args = _split(source)
    if not issubclass(source_class, dict):
        return False
    if args is None or source_class not in PAIR_WISE:
        return True
    return is_type_compatible(args[0], str) and all(is_type_compatible(args[1], fields[key]) for key in required)


_Rank = tuple[int, int, int, tuple[Any, ...]]
"""(steps up from the class of the value, minus the depth of a virtual base, refinement, ranks of the parts)."""
_LITERAL, _SHAPED, _PARAMETERISED, _BARE = range(4)


def most_specific(value: object, annotations: Sequence[object]) -> int | None:
    """Index of the most specific annotation that the value matches; None if it matches none. Of equals, the first.

    The nearest base class wins; then Literal, fixed tuple and TypedDict, other parameterised generics, the bare
    class. Protocols and ABCs the value only happens to satisfy come after real bases, `object` and Any last.
    """
    fitting = [index for index, annotation in enumerate(annotations) if is_instance_of(value, annotation)]
    if len(fitting) < 2:
        return fitting[0] if fitting else None
    return min(fitting, key=lambda index: _rank(value, annotations[index]))


def _rank(value: object, annotation: object) -> _Rank:
    """How specific a matching annotation is: smaller is more specific."""
    bare = bare_of(annotation)
    origin, args = get_origin(bare), get_args(bare)
    if origin in UNIONS:
        return min(_rank(value, member) for member in args if is_instance_of(value, member))
    if origin is Literal:
        return (0, 0, _LITERAL, ())
    steps, depth = _place(type(value).__mro__, bare)
    if is_typed_dict(bare):
        return (steps, depth, _SHAPED, ((-len(typed_dict_fields(bare)),),))
    if origin is None:
        return (steps, depth, _BARE, ())
    refinement = _SHAPED if origin is tuple and Ellipsis not in args else _PARAMETERISED
    return (steps, depth, refinement, _ranks_of_parts(value, origin, args))


def _place(mro: tuple[type, ...], bare: object) -> tuple[int, int]:
    if bare in ANYTHING:
        return (len(mro), 0)
    cls = cast(type, bare if isinstance(bare, type) else get_origin(bare))
    cls = dict if is_typed_dict(cls) else cls
    return (mro.index(cls), 0) if cls in mro else (len(mro) - 1, -len(cls.__mro__))


def _ranks_of_parts(value: Any, origin: object, args: tuple[object, ...]) -> tuple[Any, ...]:
    if origin is type:
        members = [member for member in flatten_union(bare_of(args[0])) if _is_class_of(value, member)]
        return (min(_place(value.__mro__, bare_of(member)) for member in members),)
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
