from __future__ import annotations

import collections
import enum
import functools
import sys
import typing
from abc import ABC
from collections import abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, Never, NewType, NoReturn, Protocol, TypedDict, TypeVar

import pytest
import typing_extensions
from tests.shown import shown

from perdure.graph.annotations import (
    contains_typevar,
    flatten_union,
    hints_of,
    normalize,
    resolve_annotation,
)
from perdure.graph.matching import is_decided_by_type, is_instance_of, is_type_compatible, most_specific

T = TypeVar("T")
Out = TypeVar("Out", covariant=True)
Bounded = TypeVar("Bounded", bound=int)
Constrained = TypeVar("Constrained", int, str)
UserId = NewType("UserId", int)
Alias = typing_extensions.TypeAliasType("Alias", int | list[str])
GenericAlias = typing_extensions.TypeAliasType("GenericAlias", dict[str, T], type_params=(T,))


class Animal:
    def speak(self) -> str:
        return "..."


class Dog(Animal):
    pass


class Puppy(Dog):
    pass


class Box(Generic[T]):
    pass


class Colour(enum.Enum):
    RED = "red"


class Speaks(Protocol):
    def speak(self) -> str: ...


@typing.runtime_checkable
class Closes(Protocol):
    def close(self) -> None: ...


class Named(Protocol):
    name: str


class Point(TypedDict):
    x: int
    y: typing.NotRequired[int]


class ExtendedPoint(typing_extensions.TypedDict, total=False):
    x: typing_extensions.Required[int]
    z: typing_extensions.ReadOnly[str]


@dataclass
class Person:
    name: str


class Registered(ABC):  # noqa: B024  # classes are registered with it, not derived
    pass


Registered.register(Dog)


class NamedInInit:
    def __init__(self) -> None:
        self.name = "x"


class Explosive:
    @property
    def name(self) -> str:
        raise RuntimeError("do not look")


