"""The types that a codec may build, their stored names, and how a workflow declares them by its annotations."""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import functools
import importlib
import sys
import typing
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from enum import Enum
from inspect import isbuiltin
from types import ModuleType, SimpleNamespace
from typing import Any, Literal, NamedTuple, TypeAlias, is_typeddict
from weakref import WeakValueDictionary

import msgspec

from perdure.codec import DeclaredTypes, declare
from perdure.codecs.builtin_types import BUILTIN_TYPES
from perdure.codecs.walk import Refusal
from perdure.names import OWN_PACKAGE, main_module_name, stable_module, stable_name
from perdure.twins import find_twin, load_twins

Kind: TypeAlias = Literal["enum", "exception", "namedtuple", "subclass", "dataclass", "struct", "pydantic", "typeddict"]

EXCEPTIONS: dict[str, type[BaseException]] = {
    name: cls
    for name, cls in vars(builtins).items()
    if isinstance(cls, type) and issubclass(cls, BaseException) and cls.__name__ == name
}
COLLECTIONS: dict[str, type] = {"ordereddict": OrderedDict, "counter": Counter}
BASES = frozenset(
    {str, int, float, complex, bytes, bytearray, list, tuple, set, frozenset, dict, OrderedDict, defaultdict, deque}
)
MAKERS = BASES.union(EXCEPTIONS.values())


def kind_of(cls: type) -> Kind | None:
    """The kind of a data type; None for any other class, whose instances may have more than their fields."""
    if issubclass(cls, Enum):
        return "enum"
    if issubclass(cls, BaseException):
        return "exception" if layout_base(cls) in MAKERS else None
    if is_typeddict(cls):
        return "typeddict"
    if issubclass(cls, msgspec.Struct):
        return "struct"
    if is_pydantic(cls):
        return "pydantic"
    base = layout_base(cls)
    if base is tuple and isinstance(getattr(cls, "_fields", None), tuple):
        return "namedtuple"
    if base in BASES and cls is not base:
        return "subclass"
    return "dataclass" if base is object and dataclasses.is_dataclass(cls) else None


def layout_base(cls: type) -> type:
    """The C class that creates instances of `cls`. Its `__new__` runs no user code."""
    base = cls
    while base is not object and base not in MAKERS and not isbuiltin(vars(base).get("__new__")):
        base = base.__base__ or object
    return base


def is_pydantic(cls: type) -> bool:
    """Does not import pydantic: a model can exist only if its base class was imported."""
    main = sys.modules.get("pydantic.main")
    model = getattr(main, "BaseModel", None)
    return model is not None and issubclass(cls, model)


def generic_origin(cls: type) -> tuple[type, tuple[Any, ...]]:
    """`Model` and `(int,)` for the pydantic class `Model[int]`; any other class is its own origin."""
    generic: dict[str, Any] = getattr(cls, "__pydantic_generic_metadata__", None) or {}
    origin = generic.get("origin")
    return (origin, generic["args"]) if isinstance(origin, type) else (cls, ())


BUILTINS: dict[str, type] = {
    **{name: cls for cls, (name, _) in BUILTIN_TYPES.items()},
    **COLLECTIONS,
    **EXCEPTIONS,
    "bool": bool,
    "NoneType": type(None),
    "object": object,
}
BUILTIN_NAMES = {cls: name for name, cls in BUILTINS.items()}
OTHER_TAGS = frozenset({"type", "alias", "union", "literal", "any", "ellipsis"})


class Registered(NamedTuple):
    """A type with encode and decode functions of a user."""

    name: str
    cls: type
    encode: Callable[[Any], object]
    decode: Callable[[Any], Any]


_registered_classes: dict[type, Registered] = {}
_registered_names: dict[str, Registered] = {}


def register_type(
    cls: type, encode: Callable[[Any], object], decode: Callable[[Any], Any], *, name: str | None = None
) -> None:
    """Store values of exactly this class as the result of `encode`, and build them with `decode`.

    Applies to every codec of the process from its first use of the class, so register where the class is defined.
    `name` is stored and must not change.
    """
    name = name or stable_name(cls)
    if cls in BUILTIN_NAMES or name in BUILTINS or name in OTHER_TAGS:
        raise ValueError(f"{name!r} is built in and cannot be registered. Register a class of your own.")
    earlier = _registered_names.get(name)
    if earlier is not None and earlier.cls is not cls:
        raise ValueError(f"The name {name!r} is registered for {earlier.cls!r}. Give {cls!r} another name=.")
    _registered_classes[cls] = _registered_names[name] = Registered(name, cls, encode, decode)


