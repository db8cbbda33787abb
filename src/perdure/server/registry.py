"""The workflows of a server: the objects that a configuration names, imported from the folder of its project."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable
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
from perdure.server.threads.as_json import SpeakingExecutor
from perdure.workflows.builder import WorkflowBuilder
from perdure.workflows.functions import FunctionalWorkflow
from perdure.workflows.workflow import Workflow

_PERDURE = str(Path(__file__).parents[1])


class Project:
    """A project folder. Its modules take precedence over installed ones of the same name."""

    def __init__(self, folder: str | os.PathLike[str] = ".") -> None:
        self.folder = Path(folder).resolve()

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
                names = [name for name in getattr(target, "__dict__", {}) if not name.startswith("_")]
                owner = f"the module {module.__name__!r}" if target is module else f"a {type(target).__name__}"
                hint = did_you_mean(part, names)
                kinds = {repr(name): (_find_builder(value) or ("agent",))[0] for name, value in vars(module).items()}
                workflows = ", ".join(name for name, kind in kinds.items() if kind != "agent")
                listed = f" Its workflows: {workflows}." if workflows and not hint else ""
                raise NotImportable(object_path, f"{owner} has no {part!r}{hint}.{listed}") from None
        return target

    def put_first(self) -> None:
        """Put the folder first on Python's path."""
        here = str(self.folder)
        if sys.path[:1] != [here]:
            sys.path[:] = [here, *(entry for entry in sys.path if entry != here)]
            importlib.invalidate_caches()

    def describe_error(self, error: BaseException) -> str:
        """An error of user code with its type, message and location."""
        text, places = str(error), []
        if isinstance(error, SyntaxError):
            text, places = error.msg, [(error.filename, error.lineno)] if error.filename else []
        frames = traceback.extract_tb(error.__traceback__)
        user_frames = [frame for frame in frames if self._is_here(frame.filename)] or [
            frame for frame in frames if not frame.filename.startswith((_PERDURE, "<"))
        ]
        places += [(frame.filename, frame.lineno) for frame in reversed(user_frames)]
        text = " ".join(text.split())
        location = f" ({self._short(places[0][0])}, line {places[0][1]})" if places else ""
        return f"{type(error).__name__}{f': {text}' if text else ''}{location}"

    def call_factory(self, object_path: str, function: Callable[[], Any]) -> Any:
        """Raises NotServable."""
        try:
            return function()
        except Exception as error:
            why = f"failed when called without arguments: {self.describe_error(error)}."
            raise NotServable(object_path, why) from error

    def _import_module(self, object_path: str, name: str) -> ModuleType:
        self.put_first()
        top = name.partition(".")[0]
        self._claim(object_path, top)
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
                files = [path.relative_to(self.folder) for path in self.folder.glob("*.py")]
                files += [path.relative_to(self.folder) for path in self.folder.glob("*/*.py")]
                modules = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in files]
                why = f"no module {name!r} exists in {self.folder} or on Python's path{did_you_mean(name, modules)}."
                raise NotImportable(object_path, why) from None
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
            homes = [path for path in (getattr(loaded, "__file__", None), *getattr(loaded, "__path__", ())) if path]
            if not any(map(self._is_here, homes)):
                raise NotImportable(
                    object_path,
                    f"another module {top!r} was imported before, from {[*homes, 'Python itself'][0]}. Rename the "
                    "project's module.",
                )
        elif not has_file and not (ours / "__init__.py").is_file():
            self._make_namespace(top, ours)

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


Kind: TypeAlias = Literal["workflow", "function", "agent_workflow", "agent"]
_HOW_TO_NAME: dict[Kind, str] = {
    "workflow": "WorkflowBuilder(name='...')",
    "function": "@workflow(name='...')",
    "agent_workflow": ".with_name('...')",
    "agent": "the agent's own `name`",
}
AGENT_WORKFLOWS = "perdure.agent_workflow"
ACCEPTED = (
    "a Workflow, a WorkflowBuilder, a function marked @workflow, an AgentWorkflow, an agent (something with `run` and "
    "a name), or a function without parameters that returns one of these"
)


