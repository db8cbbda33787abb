"""References to Python objects in a document, by import path: `package.module:name`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from perdure.errors import InvalidDefinition, did_you_mean

_MAIN = "__main__"


def resolve(import_path: str, path: str) -> Any:
    """The object of an import path. Raises InvalidDefinition with the path in the document."""
    module_name, colon, name = import_path.partition(":")
    if not colon or not module_name or not name:
        problem = f"expected an import path such as 'package.module:name', got {import_path!r}"
        raise InvalidDefinition([(path, problem)])
    try:
        value: Any = _module(module_name)
    except Exception as error:
        raise InvalidDefinition([(path, f"{module_name!r} cannot be imported: {error}")]) from error
    for part in name.split("."):
        if not hasattr(value, part):
            names = [known for known in vars(value) if not known.startswith("_")] if hasattr(value, "__dict__") else []
            raise InvalidDefinition([(path, f"{module_name!r} has no {name!r}{did_you_mean(part, names)}")])
        value = getattr(value, part)
    return value


def _module(name: str) -> ModuleType:
    # The running program is not imported a second time: that would run it again.
    main = sys.modules.get(_MAIN)
    if main is not None and name == _name_of(main):
        return main
    return importlib.import_module(name)


def _name_of(main: ModuleType) -> str | None:
    """The name by which another process can import the program of this process."""
    if main.__spec__ is not None:  # python -m package.module
        return main.__spec__.name
    file = getattr(main, "__file__", None)
    stem = None if file is None else Path(file).stem
    return stem if stem is not None and stem.isidentifier() else None


def import_path_of(thing: Any, path: str, what: str) -> str:
    """The import path of a function, a class, or another object with a name in a module. Raises InvalidDefinition if it
    has none."""
    import_path = find_import_path(thing)
    if import_path is not None:
        return import_path
    advice = "Define it at the top of a module that can be imported"
    problem = f"{what} {thing!r:.200} has no import path, so it cannot be exported. {advice}"
    raise InvalidDefinition([(path, problem)])


def find_import_path(thing: Any) -> str | None:
    """The import path of this very object; None if it has none."""
    own = _own_path(thing)
    if own is not None:
        return own
    paths = sorted(_paths_to(thing), key=lambda path: (":_" in path, path.count("."), path))
    return paths[0] if paths else None


def _own_path(thing: Any) -> str | None:
    """The path of its definition, if it still leads to this object."""
    module_name, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    module = sys.modules.get(module_name) if isinstance(module_name, str) else None
    importable = None if module is None else _importable_name(str(module_name), module)
    if importable is None or not isinstance(name, str):
        return None
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part, None)
    return f"{importable}:{name}" if value is thing else None


def _importable_name(module_name: str, module: ModuleType) -> str | None:
    return _name_of(module) if module_name == _MAIN else module_name


def _paths_to(thing: Any) -> Iterator[str]:
    for module_name, module in list(sys.modules.items()):
        named = list(getattr(module, "__dict__", {}).items())
        for name in [name for name, value in named if value is thing]:
            importable = _importable_name(module_name, module)
            if importable is not None and name.isidentifier():
                yield f"{importable}:{name}"


def type_title(kind: type) -> str:
    """The value of the output `matched_type`."""
    return kind.__name__
