"""Which conversation a node's agent takes part in, and how far it has come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.agents.message import Message
from holdfast.agents.session import AgentSession
from holdfast.orchestrations.agent_workflow.definition import ConversationConfig
from holdfast.orchestrations.agent_workflow.standing import SessionRef


class Conversations:
    """As a workflow's conversation policy says."""

    def __init__(self, config: ConversationConfig, workflow_name: str, store: object) -> None:
        self._config = config

    def ref_for(self, node: str, execution_id: str, known: Mapping[str, SessionRef]) -> SessionRef:
        """The conversation that a node's next turn is part of."""
        raise NotImplementedError

    async def load(self, ref: SessionRef) -> AgentSession:
        raise NotImplementedError

    async def keep(self, ref: SessionRef, said: Sequence[Message], node: str) -> SessionRef:
        raise NotImplementedError

    async def joined(self, known: SessionRef | None, new: SessionRef) -> SessionRef:
        raise NotImplementedError
