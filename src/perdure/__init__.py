"""perdure: durable agent workflows. The public names, imported when they are first used, and nothing else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.agent_workflow.builder.node import AgentNodeOptions as AgentNodeOptions
    from perdure.agent_workflow.builder.workflow import AgentWorkflow as AgentWorkflow
    from perdure.agent_workflow.conversations.files import JsonSessionStore as JsonSessionStore
    from perdure.agent_workflow.conversations.log import SessionEntry as SessionEntry, SessionHead as SessionHead
    from perdure.agent_workflow.conversations.sqlite import SqliteSessionStore as SqliteSessionStore
    from perdure.agent_workflow.conversations.store import (
        InMemorySessionStore as InMemorySessionStore,
        SessionStore as SessionStore,
    )
    from perdure.agent_workflow.definition import condition as condition
    from perdure.agent_workflow.definition.condition import Condition as Condition
    from perdure.agent_workflow.definition.config import (
        AgentConfig as AgentConfig,
        ApprovalConfig as ApprovalConfig,
        ConversationConfig as ConversationConfig,
        EdgeConfig as EdgeConfig,
        ErrorConfig as ErrorConfig,
        HandoffConfig as HandoffConfig,
        MapConfig as MapConfig,
        NodeConfig as NodeConfig,
        RetryConfig as RetryConfig,
        SettingsConfig as SettingsConfig,
        WorkflowConfig as WorkflowConfig,
    )
    from perdure.agent_workflow.events import (
        AgentWorkflowEvent as AgentWorkflowEvent,
        EventMetadata as EventMetadata,
        WorkflowAgentCompletedEvent as WorkflowAgentCompletedEvent,
        WorkflowAgentSkippedEvent as WorkflowAgentSkippedEvent,
        WorkflowAgentStartedEvent as WorkflowAgentStartedEvent,
        WorkflowApprovalRequestedEvent as WorkflowApprovalRequestedEvent,
        WorkflowApprovalResolvedEvent as WorkflowApprovalResolvedEvent,
        WorkflowCompletedEvent as WorkflowCompletedEvent,
        WorkflowDiagnosticEvent as WorkflowDiagnosticEvent,
        WorkflowEdgeTraversedEvent as WorkflowEdgeTraversedEvent,
        WorkflowLayerCompletedEvent as WorkflowLayerCompletedEvent,
        WorkflowLayerStartedEvent as WorkflowLayerStartedEvent,
        WorkflowStartedEvent as WorkflowStartedEvent,
    )
    from perdure.agent_workflow.execution.approvals import (
        ApprovalContext as ApprovalContext,
        ApprovalDecision as ApprovalDecision,
        ApprovalRequest as ApprovalRequest,
    )
    from perdure.agent_workflow.execution.execution import WorkflowResult as WorkflowResult
    from perdure.agent_workflow.instance import AgentWorkflowInstance as AgentWorkflowInstance
    from perdure.agent_workflow.store import (
        DefinitionInfo as DefinitionInfo,
        DefinitionStore as DefinitionStore,
        MultiAgentCheckpointRetention as MultiAgentCheckpointRetention,
        StoredDefinition as StoredDefinition,
    )
    from perdure.agents.base import BaseAgent as BaseAgent, SupportsAgentRun as SupportsAgentRun
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
    from perdure.agents.recording import ApprovalResponse as ApprovalResponse
    from perdure.agents.tools import Tool as Tool, ToolContext as ToolContext, tool as tool
    from perdure.checkpoints.checkpoint import CheckpointID as CheckpointID, WorkflowCheckpoint as WorkflowCheckpoint
    from perdure.checkpoints.history.branches import Branch as Branch, Branches as Branches
    from perdure.checkpoints.history.diff import Change as Change, CheckpointDiff as CheckpointDiff
    from perdure.checkpoints.history.pruning import (
        PrunedThread as PrunedThread,
        PruneReport as PruneReport,
        SkippedThread as SkippedThread,
    )
    from perdure.checkpoints.history.retention import (
        FullHistory as FullHistory,
        KeepFor as KeepFor,
        KeepLast as KeepLast,
        LatestOnly as LatestOnly,
    )
    from perdure.checkpoints.migration.migrations import Migration as Migration
    from perdure.checkpoints.migration.stored_form import StoredForm as StoredForm, StoredLevel as StoredLevel
    from perdure.checkpoints.open_thread import CheckpointStorage as CheckpointStorage
    from perdure.checkpoints.storage import StoreCheckpointStorage as StoreCheckpointStorage
    from perdure.checkpoints.transfer.copy_store import (
        CopyReport as CopyReport,
        NotCopied as NotCopied,
        copy_store as copy_store,
    )
    from perdure.checkpoints.transfer.threads import ExportReport as ExportReport
    from perdure.codecs.aes_gcm import AesGcm as AesGcm, KeyProvider as KeyProvider
    from perdure.codecs.containers import Opaque as Opaque
    from perdure.codecs.pickle_codec import PickleSerializer as PickleSerializer
    from perdure.codecs.types import register_type as register_type
    from perdure.engine.delivery.executor_state import HookContext as HookContext
    from perdure.engine.functions import (
        RunContext as RunContext,
        StepWrapper as StepWrapper,
        get_run_context as get_run_context,
        step as step,
    )
    from perdure.engine.run.options import RunOptions as RunOptions
    from perdure.engine.run.result import (
        ResponseStream as ResponseStream,
        WorkflowRunResult as WorkflowRunResult,
        run_sync as run_sync,
    )
    from perdure.engine.thread.arguments import Secret as Secret
    from perdure.engine.tracing.tracing import configure_tracing as configure_tracing
    from perdure.errors import (
        AgentFailed as AgentFailed,
        AlreadyAnswered as AlreadyAnswered,
        AnswerNotUsable as AnswerNotUsable,
        AnswerRejected as AnswerRejected,
        ApprovalTimedOut as ApprovalTimedOut,
        CheckpointHookFailed as CheckpointHookFailed,
        CheckpointNotFound as CheckpointNotFound,
        CheckpointPinned as CheckpointPinned,
        ContextEnded as ContextEnded,
        ConversationNotFound as ConversationNotFound,
        CursorExpired as CursorExpired,
        DamagedCheckpoint as DamagedCheckpoint,
        DamagedDefinition as DamagedDefinition,
        DamagedStore as DamagedStore,
        DefinitionNotFound as DefinitionNotFound,
        DuplicateExecutorId as DuplicateExecutorId,
        DuplicateRequest as DuplicateRequest,
        EdgeDuplicationError as EdgeDuplicationError,
        ExecutionNotFound as ExecutionNotFound,
        GraphConnectivityError as GraphConnectivityError,
        HandlerCancelled as HandlerCancelled,
        IncompatibleWorkflow as IncompatibleWorkflow,
        InputMismatch as InputMismatch,
        InvalidDefinition as InvalidDefinition,
        InvalidRun as InvalidRun,
        InvalidSelection as InvalidSelection,
        MigrationFailed as MigrationFailed,
        MissingExtra as MissingExtra,
        MissingKey as MissingKey,
        MissingProgram as MissingProgram,
        MissingSecret as MissingSecret,
        NewerFormat as NewerFormat,
        NoEventLog as NoEventLog,
        NoPendingRequests as NoPendingRequests,
        NoResponseHandler as NoResponseHandler,
        NoStorage as NoStorage,
        NoThreadFile as NoThreadFile,
        NotInAsyncCode as NotInAsyncCode,
        PerdureError as PerdureError,
        PlaintextRefused as PlaintextRefused,
        PoolExhausted as PoolExhausted,
        PredicateFailed as PredicateFailed,
        RequestError as RequestError,
        RequestExpired as RequestExpired,
        RequestWithdrawn as RequestWithdrawn,
        RunInterrupted as RunInterrupted,
        StateConflict as StateConflict,
        StepArgumentsUnsavable as StepArgumentsUnsavable,
        StepNameTaken as StepNameTaken,
        StepOutsideWorkflow as StepOutsideWorkflow,
        StorageFailed as StorageFailed,
        StoreUnavailable as StoreUnavailable,
        SubWorkflowFailed as SubWorkflowFailed,
        ThreadBusy as ThreadBusy,
        ThreadConflict as ThreadConflict,
        ThreadExists as ThreadExists,
        ThreadNotFound as ThreadNotFound,
        ThreadNotIdle as ThreadNotIdle,
        TimedOut as TimedOut,
        TypeCompatibilityError as TypeCompatibilityError,
        UnknownExecutor as UnknownExecutor,
        UnknownRequest as UnknownRequest,
        UnreadableValue as UnreadableValue,
        UnsavableValue as UnsavableValue,
        UnsupportedId as UnsupportedId,
        UsageLimitReached as UsageLimitReached,
        ValidationTypeEnum as ValidationTypeEnum,
        WorkflowCheckpointException as WorkflowCheckpointException,
        WorkflowConvergenceException as WorkflowConvergenceException,
        WorkflowException as WorkflowException,
        WorkflowRunnerException as WorkflowRunnerException,
        WorkflowValidationError as WorkflowValidationError,
        WrongInputType as WrongInputType,
        WrongStateType as WrongStateType,
    )
    from perdure.events import (
        RequestTerms as RequestTerms,
        WorkflowErrorDetails as WorkflowErrorDetails,
        WorkflowEvent as WorkflowEvent,
        WorkflowEventSource as WorkflowEventSource,
        WorkflowEventType as WorkflowEventType,
        WorkflowRunState as WorkflowRunState,
    )
    from perdure.graph.builder import DEFAULT_MAX_ITERATIONS as DEFAULT_MAX_ITERATIONS
    from perdure.graph.context import WorkflowContext as WorkflowContext
    from perdure.graph.drawing.outcomes import outcomes_of as outcomes_of
    from perdure.graph.drawing.viz import WorkflowViz as WorkflowViz
    from perdure.graph.executor import Executor as Executor
    from perdure.graph.function_executor import FunctionExecutor as FunctionExecutor, executor as executor
    from perdure.graph.graph import (
        Case as Case,
        Default as Default,
        Edge as Edge,
        EdgeCondition as EdgeCondition,
        EdgeGroup as EdgeGroup,
        FanInEdgeGroup as FanInEdgeGroup,
        FanOutEdgeGroup as FanOutEdgeGroup,
        SingleEdgeGroup as SingleEdgeGroup,
        SwitchCaseEdgeGroup as SwitchCaseEdgeGroup,
        SwitchCaseEdgeGroupCase as SwitchCaseEdgeGroupCase,
        SwitchCaseEdgeGroupDefault as SwitchCaseEdgeGroupDefault,
    )
    from perdure.graph.handlers import handler as handler, response_handler as response_handler
    from perdure.graph.policy import RetryPolicy as RetryPolicy, add as add, append as append, merge as merge
    from perdure.graph.sub_workflow import (
        SubWorkflowRequestMessage as SubWorkflowRequestMessage,
        SubWorkflowResponseMessage as SubWorkflowResponseMessage,
        WorkflowExecutor as WorkflowExecutor,
        resolve_agent_id as resolve_agent_id,
    )
    from perdure.graph.validation import validate_workflow_graph as validate_workflow_graph
    from perdure.records import (
        CheckpointInfo as CheckpointInfo,
        Damage as Damage,
        MessageType as MessageType,
        PendingRequest as PendingRequest,
        ThreadInfo as ThreadInfo,
        WorkflowMessage as WorkflowMessage,
    )
    from perdure.storages import (
        FileCheckpointStorage as FileCheckpointStorage,
        InMemoryCheckpointStorage as InMemoryCheckpointStorage,
        PostgresCheckpointStorage as PostgresCheckpointStorage,
        SqliteCheckpointStorage as SqliteCheckpointStorage,
        open_store as open_store,
    )
    from perdure.stores.encrypted.keys import NotRekeyed as NotRekeyed, RekeyReport as RekeyReport
    from perdure.stores.encrypted.store import EncryptedStore as EncryptedStore
    from perdure.stores.memory.store import MemoryStore as MemoryStore
    from perdure.workflows.agent import (
        RequestInfoFunctionArgs as RequestInfoFunctionArgs,
        WorkflowAgent as WorkflowAgent,
    )
    from perdure.workflows.builder import WorkflowBuilder as WorkflowBuilder
    from perdure.workflows.functions import FunctionalWorkflow as FunctionalWorkflow, workflow as workflow
    from perdure.workflows.handle import RunHandle as RunHandle
    from perdure.workflows.migration_check import ThreadFit as ThreadFit, ThreadFits as ThreadFits
    from perdure.workflows.workflow import Workflow as Workflow

__version__ = "0.1.0"

# Where each public name lives. The imports above show the same names to type checkers and editors;
# tests/test_public_names.py keeps the two alike.
_HOME = {
    "AesGcm": "perdure.codecs.aes_gcm",
    "Agent": "perdure.agents.pydantic.agent",
    "AgentConfig": "perdure.agent_workflow.definition.config",
    "AgentExecutor": "perdure.agents.executor",
    "AgentExecutorRequest": "perdure.agents.executor",
    "AgentExecutorResponse": "perdure.agents.executor",
    "AgentFailed": "perdure.errors",
    "AgentNodeOptions": "perdure.agent_workflow.builder.node",
    "AgentResponse": "perdure.agents.conversation.response",
    "AgentResponseUpdate": "perdure.agents.conversation.response",
    "AgentSession": "perdure.agents.conversation.message",
    "AgentWorkflow": "perdure.agent_workflow.builder.workflow",
    "AgentWorkflowEvent": "perdure.agent_workflow.events",
    "AgentWorkflowInstance": "perdure.agent_workflow.instance",
    "AlreadyAnswered": "perdure.errors",
    "AnswerNotUsable": "perdure.errors",
    "AnswerRejected": "perdure.errors",
    "ApprovalConfig": "perdure.agent_workflow.definition.config",
    "ApprovalContext": "perdure.agent_workflow.execution.approvals",
    "ApprovalDecision": "perdure.agent_workflow.execution.approvals",
    "ApprovalRequest": "perdure.agent_workflow.execution.approvals",
    "ApprovalResponse": "perdure.agents.recording",
    "ApprovalTimedOut": "perdure.errors",
    "BaseAgent": "perdure.agents.base",
    "Branch": "perdure.checkpoints.history.branches",
    "Branches": "perdure.checkpoints.history.branches",
    "Case": "perdure.graph.graph",
    "Change": "perdure.checkpoints.history.diff",
    "CheckpointDiff": "perdure.checkpoints.history.diff",
    "CheckpointHookFailed": "perdure.errors",
    "CheckpointID": "perdure.checkpoints.checkpoint",
    "CheckpointInfo": "perdure.records",
    "CheckpointNotFound": "perdure.errors",
    "CheckpointPinned": "perdure.errors",
    "CheckpointStorage": "perdure.checkpoints.open_thread",
    "Condition": "perdure.agent_workflow.definition.condition",
    "Content": "perdure.agents.conversation.content",
    "ContextEnded": "perdure.errors",
    "ConversationConfig": "perdure.agent_workflow.definition.config",
    "ConversationNotFound": "perdure.errors",
    "CopyReport": "perdure.checkpoints.transfer.copy_store",
    "CursorExpired": "perdure.errors",
    "DEFAULT_MAX_ITERATIONS": "perdure.graph.builder",
    "Damage": "perdure.records",
    "DamagedCheckpoint": "perdure.errors",
    "DamagedDefinition": "perdure.errors",
    "DamagedStore": "perdure.errors",
    "Default": "perdure.graph.graph",
    "DefinitionInfo": "perdure.agent_workflow.store",
    "DefinitionNotFound": "perdure.errors",
    "DefinitionStore": "perdure.agent_workflow.store",
    "DuplicateExecutorId": "perdure.errors",
    "DuplicateRequest": "perdure.errors",
    "Edge": "perdure.graph.graph",
    "EdgeCondition": "perdure.graph.graph",
    "EdgeConfig": "perdure.agent_workflow.definition.config",
    "EdgeDuplicationError": "perdure.errors",
    "EdgeGroup": "perdure.graph.graph",
    "EncryptedStore": "perdure.stores.encrypted.store",
    "ErrorConfig": "perdure.agent_workflow.definition.config",
    "EventMetadata": "perdure.agent_workflow.events",
    "ExecutionNotFound": "perdure.errors",
    "Executor": "perdure.graph.executor",
    "ExportReport": "perdure.checkpoints.transfer.threads",
    "FanInEdgeGroup": "perdure.graph.graph",
    "FanOutEdgeGroup": "perdure.graph.graph",
    "FileCheckpointStorage": "perdure.storages",
    "FullHistory": "perdure.checkpoints.history.retention",
    "FunctionExecutor": "perdure.graph.function_executor",
    "FunctionalWorkflow": "perdure.workflows.functions",
    "GraphConnectivityError": "perdure.errors",
    "HandlerCancelled": "perdure.errors",
    "HandoffConfig": "perdure.agent_workflow.definition.config",
    "HookContext": "perdure.engine.delivery.executor_state",
    "InMemoryCheckpointStorage": "perdure.storages",
    "InMemorySessionStore": "perdure.agent_workflow.conversations.store",
    "IncompatibleWorkflow": "perdure.errors",
    "InputMismatch": "perdure.errors",
    "InvalidDefinition": "perdure.errors",
    "InvalidRun": "perdure.errors",
    "InvalidSelection": "perdure.errors",
    "JsonSessionStore": "perdure.agent_workflow.conversations.files",
    "KeepFor": "perdure.checkpoints.history.retention",
    "KeepLast": "perdure.checkpoints.history.retention",
    "KeyProvider": "perdure.codecs.aes_gcm",
    "LatestOnly": "perdure.checkpoints.history.retention",
    "MapConfig": "perdure.agent_workflow.definition.config",
    "MemoryStore": "perdure.stores.memory.store",
    "Message": "perdure.agents.conversation.message",
    "MessageType": "perdure.records",
    "Migration": "perdure.checkpoints.migration.migrations",
    "MigrationFailed": "perdure.errors",
    "MissingExtra": "perdure.errors",
    "MissingKey": "perdure.errors",
    "MissingProgram": "perdure.errors",
    "MissingSecret": "perdure.errors",
    "MultiAgentCheckpointRetention": "perdure.agent_workflow.store",
    "NewerFormat": "perdure.errors",
    "NoEventLog": "perdure.errors",
    "NoPendingRequests": "perdure.errors",
    "NoResponseHandler": "perdure.errors",
    "NoStorage": "perdure.errors",
    "NoThreadFile": "perdure.errors",
    "NodeConfig": "perdure.agent_workflow.definition.config",
    "NotCopied": "perdure.checkpoints.transfer.copy_store",
    "NotInAsyncCode": "perdure.errors",
    "NotRekeyed": "perdure.stores.encrypted.keys",
    "Opaque": "perdure.codecs.containers",
    "PendingRequest": "perdure.records",
    "PerdureError": "perdure.errors",
    "PickleSerializer": "perdure.codecs.pickle_codec",
    "PlaintextRefused": "perdure.errors",
    "PoolExhausted": "perdure.errors",
    "PostgresCheckpointStorage": "perdure.storages",
    "PredicateFailed": "perdure.errors",
    "PruneReport": "perdure.checkpoints.history.pruning",
    "PrunedThread": "perdure.checkpoints.history.pruning",
    "RekeyReport": "perdure.stores.encrypted.keys",
    "RequestError": "perdure.errors",
    "RequestExpired": "perdure.errors",
    "RequestInfoFunctionArgs": "perdure.workflows.agent",
    "RequestTerms": "perdure.events",
    "RequestWithdrawn": "perdure.errors",
    "ResponseStream": "perdure.engine.run.result",
    "RetryConfig": "perdure.agent_workflow.definition.config",
    "RetryPolicy": "perdure.graph.policy",
    "RunContext": "perdure.engine.functions",
    "RunHandle": "perdure.workflows.handle",
    "RunInterrupted": "perdure.errors",
    "RunOptions": "perdure.engine.run.options",
    "Secret": "perdure.engine.thread.arguments",
    "SessionEntry": "perdure.agent_workflow.conversations.log",
    "SessionHead": "perdure.agent_workflow.conversations.log",
    "SessionStore": "perdure.agent_workflow.conversations.store",
    "SettingsConfig": "perdure.agent_workflow.definition.config",
    "SingleEdgeGroup": "perdure.graph.graph",
    "SkippedThread": "perdure.checkpoints.history.pruning",
    "SqliteCheckpointStorage": "perdure.storages",
    "SqliteSessionStore": "perdure.agent_workflow.conversations.sqlite",
    "StateConflict": "perdure.errors",
    "StepArgumentsUnsavable": "perdure.errors",
    "StepNameTaken": "perdure.errors",
    "StepOutsideWorkflow": "perdure.errors",
    "StepWrapper": "perdure.engine.functions",
    "StorageFailed": "perdure.errors",
    "StoreCheckpointStorage": "perdure.checkpoints.storage",
    "StoreUnavailable": "perdure.errors",
    "StoredDefinition": "perdure.agent_workflow.store",
    "StoredForm": "perdure.checkpoints.migration.stored_form",
    "StoredLevel": "perdure.checkpoints.migration.stored_form",
    "SubWorkflowFailed": "perdure.errors",
    "SubWorkflowRequestMessage": "perdure.graph.sub_workflow",
    "SubWorkflowResponseMessage": "perdure.graph.sub_workflow",
    "SupportsAgentRun": "perdure.agents.base",
    "SwitchCaseEdgeGroup": "perdure.graph.graph",
    "SwitchCaseEdgeGroupCase": "perdure.graph.graph",
    "SwitchCaseEdgeGroupDefault": "perdure.graph.graph",
    "ThreadBusy": "perdure.errors",
    "ThreadConflict": "perdure.errors",
    "ThreadExists": "perdure.errors",
    "ThreadFit": "perdure.workflows.migration_check",
    "ThreadFits": "perdure.workflows.migration_check",
    "ThreadInfo": "perdure.records",
    "ThreadNotFound": "perdure.errors",
    "ThreadNotIdle": "perdure.errors",
    "TimedOut": "perdure.errors",
    "Tool": "perdure.agents.tools",
    "ToolContext": "perdure.agents.tools",
    "TypeCompatibilityError": "perdure.errors",
    "UnknownExecutor": "perdure.errors",
    "UnknownRequest": "perdure.errors",
    "UnreadableValue": "perdure.errors",
    "UnsavableValue": "perdure.errors",
    "UnsupportedId": "perdure.errors",
    "UsageDetails": "perdure.agents.conversation.content",
    "UsageLimitReached": "perdure.errors",
    "ValidationTypeEnum": "perdure.errors",
    "Workflow": "perdure.workflows.workflow",
    "WorkflowAgent": "perdure.workflows.agent",
    "WorkflowAgentCompletedEvent": "perdure.agent_workflow.events",
    "WorkflowAgentSkippedEvent": "perdure.agent_workflow.events",
    "WorkflowAgentStartedEvent": "perdure.agent_workflow.events",
    "WorkflowApprovalRequestedEvent": "perdure.agent_workflow.events",
    "WorkflowApprovalResolvedEvent": "perdure.agent_workflow.events",
    "WorkflowBuilder": "perdure.workflows.builder",
    "WorkflowCheckpoint": "perdure.checkpoints.checkpoint",
    "WorkflowCheckpointException": "perdure.errors",
    "WorkflowCompletedEvent": "perdure.agent_workflow.events",
    "WorkflowConfig": "perdure.agent_workflow.definition.config",
    "WorkflowContext": "perdure.graph.context",
    "WorkflowConvergenceException": "perdure.errors",
    "WorkflowDiagnosticEvent": "perdure.agent_workflow.events",
    "WorkflowEdgeTraversedEvent": "perdure.agent_workflow.events",
    "WorkflowErrorDetails": "perdure.events",
    "WorkflowEvent": "perdure.events",
    "WorkflowEventSource": "perdure.events",
    "WorkflowEventType": "perdure.events",
    "WorkflowException": "perdure.errors",
    "WorkflowExecutor": "perdure.graph.sub_workflow",
    "WorkflowLayerCompletedEvent": "perdure.agent_workflow.events",
    "WorkflowLayerStartedEvent": "perdure.agent_workflow.events",
    "WorkflowMessage": "perdure.records",
    "WorkflowResult": "perdure.agent_workflow.execution.execution",
    "WorkflowRunResult": "perdure.engine.run.result",
    "WorkflowRunState": "perdure.events",
    "WorkflowRunnerException": "perdure.errors",
    "WorkflowStartedEvent": "perdure.agent_workflow.events",
    "WorkflowValidationError": "perdure.errors",
    "WorkflowViz": "perdure.graph.drawing.viz",
    "WrongInputType": "perdure.errors",
    "WrongStateType": "perdure.errors",
    "add": "perdure.graph.policy",
    "append": "perdure.graph.policy",
    "condition": "perdure.agent_workflow.definition",
    "configure_tracing": "perdure.engine.tracing.tracing",
    "copy_store": "perdure.checkpoints.transfer.copy_store",
    "executor": "perdure.graph.function_executor",
    "get_run_context": "perdure.engine.functions",
    "handler": "perdure.graph.handlers",
    "merge": "perdure.graph.policy",
    "open_store": "perdure.storages",
    "outcomes_of": "perdure.graph.drawing.outcomes",
    "register_type": "perdure.codecs.types",
    "resolve_agent_id": "perdure.graph.sub_workflow",
    "response_handler": "perdure.graph.handlers",
    "run_sync": "perdure.engine.run.result",
    "step": "perdure.engine.functions",
    "tool": "perdure.agents.tools",
    "validate_workflow_graph": "perdure.graph.validation",
    "workflow": "perdure.workflows.functions",
}

__all__ = list(_HOME)


if not TYPE_CHECKING:  # checkers take the imports above; with this in sight they would let every misspelt name pass

    def __getattr__(name: str) -> object:
        home = _HOME.get(name)
        if home is None:
            from perdure.errors import did_you_mean

            raise AttributeError(f"module 'perdure' has no attribute {name!r}{did_you_mean(name, _HOME)}")
        from importlib import import_module

        value: object = getattr(import_module(home), name)
        globals()[name] = value  # found directly from now on
        return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])


if os.environ.get("PERDURE_LOG"):
    from perdure.log import configure_from_environment

    configure_from_environment()
