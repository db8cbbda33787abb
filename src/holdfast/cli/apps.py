"""`module:attribute` on the command line, turned into the workflow it names."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from holdfast.cli.mistakes import Mistake, explained
from holdfast.engine.builder import WorkflowBuilder
from holdfast.engine.functions import FunctionalWorkflow
from holdfast.engine.workflow import Workflow
from holdfast.errors import did_you_mean

KINDS = (Workflow, FunctionalWorkflow, WorkflowBuilder)


def load_app(app: str) -> Workflow:
    """A Workflow, a function workflow, a builder, or a function without parameters that returns one of these.

    The current folder can be imported from. Raises UsageError for what is no such name, and Mistake for what it names.
    """
    module_name, colon, attribute = app.partition(":")
    if not colon or not module_name or not attribute:
        raise click.UsageError(f"APP is a module and a name in it, such as 'app:workflow'; got {app!r}.")
    if os.sep in module_name or module_name.endswith(".py"):
        name = module_name.removesuffix(".py").strip(os.sep).replace(os.sep, ".")
        raise click.UsageError(f"APP names a module, not a file: try {name + ':' + attribute!r} instead of {app!r}.")
    return _workflow(app, _named(_imported(module_name), attribute))


def _imported(name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            files = [path.stem for path in Path(here).glob("*.py")]
            raise Mistake(
                f"There is no module {name!r} here or on Python's path{did_you_mean(name, files)}."
            ) from error
        raise _failed(f"Importing {name!r}", error) from error
    except (Exception, SystemExit) as error:
        raise _failed(f"Importing {name!r}", error) from error


def _failed(what: str, error: BaseException) -> Mistake:
    places = [one for one in traceback.extract_tb(error.__traceback__) if one.filename != __file__]
    where = f" ({places[-1].filename}, line {places[-1].lineno})" if places else ""
    return Mistake(f"{what} failed: {explained(error)}{where}")


def _named(module: ModuleType, attribute: str) -> Any:
    found: Any = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            known = [name for name in vars(found) if not name.startswith("_")] if hasattr(found, "__dict__") else []
            guess = did_you_mean(part, known)
            workflows = ", ".join(repr(name) for name, value in vars(module).items() if isinstance(value, KINDS))
            listed = f" Its workflows: {workflows}." if workflows and not guess else ""
            raise Mistake(f"{module.__name__!r} has no {attribute!r}{guess}.{listed}") from error
    return found


def _workflow(app: str, found: Any) -> Workflow:
    if not isinstance(found, KINDS) and callable(found) and not isinstance(found, type):
        try:
            found = found()
        except Exception as error:
            raise _failed(f"Calling {app!r} without arguments", error) from error
    try:
        if isinstance(found, FunctionalWorkflow | WorkflowBuilder):
            found = found.build()
    except Exception as error:
        raise _failed(f"Building {app!r}", error) from error
    if not isinstance(found, Workflow):
        if inspect.iscoroutine(found):
            found.close()
        raise Mistake(
            f"{app!r} is no workflow but a {type(found).__name__}. Name a Workflow, a function marked @workflow, a "
            "WorkflowBuilder, or a function without parameters that returns one."
        )
    return found
