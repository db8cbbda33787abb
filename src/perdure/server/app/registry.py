"""What a project names, turned into a workflow that a server can run."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import msgspec

from perdure.agents.adapters import adapted
from perdure.errors import PerdureError
from perdure.graph.executor import Executor
from perdure.graph.sub_workflow import agent_name, is_agent
from perdure.server.app.project import Project
from perdure.server.config.checks import DOCUMENTS
from perdure.server.config.errors import NotServable, UnknownWorkflow
from perdure.server.config.schema import ServerConfig
from perdure.server.threads.conversation import SpeakingExecutor
from perdure.workflows.builder import WorkflowBuilder
from perdure.workflows.functions import FunctionalWorkflow
from perdure.workflows.workflow import Workflow

Kind: TypeAlias = Literal["workflow", "function", "agent_workflow", "agent"]
AGENT_WORKFLOWS = "perdure.agent_workflow"
ACCEPTED = (
    "a Workflow, a WorkflowBuilder, a function marked @workflow, an AgentWorkflow, an agent (something with `run` and "
    "a name), or a function without parameters that gives one of these"
)


def made(named: str, project: Project) -> tuple[Workflow, Kind, Any]:
    """The workflow that `module:attribute`, or a document, names; its kind; and the object itself. Raises
    NotImportable or NotServable."""
    source = _read_document(named, project) if named.lower().endswith(DOCUMENTS) else project.import_object(named)
    if not _is_servable(source) and callable(source) and not isinstance(source, type):
        source = _called(named, source, project)
    if not _is_servable(source):
        raise NotServable(named, f"is {_what(source)}. A server runs {ACCEPTED}.")
    try:
        workflow, kind = _built(source)
    except Exception as error:
        raise NotServable(named, f"cannot be built: {_reason(error, project)}") from error
    return workflow, kind, source


def _read_document(named: str, project: Project) -> Any:
    from perdure.agent_workflow.builder.workflow import AgentWorkflow

    path = project.folder / named
    if not path.is_file():
        raise NotServable(named, f"is no file in {project.folder}.")
    project.put_first()  # what it names is imported from there
    try:
        return AgentWorkflow.from_config(path)
    except Exception as error:
        raise NotServable(named, f"cannot be read: {_reason(error, project)}") from error


def _called(named: str, function: Any, project: Project) -> Any:
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise NotServable(named, f"is a function that needs arguments: {error}. A server runs {ACCEPTED}.") from None
    except ValueError:
        pass  # of a builtin nothing is known
    try:
        given = function()
    except Exception as error:
        raise NotServable(named, f"was called without arguments, and failed: {project.told(error)}.") from error
    if inspect.iscoroutine(given):
        given.close()
        raise NotServable(named, "is an async function. Make it a plain one: there is no event loop yet.")
    return given


def _reason(error: Exception, project: Project) -> str:
    """A sentence of ours says what to do; of anything else the place is worth more."""
    return str(error) if isinstance(error, PerdureError) else f"{project.told(error)}."


def _is_servable(found: Any) -> bool:
    if isinstance(found, Workflow | FunctionalWorkflow | WorkflowBuilder) or _is_agent_workflow(found):
        return True
    return not isinstance(found, type | Executor) and is_agent(adapted(found))


def _is_agent_workflow(found: Any) -> bool:
    """Loads nothing for what is none."""
    if not type(found).__module__.startswith(AGENT_WORKFLOWS):
        return False
    from perdure.agent_workflow.builder.workflow import AgentWorkflow
    from perdure.agent_workflow.instance import AgentWorkflowInstance

    return isinstance(found, AgentWorkflow | AgentWorkflowInstance)


def _built(found: Any) -> tuple[Workflow, Kind]:
    if isinstance(found, Workflow):
        return found, "workflow"
    if isinstance(found, FunctionalWorkflow):
        return found.build(), "function"
    if isinstance(found, WorkflowBuilder):
        return found.build(), "workflow"
    if _is_agent_workflow(found):
        instance = found.build() if hasattr(found, "build") else found
        return instance.workflow, "agent_workflow"
    agent = adapted(found)
    return WorkflowBuilder(start_executor=SpeakingExecutor(agent), name=agent_name(agent)).build(), "agent"


def _what(found: Any) -> str:
    if isinstance(found, type):
        return f"the class {found.__name__}, not an object of it"
    if isinstance(found, Executor):
        return f"a lone executor ({type(found).__name__})"
    kind = type(found).__name__
    return "None" if found is None else f"{'an' if kind[0] in 'AEIOUaeiou' else 'a'} {kind}"


# ---------------------------------------------------------------- registry


class Served(msgspec.Struct, frozen=True):
    """Something that can be run."""

    name: str
    """What clients call it."""
    workflow: Workflow
    kind: Kind
    source: Any
    """What the project has under that name, such as the agent."""
    named: str
    """Where that is: `module:attribute`, or a document."""


class Registry:
    """All that can be run. Made once, when the server starts."""

    def __init__(self, served: list[Served], default: Served | None) -> None:
        self._served = {one.name: one for one in served}
        self.default = default
        """What runs where none is named; None if there are several, and none is the `agent`."""

    @classmethod
    def of(cls, config: ServerConfig, project: Project) -> Registry:
        """Raises NotImportable or NotServable."""
        found: dict[str, tuple[Workflow, Kind, Any]] = {}
        for path in dict.fromkeys((*config.workflows.values(), config.agent)):
            if path is not None:
                found[path] = made(path, project)  # once: what is named twice is one
        served = [Served(name, *found[path], path) for name, path in config.workflows.items()]
        default = next((one for one in served if one.named == config.agent), None)
        if default is None and config.agent is not None:
            default = Served(found[config.agent][0].name, *found[config.agent], config.agent)
            _check_name(default, served)
            served.insert(0, default)
        _check_graphs(served)
        return cls(served, default or (served[0] if len(served) == 1 else None))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._served)

    def find(self, name: str) -> Served | None:
        return self._served.get(name)

    def __getitem__(self, name: str) -> Served:
        """Raises UnknownWorkflow."""
        found = self._served.get(name)
        if found is None:
            raise UnknownWorkflow(name, self._served)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._served

    def __iter__(self) -> Iterator[Served]:
        return iter(self._served.values())

    def __len__(self) -> int:
        return len(self._served)

    def by_workflow_name(self, name: str) -> Served | None:
        """The one whose threads have this workflow's name; None if it is served no more."""
        of_that_name = [one for one in self if one.workflow.name == name]
        return of_that_name[0] if of_that_name else None


def _check_name(default: Served, others: list[Served]) -> None:
    for other in others:
        if other.name == default.name:
            raise NotServable(
                default.named,
                f"is called {default.name!r}, and so is {other.named!r} in `workflows`. Give one of them another name.",
            )


def _check_graphs(served: list[Served]) -> None:
    """A thread knows its workflow by the name alone: it must be clear which one resumes it."""
    first: dict[str, Served] = {}
    for one in served:
        other = first.setdefault(one.workflow.name, one)
        if other.workflow.graph_signature_hash != one.workflow.graph_signature_hash:
            raise NotServable(
                one.named,
                f"and {other.named!r} are different graphs with one name, {one.workflow.name!r}: a thread would not "
                f"know which of them it belongs to. Give one another name: {_how_to_name(one)}.",
            )


def _how_to_name(one: Served) -> str:
    return {
        "workflow": "WorkflowBuilder(name='...')",
        "function": "@workflow(name='...')",
        "agent_workflow": ".with_name('...')",
        "agent": "the agent's own `name`",
    }[one.kind]