def find_registration(cls: type) -> Registered | None:
    if cls not in _registered_classes:
        find_twin(cls)  # registers the classes of its framework
    return _registered_classes.get(cls)


def registered_name(name: str) -> Registered | None:
    if name not in _registered_names:
        load_twins(name)
    return _registered_names.get(name)


def stored_name(cls: type) -> str:
    """The name of the class in stored values. `TypeRegistry` decides whether a codec may store them."""
    registration = find_registration(cls)
    return registration.name if registration is not None else BUILTIN_NAMES.get(cls) or stable_name(cls)


class Declarations(msgspec.Struct):
    """Declared types by name."""

    types: MutableMapping[str, type]
    names: set[str] = set()
    packages: set[str] = set()

    def add(self, declared: DeclaredTypes) -> None:
        for cls in declared.types:
            origin, _ = generic_origin(cls)
            self.types[stable_name(cls)] = cls
            self.types[stable_name(origin)] = origin
        self.names |= declared.names
        self.packages |= declared.packages


_remembered = Declarations(WeakValueDictionary())


def remember(declared: DeclaredTypes) -> None:
    """Let lenient codecs of this process build these types too. The later of two classes with one name counts."""
    _remembered.add(declared)


def remembered() -> DeclaredTypes:
    """All declarations of the workflows built in this process."""
    return DeclaredTypes(
        frozenset(_remembered.types.values()), frozenset(_remembered.names), frozenset(_remembered.packages)
    )


class TypeRegistry:
    """The names that may be built. A lenient registry also stores undeclared data types."""

    def __init__(self, declared: DeclaredTypes | None = None, lenient: bool = False) -> None:
        own = Declarations({})
        own.add(declared or DeclaredTypes())
        self.lenient = lenient
        self._declarations = (own, _remembered) if lenient else (own,)

    def name_of(self, cls: type) -> str:
        """The name to store. Raises Refusal for a type that `resolve` would not find again."""
        name = stored_name(cls)
        if cls in BUILTIN_NAMES or find_registration(cls) is not None:
            return name
        if kind_of(cls) is None:
            raise no_data_type(cls)
        if not self.lenient and self.resolve(name) is not cls:
            raise Refusal(
                f"the type {name} was not declared, so it could not be loaded again",
                f"Declare it with allowed_types=[{cls.__qualname__}], or use register_type.",
            )
        return name

    def resolve(self, name: str) -> type | None:
        """The class of this name, if it may be built. Raises Refusal if its module cannot be imported."""
        registration = registered_name(name)
        if registration is not None:
            return registration.cls
        if name in BUILTINS:
            return BUILTINS[name]
        for declared in self._declarations:
            cls = declared.types.get(name)
            if cls is not None:
                return cls if kind_of(cls) is not None else None
        module, colon, qualname = name.partition(":")
        if not colon or not all(part.isidentifier() for part in [*module.split("."), *qualname.split(".")]):
            return None
        return self._find(name, module, qualname)

    def _find(self, name: str, module: str, qualname: str) -> type | None:
        if module == OWN_PACKAGE:
            return _own_class(name)
        package = module.partition(".")[0]
        if not any(name in declared.names or package in declared.packages for declared in self._declarations):
            return None
        for candidate in _modules(module):
            cls = _class_in(candidate, qualname)
            # The name must be the class's own: a module also contains imported classes, such as subprocess.Popen.
            if cls is not None and stable_name(cls) == name and kind_of(cls) is not None:
                return cls
        return None


def no_data_type(cls: type) -> Refusal:
    return Refusal(
        f"{stable_name(cls)} is not a data type: dataclass, msgspec Struct, pydantic model, NamedTuple, Enum or error",
        f"Make it one, or register how to store it: register_type({cls.__qualname__}, encode, decode).",
    )


_own_classes: dict[str, type] = {}
"""Cache by stored name: a search of all modules takes a millisecond, and every stored value needs it."""


def _own_class(name: str) -> type | None:
    """perdure's data type with this stored name, in any loaded module. Imports nothing."""
    if name in _own_classes:
        return _own_classes[name]
    qualname = name.removeprefix(f"{OWN_PACKAGE}:").removeprefix("client.")
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith(f"{OWN_PACKAGE}."):
            cls = _class_in(module, qualname)
            if cls is not None and cls.__module__ == module_name and stable_name(cls) == name:
                if kind_of(cls) is not None:
                    _own_classes[name] = cls
                return _own_classes.get(name)
    return None


