"""perdure: durable agent workflows. The public names, imported when they are first used, and nothing else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.agents.approval import ApprovalResponse as ApprovalResponse
    from perdure.agents.base import BaseAgent as BaseAgent, SupportsAgentRun as SupportsAgentRun
    from perdure.agents.content import Content as Content, UsageDetails as UsageDetails
    from perdure.agents.executor import (
        AgentExecutor as AgentExecutor,
        AgentExecutorRequest as AgentExecutorRequest,
        AgentExecutorResponse as AgentExecutorResponse,
    )
    from perdure.agents.functions import FunctionalWorkflow as FunctionalWorkflow, workflow as workflow
    from perdure.agents.message import Message as Message
    from perdure.agents.pydantic.agent import Agent as Agent
    from perdure.agents.response import AgentResponse as AgentResponse, AgentResponseUpdate as AgentResponseUpdate
    from perdure.agents.session import AgentSession as AgentSession
    from perdure.agents.tools import Tool as Tool, ToolContext as ToolContext, tool as tool
    from perdure.agents.workflow_agent import (
        RequestInfoFunctionArgs as RequestInfoFunctionArgs,
        WorkflowAgent as WorkflowAgent,
    )
    from perdure.agents.workflows import Workflow as Workflow, WorkflowBuilder as WorkflowBuilder
    from perdure.checkpoints.checkpoint import CheckpointID as CheckpointID, WorkflowCheckpoint as WorkflowCheckpoint
    from perdure.checkpoints.copying import CopyReport as CopyReport, NotCopied as NotCopied, copy_store as copy_store
    from perdure.checkpoints.difference import Change as Change, CheckpointDiff as CheckpointDiff
    from perdure.checkpoints.history import Branch as Branch, Branches as Branches
    from perdure.checkpoints.migrations import Migration as Migration
    from perdure.checkpoints.prune_report import (
        PrunedThread as PrunedThread,
        PruneReport as PruneReport,
        SkippedThread as SkippedThread,
    )
    from perdure.checkpoints.retention import (
        FullHistory as FullHistory,
        KeepFor as KeepFor,
        KeepLast as KeepLast,
        LatestOnly as LatestOnly,
    )
    from perdure.checkpoints.storage import CheckpointStorage as CheckpointStorage
    from perdure.checkpoints.stored_form import StoredForm as StoredForm, StoredLevel as StoredLevel
    from perdure.checkpoints.transfer import ExportReport as ExportReport
    from perdure.codecs.aes_gcm import AesGcm as AesGcm, KeyProvider as KeyProvider
    from perdure.codecs.opaque import Opaque as Opaque
    from perdure.codecs.pickle_codec import PickleSerializer as PickleSerializer
    from perdure.codecs.types import register_type as register_type
    from perdure.engine.handle import RunHandle as RunHandle
    from perdure.engine.hooks import HookContext as HookContext
    from perdure.engine.migrating import ThreadFit as ThreadFit, ThreadFits as ThreadFits
    from perdure.engine.result import WorkflowRunResult as WorkflowRunResult
    from perdure.engine.run_arguments import Secret as Secret
    from perdure.engine.run_context import RunContext as RunContext, get_run_context as get_run_context
    from perdure.engine.step_function import StepWrapper as StepWrapper, step as step
    from perdure.engine.stream import ResponseStream as ResponseStream
    from perdure.engine.sync import run_sync as run_sync
    from perdure.engine.tracing import configure_tracing as configure_tracing
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
    from perdure.graph.edges import (
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
    from perdure.graph.executor import Executor as Executor
    from perdure.graph.function_executor import FunctionExecutor as FunctionExecutor, executor as executor
    from perdure.graph.handlers import handler as handler, response_handler as response_handler
    from perdure.graph.participants import resolve_agent_id as resolve_agent_id
    from perdure.graph.policy import RetryPolicy as RetryPolicy
    from perdure.graph.reducers import add as add, append as append, merge as merge
    from perdure.graph.validation import validate_workflow_graph as validate_workflow_graph
    from perdure.graph.workflow_executor import (
        SubWorkflowRequestMessage as SubWorkflowRequestMessage,
        SubWorkflowResponseMessage as SubWorkflowResponseMessage,
        WorkflowExecutor as WorkflowExecutor,
    )
    from perdure.orchestrations.agent_workflow import condition as condition
    from perdure.orchestrations.agent_workflow.approvals import (
        ApprovalContext as ApprovalContext,
        ApprovalDecision as ApprovalDecision,
        ApprovalRequest as ApprovalRequest,
    )
    from perdure.orchestrations.agent_workflow.builder import AgentWorkflow as AgentWorkflow
    from perdure.orchestrations.agent_workflow.conditions import Condition as Condition
    from perdure.orchestrations.agent_workflow.definition import (
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
    from perdure.orchestrations.agent_workflow.definitions import (
        DefinitionInfo as DefinitionInfo,
        DefinitionStore as DefinitionStore,
        StoredDefinition as StoredDefinition,
    )
    from perdure.orchestrations.agent_workflow.events import (
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
    from perdure.orchestrations.agent_workflow.instance import AgentWorkflowInstance as AgentWorkflowInstance
    from perdure.orchestrations.agent_workflow.node_options import AgentNodeOptions as AgentNodeOptions
    from perdure.orchestrations.agent_workflow.result import WorkflowResult as WorkflowResult
    from perdure.orchestrations.agent_workflow.session_log import (
        SessionEntry as SessionEntry,
        SessionHead as SessionHead,
    )
    from perdure.orchestrations.agent_workflow.sessions import (
        InMemorySessionStore as InMemorySessionStore,
        JsonSessionStore as JsonSessionStore,
        SessionStore as SessionStore,
        SqliteSessionStore as SqliteSessionStore,
    )
    from perdure.orchestrations.agent_workflow.stores import (
        MultiAgentCheckpointRetention as MultiAgentCheckpointRetention,
    )
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
    from perdure.stores.encrypted.rekey import NotRekeyed as NotRekeyed, RekeyReport as RekeyReport
    from perdure.stores.encrypted.store import EncryptedStore as EncryptedStore

__version__ = "0.1.0"

# Where each public name lives. The imports above show the same names to type checkers and editors;
# tests/test_public_names.py keeps the two alike.
_HOME = {
    "AesGcm": "perdure.codecs.aes_gcm",
    "Agent": "perdure.agents.pydantic.agent",
    "AgentConfig": "perdure.orchestrations.agent_workflow.definition",
    "AgentExecutor": "perdure.agents.executor",
    "AgentExecutorRequest": "perdure.agents.executor",
    "AgentExecutorResponse": "perdure.agents.executor",
    "AgentFailed": "perdure.errors",
    "AgentNodeOptions": "perdure.orchestrations.agent_workflow.node_options",
    "AgentResponse": "perdure.agents.response",
    "AgentResponseUpdate": "perdure.agents.response",
    "AgentSession": "perdure.agents.session",
    "AgentWorkflow": "perdure.orchestrations.agent_workflow.builder",
    "AgentWorkflowEvent": "perdure.orchestrations.agent_workflow.events",
    "AgentWorkflowInstance": "perdure.orchestrations.agent_workflow.instance",
    "AlreadyAnswered": "perdure.errors",
    "AnswerNotUsable": "perdure.errors",
    "AnswerRejected": "perdure.errors",
    "ApprovalConfig": "perdure.orchestrations.agent_workflow.definition",
    "ApprovalContext": "perdure.orchestrations.agent_workflow.approvals",
    "ApprovalDecision": "perdure.orchestrations.agent_workflow.approvals",
    "ApprovalRequest": "perdure.orchestrations.agent_workflow.approvals",
    "ApprovalResponse": "perdure.agents.approval",
    "ApprovalTimedOut": "perdure.errors",
    "BaseAgent": "perdure.agents.base",
    "Branch": "perdure.checkpoints.history",
    "Branches": "perdure.checkpoints.history",
    "Case": "perdure.graph.edges",
    "Change": "perdure.checkpoints.difference",
    "CheckpointDiff": "perdure.checkpoints.difference",
    "CheckpointHookFailed": "perdure.errors",
    "CheckpointID": "perdure.checkpoints.checkpoint",
    "CheckpointInfo": "perdure.records",
    "CheckpointNotFound": "perdure.errors",
    "CheckpointPinned": "perdure.errors",
    "CheckpointStorage": "perdure.checkpoints.storage",
    "Condition": "perdure.orchestrations.agent_workflow.conditions",
    "Content": "perdure.agents.content",
    "ContextEnded": "perdure.errors",
    "ConversationConfig": "perdure.orchestrations.agent_workflow.definition",
    "ConversationNotFound": "perdure.errors",
    "CopyReport": "perdure.checkpoints.copying",
    "CursorExpired": "perdure.errors",
    "DEFAULT_MAX_ITERATIONS": "perdure.graph.builder",
    "Damage": "perdure.records",
    "DamagedCheckpoint": "perdure.errors",
    "DamagedDefinition": "perdure.errors",
    "DamagedStore": "perdure.errors",
    "Default": "perdure.graph.edges",
    "DefinitionInfo": "perdure.orchestrations.agent_workflow.definitions",
    "DefinitionNotFound": "perdure.errors",
    "DefinitionStore": "perdure.orchestrations.agent_workflow.definitions",
    "DuplicateExecutorId": "perdure.errors",
    "DuplicateRequest": "perdure.errors",
    "Edge": "perdure.graph.edges",
    "EdgeCondition": "perdure.graph.edges",
    "EdgeConfig": "perdure.orchestrations.agent_workflow.definition",
    "EdgeDuplicationError": "perdure.errors",
    "EdgeGroup": "perdure.graph.edges",
    "EncryptedStore": "perdure.stores.encrypted.store",
    "ErrorConfig": "perdure.orchestrations.agent_workflow.definition",
    "EventMetadata": "perdure.orchestrations.agent_workflow.events",
    "ExecutionNotFound": "perdure.errors",
    "Executor": "perdure.graph.executor",
    "ExportReport": "perdure.checkpoints.transfer",
    "FanInEdgeGroup": "perdure.graph.edges",
    "FanOutEdgeGroup": "perdure.graph.edges",
    "FileCheckpointStorage": "perdure.storages",
    "FullHistory": "perdure.checkpoints.retention",
    "FunctionExecutor": "perdure.graph.function_executor",
    "FunctionalWorkflow": "perdure.agents.functions",
    "GraphConnectivityError": "perdure.errors",
    "HandlerCancelled": "perdure.errors",
    "HandoffConfig": "perdure.orchestrations.agent_workflow.definition",
    "PerdureError": "perdure.errors",
    "HookContext": "perdure.engine.hooks",
    "InMemoryCheckpointStorage": "perdure.storages",
    "InMemorySessionStore": "perdure.orchestrations.agent_workflow.sessions",
    "IncompatibleWorkflow": "perdure.errors",
    "InputMismatch": "perdure.errors",
    "InvalidDefinition": "perdure.errors",
    "InvalidRun": "perdure.errors",
    "InvalidSelection": "perdure.errors",
    "JsonSessionStore": "perdure.orchestrations.agent_workflow.sessions",
    "KeepFor": "perdure.checkpoints.retention",
    "KeepLast": "perdure.checkpoints.retention",
    "KeyProvider": "perdure.codecs.aes_gcm",
    "LatestOnly": "perdure.checkpoints.retention",
    "MapConfig": "perdure.orchestrations.agent_workflow.definition",
    "Message": "perdure.agents.message",
    "MessageType": "perdure.records",
    "Migration": "perdure.checkpoints.migrations",
    "MigrationFailed": "perdure.errors",
    "MissingExtra": "perdure.errors",
    "MissingKey": "perdure.errors",
    "MissingProgram": "perdure.errors",
    "MissingSecret": "perdure.errors",
    "MultiAgentCheckpointRetention": "perdure.orchestrations.agent_workflow.stores",
    "NewerFormat": "perdure.errors",
    "NoEventLog": "perdure.errors",
    "NoPendingRequests": "perdure.errors",
    "NoResponseHandler": "perdure.errors",
    "NoStorage": "perdure.errors",
    "NoThreadFile": "perdure.errors",
    "NodeConfig": "perdure.orchestrations.agent_workflow.definition",
    "NotCopied": "perdure.checkpoints.copying",
    "NotInAsyncCode": "perdure.errors",
    "NotRekeyed": "perdure.stores.encrypted.rekey",
    "Opaque": "perdure.codecs.opaque",
    "PendingRequest": "perdure.records",
    "PickleSerializer": "perdure.codecs.pickle_codec",
    "PlaintextRefused": "perdure.errors",
    "PoolExhausted": "perdure.errors",
    "PostgresCheckpointStorage": "perdure.storages",
    "PredicateFailed": "perdure.errors",
    "PruneReport": "perdure.checkpoints.prune_report",
    "PrunedThread": "perdure.checkpoints.prune_report",
    "RekeyReport": "perdure.stores.encrypted.rekey",
    "RequestError": "perdure.errors",
    "RequestExpired": "perdure.errors",
    "RequestInfoFunctionArgs": "perdure.agents.workflow_agent",
    "RequestTerms": "perdure.events",
    "RequestWithdrawn": "perdure.errors",
    "ResponseStream": "perdure.engine.stream",
    "RetryConfig": "perdure.orchestrations.agent_workflow.definition",
    "RetryPolicy": "perdure.graph.policy",
    "RunContext": "perdure.engine.run_context",
    "RunHandle": "perdure.engine.handle",
    "RunInterrupted": "perdure.errors",
    "Secret": "perdure.engine.run_arguments",
    "SessionEntry": "perdure.orchestrations.agent_workflow.session_log",
    "SessionHead": "perdure.orchestrations.agent_workflow.session_log",
    "SessionStore": "perdure.orchestrations.agent_workflow.sessions",
    "SettingsConfig": "perdure.orchestrations.agent_workflow.definition",
    "SingleEdgeGroup": "perdure.graph.edges",
    "SkippedThread": "perdure.checkpoints.prune_report",
    "SqliteCheckpointStorage": "perdure.storages",
    "SqliteSessionStore": "perdure.orchestrations.agent_workflow.sessions",
    "StateConflict": "perdure.errors",
    "StepArgumentsUnsavable": "perdure.errors",
    "StepNameTaken": "perdure.errors",
    "StepOutsideWorkflow": "perdure.errors",
    "StepWrapper": "perdure.engine.step_function",
    "StorageFailed": "perdure.errors",
    "StoreUnavailable": "perdure.errors",
    "StoredDefinition": "perdure.orchestrations.agent_workflow.definitions",
    "StoredForm": "perdure.checkpoints.stored_form",
    "StoredLevel": "perdure.checkpoints.stored_form",
    "SubWorkflowFailed": "perdure.errors",
    "SubWorkflowRequestMessage": "perdure.graph.workflow_executor",
    "SubWorkflowResponseMessage": "perdure.graph.workflow_executor",
    "SupportsAgentRun": "perdure.agents.base",
    "SwitchCaseEdgeGroup": "perdure.graph.edges",
    "SwitchCaseEdgeGroupCase": "perdure.graph.edges",
    "SwitchCaseEdgeGroupDefault": "perdure.graph.edges",
    "ThreadBusy": "perdure.errors",
    "ThreadConflict": "perdure.errors",
    "ThreadExists": "perdure.errors",
    "ThreadFit": "perdure.engine.migrating",
    "ThreadFits": "perdure.engine.migrating",
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
    "UsageDetails": "perdure.agents.content",
    "UsageLimitReached": "perdure.errors",
    "ValidationTypeEnum": "perdure.errors",
    "Workflow": "perdure.agents.workflows",
    "WorkflowAgent": "perdure.agents.workflow_agent",
    "WorkflowAgentCompletedEvent": "perdure.orchestrations.agent_workflow.events",
    "WorkflowAgentSkippedEvent": "perdure.orchestrations.agent_workflow.events",
    "WorkflowAgentStartedEvent": "perdure.orchestrations.agent_workflow.events",
    "WorkflowApprovalRequestedEvent": "perdure.orchestrations.agent_workflow.events",
    "WorkflowApprovalResolvedEvent": "perdure.orchestrations.agent_workflow.events",
    "WorkflowBuilder": "perdure.agents.workflows",
    "WorkflowCheckpoint": "perdure.checkpoints.checkpoint",
    "WorkflowCheckpointException": "perdure.errors",
    "WorkflowCompletedEvent": "perdure.orchestrations.agent_workflow.events",
    "WorkflowConfig": "perdure.orchestrations.agent_workflow.definition",
    "WorkflowContext": "perdure.graph.context",
    "WorkflowConvergenceException": "perdure.errors",
    "WorkflowDiagnosticEvent": "perdure.orchestrations.agent_workflow.events",
    "WorkflowEdgeTraversedEvent": "perdure.orchestrations.agent_workflow.events",
    "WorkflowErrorDetails": "perdure.events",
    "WorkflowEvent": "perdure.events",
    "WorkflowEventSource": "perdure.events",
    "WorkflowEventType": "perdure.events",
    "WorkflowException": "perdure.errors",
    "WorkflowExecutor": "perdure.graph.workflow_executor",
    "WorkflowLayerCompletedEvent": "perdure.orchestrations.agent_workflow.events",
    "WorkflowLayerStartedEvent": "perdure.orchestrations.agent_workflow.events",
    "WorkflowMessage": "perdure.records",
    "WorkflowResult": "perdure.orchestrations.agent_workflow.result",
    "WorkflowRunResult": "perdure.engine.result",
    "WorkflowRunState": "perdure.events",
    "WorkflowRunnerException": "perdure.errors",
    "WorkflowStartedEvent": "perdure.orchestrations.agent_workflow.events",
    "WorkflowValidationError": "perdure.errors",
    "WorkflowViz": "perdure.graph.drawing.viz",
    "WrongInputType": "perdure.errors",
    "WrongStateType": "perdure.errors",
    "add": "perdure.graph.reducers",
    "append": "perdure.graph.reducers",
    "condition": "perdure.orchestrations.agent_workflow",
    "configure_tracing": "perdure.engine.tracing",
    "copy_store": "perdure.checkpoints.copying",
    "executor": "perdure.graph.function_executor",
    "get_run_context": "perdure.engine.run_context",
    "handler": "perdure.graph.handlers",
    "merge": "perdure.graph.reducers",
    "open_store": "perdure.storages",
    "outcomes_of": "perdure.graph.drawing.outcomes",
    "register_type": "perdure.codecs.types",
    "resolve_agent_id": "perdure.graph.participants",
    "response_handler": "perdure.graph.handlers",
    "run_sync": "perdure.engine.sync",
    "step": "perdure.engine.step_function",
    "tool": "perdure.agents.tools",
    "validate_workflow_graph": "perdure.graph.validation",
    "workflow": "perdure.agents.functions",
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
