"""Matching at run time: whether a value matches an annotation, and whether two annotations are compatible.

Annotations are plain objects here (`int`, `list[int]`, `A | None`, `Literal["x"]`, ...). A text annotation must
be resolved first, by `hints_of` or `resolve_annotation`; the matching functions raise TypeError for one.
"""

from __future__ import annotations

import collections
import functools
import inspect
from abc import ABCMeta
from collections import abc
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Never, NoReturn, Union, cast, get_args, get_origin

from perdure.graph.annotations import (
    ELEMENT_OF,
    ELEMENT_WISE,
    PAIR_WISE,
    UNIONS,
    bare_of,
    flatten_union,
    is_protocol,
    is_typed_dict,
    protocol_members,
    required_keys,
    typed_dict_fields,
)
from perdure.twins import find_twin


class Form(NamedTuple):
    """An annotation, whatever its spelling: `kind[args]`."""

    kind: Any
    """A class, or Any (also for `object`), Never, Union, Literal."""
    args: tuple[Any, ...] | None = None
    """None for a class without arguments."""
    is_plain: bool = False
    """Whether it is a class with the usual `isinstance`, which has one answer for all values of one type."""


def form_of(annotation: object) -> Form:
    try:
        return _cached_form(annotation)
    except TypeError:  # it has no hash, such as an Annotated with a list; or no form, which raises again
        return _make_form(annotation)


def _make_form(annotation: object) -> Form:
    bare = bare_of(annotation)
    if bare is Any or bare is object:
        return Form(Any)
    if bare is Never or bare is NoReturn:
        return Form(Never)
    if isinstance(bare, type):
        kind = _own_class(bare)
        return Form(kind, None, _is_plain(kind))
    origin = get_origin(bare)
    kind = Union if origin in UNIONS else bare if origin is None else _own_class(origin)
    return Form(kind, get_args(bare), _is_plain(kind))


def _own_class(cls: Any) -> Any:
    """Our class, for one of another framework that stands for it."""
    twin = find_twin(cls) if isinstance(cls, type) else None
    return cls if twin is None else twin.own


def _is_a(value: object, cls: type) -> bool:
    return isinstance(value, cls) or issubclass(_own_class(type(value)), cls)


_cached_form = functools.lru_cache(maxsize=512)(_make_form)


def _is_plain(cls: object) -> bool:
    if not isinstance(cls, type) or is_typed_dict(cls) or is_protocol(cls):
        return False
    # ABCMeta, and pydantic's metaclass on top of it, check only the class of a value; others may not.
    checks_types = isinstance(cls, ABCMeta) or getattr(type(cls), "checks_types", False)
    return checks_types or type(cls).__instancecheck__ is type.__instancecheck__


def is_instance_of(value: object, annotation: object) -> bool:
    """True if the value matches the annotation, elements of containers included.

    As `isinstance`: a bool is an int, an int is not a float. A TypedDict has no other keys than its own. An iterator
    fits `Iterable[X]` unseen, since looking would use it up.
    """
    if type(annotation) is type:
        return annotation is object or _is_a(value, annotation)
    kind, args, is_plain = form_of(annotation)
    if kind is Any or kind is Never:
        return kind is Any
    if kind is Union:
        return any(is_instance_of(value, arg) for arg in args or ())
    if kind is Literal:
        return any(type(value) is type(arg) and value == arg for arg in args or ())
    if not (_is_a(value, kind) if is_plain else _is_instance_of_class(value, kind)):
        return False
    if args is None:
        return True
    if kind is type:
        return _is_class_of(cast(type, value), args[0])
    if kind is tuple and Ellipsis not in args:
        items = cast(tuple[object, ...], value)
        return len(items) == len(args) and all(map(is_instance_of, items, args))
    if kind in ELEMENT_WISE:
        return _do_all_match(_elements(value), args[0])
    return all(is_instance_of(each, arg) for each, arg in _parts(value, kind, args))


