"""The workflows of a server: the objects that a configuration names, imported from the folder of its project."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeAlias

import msgspec

from perdure.agents.base import adapt_agent, agent_name
from perdure.errors import PerdureError, did_you_mean
from perdure.graph.executor import Executor
from perdure.graph.graph import is_agent
from perdure.server.config.reading import DOCUMENTS
from perdure.server.config.schema import NotImportable, NotServable, ServerConfig
from perdure.server.threads.messages import SpeakingExecutor
from perdure.workflows.builder import WorkflowBuilder
from perdure.workflows.functions import FunctionalWorkflow
from perdure.workflows.workflow import Workflow

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


Kind: TypeAlias = Literal["workflow", "function", "agent_workflow", "agent"]
AGENT_WORKFLOWS = "perdure.agent_workflow"
ACCEPTED = (
    "a Workflow, a WorkflowBuilder, a function marked @workflow, an AgentWorkflow, an agent (something with `run` and "
    "a name), or a function without parameters that returns one of these"
)


def load_workflow(path: str, project: Project) -> tuple[Workflow, Kind, Any]:
    """The workflow of a `module:attribute` or a document, its kind, and the source object.

    Raises NotImportable or NotServable.
    """
    source = _read_document(path, project) if path.lower().endswith(DOCUMENTS) else project.import_object(path)
    if not _is_servable(source) and callable(source) and not isinstance(source, type):
        source = _call_factory(path, source, project)
    if not _is_servable(source):
        raise NotServable(path, f"is {_describe_object(source)}. A server runs {ACCEPTED}.")
    try:
        workflow, kind = _build_workflow(source)
    except Exception as error:
        raise NotServable(path, f"cannot be built: {_describe_failure(error, project)}") from error
    return workflow, kind, source


def _read_document(path: str, project: Project) -> Any:
    from perdure.agent_workflow.builder.workflow import AgentWorkflow

    file = project.folder / path
    if not file.is_file():
        raise NotServable(path, f"is not a file in {project.folder}.")
    project.put_first()  # the document's imports are resolved there
    try:
        return AgentWorkflow.from_config(file)
    except Exception as error:
        raise NotServable(path, f"cannot be read: {_describe_failure(error, project)}") from error


def _call_factory(path: str, function: Any, project: Project) -> Any:
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise NotServable(path, f"is a function that needs arguments: {error}. A server runs {ACCEPTED}.") from None
    except ValueError:
        pass  # a builtin has no signature
    try:
        target = function()
    except Exception as error:
        raise NotServable(path, f"failed when called without arguments: {project.describe_error(error)}.") from error
    if inspect.iscoroutine(target):
        target.close()
        raise NotServable(path, "is an async function. Make it synchronous: no event loop runs yet.")
    return target


def _describe_failure(error: Exception, project: Project) -> str:
    """The message of a perdure error; for other errors also type and location."""
    return str(error) if isinstance(error, PerdureError) else f"{project.describe_error(error)}."


def _is_servable(source: Any) -> bool:
    if isinstance(source, Workflow | FunctionalWorkflow | WorkflowBuilder) or _is_agent_workflow(source):
        return True
    return not isinstance(source, type | Executor) and is_agent(adapt_agent(source))


def _is_agent_workflow(source: Any) -> bool:
    """Imports agent_workflow only for an object from there."""
    if not type(source).__module__.startswith(AGENT_WORKFLOWS):
        return False
    from perdure.agent_workflow.builder.workflow import AgentWorkflow
    from perdure.agent_workflow.instance import AgentWorkflowInstance

    return isinstance(source, AgentWorkflow | AgentWorkflowInstance)


def _build_workflow(source: Any) -> tuple[Workflow, Kind]:
    if isinstance(source, Workflow):
        return source, "workflow"
    if isinstance(source, FunctionalWorkflow):
        return source.build(), "function"
    if isinstance(source, WorkflowBuilder):
        return source.build(), "workflow"
    if _is_agent_workflow(source):
        instance = source.build() if hasattr(source, "build") else source
        return instance.workflow, "agent_workflow"
    agent = adapt_agent(source)
    return WorkflowBuilder(start_executor=SpeakingExecutor(agent), name=agent_name(agent)).build(), "agent"


def _describe_object(source: Any) -> str:
    if isinstance(source, type):
        return f"the class {source.__name__}, not an object of it"
    if isinstance(source, Executor):
        return f"a lone executor ({type(source).__name__})"
    kind = type(source).__name__
    return "None" if source is None else f"{'an' if kind[0] in 'AEIOUaeiou' else 'a'} {kind}"


class ServedWorkflow(msgspec.Struct, frozen=True):
    """A workflow of a server."""

    name: str
    """The public name."""
    workflow: Workflow
    kind: Kind
    source: Any
    """The project's object, such as the agent."""
    path: str
    """Its `module:attribute` or document."""


class Registry(dict[str, ServedWorkflow]):
    """The workflows of a server by their public names, loaded once at the start."""

    def __init__(self, served: list[ServedWorkflow], default: ServedWorkflow | None) -> None:
        super().__init__({entry.name: entry for entry in served})
        self.default = default
        """The workflow of requests without a name; None if there are several and no `agent`."""

    @classmethod
    def of(cls, config: ServerConfig, project: Project) -> Registry:
        """Raises NotImportable or NotServable."""
        loaded: dict[str, tuple[Workflow, Kind, Any]] = {}
        for path in dict.fromkeys((*config.workflows.values(), config.agent)):
            if path is not None:
                loaded[path] = load_workflow(path, project)  # once, even if two names refer to it
        served = [ServedWorkflow(name, *loaded[path], path) for name, path in config.workflows.items()]
        default = next((entry for entry in served if entry.path == config.agent), None)
        if default is None and config.agent is not None:
            default = ServedWorkflow(loaded[config.agent][0].name, *loaded[config.agent], config.agent)
            if default.name in config.workflows:
                other = config.workflows[default.name]
                problem = f"and {other!r} in `workflows` are both called {default.name!r}. Rename one of them."
                raise NotServable(default.path, problem)
            served.insert(0, default)
        _refuse_ambiguous_names(served)
        return cls(served, default or (served[0] if len(served) == 1 else None))

    def by_workflow_name(self, name: str) -> ServedWorkflow | None:
        """The workflow whose threads have this name; None if the server does not have it."""
        return next((served for served in self.values() if served.workflow.name == name), None)


def _refuse_ambiguous_names(served: list[ServedWorkflow]) -> None:
    """Threads store only the name of their workflow, so it must be unambiguous. Raises NotServable."""
    first: dict[str, ServedWorkflow] = {}
    for entry in served:
        other = first.setdefault(entry.workflow.name, entry)
        if other.workflow.graph_signature_hash != entry.workflow.graph_signature_hash:
            raise NotServable(
                entry.path,
                f"and {other.path!r} are different graphs with the same name {entry.workflow.name!r}, so a thread "
                f"could not be matched to its workflow. Rename one: {_how_to_name(entry)}.",
            )


def _how_to_name(served: ServedWorkflow) -> str:
    return {
        "workflow": "WorkflowBuilder(name='...')",
        "function": "@workflow(name='...')",
        "agent_workflow": ".with_name('...')",
        "agent": "the agent's own `name`",
    }[served.kind]