def find_source(path: str, project: Project) -> tuple[Any, Kind, Callable[[], Workflow]]:
    """The object of a `module:attribute` or a document, its kind, and how its workflow is built. Raises NotImportable
    or NotServable."""
    source = _read_document(path, project) if path.lower().endswith(DOCUMENTS) else project.import_object(path)
    builder = _find_builder(source)
    if builder is None and callable(source) and not isinstance(source, type):
        source = _call_factory(path, source, project)
        builder = _find_builder(source)
    if builder is None:
        raise NotServable(path, f"is {_describe_object(source)}. perdure runs {ACCEPTED}.")
    return source, *builder


def build_workflow(path: str, build: Callable[[], Workflow], project: Project) -> Workflow:
    """Raises NotServable."""
    try:
        return build()
    except Exception as error:
        raise NotServable(path, f"cannot be built: {describe_failure(error, project)}") from error


def _read_document(path: str, project: Project) -> Any:
    from perdure.agent_workflow.builder.workflow import AgentWorkflow

    file = project.folder / path
    if not file.is_file():
        raise NotServable(path, f"is not a file in {project.folder}.")
    project.put_first()  # the document's imports are resolved there
    try:
        return AgentWorkflow.from_config(file)
    except Exception as error:
        raise NotServable(path, f"cannot be read: {describe_failure(error, project)}") from error


def _call_factory(path: str, function: Any, project: Project) -> Any:
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise NotServable(path, f"is a function that needs arguments: {error}. perdure runs {ACCEPTED}.") from None
    except ValueError:
        pass  # a builtin has no signature
    target = project.call_factory(path, function)
    if inspect.iscoroutine(target):
        target.close()
        raise NotServable(path, "is an async function. Make it synchronous: no event loop runs yet.")
    return target


def describe_failure(error: Exception, project: Project) -> str:
    """The message of a perdure error; for other errors also type and location."""
    return str(error) if isinstance(error, PerdureError) else f"{project.describe_error(error)}."


def _find_builder(source: Any) -> tuple[Kind, Callable[[], Workflow]] | None:
    """The kind of the object and how its workflow is built; None if a server cannot run it."""
    if isinstance(source, FunctionalWorkflow | WorkflowBuilder):
        return "function" if isinstance(source, FunctionalWorkflow) else "workflow", source.build
    if isinstance(source, Workflow):
        return "workflow", lambda: source
    if type(source).__module__.startswith(AGENT_WORKFLOWS):  # imported only for an object from there
        from perdure.agent_workflow.builder.workflow import AgentWorkflow
        from perdure.agent_workflow.instance import AgentWorkflowInstance

        if isinstance(source, AgentWorkflow | AgentWorkflowInstance):
            return "agent_workflow", lambda: (source.build() if hasattr(source, "build") else source).workflow
    if isinstance(source, type | Executor) or not is_agent(agent := adapt_agent(source)):
        return None
    return "agent", lambda: WorkflowBuilder(start_executor=SpeakingExecutor(agent), name=agent_name(agent)).build()


def _describe_object(source: Any) -> str:
    if isinstance(source, type):
        return f"the class {source.__name__}, not an object of it"
    if isinstance(source, Executor):
        return f"a lone executor ({type(source).__name__})"
    kind = type(source).__name__
    return "None" if source is None else f"{'an' if kind[0] in 'AEIOUaeiou' else 'a'} {kind}"


class ServedWorkflow(msgspec.Struct, frozen=True):
    name: str
    """The public name."""
    workflow: Workflow
    kind: Kind
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
        loaded: dict[str, tuple[Workflow, Kind]] = {}
        for path in dict.fromkeys((*config.workflows.values(), config.agent)):
            if path is not None:
                _, kind, build = find_source(path, project)  # once, even if two names refer to it
                loaded[path] = build_workflow(path, build, project), kind
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

    def by_workflow_name(self, name: str) -> Workflow | None:
        """The workflow whose threads have this name; None if the server does not have it."""
        return next((served.workflow for served in self.values() if served.workflow.name == name), None)


def _refuse_ambiguous_names(served: list[ServedWorkflow]) -> None:
    """Threads store only the name of their workflow, so it must be unambiguous. Raises NotServable."""
    first: dict[str, ServedWorkflow] = {}
    for entry in served:
        other = first.setdefault(entry.workflow.name, entry)
        if other.workflow.graph_signature_hash != entry.workflow.graph_signature_hash:
            raise NotServable(
                entry.path,
                f"and {other.path!r} are different graphs with the same name {entry.workflow.name!r}, so a thread "
                f"could not be matched to its workflow. Rename one: {_HOW_TO_NAME[entry.kind]}.",
            )
