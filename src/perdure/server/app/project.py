"""A project: a folder of importable modules, and the objects that its configuration names."""

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
from perdure.server.config.schema import NotImportable

_PERDURE = str(Path(__file__).parents[1])


class Project:
    """A project folder. Its modules take precedence over installed ones of the same name."""

    def __init__(self, folder: str | os.PathLike[str] = ".") -> None:
        self.folder = Path(folder).resolve()

    def __repr__(self) -> str:
        return f"Project({str(self.folder)!r})"

    def import_object(self, object_path: str) -> Any:
        """Import `module:attribute`. Raises NotImportable, with the line of user code that failed."""
        name, colon, attribute = object_path.partition(":")
        if not colon or not name or not attribute:
            raise NotImportable(object_path, "expected module:attribute, such as 'graph.react:app'.")
        target: Any = self._import_module(object_path, name)
        module = target
        for part in attribute.split("."):
            try:
                target = getattr(target, part)
            except AttributeError:
                raise NotImportable(object_path, self._no_attribute(module, target, part)) from None
        return target

    def put_first(self) -> None:
        """Put the folder first on Python's path."""
        here = str(self.folder)
        if sys.path[:1] != [here]:
            sys.path[:] = [here, *(entry for entry in sys.path if entry != here)]
            importlib.invalidate_caches()

    def locate_error(self, error: BaseException) -> str:
        """File and line of user code that raised the error; empty if unknown."""
        if isinstance(error, SyntaxError) and error.filename:
            return f"{self._short(error.filename)}, line {error.lineno}"
        frames = traceback.extract_tb(error.__traceback__)
        user_frames = [frame for frame in frames if self._is_here(frame.filename)] or [
            frame for frame in frames if not frame.filename.startswith((_PERDURE, "<"))
        ]
        return f"{self._short(user_frames[-1].filename)}, line {user_frames[-1].lineno}" if user_frames else ""

    def describe_error(self, error: BaseException) -> str:
        """An error of user code with its type, message and location."""
        text = " ".join((error.msg if isinstance(error, SyntaxError) else str(error)).split())
        location = self.locate_error(error)
        kind = type(error).__name__
        return (f"{kind}: {text}" if text else kind) + (f" ({location})" if location else "")

    def _import_module(self, object_path: str, name: str) -> ModuleType:
        self.put_first()
        top = name.partition(".")[0]
        self._claim(object_path, top)
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
                raise NotImportable(object_path, self._no_module(name)) from None
            raise NotImportable(object_path, f"{self.describe_error(error)}.") from error
        except (Exception, SystemExit) as error:
            raise NotImportable(object_path, f"{self.describe_error(error)}.") from error

    def _claim(self, object_path: str, top: str) -> None:
        """Ensure that a module name of the project refers to the project and not to an installed package."""
        ours = self.folder / top
        has_file = (self.folder / f"{top}.py").is_file()
        if not has_file and not ours.is_dir():
            return
        loaded = sys.modules.get(top)
        if loaded is not None:
            if not self._is_ours(loaded):
                raise NotImportable(
                    object_path,
                    f"another module {top!r} was imported before, from {_home_of(loaded)}. Rename the project's "
                    "module.",
                )
        elif not has_file and not (ours / "__init__.py").is_file():
            self._make_namespace(top, ours)

    def _is_ours(self, module: ModuleType) -> bool:
        paths = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
        return any(self._is_here(path) for path in paths if path)

    def _make_namespace(self, top: str, folder: Path) -> None:
        # Python prefers a package with __init__.py anywhere on its path to a folder without one, so an installed
        # `graph` would shadow the project's `graph/`.
        installed = PathFinder.find_spec(top)
        if installed is None or installed.origin is None:
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

    def _no_module(self, name: str) -> str:
        files = [path.relative_to(self.folder) for path in self.folder.glob("*.py")]
        files += [path.relative_to(self.folder) for path in self.folder.glob("*/*.py")]
        modules = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in files]
        return f"no module {name!r} exists in {self.folder} or on Python's path{did_you_mean(name, modules)}."

    def _no_attribute(self, module: ModuleType, target: Any, part: str) -> str:
        names = [name for name in getattr(target, "__dict__", {}) if not name.startswith("_")]
        owner = f"the module {module.__name__!r}" if target is module else f"a {type(target).__name__}"
        return f"{owner} has no {part!r}{did_you_mean(part, names)}."


def _home_of(module: ModuleType) -> str:
    return str(getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "Python itself"))
