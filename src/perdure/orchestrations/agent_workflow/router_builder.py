"""RouterAgentBuilder: whom an agent may hand off to."""

from __future__ import annotations

from typing import Self

from perdure.orchestrations.agent_workflow.builder import AgentWorkflow, Configure
from perdure.orchestrations.agent_workflow.drafting import Draft, NodeDraft
from perdure.orchestrations.agent_workflow.node_options import AgentNodeOptions


class RouterAgentBuilder(AgentWorkflow):
    """Of the router that was added last. All else goes on as before."""

    def __init__(self, draft: Draft, node: NodeDraft) -> None:
        super().__init__(draft)
        self._options = AgentNodeOptions(node)

    def with_handoff(self, target: str, description: str | None = None) -> Self:
        """The agent may hand off to this node: the description is what its model is told."""
        self._options.with_handoff(target, description)
        return self

    def with_default_handoff(self, target: str) -> Self:
        """Where it goes if the agent chose nobody."""
        self._options.with_default_handoff(target)
        return self

    def configure(self, configure: Configure) -> Self:
        configure(self._options)
        return self
