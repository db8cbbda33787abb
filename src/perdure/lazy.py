"""Names of a package that are imported when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module

from perdure.errors import did_you_mean


def lazy_exports(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package that imports its names on first use. `homes`: name -> module."""
    module = sys.modules[package]

    def find(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}{did_you_mean(name, homes)}")
        value: object = getattr(import_module(home), name)
        setattr(module, name, value)  # the next access needs no `__getattr__`
        return value

    return find, lambda: sorted([*vars(module), *homes])


def homes_of(names: Mapping[str, str]) -> dict[str, str]:
    """name -> module, in the order of the names, from module -> names with spaces between them."""
    return dict(sorted((name, module) for module, listed in names.items() for name in listed.split()))
