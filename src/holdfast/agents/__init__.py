"""Who works: agents, what they say, and what they may call. The names are imported when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.agents.approval import ApprovalResponse as ApprovalResponse
    from holdfast.agents.base import BaseAgent as BaseAgent, SupportsAgentRun as SupportsAgentRun
    from holdfast.agents.content import Content as Content, UsageDetails as UsageDetails
    from holdfast.agents.executor import (
        AgentExecutor as AgentExecutor,
        AgentExecutorRequest as AgentExecutorRequest,
        AgentExecutorResponse as AgentExecutorResponse,
    )
    from holdfast.agents.message import Message as Message
    from holdfast.agents.pydantic.agent import Agent as Agent
    from holdfast.agents.response import AgentResponse as AgentResponse, AgentResponseUpdate as AgentResponseUpdate
    from holdfast.agents.session import AgentSession as AgentSession
    from holdfast.agents.tools import Tool as Tool, ToolContext as ToolContext, tool as tool
    from holdfast.agents.workflow_agent import (
        RequestInfoFunctionArgs as RequestInfoFunctionArgs,
        WorkflowAgent as WorkflowAgent,
    )

_HOME: dict[str, str] = {
    "Agent": "holdfast.agents.pydantic.agent",
    "AgentExecutor": "holdfast.agents.executor",
    "AgentExecutorRequest": "holdfast.agents.executor",
    "AgentExecutorResponse": "holdfast.agents.executor",
    "AgentResponse": "holdfast.agents.response",
    "AgentResponseUpdate": "holdfast.agents.response",
    "AgentSession": "holdfast.agents.session",
    "ApprovalResponse": "holdfast.agents.approval",
    "BaseAgent": "holdfast.agents.base",
    "Content": "holdfast.agents.content",
    "Message": "holdfast.agents.message",
    "RequestInfoFunctionArgs": "holdfast.agents.workflow_agent",
    "SupportsAgentRun": "holdfast.agents.base",
    "Tool": "holdfast.agents.tools",
    "ToolContext": "holdfast.agents.tools",
    "UsageDetails": "holdfast.agents.content",
    "WorkflowAgent": "holdfast.agents.workflow_agent",
    "tool": "holdfast.agents.tools",
}

__all__ = list(_HOME)

if not TYPE_CHECKING:  # checkers take the imports above; with this in sight they would let every misspelt name pass
    __getattr__, __dir__ = lazily(__name__, _HOME)
