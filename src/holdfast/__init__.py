"""holdfast: durable agent workflows. The public names, imported when they are first used, and nothing else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.agents.approval import ApprovalResponse as ApprovalResponse
    from holdfast.agents.base import BaseAgent as BaseAgent, SupportsAgentRun as SupportsAgentRun
    from holdfast.agents.content import Content as Content, UsageDetails as UsageDetails
    from holdfast.agents.executor import (
        AgentExecutor as AgentExecutor,
        AgentExecutorRequest as AgentExecutorRequest,
        AgentExecutorResponse as AgentExecutorResponse,
    )
    from holdfast.agents.functions import FunctionalWorkflow as FunctionalWorkflow, workflow as workflow
    from holdfast.agents.message import Message as Message
    from holdfast.agents.pydantic.agent import Agent as Agent
    from holdfast.agents.response import AgentResponse as AgentResponse, AgentResponseUpdate as AgentResponseUpdate
    from holdfast.agents.session import AgentSession as AgentSession
    from holdfast.agents.tools import Tool as Tool, ToolContext as ToolContext, tool as tool
    from holdfast.agents.workflow_agent import (
        RequestInfoFunctionArgs as RequestInfoFunctionArgs,
        WorkflowAgent as WorkflowAgent,
    )
    from holdfast.agents.workflows import Workflow as Workflow, WorkflowBuilder as WorkflowBuilder
    from holdfast.checkpoints.checkpoint import CheckpointID as CheckpointID, WorkflowCheckpoint as WorkflowCheckpoint
    from holdfast.checkpoints.copying import CopyReport as CopyReport, NotCopied as NotCopied, copy_store as copy_store
    from holdfast.checkpoints.difference import Change as Change, CheckpointDiff as CheckpointDiff
    from holdfast.checkpoints.history import Branch as Branch, Branches as Branches
    from holdfast.checkpoints.migrations import Migration as Migration
    from holdfast.checkpoints.prune_report import (
        PrunedThread as PrunedThread,
        PruneReport as PruneReport,
        SkippedThread as SkippedThread,
    )
    from holdfast.checkpoints.retention import (
        FullHistory as FullHistory,
        KeepFor as KeepFor,
        KeepLast as KeepLast,
        LatestOnly as LatestOnly,
    )
    from holdfast.checkpoints.storage import CheckpointStorage as CheckpointStorage
    from holdfast.checkpoints.stored_form import StoredForm as StoredForm, StoredLevel as StoredLevel
    from holdfast.checkpoints.transfer import ExportReport as ExportReport
    from holdfast.codecs.aes_gcm import AesGcm as AesGcm, KeyProvider as KeyProvider
    from holdfast.codecs.opaque import Opaque as Opaque
    from holdfast.codecs.pickle_codec import PickleSerializer as PickleSerializer
    from holdfast.codecs.types import register_type as register_type
    from holdfast.engine.handle import RunHandle as RunHandle
    from holdfast.engine.hooks import HookContext as HookContext
    from holdfast.engine.migrating import ThreadFit as ThreadFit, ThreadFits as ThreadFits
    from holdfast.engine.result import WorkflowRunResult as WorkflowRunResult
    from holdfast.engine.run_arguments import Secret as Secret
    from holdfast.engine.run_context import RunContext as RunContext, get_run_context as get_run_context
    from holdfast.engine.step_function import StepWrapper as StepWrapper, step as step
    from holdfast.engine.stream import ResponseStream as ResponseStream
    from holdfast.engine.sync import run_sync as run_sync
    from holdfast.engine.tracing import configure_tracing as configure_tracing
    from holdfast.errors import (
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
        HoldfastError as HoldfastError,
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
    from holdfast.events import (
        RequestTerms as RequestTerms,
        WorkflowErrorDetails as WorkflowErrorDetails,
        WorkflowEvent as WorkflowEvent,
        WorkflowEventSource as WorkflowEventSource,
        WorkflowEventType as WorkflowEventType,
        WorkflowRunState as WorkflowRunState,
    )
    from holdfast.graph.builder import DEFAULT_MAX_ITERATIONS as DEFAULT_MAX_ITERATIONS
    from holdfast.graph.context import WorkflowContext as WorkflowContext
    from holdfast.graph.drawing.outcomes import outcomes_of as outcomes_of
    from holdfast.graph.drawing.viz import WorkflowViz as WorkflowViz
    from holdfast.graph.edges import (
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
    from holdfast.graph.executor import Executor as Executor
    from holdfast.graph.function_executor import FunctionExecutor as FunctionExecutor, executor as executor
    from holdfast.graph.handlers import handler as handler, response_handler as response_handler
    from holdfast.graph.participants import resolve_agent_id as resolve_agent_id
    from holdfast.graph.policy import RetryPolicy as RetryPolicy
    from holdfast.graph.reducers import add as add, append as append, merge as merge
    from holdfast.graph.validation import validate_workflow_graph as validate_workflow_graph
    from holdfast.graph.workflow_executor import (
        SubWorkflowRequestMessage as SubWorkflowRequestMessage,
        SubWorkflowResponseMessage as SubWorkflowResponseMessage,
        WorkflowExecutor as WorkflowExecutor,
    )
    from holdfast.orchestrations.agent_workflow import condition as condition
    from holdfast.orchestrations.agent_workflow.approvals import (
        ApprovalContext as ApprovalContext,
        ApprovalDecision as ApprovalDecision,
        ApprovalRequest as ApprovalRequest,
    )
    from holdfast.orchestrations.agent_workflow.builder import AgentWorkflow as AgentWorkflow
    from holdfast.orchestrations.agent_workflow.conditions import Condition as Condition
    from holdfast.orchestrations.agent_workflow.definition import (
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
    from holdfast.orchestrations.agent_workflow.definitions import (
        DefinitionInfo as DefinitionInfo,
        DefinitionStore as DefinitionStore,
        StoredDefinition as StoredDefinition,
    )
    from holdfast.orchestrations.agent_workflow.events import (
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
    from holdfast.orchestrations.agent_workflow.instance import AgentWorkflowInstance as AgentWorkflowInstance
    from holdfast.orchestrations.agent_workflow.node_options import AgentNodeOptions as AgentNodeOptions
    from holdfast.orchestrations.agent_workflow.result import WorkflowResult as WorkflowResult
    from holdfast.orchestrations.agent_workflow.session_log import (
        SessionEntry as SessionEntry,
        SessionHead as SessionHead,
    )
    from holdfast.orchestrations.agent_workflow.sessions import (
        InMemorySessionStore as InMemorySessionStore,
        JsonSessionStore as JsonSessionStore,
        SessionStore as SessionStore,
        SqliteSessionStore as SqliteSessionStore,
    )
    from holdfast.orchestrations.agent_workflow.stores import (
        MultiAgentCheckpointRetention as MultiAgentCheckpointRetention,
    )
    from holdfast.records import (
        CheckpointInfo as CheckpointInfo,
        Damage as Damage,
        MessageType as MessageType,
        PendingRequest as PendingRequest,
        ThreadInfo as ThreadInfo,
        WorkflowMessage as WorkflowMessage,
    )
    from holdfast.storages import (
        FileCheckpointStorage as FileCheckpointStorage,
        InMemoryCheckpointStorage as InMemoryCheckpointStorage,
        PostgresCheckpointStorage as PostgresCheckpointStorage,
        SqliteCheckpointStorage as SqliteCheckpointStorage,
        open_store as open_store,
    )
    from holdfast.stores.encrypted.rekey import NotRekeyed as NotRekeyed, RekeyReport as RekeyReport
    from holdfast.stores.encrypted.store import EncryptedStore as EncryptedStore

__version__ = "0.1.0"

# Where each public name lives. The imports above show the same names to type checkers and editors;
# tests/test_public_names.py keeps the two alike.
_HOME = {
    "AesGcm": "holdfast.codecs.aes_gcm",
    "Agent": "holdfast.agents.pydantic.agent",
    "AgentConfig": "holdfast.orchestrations.agent_workflow.definition",
    "AgentExecutor": "holdfast.agents.executor",
    "AgentExecutorRequest": "holdfast.agents.executor",
    "AgentExecutorResponse": "holdfast.agents.executor",
    "AgentFailed": "holdfast.errors",
    "AgentNodeOptions": "holdfast.orchestrations.agent_workflow.node_options",
    "AgentResponse": "holdfast.agents.response",
    "AgentResponseUpdate": "holdfast.agents.response",
    "AgentSession": "holdfast.agents.session",
    "AgentWorkflow": "holdfast.orchestrations.agent_workflow.builder",
    "AgentWorkflowEvent": "holdfast.orchestrations.agent_workflow.events",
    "AgentWorkflowInstance": "holdfast.orchestrations.agent_workflow.instance",
    "AlreadyAnswered": "holdfast.errors",
    "AnswerNotUsable": "holdfast.errors",
    "AnswerRejected": "holdfast.errors",
    "ApprovalConfig": "holdfast.orchestrations.agent_workflow.definition",
    "ApprovalContext": "holdfast.orchestrations.agent_workflow.approvals",
    "ApprovalDecision": "holdfast.orchestrations.agent_workflow.approvals",
    "ApprovalRequest": "holdfast.orchestrations.agent_workflow.approvals",
    "ApprovalResponse": "holdfast.agents.approval",
    "ApprovalTimedOut": "holdfast.errors",
    "BaseAgent": "holdfast.agents.base",
    "Branch": "holdfast.checkpoints.history",
    "Branches": "holdfast.checkpoints.history",
    "Case": "holdfast.graph.edges",
    "Change": "holdfast.checkpoints.difference",
    "CheckpointDiff": "holdfast.checkpoints.difference",
    "CheckpointHookFailed": "holdfast.errors",
    "CheckpointID": "holdfast.checkpoints.checkpoint",
    "CheckpointInfo": "holdfast.records",
    "CheckpointNotFound": "holdfast.errors",
    "CheckpointPinned": "holdfast.errors",
    "CheckpointStorage": "holdfast.checkpoints.storage",
    "Condition": "holdfast.orchestrations.agent_workflow.conditions",
    "Content": "holdfast.agents.content",
    "ContextEnded": "holdfast.errors",
    "ConversationConfig": "holdfast.orchestrations.agent_workflow.definition",
    "ConversationNotFound": "holdfast.errors",
    "CopyReport": "holdfast.checkpoints.copying",
    "CursorExpired": "holdfast.errors",
    "DEFAULT_MAX_ITERATIONS": "holdfast.graph.builder",
    "Damage": "holdfast.records",
    "DamagedCheckpoint": "holdfast.errors",
    "DamagedDefinition": "holdfast.errors",
    "DamagedStore": "holdfast.errors",
    "Default": "holdfast.graph.edges",
    "DefinitionInfo": "holdfast.orchestrations.agent_workflow.definitions",
    "DefinitionNotFound": "holdfast.errors",
    "DefinitionStore": "holdfast.orchestrations.agent_workflow.definitions",
    "DuplicateExecutorId": "holdfast.errors",
    "DuplicateRequest": "holdfast.errors",
    "Edge": "holdfast.graph.edges",
    "EdgeCondition": "holdfast.graph.edges",
    "EdgeConfig": "holdfast.orchestrations.agent_workflow.definition",
    "EdgeDuplicationError": "holdfast.errors",
    "EdgeGroup": "holdfast.graph.edges",
    "EncryptedStore": "holdfast.stores.encrypted.store",
    "ErrorConfig": "holdfast.orchestrations.agent_workflow.definition",
    "EventMetadata": "holdfast.orchestrations.agent_workflow.events",
    "ExecutionNotFound": "holdfast.errors",
    "Executor": "holdfast.graph.executor",
    "ExportReport": "holdfast.checkpoints.transfer",
    "FanInEdgeGroup": "holdfast.graph.edges",
    "FanOutEdgeGroup": "holdfast.graph.edges",
    "FileCheckpointStorage": "holdfast.storages",
    "FullHistory": "holdfast.checkpoints.retention",
    "FunctionExecutor": "holdfast.graph.function_executor",
    "FunctionalWorkflow": "holdfast.agents.functions",
    "GraphConnectivityError": "holdfast.errors",
    "HandlerCancelled": "holdfast.errors",
    "HandoffConfig": "holdfast.orchestrations.agent_workflow.definition",
    "HoldfastError": "holdfast.errors",
    "HookContext": "holdfast.engine.hooks",
    "InMemoryCheckpointStorage": "holdfast.storages",
    "InMemorySessionStore": "holdfast.orchestrations.agent_workflow.sessions",
    "IncompatibleWorkflow": "holdfast.errors",
    "InputMismatch": "holdfast.errors",
    "InvalidDefinition": "holdfast.errors",
    "InvalidRun": "holdfast.errors",
    "InvalidSelection": "holdfast.errors",
    "JsonSessionStore": "holdfast.orchestrations.agent_workflow.sessions",
    "KeepFor": "holdfast.checkpoints.retention",
    "KeepLast": "holdfast.checkpoints.retention",
    "KeyProvider": "holdfast.codecs.aes_gcm",
    "LatestOnly": "holdfast.checkpoints.retention",
    "MapConfig": "holdfast.orchestrations.agent_workflow.definition",
    "Message": "holdfast.agents.message",
    "MessageType": "holdfast.records",
    "Migration": "holdfast.checkpoints.migrations",
    "MigrationFailed": "holdfast.errors",
    "MissingExtra": "holdfast.errors",
    "MissingKey": "holdfast.errors",
    "MissingProgram": "holdfast.errors",
    "MissingSecret": "holdfast.errors",
    "MultiAgentCheckpointRetention": "holdfast.orchestrations.agent_workflow.stores",
    "NewerFormat": "holdfast.errors",
    "NoEventLog": "holdfast.errors",
    "NoPendingRequests": "holdfast.errors",
    "NoResponseHandler": "holdfast.errors",
    "NoStorage": "holdfast.errors",
    "NoThreadFile": "holdfast.errors",
    "NodeConfig": "holdfast.orchestrations.agent_workflow.definition",
    "NotCopied": "holdfast.checkpoints.copying",
    "NotInAsyncCode": "holdfast.errors",
    "NotRekeyed": "holdfast.stores.encrypted.rekey",
    "Opaque": "holdfast.codecs.opaque",
    "PendingRequest": "holdfast.records",
    "PickleSerializer": "holdfast.codecs.pickle_codec",
    "PlaintextRefused": "holdfast.errors",
    "PoolExhausted": "holdfast.errors",
    "PostgresCheckpointStorage": "holdfast.storages",
    "PredicateFailed": "holdfast.errors",
    "PruneReport": "holdfast.checkpoints.prune_report",
    "PrunedThread": "holdfast.checkpoints.prune_report",
    "RekeyReport": "holdfast.stores.encrypted.rekey",
    "RequestError": "holdfast.errors",
    "RequestExpired": "holdfast.errors",
    "RequestInfoFunctionArgs": "holdfast.agents.workflow_agent",
    "RequestTerms": "holdfast.events",
    "RequestWithdrawn": "holdfast.errors",
    "ResponseStream": "holdfast.engine.stream",
    "RetryConfig": "holdfast.orchestrations.agent_workflow.definition",
    "RetryPolicy": "holdfast.graph.policy",
    "RunContext": "holdfast.engine.run_context",
    "RunHandle": "holdfast.engine.handle",
    "RunInterrupted": "holdfast.errors",
    "Secret": "holdfast.engine.run_arguments",
    "SessionEntry": "holdfast.orchestrations.agent_workflow.session_log",
    "SessionHead": "holdfast.orchestrations.agent_workflow.session_log",
    "SessionStore": "holdfast.orchestrations.agent_workflow.sessions",
    "SettingsConfig": "holdfast.orchestrations.agent_workflow.definition",
    "SingleEdgeGroup": "holdfast.graph.edges",
    "SkippedThread": "holdfast.checkpoints.prune_report",
    "SqliteCheckpointStorage": "holdfast.storages",
    "SqliteSessionStore": "holdfast.orchestrations.agent_workflow.sessions",
    "StateConflict": "holdfast.errors",
    "StepArgumentsUnsavable": "holdfast.errors",
    "StepNameTaken": "holdfast.errors",
    "StepOutsideWorkflow": "holdfast.errors",
    "StepWrapper": "holdfast.engine.step_function",
    "StorageFailed": "holdfast.errors",
    "StoreUnavailable": "holdfast.errors",
    "StoredDefinition": "holdfast.orchestrations.agent_workflow.definitions",
    "StoredForm": "holdfast.checkpoints.stored_form",
    "StoredLevel": "holdfast.checkpoints.stored_form",
    "SubWorkflowFailed": "holdfast.errors",
    "SubWorkflowRequestMessage": "holdfast.graph.workflow_executor",
    "SubWorkflowResponseMessage": "holdfast.graph.workflow_executor",
    "SupportsAgentRun": "holdfast.agents.base",
    "SwitchCaseEdgeGroup": "holdfast.graph.edges",
    "SwitchCaseEdgeGroupCase": "holdfast.graph.edges",
    "SwitchCaseEdgeGroupDefault": "holdfast.graph.edges",
    "ThreadBusy": "holdfast.errors",
    "ThreadConflict": "holdfast.errors",
    "ThreadExists": "holdfast.errors",
    "ThreadFit": "holdfast.engine.migrating",
    "ThreadFits": "holdfast.engine.migrating",
    "ThreadInfo": "holdfast.records",
    "ThreadNotFound": "holdfast.errors",
    "ThreadNotIdle": "holdfast.errors",
    "TimedOut": "holdfast.errors",
    "Tool": "holdfast.agents.tools",
    "ToolContext": "holdfast.agents.tools",
    "TypeCompatibilityError": "holdfast.errors",
    "UnknownExecutor": "holdfast.errors",
    "UnknownRequest": "holdfast.errors",
    "UnreadableValue": "holdfast.errors",
    "UnsavableValue": "holdfast.errors",
    "UnsupportedId": "holdfast.errors",
    "UsageDetails": "holdfast.agents.content",
    "UsageLimitReached": "holdfast.errors",
    "ValidationTypeEnum": "holdfast.errors",
    "Workflow": "holdfast.agents.workflows",
    "WorkflowAgent": "holdfast.agents.workflow_agent",
    "WorkflowAgentCompletedEvent": "holdfast.orchestrations.agent_workflow.events",
    "WorkflowAgentSkippedEvent": "holdfast.orchestrations.agent_workflow.events",
    "WorkflowAgentStartedEvent": "holdfast.orchestrations.agent_workflow.events",
    "WorkflowApprovalRequestedEvent": "holdfast.orchestrations.agent_workflow.events",
    "WorkflowApprovalResolvedEvent": "holdfast.orchestrations.agent_workflow.events",
    "WorkflowBuilder": "holdfast.agents.workflows",
    "WorkflowCheckpoint": "holdfast.checkpoints.checkpoint",
    "WorkflowCheckpointException": "holdfast.errors",
    "WorkflowCompletedEvent": "holdfast.orchestrations.agent_workflow.events",
    "WorkflowConfig": "holdfast.orchestrations.agent_workflow.definition",
    "WorkflowContext": "holdfast.graph.context",
    "WorkflowConvergenceException": "holdfast.errors",
    "WorkflowDiagnosticEvent": "holdfast.orchestrations.agent_workflow.events",
    "WorkflowEdgeTraversedEvent": "holdfast.orchestrations.agent_workflow.events",
    "WorkflowErrorDetails": "holdfast.events",
    "WorkflowEvent": "holdfast.events",
    "WorkflowEventSource": "holdfast.events",
    "WorkflowEventType": "holdfast.events",
    "WorkflowException": "holdfast.errors",
    "WorkflowExecutor": "holdfast.graph.workflow_executor",
    "WorkflowLayerCompletedEvent": "holdfast.orchestrations.agent_workflow.events",
    "WorkflowLayerStartedEvent": "holdfast.orchestrations.agent_workflow.events",
    "WorkflowMessage": "holdfast.records",
    "WorkflowResult": "holdfast.orchestrations.agent_workflow.result",
    "WorkflowRunResult": "holdfast.engine.result",
    "WorkflowRunState": "holdfast.events",
    "WorkflowRunnerException": "holdfast.errors",
    "WorkflowStartedEvent": "holdfast.orchestrations.agent_workflow.events",
    "WorkflowValidationError": "holdfast.errors",
    "WorkflowViz": "holdfast.graph.drawing.viz",
    "WrongInputType": "holdfast.errors",
    "WrongStateType": "holdfast.errors",
    "add": "holdfast.graph.reducers",
    "append": "holdfast.graph.reducers",
    "condition": "holdfast.orchestrations.agent_workflow",
    "configure_tracing": "holdfast.engine.tracing",
    "copy_store": "holdfast.checkpoints.copying",
    "executor": "holdfast.graph.function_executor",
    "get_run_context": "holdfast.engine.run_context",
    "handler": "holdfast.graph.handlers",
    "merge": "holdfast.graph.reducers",
    "open_store": "holdfast.storages",
    "outcomes_of": "holdfast.graph.drawing.outcomes",
    "register_type": "holdfast.codecs.types",
    "resolve_agent_id": "holdfast.graph.participants",
    "response_handler": "holdfast.graph.handlers",
    "run_sync": "holdfast.engine.sync",
    "step": "holdfast.engine.step_function",
    "tool": "holdfast.agents.tools",
    "validate_workflow_graph": "holdfast.graph.validation",
    "workflow": "holdfast.agents.functions",
}

__all__ = list(_HOME)


if not TYPE_CHECKING:  # checkers take the imports above; with this in sight they would let every misspelt name pass

    def __getattr__(name: str) -> object:
        home = _HOME.get(name)
        if home is None:
            from holdfast.errors import did_you_mean

            raise AttributeError(f"module 'holdfast' has no attribute {name!r}{did_you_mean(name, _HOME)}")
        from importlib import import_module

        value: object = getattr(import_module(home), name)
        globals()[name] = value  # found directly from now on
        return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])


if os.environ.get("HOLDFAST_LOG"):
    from holdfast.log import configure_from_environment

    configure_from_environment()
