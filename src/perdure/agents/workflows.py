"""Workflow and WorkflowBuilder as users have them: agents stand in the graph, and a workflow can be an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from perdure.agents.adapters import adapted
from perdure.agents.executor import AgentExecutor
from perdure.agents.workflow_agent import WorkflowAgent
from perdure.engine import builder, workflow
from perdure.graph.executor import Executor
from perdure.graph.participants import AgentHost, is_agent


class Workflow(workflow.Workflow):
    """A graph that can be run. Made by `WorkflowBuilder(...).build()`."""

    def as_agent(
        self, name: str | None = None, *, description: str | None = None, context_providers: None = None
    ) -> WorkflowAgent:
        """The workflow as an agent: each session is a thread of it. Its start executor must accept `list[Message]`."""
        return WorkflowAgent(self, name, description=description, context_providers=context_providers)


class WorkflowBuilder(builder.WorkflowBuilder):
    """`WorkflowBuilder(start_executor=a).add_edge(a, b).build()`.

    Where executors are expected, agents and functions that make one are accepted too.
    """

    agent_host: ClassVar[AgentHost | None] = AgentExecutor
    workflow_class: ClassVar[type[workflow.Workflow]] = Workflow

    if TYPE_CHECKING:

        def build(self) -> Workflow: ...

    def _add(self, thing: Any) -> str:
        """Agents of other frameworks that have no `run` are given one."""
        if isinstance(thing, (str, Executor)) or id(thing) in self._ids_by_thing or is_agent(thing):
            return super()._add(thing)
        agent = adapted(thing)
        executor_id = super()._add(agent)
        if agent is not thing:
            self._ids_by_thing[id(thing)] = executor_id
            self._things.append(thing)  # so that its id stays its own
        return executor_id