FITS: list[tuple[object, object]] = [
    (1, int),
    (True, int),
    (1, Any),
    (None, Any),
    (1, object),
    (None, None),
    (None, type(None)),
    (None, int | None),
    ("x", typing.Optional[str]),
    (1, typing.Union[str, int]),
    ("a", Literal["a", "b"]),
    (None, Literal[None]),
    (Colour.RED, Literal[Colour.RED]),
    (1, Annotated[int, "positive"]),
    ([1], list[Annotated[int, "positive"]]),
    (1, UserId),
    ([], list[int]),
    ([1, True], list[int]),
    ([1], typing.List[int]),
    ([1, "x"], typing.List),
    ([1, "x"], list),
    ([1, "x"], list[int | str]),
    ([[1], []], list[list[int]]),
    ({1}, set[int]),
    (frozenset({1}), frozenset[int]),
    ({1}, abc.Set[int]),
    (collections.deque([1]), collections.deque[int]),
    ([1], Sequence[int]),
    ((1, 2), Sequence[int]),
    ("abc", Sequence[str]),
    (b"abc", Sequence[int]),
    (range(10**12), Sequence[int]),
    ({"a": 1}, dict[str, int]),
    ({"a": 1}, Mapping[str, int]),
    ({"a": 1}, Iterable[str]),
    ({}, dict[str, int]),
    (collections.Counter("a"), collections.Counter[str]),
    (collections.OrderedDict(a=1), dict[str, int]),
    ((1, "x"), tuple[int, str]),
    ((), tuple[()]),
    ((1, 2, 3), tuple[int, ...]),
    ((), tuple[int, ...]),
    ((1, "x"), typing.Tuple),
    (Box(), Box[int]),
    (Box(), Box[str]),
    (Dog, type[Animal]),
    (Dog, type[Animal] | None),
    (Dog, type[Any]),
    (int, type[int | str]),
    (object, type[object]),
    (Dog, type),
    (Dog, typing.Type),
    ({"x": 1}, Point),
    ({"x": 1, "y": 2}, Point),
    ({"x": 1, "z": "a"}, ExtendedPoint),
    (Dog(), Speaks),
    (Person("x"), Named),
    (NamedInInit(), Named),
    (Explosive(), Named),
    (open, Callable),
    (len, Callable[[list[int]], int]),
    (Dog, Callable[..., Animal]),
    (1, T),
    (1, Bounded),
    ("x", Constrained),
    ("x", typing.LiteralString),
    (["x"], Alias),
    ({"a": 1}, GenericAlias[int]),
    (Dog(), Registered),
]
DOES_NOT_FIT: list[tuple[object, object]] = [
    ("1", int),
    (1, bool),
    (1, float),
    (1, None),
    (None, int),
    (1, str | None),
    ("c", Literal["a", "b"]),
    (True, Literal[1]),
    (1, Literal[True]),
    ("x", Annotated[int, "positive"]),
    ("x", UserId),
    ([1, "x"], list[int]),
    ((1,), list[int]),
    ([[1], ["x"]], list[list[int]]),
    ({1, "x"}, set[int]),
    ([1], set[int]),
    ("abc", Sequence[int]),
    ("abc", list[str]),
    (range(3), Sequence[str]),
    ({"a": "x"}, dict[str, int]),
    ({1: 1}, dict[str, int]),
    ({1: 1}, Mapping[str, int]),
    ((1,), tuple[int, str]),
    ((1, 2), tuple[int, str]),
    ((1,), tuple[()]),
    ((1, "x"), tuple[int, ...]),
    ([1], tuple[int, ...]),
    (1, Box[int]),
    (Animal, type[Dog]),
    (Dog(), type[Dog]),
    (object, type[int]),
    (float, type[int | str]),
    ({}, Point),
    ({"x": "1"}, Point),
    ({"x": 1, "q": 1}, Point),
    ([("x", 1)], Point),
    ({"z": "a"}, ExtendedPoint),
    (1, Speaks),
    (1, Named),
    (Dog(), Closes),
    (1, Callable),
    (1, Never),
    (None, NoReturn),
    ("x", Bounded),
    (1.0, Constrained),
    ([1], Alias),
    ({"a": "x"}, GenericAlias[int]),
    (Animal(), Registered),
]


@pytest.mark.parametrize(("value", "annotation"), FITS, ids=shown)
def test_a_value_fits_its_annotation(value: object, annotation: object) -> None:
    assert is_instance_of(value, annotation)


@pytest.mark.parametrize(("value", "annotation"), DOES_NOT_FIT, ids=shown)
def test_a_value_does_not_fit_a_foreign_annotation(value: object, annotation: object) -> None:
    assert not is_instance_of(value, annotation)


def test_an_iterator_fits_an_iterable_and_is_not_used_up() -> None:
    numbers = iter([1, 2])
    assert is_instance_of(numbers, Iterable[int])
    assert list(numbers) == [1, 2]


def test_a_method_set_to_none_does_not_count_as_a_member() -> None:
    class Hashes(Protocol):
        def __hash__(self) -> int: ...

    assert not is_instance_of([], Hashes)
    assert is_instance_of((), Hashes)


def test_a_generic_protocol_is_matched_by_its_members() -> None:
    class Source(Protocol[Out]):
        def read(self) -> Out: ...

    class File:
        def read(self) -> str:
            return ""

    assert is_instance_of(File(), Source[str])
    assert not is_instance_of(1, Source[str])


def test_typed_dict_with_an_unresolvable_field_type_still_checks_its_keys() -> None:
    class Inner:
        pass

    class Outer(TypedDict):
        inner: Inner
        other: int

    assert is_instance_of({"inner": Inner(), "other": 1}, Outer)
    assert not is_instance_of({"inner": Inner()}, Outer)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the type statement came with 3.12")
