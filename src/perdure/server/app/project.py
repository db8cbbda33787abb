"""A project: a folder whose modules can be imported, and what its configuration names in them."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from perdure.errors import did_you_mean
from perdure.server.config.errors import NotImportable

_PERDURE = str(Path(__file__).parents[1])


class Project:
    """Its modules come before installed ones of the same name, also when they are imported later."""

    def __init__(self, folder: str | os.PathLike[str] = ".") -> None:
        self.folder = Path(folder).resolve()

    def __repr__(self) -> str:
        return f"Project({str(self.folder)!r})"

    def import_object(self, named: str) -> Any:
        """What `module:attribute` names. Raises NotImportable, with the place in the user's code if that failed."""
        name, colon, attribute = named.partition(":")
        if not colon or not name or not attribute:
            raise NotImportable(named, "expected a module and a name in it, such as 'graph.react:app'.")
        found: Any = self._imported(named, name)
        module = found
        for part in attribute.split("."):
            try:
                found = getattr(found, part)
            except AttributeError:
                raise NotImportable(named, self._no_attribute(module, found, part)) from None
        return found

    def put_first(self) -> None:
        """Let Python look here before it looks anywhere else."""
        here = str(self.folder)
        if sys.path[:1] != [here]:
            sys.path[:] = [here, *(one for one in sys.path if one != here)]
            importlib.invalidate_caches()

    def place_in(self, error: BaseException) -> str:
        """File and line of the user's code where an error was raised; empty if there is none."""
        if isinstance(error, SyntaxError) and error.filename:
            return f"{self._short(error.filename)}, line {error.lineno}"
        frames = traceback.extract_tb(error.__traceback__)
        of_users = [one for one in frames if self._is_here(one.filename)] or [
            one for one in frames if not one.filename.startswith((_PERDURE, "<"))
        ]
        return f"{self._short(of_users[-1].filename)}, line {of_users[-1].lineno}" if of_users else ""

    def told(self, error: BaseException) -> str:
        """An error that the user's code raised, with its type, its sentence and its place."""
        text = " ".join((error.msg if isinstance(error, SyntaxError) else str(error)).split())
        place = self.place_in(error)
        kind = type(error).__name__
        return (f"{kind}: {text}" if text else kind) + (f" ({place})" if place else "")

    # ------------------------------------------------------------ finding modules

    def _imported(self, named: str, name: str) -> ModuleType:
        self.put_first()
        top = name.partition(".")[0]
        self._claim(named, top)
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
                raise NotImportable(named, self._no_module(name)) from None
            raise NotImportable(named, f"{self.told(error)}.") from error
        except (Exception, SystemExit) as error:
            raise NotImportable(named, f"{self.told(error)}.") from error

    def _claim(self, named: str, top: str) -> None:
        """See to it that a name of the project is the project's, and not that of something that is installed."""
        ours = self.folder / top
        has_file = (self.folder / f"{top}.py").is_file()
        if not has_file and not ours.is_dir():
            return
        there = sys.modules.get(top)
        if there is not None:
            if not self._is_ours(there):
                raise NotImportable(
                    named,
                    f"another module {top!r} was imported before, from {_home_of(there)}. Give the project's own "
                    "another name.",
                )
        elif not has_file and not (ours / "__init__.py").is_file():
            self._make_namespace(top, ours)

    def _is_ours(self, module: ModuleType) -> bool:
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
        return any(self._is_here(one) for one in places if one)

    def _make_namespace(self, top: str, folder: Path) -> None:
        # Python prefers a package with an __init__.py anywhere on its path to a folder without one, so an installed
        # `graph` would win over `graph/` of the project.
        found = PathFinder.find_spec(top)
        if found is None or found.origin is None:
            return
        spec = ModuleSpec(top, None, is_package=True)
        spec.submodule_search_locations = [str(folder)]
        sys.modules[top] = importlib.util.module_from_spec(spec)

    def _is_here(self, file: str) -> bool:
        try:
            return Path(file).resolve().is_relative_to(self.folder)
        except (OSError, ValueError):
            return False

    def _short(self, file: str) -> str:
        return str(Path(file).resolve().relative_to(self.folder)) if self._is_here(file) else file

    # ------------------------------------------------------------ what to say

    def _no_module(self, name: str) -> str:
        files = [path.relative_to(self.folder) for path in self.folder.glob("*.py")]
        files += [path.relative_to(self.folder) for path in self.folder.glob("*/*.py")]
        modules = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in files]
        return f"there is no module {name!r} in {self.folder} or on Python's path{did_you_mean(name, modules)}."

    def _no_attribute(self, module: ModuleType, found: Any, part: str) -> str:
        known = [one for one in getattr(found, "__dict__", {}) if not one.startswith("_")]
        owner = f"the module {module.__name__!r}" if found is module else f"a {type(found).__name__}"
        return f"{owner} has no {part!r}{did_you_mean(part, known)}."


def _home_of(module: ModuleType) -> str:
    return str(getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "Python itself"))