def _modules(name: str) -> Iterator[ModuleType]:
    main = sys.modules.get("__main__")
    if main is not None and main_module_name() == name:
        yield main
    loaded = sys.modules.get(name)
    # Importing a package's __main__ would run it as a program.
    if loaded is None and not name.endswith("__main__"):
        try:
            loaded = importlib.import_module(name)
        except (Exception, SystemExit) as error:
            raise Refusal(
                f"its module {name} cannot be imported: {type(error).__name__}: {error}",
                "If the class was moved, give the workflow a migration that renames it.",
            ) from error
    if loaded is not None:
        yield loaded


def _class_in(module: ModuleType, qualname: str) -> type | None:
    """Reads namespaces only; `getattr` would run a module's or a metaclass's own code."""
    names: Mapping[str, Any] = vars(module)
    cls: type | None = None
    for part in qualname.split("."):
        cls = names.get(part)
        if not isinstance(cls, type):
            return None
        names = vars(cls)
    return cls


# An executor defined in one of these does not declare the package's data types.
SHARED_PACKAGES = frozenset({*sys.stdlib_module_names, "perdure", "typing_extensions"}) - {"__main__"}


def reachable_types(annotation: object) -> frozenset[type]:
    """All data types that annotations show as parts of values of this annotation.

    Not subclasses, nor names that cannot be resolved.
    """
    types: set[type] = set()
    waiting: list[object] = [annotation]
    seen: dict[int, object] = {}
    """By id, which is unique only while the object lives."""
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen[id(part)] = part
        waiting.extend(_parts(part))
        if isinstance(part, type) and part not in BUILTIN_NAMES and kind_of(part) is not None:
            types.add(part)
    return frozenset(types)


def declared_types(
    annotations: Iterable[object], classes: Iterable[type], extra: Iterable[type | str]
) -> DeclaredTypes:
    """The types that a decoder may build: from handlers' annotations, executors' packages, and `extra`."""
    explicit = declare(extra)
    types = set(explicit.types)
    for annotation in (*annotations, *explicit.types):
        types |= reachable_types(annotation)
    packages = {stable_module(cls.__module__).partition(".")[0] for cls in classes}
    return DeclaredTypes(frozenset(types), explicit.names, frozenset(packages - SHARED_PACKAGES))


def _parts(annotation: Any) -> Iterable[object]:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return map(type, args)
    if origin is not None:
        return (origin, *args)
    if isinstance(annotation, typing.NewType):
        return (annotation.__supertype__,)
    if isinstance(annotation, typing.TypeVar):
        return (annotation.__bound__, *annotation.__constraints__)
    if hasattr(annotation, "__value__") and type(annotation).__name__ == "TypeAliasType":
        return (annotation.__value__,)
    if isinstance(annotation, (list, tuple)):
        return annotation  # the parameters of a Callable
    return _class_parts(annotation) if isinstance(annotation, type) else ()


def _class_parts(cls: type) -> list[object]:
    kind = kind_of(cls) if cls not in BUILTIN_NAMES else None
    if kind is None:
        return []
    model, args = generic_origin(cls)
    fields = getattr(cls, "model_fields", {}).values() if kind == "pydantic" else ()
    return [model, *args, *(field.annotation for field in fields), *_hints(cls)]


@functools.lru_cache(1024)
def _all_hints(cls: type) -> list[object]:
    """Cached, because every built workflow needs many of them. Errors are not cached: a name that cannot be resolved
    now may be later."""
    return list(typing.get_type_hints(cls).values())


def _hints(cls: type) -> list[object]:
    """The fields' types, without those whose names cannot be resolved."""
    with contextlib.suppress(Exception):  # evaluating a stranger's annotation can raise anything
        return _all_hints(cls)
    return [
        _resolve(annotation, vars(sys.modules.get(owner.__module__, typing)))
        for owner in cls.__mro__
        for annotation in vars(owner).get("__annotations__", {}).values()
    ]


def _resolve(annotation: object, names: dict[str, Any]) -> object:
    if not isinstance(annotation, str):
        return annotation
    with contextlib.suppress(Exception):
        return typing.get_type_hints(SimpleNamespace(__annotations__={"it": annotation}), names)["it"]
    return None
