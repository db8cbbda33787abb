"""A participant of a Magentic team, which can forget."""

from __future__ import annotations

from holdfast.agents.executor import AgentExecutor
from holdfast.agents.session import AgentSession
from holdfast.graph.context import WorkflowContext
from holdfast.graph.handlers import handler
from holdfast.orchestrations.magentic_ledger import MagenticResetSignal


class MagenticAgentExecutor(AgentExecutor):
    """An agent of the team. When the work begins anew it gets a new session, and knows nothing of the old one."""

    @handler
    async def forget(self, signal: MagenticResetSignal, ctx: WorkflowContext) -> None:
        ctx.private.clear()
        # Another id too: whoever keeps conversations by it must not find the old one.
        ctx.private["session"] = AgentSession(session_id=f"{ctx.thread_id}/{self.id}/{signal.reset_count}")
