"""The workflows of a server: loaded from the objects that a project names."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import msgspec

from perdure.agents.adapters import adapt_agent
from perdure.errors import PerdureError
from perdure.graph.executor import Executor
from perdure.graph.sub_workflow import agent_name, is_agent
from perdure.server.app.project import Project
from perdure.server.config.reading import DOCUMENTS
from perdure.server.config.schema import NotServable, ServerConfig, UnknownWorkflow
from perdure.server.threads.conversation import SpeakingExecutor
from perdure.workflows.builder import WorkflowBuilder
from perdure.workflows.functions import FunctionalWorkflow
from perdure.workflows.workflow import Workflow

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


class Registry:
    """The workflows of a server, loaded once at the start."""

    def __init__(self, served: list[ServedWorkflow], default: ServedWorkflow | None) -> None:
        self._served = {entry.name: entry for entry in served}
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
            _refuse_taken_name(default, served)
            served.insert(0, default)
        _refuse_ambiguous_names(served)
        return cls(served, default or (served[0] if len(served) == 1 else None))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._served)

    def find(self, name: str) -> ServedWorkflow | None:
        return self._served.get(name)

    def __getitem__(self, name: str) -> ServedWorkflow:
        """Raises UnknownWorkflow."""
        served = self._served.get(name)
        if served is None:
            raise UnknownWorkflow(name, self._served)
        return served

    def __contains__(self, name: object) -> bool:
        return name in self._served

    def __iter__(self) -> Iterator[ServedWorkflow]:
        return iter(self._served.values())

    def __len__(self) -> int:
        return len(self._served)

    def by_workflow_name(self, name: str) -> ServedWorkflow | None:
        """The workflow whose threads have this name; None if the server does not have it."""
        matches = [served for served in self if served.workflow.name == name]
        return matches[0] if matches else None


def _refuse_taken_name(default: ServedWorkflow, others: list[ServedWorkflow]) -> None:
    for other in others:
        if other.name == default.name:
            raise NotServable(
                default.path,
                f"and {other.path!r} in `workflows` are both called {default.name!r}. Rename one of them.",
            )


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