def test_a_recursive_alias_is_followed_as_deep_as_the_value_goes() -> None:
    names: dict[str, Any] = {}
    exec("type Json = int | list[Json] | dict[str, Json]", names)
    assert is_instance_of({"a": [1, {"b": 2}]}, names["Json"])
    assert not is_instance_of({"a": [1, {"b": "x"}]}, names["Json"])
    assert not contains_typevar(names["Json"])


@pytest.mark.parametrize("annotation", ["int", typing.ForwardRef("int"), list["int"]], ids=shown)
def test_matching_against_text_is_rejected(annotation: object) -> None:
    with pytest.raises(TypeError, match="resolve it with resolve_annotation"):
        is_instance_of([1], annotation)


@pytest.mark.parametrize("annotation", [typing.Self, 5], ids=shown)
def test_matching_against_an_object_that_is_not_a_type_is_rejected(annotation: object) -> None:
    with pytest.raises(TypeError, match="cannot be matched against"):
        is_instance_of(1, annotation)


COMPATIBLE: list[tuple[object, object]] = [
    (int, int),
    (int, Any),
    (Any, int),
    (object, int),
    (int, object),
    (Dog, Animal),
    (bool, int),
    (None, int | None),
    (int, int | str),
    (int | str, int),
    (int | str, str | bytes),
    (list[bool], list[int]),
    (list[Any], list[int]),
    (list[int], list[Any]),
    (list, list[int]),
    (list[int], list),
    (list[int | str], list[int]),
    (list[int], Sequence[int]),
    (list[int], Iterable[int]),
    (typing.List[int], list[int]),
    (str, Sequence[str]),
    (tuple[int, int], tuple[int, ...]),
    (tuple[int, ...], tuple[int, int]),
    (tuple[bool, ...], tuple[int, ...]),
    (tuple[int, bool], Sequence[int]),
    (tuple[()], Sequence[int]),
    (tuple, tuple[int, str]),
    (dict[str, bool], Mapping[str, int]),
    (dict[str, int], Iterable[str]),
    (collections.Counter[str], Mapping[str, int]),
    (Literal["a"], str),
    (str, Literal["a"]),
    (Literal["a", "b"], Literal["b", "c"]),
    (type[Dog], type[Animal]),
    (type, type[Animal]),
    (type[Dog], Callable[..., Any]),
    (Callable[[int], int], Callable[[str], str]),
    (Box[int], Box[int]),
    (Box, Box[int]),
    (Box[bool], Box[int]),
    (UserId, int),
    (int, UserId),
    (Annotated[int, 1], int),
    (T, int),
    (Bounded, int),
    (Constrained, str),
    (Alias, int),
    (Dog, Registered),
    (Dog, Speaks),
    (Person, Named),
    (NamedInInit, Named),
    (Point, dict),
    (Point, dict[str, int]),
    (Point, Mapping[str, Any]),
    (Point, Iterable[str]),
    (dict[str, int], Point),
    (dict, Point),
    (Point, Point),
    (ExtendedPoint, Point),
]
INCOMPATIBLE: list[tuple[object, object]] = [
    (int, float),
    (int, str),
    (int, bool),
    (Animal, Dog),
    (None, int),
    (int | str, bytes),
    (list[str], list[int]),
    (list[list[str]], list[list[int]]),
    (list[int], set[int]),
    (Sequence[int], list[int]),
    (str, Sequence[int]),
    (str, list[str]),
    (tuple[int, str], tuple[int, ...]),
    (tuple[int, str], tuple[int]),
    (tuple[str, ...], tuple[int, int]),
    (tuple[int, str], Sequence[int]),
    (dict[str, str], dict[str, int]),
    (dict[int, int], Mapping[str, int]),
    (Literal["a"], Literal["b"]),
    (Literal["a"], int),
    (int, Literal["a"]),
    (type[Animal], type[Dog]),
    (Box[int], Box[str]),
    (int, Never),
    (Never, int),
    (Any, Never),
    (int, Speaks),
    (int, Named),
    (Animal, Registered),
    (Point, dict[str, str]),
    (Point, dict[int, int]),
    (Point, list),
    (dict[str, str], Point),
    (dict[int, int], Point),
    (list[int], Point),
    (Bounded, str),
]


