"""Things of Python in a document: by import path, `package.module:name`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from perdure.errors import InvalidDefinition, did_you_mean

_MAIN = "__main__"


def resolve(path: str, place: str) -> Any:
    """What an import path names. Raises InvalidDefinition, with the place in the document."""
    module_name, colon, name = path.partition(":")
    if not colon or not module_name or not name:
        raise InvalidDefinition([(place, f"expected an import path such as 'package.module:name', got {path!r}")])
    try:
        found: Any = _module(module_name)
    except Exception as error:
        raise InvalidDefinition([(place, f"{module_name!r} cannot be imported: {error}")]) from error
    for part in name.split("."):
        if not hasattr(found, part):
            known = [one for one in vars(found) if not one.startswith("_")] if hasattr(found, "__dict__") else []
            raise InvalidDefinition([(place, f"{module_name!r} has no {name!r}{did_you_mean(part, known)}")])
        found = getattr(found, part)
    return found


def _module(name: str) -> ModuleType:
    # The program itself is not imported a second time: that would run it again.
    main = sys.modules.get(_MAIN)
    if main is not None and name == _name_of(main):
        return main
    return importlib.import_module(name)


def _name_of(main: ModuleType) -> str | None:
    """By which another process can import the program that runs in this one."""
    if main.__spec__ is not None:  # python -m package.module
        return main.__spec__.name
    file = getattr(main, "__file__", None)
    stem = None if file is None else Path(file).stem
    return stem if stem is not None and stem.isidentifier() else None


# ---------------------------------------------------------------- writing


def path_of(thing: Any, place: str, what: str) -> str:
    """The import path of a function, a class, or of whatever a module has a name for. Raises InvalidDefinition for one
    that cannot be found by it."""
    path = find_path(thing)
    if path is not None:
        return path
    advice = "Define it at the top of a module that can be imported"
    problem = f"{what} {thing!r:.200} has no import path, so it cannot be written down. {advice}"
    raise InvalidDefinition([(place, problem)])


def find_path(thing: Any) -> str | None:
    """The path by which this very object is found; None if there is none."""
    own = _own_path(thing)
    if own is not None:
        return own
    found = sorted(_paths_to(thing), key=lambda path: (":_" in path, path.count("."), path))
    return found[0] if found else None


def _own_path(thing: Any) -> str | None:
    """By the name that it was defined under, if that still leads to it."""
    module_name, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    module = sys.modules.get(module_name) if isinstance(module_name, str) else None
    written = None if module is None else _written(str(module_name), module)
    if written is None or not isinstance(name, str):
        return None
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{written}:{name}" if found is thing else None


def _written(module_name: str, module: ModuleType) -> str | None:
    return _name_of(module) if module_name == _MAIN else module_name


def _paths_to(thing: Any) -> Iterator[str]:
    for module_name, module in list(sys.modules.items()):
        named = list(getattr(module, "__dict__", {}).items())
        for name in [name for name, value in named if value is thing]:
            written = _written(module_name, module)
            if written is not None and name.isidentifier():
                yield f"{written}:{name}"


def type_title(kind: type) -> str:
    """What the output `matched_type` says of it."""
    return kind.__name__
