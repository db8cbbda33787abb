"""Who works: agents, what they say, and what they may call. The names are imported when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.lazy import lazy_exports

if TYPE_CHECKING:
    from perdure.agents.base import (
        BaseAgent as BaseAgent,
        RecordingAgent as RecordingAgent,
        SupportsAgentRun as SupportsAgentRun,
    )
    from perdure.agents.conversation.content import Content as Content, UsageDetails as UsageDetails
    from perdure.agents.conversation.message import AgentSession as AgentSession, Message as Message
    from perdure.agents.conversation.response import (
        AgentResponse as AgentResponse,
        AgentResponseUpdate as AgentResponseUpdate,
    )
    from perdure.agents.executor import (
        AgentExecutor as AgentExecutor,
        AgentExecutorRequest as AgentExecutorRequest,
        AgentExecutorResponse as AgentExecutorResponse,
    )
    from perdure.agents.pydantic.agent import Agent as Agent
    from perdure.agents.recording import ApprovalResponse as ApprovalResponse, record_call as record_call
    from perdure.agents.tools import Tool as Tool, ToolContext as ToolContext, tool as tool
    from perdure.workflows.agent import (
        RequestInfoFunctionArgs as RequestInfoFunctionArgs,
        WorkflowAgent as WorkflowAgent,
    )

_HOME: dict[str, str] = {
    "Agent": "perdure.agents.pydantic.agent",
    "AgentExecutor": "perdure.agents.executor",
    "AgentExecutorRequest": "perdure.agents.executor",
    "AgentExecutorResponse": "perdure.agents.executor",
    "AgentResponse": "perdure.agents.conversation.response",
    "AgentResponseUpdate": "perdure.agents.conversation.response",
    "AgentSession": "perdure.agents.conversation.message",
    "ApprovalResponse": "perdure.agents.recording",
    "BaseAgent": "perdure.agents.base",
    "Content": "perdure.agents.conversation.content",
    "Message": "perdure.agents.conversation.message",
    "RecordingAgent": "perdure.agents.base",
    "RequestInfoFunctionArgs": "perdure.workflows.agent",
    "SupportsAgentRun": "perdure.agents.base",
    "Tool": "perdure.agents.tools",
    "ToolContext": "perdure.agents.tools",
    "UsageDetails": "perdure.agents.conversation.content",
    "WorkflowAgent": "perdure.workflows.agent",
    "record_call": "perdure.agents.recording",
    "tool": "perdure.agents.tools",
}

__all__ = list(_HOME)

if not TYPE_CHECKING:  # checkers take the imports above; with this in sight they would let every misspelt name pass
    __getattr__, __dir__ = lazy_exports(__name__, _HOME)