@pytest.mark.parametrize(("source", "target"), COMPATIBLE, ids=shown)
def test_a_source_can_feed_a_target(source: object, target: object) -> None:
    assert is_type_compatible(source, target)


@pytest.mark.parametrize(("source", "target"), INCOMPATIBLE, ids=shown)
def test_a_source_cannot_feed_a_foreign_target(source: object, target: object) -> None:
    assert not is_type_compatible(source, target)


@pytest.mark.parametrize(
    ("value", "annotations", "winner"),
    [
        (Puppy(), [object, Animal, Dog], Dog),
        (Dog(), [Animal, Puppy], Animal),
        (True, [int, bool], bool),
        (1, [Any, object, int], int),
        (1, [object, Any], object),
        (1, [Any, object], Any),
        ([1], [list, list[int]], list[int]),
        ([1], [Sequence[int], list], list),
        ([1], [Iterable, abc.Collection, Sequence], Sequence),
        ([Dog()], [list[Animal], list[Dog]], list[Dog]),
        ([Dog(), Animal()], [list[Any], list[Animal]], list[Animal]),
        ({"a": True}, [dict[str, int], dict[str, bool]], dict[str, bool]),
        ({"x": 1}, [dict, dict[str, int], Point], Point),
        ((1, 2), [tuple, tuple[int, ...], tuple[int, int]], tuple[int, int]),
        ((1, True), [tuple[int, int], tuple[int, bool]], tuple[int, bool]),
        ((), [tuple[int, ...], tuple[()]], tuple[()]),
        ("a", [str, Literal["a"]], Literal["a"]),
        ("b", [Literal["a"], str], str),
        (Dog(), [Animal, Dog | None], Dog | None),
        (Dog(), [Dog, Animal | Dog], Dog),
        (Dog(), [Speaks, Animal], Animal),
        (Dog(), [object, Speaks], Speaks),
        (Dog(), [Registered, Animal], Animal),
        (Dog(), [Any, Registered], Registered),
        (None, [object, int | None], int | None),
        (Dog, [type, type[Animal], type[Dog]], type[Dog]),
        (Dog, [type[Any], type[Animal]], type[Animal]),
        (1, [Annotated[object, ""], UserId], UserId),
        (1, [T, Bounded], Bounded),
        (1, [int, UserId], int),
        (Box(), [Box, Box[int]], Box[int]),
    ],
    ids=shown,
)
def test_most_specific_annotation_wins(value: object, annotations: list[object], winner: object) -> None:
    index = most_specific(value, annotations)
    assert index is not None
    assert annotations[index] is winner or annotations[index] == winner


def test_first_annotation_wins_for_an_empty_list() -> None:
    assert most_specific([], [list[str], list[int]]) == 0


def test_no_annotation_is_chosen_when_none_fits() -> None:
    assert most_specific(1, [str, list[int]]) is None
    assert most_specific(1, []) is None


def depends_on_value(annotation: object) -> bool:
    samples: list[object] = [1, "a", [1], (1, 2), {"a": 1}, Dog, Dog(), {1}, None]
    return any(is_decided_by_type(sample, annotation) is None for sample in samples)


@pytest.mark.parametrize(
    "annotation",
    [list[int], Literal["a"], Point, tuple[int, int], tuple[()], dict[str, Any], type[Dog], Named, Speaks, Alias]
    + [int | list[int], Annotated[list[int], 1], tuple[Any, Any], ExtendedPoint],
    ids=shown,
)
def test_matching_depends_on_the_value(annotation: object) -> None:
    assert depends_on_value(annotation)


