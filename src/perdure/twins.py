"""Classes of other frameworks that stand for classes of ours, such as Agent Framework's Message for Message."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple


class Twin(NamedTuple):
    """Our class, and the conversions of instances."""

    own: type
    to_own: Callable[[Any], Any]
    from_own: Callable[[Any], Any]


HOMES = {"agent_framework": "perdure.agents.conversation.twins"}
"""By package: the module whose `load()` has them by class. The package itself is not imported."""


class Beside:
    """Base of a class whose instances are accepted as those of Agent Framework's class with its name."""

    __slots__ = ()
    if not TYPE_CHECKING:

        @property
        def __class__(self) -> type:
            return getattr(sys.modules.get("agent_framework"), type(self).__name__, type(self))


def has_twins() -> bool:
    """Whether the program has imported another framework with such classes."""
    return bool(HOMES.keys() & sys.modules.keys())


def _find_twin(cls: type) -> Twin | None:
    for base in cls.__mro__:
        home = HOMES.get(str(base.__module__).partition(".")[0])
        if home is not None and base in (twins := import_module(home).load()):
            twin: Twin = twins[base]
            return twin
    return None


find_twin: Callable[[type], Twin | None] = lru_cache(512)(_find_twin)
"""The conversions of this class of another framework. None for any other class."""


def to_own(value: Any) -> Any:
    """The value as ours, if its class stands for one of ours, also in a list. Any other value unchanged."""
    if type(value) is list and has_twins():
        return [to_own(item) for item in value]
    twin = find_twin(type(value))
    return value if twin is None else twin.to_own(value)


def load_twins(name: str) -> None:
    """Register the classes of a stored name's package, if the program has imported the package."""
    package = name.partition(":")[0]
    if package in HOMES and package in sys.modules:
        import_module(HOMES[package]).load()