def is_decided_by_type(value: object, annotation: object) -> bool | None:
    """The answer of `is_instance_of` for all values of this value's type; None if their contents matter."""
    kind, args, is_plain = form_of(annotation)
    if kind is Any or kind is Never:
        return kind is Any
    if kind is Union:
        answers = {is_decided_by_type(value, arg) for arg in args or ()}
        return None if None in answers else True in answers
    if not is_plain:
        return None
    if not _is_a(value, kind) or args is None:
        return _is_a(value, kind)
    if kind is type or (kind is tuple and Ellipsis not in args):
        return None
    is_generic = kind not in ELEMENT_WISE and kind not in PAIR_WISE  # matched by its class alone
    return is_generic or all(form_of(arg).kind is Any for arg in args if arg is not Ellipsis) or None


def _do_all_match(elements: Collection[object], annotation: object) -> bool:
    """Matched once per type where that decides: a join of a hundred messages is matched twice."""
    examples = dict(zip(map(type, elements), elements, strict=True)).values()
    answers = {is_decided_by_type(example, annotation) for example in examples}
    if None not in answers:
        return False not in answers
    return all(is_instance_of(element, annotation) for element in elements)


def _is_instance_of_class(value: object, cls: Any) -> bool:
    if is_typed_dict(cls):
        fields = typed_dict_fields(cls)
        return (
            isinstance(value, dict)
            and required_keys(cls) <= value.keys() <= fields.keys()
            and all(is_instance_of(each, fields[key]) for key, each in value.items())
        )
    if is_protocol(cls) and not getattr(cls, "_is_runtime_protocol", False):
        return cls in type(value).__mro__ or all(_has_member(value, cls, name) for name in protocol_members(cls))
    if not isinstance(cls, type):
        raise TypeError(f"A value cannot be matched against {cls!r}: use a class, a generic or a union.")
    return isinstance(value, cls)


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


def _elements(value: object) -> Collection[object]:
    if type(value) in ELEMENT_OF:  # one element is enough, and a range may be very long
        return cast(Sequence[object], value)[:1]
    return value if isinstance(value, abc.Collection) else ()


def _has_member(value: object, protocol: type, name: str) -> bool:
    # Static: calling a property only to test for it may do work, or raise.
    member = inspect.getattr_static(value, name, _has_member)
    if member is None:  # `__hash__ = None` removes the method
        return not callable(getattr(protocol, name, None))
    return member is not _has_member


def _is_class_of(cls: type, annotation: object) -> bool:
    """True if `cls` is valid for `type[annotation]`."""
    kind, args, _ = form_of(annotation)
    if kind is Union:
        return any(_is_class_of(cls, member) for member in args or ())
    return kind is Any or (isinstance(kind, type) and _is_subclass(cls, kind))


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
    sent, wanted = form_of(source), form_of(target)
    if sent.kind is Never or wanted.kind is Never:
        return False
    if sent.kind is Any or wanted.kind is Any or sent == wanted:
        return True
    if sent.kind is Union:
        return any(is_type_compatible(member, target) for member in sent.args or ())
    if wanted.kind is Union:
        return any(is_type_compatible(source, member) for member in wanted.args or ())
    if sent.kind is Literal:
        return any(is_instance_of(value, target) for value in sent.args or ())
    if wanted.kind is Literal:
        return any(is_instance_of(value, source) for value in wanted.args or ())
    for form in (sent, wanted):
        if not isinstance(form.kind, type):
            raise TypeError(f"{form.kind!r} cannot be compared with another type: use a class, a generic or a union.")
    return _fits_typed_dict(sent, wanted.kind) if is_typed_dict(wanted.kind) else _fits_class(sent, wanted)


def _fits_class(source: Form, target: Form) -> bool:
    if not _is_subclass(dict if is_typed_dict(source.kind) else source.kind, target.kind):
        return False
    if target.args is None or target.kind is abc.Callable:
        return True
    if source.kind is target.kind is tuple and source.args is not None:
        return _are_tuples_compatible(source.args, target.args)
    wanted = (*target.args, int) if target.kind is collections.Counter else target.args
    parts = zip(_argument_types(source, target.kind), wanted, strict=False)
    return all(is_type_compatible(part, argument) for kinds, argument in parts for part in kinds)