@pytest.mark.parametrize(
    "annotation",
    [int, Any, object, None, list, list[Any], tuple[Any, ...], dict[Any, Any], Box[int], Callable[[int], int], Dog]
    + [int | None, Never, Registered, Colour, T, Bounded, UserId, typing.List, type],
    ids=shown,
)
def test_matching_is_decided_by_the_type_alone(annotation: object) -> None:
    assert not depends_on_value(annotation)


@pytest.mark.parametrize(
    ("value", "annotation", "answer"),
    [
        ("a", int | list[str], False),
        ("a", str | list[str], True),
        ([1], str | list[str], None),
        ([1], list[Any] | str, True),
        ("a", Literal["a"] | str, None),
        ("a", dict[str, int], False),
        (True, int, True),
        (1, Never, False),
        (1, object, True),
    ],
    ids=shown,
)
def test_type_decides_unless_the_contents_matter(value: object, annotation: object, answer: bool | None) -> None:
    assert is_decided_by_type(value, annotation) is answer
    assert answer is None or is_instance_of(value, annotation) is answer


def test_a_metaclass_with_its_own_instance_check_depends_on_the_value() -> None:
    class Even(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, int) and value % 2 == 0

    class EvenNumber(metaclass=Even):
        pass

    assert depends_on_value(EvenNumber)
    assert is_instance_of(2, EvenNumber) and not is_instance_of(3, EvenNumber)


def test_pydantic_models_are_decided_by_the_type_alone() -> None:
    pydantic = pytest.importorskip("pydantic")

    assert not depends_on_value(pydantic.create_model("Model"))


OPEN = [resolve_annotation(text, globals()) for text in ("T", "list[T]", "dict[str, list[T]]", "T | None", "Box[T]")]
OPEN += [resolve_annotation(text, globals()) for text in ("Callable[[T], int]", "Annotated[T, 1]", "GenericAlias")]
CLOSED: list[object] = [int, Box, Box[int], list[Any], Callable[[int], int], Literal["T"], None, GenericAlias[int]]


def test_type_variables_are_found_at_any_depth() -> None:
    assert [annotation for annotation in OPEN if not contains_typevar(annotation)] == []
    assert [annotation for annotation in CLOSED if contains_typevar(annotation)] == []


def test_a_union_is_flattened_in_order_and_without_repeats() -> None:
    assert flatten_union(int | str | None) == (int, str, type(None))
    assert flatten_union(typing.Optional[int]) == (int, type(None))
    assert flatten_union(Annotated[int | str, 1]) == (int, str)
    assert flatten_union(Annotated[int, 1] | str | int) == (int, str)
    assert flatten_union(Alias | None) == (int, list[str], type(None))
    assert flatten_union(None) == (type(None),)
    assert flatten_union(list[int]) == (list[int],)
    assert flatten_union(Never) == (Never,)


def test_normalize_strips_parts_that_do_not_affect_matching() -> None:
    assert normalize(None) is type(None)
    assert normalize(Annotated[int, 1]) is int
    assert normalize(list[Annotated[int, 1]]) == list[int]
    assert normalize(typing.Dict[str, typing.List[int]]) == dict[str, list[int]]
    assert normalize(typing.List) is list
    assert normalize(Callable[[Annotated[int, 1]], None]) == Callable[[int], type(None)]
    assert normalize(Callable[..., int]) == Callable[..., int]
    assert normalize(tuple[()]) == tuple[()]
    assert normalize(tuple[int, ...]) == tuple[int, ...]
    assert normalize(Literal["a", None]) == Literal["a", None]
    assert normalize(UserId) is UserId
    assert normalize(Box[int]) == Box[int]


