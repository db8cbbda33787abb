"""APP on the command line, turned into the workflow it names: `module:attribute`, a document, a stored definition."""

from __future__ import annotations

import importlib
import inspect
import os
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from perdure.cli.documents import agents_of, is_document, let_import_from, read_document, stored_document
from perdure.cli.mistakes import Mistake, failed
from perdure.engine.builder import WorkflowBuilder
from perdure.engine.functions import FunctionalWorkflow
from perdure.engine.workflow import Workflow
from perdure.errors import did_you_mean

if TYPE_CHECKING:
    from perdure.orchestrations.agent_workflow.builder import AgentWorkflow

KINDS = (Workflow, FunctionalWorkflow, WorkflowBuilder)


def load_app(app: str, store: str | None = None, thread_id: str | None = None) -> Workflow | AgentWorkflow:
    """A Workflow, a function workflow, a builder, or a function without parameters that returns one of these; for a
    workflow of agents its builder. Of a stored definition it is the version that the thread was begun with.

    The current folder can be imported from, and a document's own. Raises UsageError for what is no such name, and
    Mistake or InvalidDefinition for what it names.
    """
    if is_document(app):
        return read_document(app)
    module_name, colon, attribute = app.partition(":")
    if app and not colon:
        return stored_document(app, store, thread_id)
    if not module_name or not attribute:
        raise click.UsageError(f"APP is a module and a name in it, such as 'app:workflow'; got {app!r}.")
    if os.sep in module_name or module_name.endswith(".py"):
        name = module_name.removesuffix(".py").strip(os.sep).replace(os.sep, ".")
        raise click.UsageError(f"APP names a module, not a file: try {name + ':' + attribute!r} instead of {app!r}.")
    return _workflow(app, _named(_imported(module_name), attribute))


def _imported(name: str) -> ModuleType:
    here = Path.cwd()
    let_import_from(here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            files = [path.stem for path in here.glob("*.py")]
            raise Mistake(
                f"There is no module {name!r} here or on Python's path{did_you_mean(name, files)}."
            ) from error
        raise failed(f"Importing {name!r}", error) from error
    except (Exception, SystemExit) as error:
        raise failed(f"Importing {name!r}", error) from error


def _named(module: ModuleType, attribute: str) -> Any:
    found: Any = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            known = [name for name in vars(found) if not name.startswith("_")] if hasattr(found, "__dict__") else []
            guess = did_you_mean(part, known)
            workflows = ", ".join(repr(name) for name, value in vars(module).items() if _is_workflow(value))
            listed = f" Its workflows: {workflows}." if workflows and not guess else ""
            raise Mistake(f"{module.__name__!r} has no {attribute!r}{guess}.{listed}") from error
    return found


def _is_workflow(found: Any) -> bool:
    return isinstance(found, KINDS) or agents_of(found) is not None


def _workflow(app: str, found: Any) -> Workflow | AgentWorkflow:
    if not _is_workflow(found) and callable(found) and not isinstance(found, type):
        try:
            found = found()
        except Exception as error:
            raise failed(f"Calling {app!r} without arguments", error) from error
    try:
        if isinstance(found, FunctionalWorkflow | WorkflowBuilder):
            found = found.build()
    except Exception as error:
        raise failed(f"Building {app!r}", error) from error
    agents = agents_of(found)
    if agents is not None:
        return agents
    if not isinstance(found, Workflow):
        if inspect.iscoroutine(found):
            found.close()
        raise Mistake(
            f"{app!r} is no workflow but a {type(found).__name__}. Name a Workflow, a function marked @workflow, a "
            "WorkflowBuilder, an AgentWorkflow, or a function without parameters that returns one."
        )
    return found
