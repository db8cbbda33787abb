"""What a project names, turned into a workflow that a server can run."""

from __future__ import annotations

import inspect
from typing import Any, Literal, TypeAlias

from perdure.agents.adapters import adapted
from perdure.agents.workflows import WorkflowBuilder
from perdure.engine import builder
from perdure.engine.functions import FunctionalWorkflow
from perdure.engine.workflow import Workflow
from perdure.errors import PerdureError
from perdure.graph.executor import Executor
from perdure.graph.participants import agent_name, is_agent
from perdure.server.config_checks import DOCUMENTS
from perdure.server.config_errors import NotServable
from perdure.server.projects import Project
from perdure.server.speaking import SpeakingExecutor

Kind: TypeAlias = Literal["workflow", "function", "agent_workflow", "agent"]
AGENT_WORKFLOWS = "perdure.orchestrations.agent_workflow"
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
    from perdure.orchestrations.agent_workflow.builder import AgentWorkflow

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
    if isinstance(found, Workflow | FunctionalWorkflow | builder.WorkflowBuilder) or _is_agent_workflow(found):
        return True
    return not isinstance(found, type | Executor) and is_agent(adapted(found))


def _is_agent_workflow(found: Any) -> bool:
    """Loads nothing for what is none."""
    if not type(found).__module__.startswith(AGENT_WORKFLOWS):
        return False
    from perdure.orchestrations.agent_workflow.builder import AgentWorkflow
    from perdure.orchestrations.agent_workflow.instance import AgentWorkflowInstance

    return isinstance(found, AgentWorkflow | AgentWorkflowInstance)


def _built(found: Any) -> tuple[Workflow, Kind]:
    if isinstance(found, Workflow):
        return found, "workflow"
    if isinstance(found, FunctionalWorkflow):
        return found.build(), "function"
    if isinstance(found, builder.WorkflowBuilder):
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
