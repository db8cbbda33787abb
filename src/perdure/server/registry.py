"""What a server can run, by name, and where the threads are kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from perdure.engine.workflow import Workflow
from perdure.server.config import ServerConfig
from perdure.server.config_errors import NotServable, UnknownWorkflow
from perdure.server.projects import Project
from perdure.server.serving_kinds import Kind, made


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
