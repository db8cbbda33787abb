"""Things that another process can find: by module and name, or by the file that the module was read from."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import dataclass
from functools import reduce
from typing import Any

from perdure.names import stable_module


@dataclass(frozen=True)
class Importable:
    module: str
    name: str
    file: str | None = None
    """Where the module is, should its name not be enough: a script, or a test that pytest loaded by path."""

    def load(self) -> Any:
        """The thing itself. Raises ImportError or AttributeError."""
        return reduce(getattr, self.name.split("."), _module(self.module, self.file))


def importable(what: str, thing: Any) -> Importable:
    """How another process finds `thing`: something defined on top of a module, or its name, `"module:function"`.

    Raises TypeError, naming the parameter `what`, for anything that only this process can have.
    """
    if isinstance(thing, str):
        module, _, name = thing.partition(":")
        if not module or not name:
            raise TypeError(f"{what} expects 'module:function', got {thing!r}.")
        return Importable(module, name)
    home, name = str(getattr(thing, "__module__", None)), str(getattr(thing, "__qualname__", None))
    if _found(home, name) is not thing:
        raise TypeError(
            f"{what} must be something that another process can import, such as a function on top of a module, or "
            f"its name, 'module:function'; got {thing!r}."
        )
    return Importable(stable_module(home), name, getattr(sys.modules[home], "__file__", None))


def _found(module: str, name: str) -> Any:
    """None where the name says nothing: of a lambda, of what a function defined in itself, of an instance."""
    return reduce(lambda thing, part: getattr(thing, part, None), name.split("."), sys.modules.get(module))


def _module(name: str, file: str | None) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if file is None or not name.startswith(error.name or " "):
            raise
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name!r}, and {file!r} cannot be read as one.", name=name)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