@pytest.mark.parametrize(
    ("annotation", "resolved"),
    [
        ("Dog", Dog),
        ("list[Dog]", list[Dog]),
        ("list['Dog']", list[Dog]),
        (list["Dog"], list[Dog]),
        (dict[str, list["Dog"]], dict[str, list[Dog]]),
        (typing.Optional["Dog"], Dog | None),
        (typing.ForwardRef("Dog"), Dog),
        (Callable[["Dog"], "Dog"], Callable[[Dog], Dog]),
        (Annotated["Dog", "meta"], Annotated[Dog, "meta"]),
        ("Annotated[Dog, 'meta']", Annotated[Dog, "meta"]),
        (Literal["Dog"], Literal["Dog"]),
        (list[Literal["Dog"]], list[Literal["Dog"]]),
        (tuple["Dog", ...], tuple[Dog, ...]),
        (None, type(None)),
        ("None", type(None)),
        (int, int),
    ],
    ids=shown,
)
def test_text_is_resolved_at_any_depth(annotation: object, resolved: object) -> None:
    assert resolve_annotation(annotation, globals(), None) == resolved


def test_local_names_take_precedence_over_global_names() -> None:
    assert resolve_annotation("Dog", globals(), {"Dog": int}) is int


@pytest.mark.parametrize("text", ["Nowhere", "list[", "1 + 'a'", "typing.Nowhere"])
def test_text_that_does_not_name_a_type_is_rejected(text: str) -> None:
    with pytest.raises(NameError, match="Could not resolve type annotation") as raised:
        resolve_annotation(text, globals(), None)
    assert isinstance(raised.value, ValueError)


def test_hints_of_a_module_level_function() -> None:
    def plain(first: int, second: list[Dog] | None = None) -> None: ...

    assert hints_of(plain) == {"first": int, "second": list[Dog] | None, "return": type(None)}


def test_hints_keep_annotated() -> None:
    def plain(first: Annotated[int, "meta"]) -> None: ...

    assert hints_of(plain)["first"] == Annotated[int, "meta"]


def test_hints_find_local_classes_of_the_calling_frame() -> None:
    @dataclass
    class Local:
        x: int

    def plain(first: Local, second: list[Local]) -> Local | None: ...

    assert hints_of(plain) == {"first": Local, "second": list[Local], "return": Local | None}


def test_hints_find_closure_variables_after_the_frame_is_gone() -> None:
    def define() -> Callable[..., object]:
        class Local:
            pass

        def plain(first: Local) -> object:
            return Local()

        return plain

    plain = define()
    assert hints_of(plain)["first"] is type(plain(None))


def test_a_decorator_sees_the_classes_of_the_class_body() -> None:
    hints: dict[str, object] = {}

    def remember(function: Callable[..., object]) -> Callable[..., object]:
        hints.update(hints_of(function))
        return function

    class Outer:
        class Inner:
            pass

        @remember
        def method(self, first: Inner) -> None: ...

    assert hints == {"first": Outer.Inner, "return": type(None)}


def test_a_name_of_the_module_is_not_hidden_by_a_callers_local() -> None:
    def plain(first: Dog) -> None: ...

    def caller() -> dict[str, object]:
        Dog = int  # noqa: F841  # there to be found by mistake
        return hints_of(plain)

    assert caller()["first"] is Dog


def test_hints_of_methods_partials_wrappers_and_callable_objects() -> None:
    class Callable_:
        def __call__(self, first: int) -> str:
            return ""

        def method(self, first: Dog) -> str:
            return ""

    @functools.wraps(Callable_.method)
    def wrapper(*args: Any) -> Any: ...

    assert hints_of(Callable_()) == {"first": int, "return": str}
    for function in (Callable_().method, Callable_.method, functools.partial(Callable_.method, Callable_()), wrapper):
        assert hints_of(function) == {"first": Dog, "return": str}


def test_a_function_without_annotations_has_no_hints() -> None:
    assert hints_of(lambda first: first) == {}


def test_unknown_name_error_names_function_annotation_and_remedy() -> None:
    def plain(first: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(ValueError, match="cannot be resolved") as raised:
        hints_of(plain)
    for part in ("annotation of 'first'", "plain", "'Nowhere'", "@handler(input=..., output=...)"):
        assert part in str(raised.value)
