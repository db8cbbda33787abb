"""Who works: agents, what they say, and what they may call. The names are imported when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.names import homes_of, lazy_exports

if TYPE_CHECKING:
    from perdure.agents.base import (
        BaseAgent as BaseAgent,
        RecordingAgent as RecordingAgent,
        SupportsAgentRun as SupportsAgentRun,
    )
    from perdure.agents.conversation.content import Content as Content, UsageDetails as UsageDetails
    from perdure.agents.conversation.message import AgentSession as AgentSession, Message as Message
    from perdure.agents.conversation.response import AgentResponse as AgentResponse
    from perdure.agents.conversation.update import AgentResponseUpdate as AgentResponseUpdate
    from perdure.agents.executor import (
        AgentExecutor as AgentExecutor,
        AgentExecutorRequest as AgentExecutorRequest,
        AgentExecutorResponse as AgentExecutorResponse,
    )
    from perdure.agents.pydantic.agent import Agent as Agent
    from perdure.agents.recording import ApprovalResponse as ApprovalResponse, record_call as record_call
    from perdure.agents.tools import Tool as Tool, ToolContext as ToolContext, tool as tool
    from perdure.workflows.agent import WorkflowAgent as WorkflowAgent
    from perdure.workflows.agent_output import RequestInfoFunctionArgs as RequestInfoFunctionArgs

_HOME = homes_of(
    {
        "perdure.agents.base": "BaseAgent RecordingAgent SupportsAgentRun",
        "perdure.agents.conversation.content": "Content UsageDetails",
        "perdure.agents.conversation.message": "AgentSession Message",
        "perdure.agents.conversation.response": "AgentResponse",
        "perdure.agents.conversation.update": "AgentResponseUpdate",
        "perdure.agents.executor": "AgentExecutor AgentExecutorRequest AgentExecutorResponse",
        "perdure.agents.pydantic.agent": "Agent",
        "perdure.agents.recording": "ApprovalResponse record_call",
        "perdure.agents.tools": "Tool ToolContext tool",
        "perdure.workflows.agent": "WorkflowAgent",
        "perdure.workflows.agent_output": "RequestInfoFunctionArgs",
    }
)

__all__ = list(_HOME)

if not TYPE_CHECKING:  # checkers take the imports above; with this in sight they would let every misspelt name pass
    __getattr__, __dir__ = lazy_exports(__name__, _HOME)