def _argument_types(source: Form, target: type) -> list[tuple[object, ...]]:
    """For each argument of the target class, the types in the source that must fit it; none where that is unknown."""
    kind, args = source.kind, source.args
    if is_typed_dict(kind):
        return [(str,), tuple(typed_dict_fields(kind).values())]
    if target in ELEMENT_WISE and kind in ELEMENT_OF:
        return [(ELEMENT_OF[kind],)]
    if args is None:
        return []
    if target in ELEMENT_WISE:
        known = kind in ELEMENT_WISE or kind in PAIR_WISE
        return [tuple(arg for arg in args if arg is not Ellipsis) if kind is tuple else args[:1]] if known else []
    if kind is target or (kind in PAIR_WISE and target in PAIR_WISE):
        return [(arg,) for arg in ((*args, int) if kind is collections.Counter else args)]
    return []  # how the arguments of two different generic classes relate is not known: matched by origin


def _are_tuples_compatible(source: tuple[object, ...], target: tuple[object, ...]) -> bool:
    if Ellipsis in source and Ellipsis in target:
        return is_type_compatible(source[0], target[0])
    if Ellipsis in source:
        source = source[:1] * len(target)
    elif Ellipsis in target:
        target = target[:1] * len(source)
    return len(source) == len(target) and all(map(is_type_compatible, source, target))


def _fits_typed_dict(source: Form, target: Any) -> bool:
    fields, required = typed_dict_fields(target), required_keys(target)
    kind, args = source.kind, source.args
    if is_typed_dict(kind):
        source_fields = typed_dict_fields(kind)
        shared = source_fields.keys() & fields.keys()
        keys_fit = required <= source_fields.keys() and required_keys(kind) <= fields.keys()
        return keys_fit and all(is_type_compatible(source_fields[key], fields[key]) for key in shared)
    if not issubclass(kind, dict) or args is None or kind not in PAIR_WISE:
        return issubclass(kind, dict)
    keys, values = (*args, int) if kind is collections.Counter else args
    return is_type_compatible(keys, str) and all(is_type_compatible(values, fields[key]) for key in required)


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


def _rank(value: Any, annotation: object) -> _Rank:
    """How specific a matching annotation is: smaller is more specific."""
    kind, args, _ = form_of(annotation)
    if kind is Union:
        return min(_rank(value, member) for member in args or () if is_instance_of(value, member))
    if kind is Literal:
        return (0, 0, _LITERAL, ())
    steps, depth = _place(_own_class(type(value)).__mro__, kind)
    if is_typed_dict(kind):
        return (steps, depth, _SHAPED, ((-len(typed_dict_fields(kind)),),))
    if args is None:
        return (steps, depth, _BARE, ())
    if kind is tuple and Ellipsis not in args:
        return (steps, depth, _SHAPED, tuple(map(_rank, value, args)))
    if kind is type:
        members = [member for member in flatten_union(bare_of(args[0])) if _is_class_of(value, member)]
        parts: tuple[Any, ...] = (min(_place(value.__mro__, form_of(member).kind) for member in members),)
    else:
        parts = _worst_by_argument(_parts(value, kind, args))
    return (steps, depth, _PARAMETERISED, parts)


def _place(mro: tuple[type, ...], kind: Any) -> tuple[int, int]:
    if kind is Any:
        return (len(mro), 0)
    cls = dict if is_typed_dict(kind) else kind
    return (mro.index(cls), 0) if cls in mro else (len(mro) - 1, -len(cls.__mro__))


def _worst_by_argument(parts: Iterable[tuple[object, object]]) -> tuple[_Rank, ...]:
    worst: dict[int, _Rank] = {}
    for element, annotation in parts:
        rank = _rank(element, annotation)
        worst[id(annotation)] = max(rank, worst.get(id(annotation), rank))
    return tuple(worst.values())
