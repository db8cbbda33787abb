"""Things of Python in a document: by import path, `package.module:name`."""

from __future__ import annotations

import importlib
from types import FunctionType
from typing import Any

from holdfast.errors import InvalidDefinition, did_you_mean


def resolve(path: str, place: str) -> Any:
    """What an import path names. Raises InvalidDefinition, with the place in the document."""
    module_name, colon, name = path.partition(":")
    if not colon or not module_name or not name:
        raise InvalidDefinition([(place, f"expected an import path such as 'package.module:name', got {path!r}")])
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        raise InvalidDefinition([(place, f"{module_name!r} cannot be imported: {error}")]) from error
    for part in name.split("."):
        if not hasattr(found, part):
            known = [one for one in vars(found) if not one.startswith("_")] if hasattr(found, "__dict__") else []
            raise InvalidDefinition([(place, f"{module_name!r} has no {name!r}{did_you_mean(part, known)}")])
        found = getattr(found, part)
    return found


def path_of(thing: Any, place: str, what: str) -> str:
    """The import path of a function or a class. Raises InvalidDefinition for one that cannot be found by it."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if isinstance(module, str) and isinstance(name, str) and "<" not in name and isinstance(thing, FunctionType | type):
        return f"{module}:{name}"
    advice = "Define it at the top of a module that can be imported."
    raise InvalidDefinition([(place, f"{what} {thing!r} has no import path, so it cannot be written down. {advice}")])


def type_title(kind: type) -> str:
    """What the output `matched_type` says of it."""
    return kind.__name__
