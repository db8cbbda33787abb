"""perdure: durable agent workflows. The public names, imported when they are first used, and nothing else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.agent_workflow.public import *  # noqa: F403  # each import of it is public
    from perdure.agents.base import (
        BaseAgent as BaseAgent,
        SupportsAgentRun as SupportsAgentRun,
        resolve_agent_id as resolve_agent_id,
    )
    from perdure.agents.conversation.content import Content as Content
    from perdure.agents.conversation.content_fields import UsageDetails as UsageDetails
    from perdure.agents.conversation.message import AgentSession as AgentSession, Message as Message
    from perdure.agents.conversation.response import AgentResponse as AgentResponse
    from perdure.agents.conversation.update import AgentResponseUpdate as AgentResponseUpdate
    from perdure.agents.executor import (
        AgentExecutor as AgentExecutor,
        AgentExecutorRequest as AgentExecutorRequest,
        AgentExecutorResponse as AgentExecutorResponse,
    )
    from perdure.agents.pydantic.agent import Agent as Agent
    from perdure.agents.recording import ApprovalResponse as ApprovalResponse
    from perdure.agents.tools import Tool as Tool, ToolContext as ToolContext, tool as tool
    from perdure.checkpoints.any_storage import CheckpointStorage as CheckpointStorage
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
    from perdure.checkpoints.storage import StoreCheckpointStorage as StoreCheckpointStorage
    from perdure.checkpoints.transfer.copy_store import (
        CopyReport as CopyReport,
        NotCopied as NotCopied,
        copy_store as copy_store,
    )
    from perdure.checkpoints.transfer.threads import ExportReport as ExportReport
    from perdure.codecs.aes_gcm import AesGcm as AesGcm, KeyProvider as KeyProvider
    from perdure.codecs.builtin_types import Opaque as Opaque
    from perdure.codecs.pickle_codec import PickleSerializer as PickleSerializer
    from perdure.codecs.types import register_type as register_type
    from perdure.engine.delivery.executor_state import HookContext as HookContext
    from perdure.engine.functions import (
        RunContext as RunContext,
        StepWrapper as StepWrapper,
        get_run_context as get_run_context,
        step as step,
    )
    from perdure.engine.run.request import RunOptions as RunOptions
    from perdure.engine.run.run import WorkflowRunResult as WorkflowRunResult
    from perdure.engine.run.stream import ResponseStream as ResponseStream, run_sync as run_sync
    from perdure.engine.thread.level import (
        Secret as Secret,
        WorkflowInvocationKwargs as WorkflowInvocationKwargs,
    )
    from perdure.engine.tracing import configure_tracing as configure_tracing
    from perdure.errors.base import *  # noqa: F403  # each error is public
    from perdure.errors.running import *  # noqa: F403  # as above
    from perdure.events import (
        RequestTerms as RequestTerms,
        WorkflowErrorDetails as WorkflowErrorDetails,
        WorkflowEvent as WorkflowEvent,
        WorkflowEventSource as WorkflowEventSource,
        WorkflowEventType as WorkflowEventType,
        WorkflowRunState as WorkflowRunState,
    )
    from perdure.graph.context import WorkflowContext as WorkflowContext
    from perdure.graph.drawing.picture import outcomes_of as outcomes_of
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
    from perdure.graph.executor import Executor as Executor, FunctionExecutor as FunctionExecutor, executor as executor
    from perdure.graph.graph import (
        SubWorkflowRequestMessage as SubWorkflowRequestMessage,
        SubWorkflowResponseMessage as SubWorkflowResponseMessage,
        WorkflowExecutor as WorkflowExecutor,
    )
    from perdure.graph.handlers import handler as handler, response_handler as response_handler
    from perdure.graph.policy import RetryPolicy as RetryPolicy, add as add, append as append, merge as merge
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
    from perdure.workflows.agent import WorkflowAgent as WorkflowAgent
    from perdure.workflows.agent_output import RequestInfoFunctionArgs as RequestInfoFunctionArgs
    from perdure.workflows.builder import (
        DEFAULT_MAX_ITERATIONS as DEFAULT_MAX_ITERATIONS,
        WorkflowBuilder as WorkflowBuilder,
    )
    from perdure.workflows.functions import (
        FunctionalWorkflow as FunctionalWorkflow,
        FunctionalWorkflowAgent as FunctionalWorkflowAgent,
        FunctionalWorkflowDefinition as FunctionalWorkflowDefinition,
        workflow as workflow,
    )
    from perdure.workflows.handle import RunHandle as RunHandle
    from perdure.workflows.migration_check import ThreadFit as ThreadFit, ThreadFits as ThreadFits
    from perdure.workflows.workflow import Workflow as Workflow

__version__ = "0.1.0"

# Where each public name lives. The imports above show the same names to type checkers and editors;
# tests/test_public_names.py keeps the two alike.
_NAMES = {
    "perdure.agent_workflow.builder.node": "AgentNodeOptions",
    "perdure.agent_workflow.builder.workflow": "AgentWorkflow",
    "perdure.agent_workflow": "condition",
    "perdure.agent_workflow.condition": "Condition",
    "perdure.agent_workflow.definition": (
        "AgentConfig ApprovalConfig ConversationConfig EdgeConfig ErrorConfig HandoffConfig MapConfig NodeConfig "
        "RetryConfig SettingsConfig WorkflowConfig"
    ),
    "perdure.agent_workflow.events": (
        "AgentWorkflowEvent EventMetadata WorkflowAgentCompletedEvent WorkflowAgentSkippedEvent "
        "WorkflowAgentStartedEvent WorkflowApprovalRequestedEvent WorkflowApprovalResolvedEvent "
        "WorkflowCompletedEvent WorkflowDiagnosticEvent WorkflowEdgeTraversedEvent WorkflowLayerCompletedEvent "
        "WorkflowLayerStartedEvent WorkflowStartedEvent"
    ),
    "perdure.agent_workflow.execution.execution": "WorkflowResult",
    "perdure.agent_workflow.execution.node": "ApprovalContext ApprovalDecision ApprovalRequest",
    "perdure.agent_workflow.instance": "AgentWorkflowInstance",
    "perdure.agent_workflow.sessions": (
        "InMemorySessionStore JsonSessionStore SessionEntry SessionHead SessionStore SqliteSessionStore "
        "StorageSessionStore"
    ),
    "perdure.agent_workflow.store": "DefinitionInfo DefinitionStore MultiAgentCheckpointRetention StoredDefinition",
    "perdure.agents.base": "BaseAgent SupportsAgentRun resolve_agent_id",
    "perdure.agents.conversation.content": "Content",
    "perdure.agents.conversation.content_fields": "UsageDetails",
    "perdure.agents.conversation.message": "AgentSession Message",
    "perdure.agents.conversation.response": "AgentResponse",
    "perdure.agents.conversation.update": "AgentResponseUpdate",
    "perdure.agents.executor": "AgentExecutor AgentExecutorRequest AgentExecutorResponse",
    "perdure.agents.pydantic.agent": "Agent",
    "perdure.agents.recording": "ApprovalResponse",
    "perdure.agents.tools": "Tool ToolContext tool",
    "perdure.checkpoints.checkpoint": "CheckpointID WorkflowCheckpoint",
    "perdure.checkpoints.history.branches": "Branch Branches",
    "perdure.checkpoints.history.diff": "Change CheckpointDiff",
    "perdure.checkpoints.history.pruning": "PruneReport PrunedThread SkippedThread",
    "perdure.checkpoints.history.retention": "FullHistory KeepFor KeepLast LatestOnly",
    "perdure.checkpoints.migration.migrations": "Migration",
    "perdure.checkpoints.migration.stored_form": "StoredForm StoredLevel",
    "perdure.checkpoints.any_storage": "CheckpointStorage",
    "perdure.checkpoints.storage": "StoreCheckpointStorage",
    "perdure.checkpoints.transfer.copy_store": "CopyReport NotCopied copy_store",
    "perdure.checkpoints.transfer.threads": "ExportReport",
    "perdure.codecs.aes_gcm": "AesGcm KeyProvider",
    "perdure.codecs.builtin_types": "Opaque",
    "perdure.codecs.pickle_codec": "PickleSerializer",
    "perdure.codecs.types": "register_type",
    "perdure.engine.delivery.executor_state": "HookContext",
    "perdure.engine.functions": "RunContext StepWrapper get_run_context step",
    "perdure.engine.run.request": "RunOptions",
    "perdure.engine.run.run": "WorkflowRunResult",
    "perdure.engine.run.stream": "ResponseStream run_sync",
    "perdure.engine.thread.level": "Secret WorkflowInvocationKwargs",
    "perdure.engine.tracing": "configure_tracing",
    "perdure.errors": (
        "AgentFailed AlreadyAnswered AnswerNotUsable AnswerRejected ApprovalTimedOut CheckpointHookFailed "
        "CheckpointNotFound CheckpointPinned ContextEnded ConversationNotFound CursorExpired DamagedCheckpoint "
        "DamagedDefinition DamagedStore DefinitionNotFound DuplicateExecutorId DuplicateRequest EdgeDuplicationError "
        "ExecutionNotFound GraphConnectivityError HandlerCancelled IncompatibleWorkflow InputMismatch "
        "InvalidDefinition InvalidFunction InvalidRun InvalidSelection MigrationFailed MissingExtra MissingKey "
        "MissingProgram MissingSecret NewerFormat NoEventLog NoPendingRequests NoResponseHandler NoStorage "
        "NoThreadFile NotInAsyncCode PerdureError PlaintextRefused PoolExhausted PredicateFailed RequestError "
        "RequestExpired RequestWithdrawn RunInterrupted StateConflict StepArgumentsUnsavable StepNameTaken "
        "StorageFailed StoreUnavailable SubWorkflowFailed ThreadBusy ThreadConflict ThreadExists ThreadNotFound "
        "ThreadNotIdle TimedOut TypeCompatibilityError UnknownExecutor UnknownRequest UnreadableValue UnsavableValue "
        "UnsupportedId UsageLimitReached ValidationTypeEnum WorkflowCheckpointException WorkflowConvergenceException "
        "WorkflowException WorkflowRunnerException WorkflowValidationError WrongInputType WrongStateType"
    ),
    "perdure.events": (
        "RequestTerms WorkflowErrorDetails WorkflowEvent WorkflowEventSource WorkflowEventType WorkflowRunState"
    ),
    "perdure.graph.context": "WorkflowContext",
    "perdure.graph.drawing.picture": "outcomes_of",
    "perdure.graph.drawing.viz": "WorkflowViz",
    "perdure.graph.edges": (
        "Case Default Edge EdgeCondition EdgeGroup FanInEdgeGroup FanOutEdgeGroup SingleEdgeGroup SwitchCaseEdgeGroup "
        "SwitchCaseEdgeGroupCase SwitchCaseEdgeGroupDefault"
    ),
    "perdure.graph.executor": "Executor FunctionExecutor executor",
    "perdure.graph.graph": "SubWorkflowRequestMessage SubWorkflowResponseMessage WorkflowExecutor",
    "perdure.graph.handlers": "handler response_handler",
    "perdure.graph.policy": "RetryPolicy add append merge",
    "perdure.graph.validation": "validate_workflow_graph",
    "perdure.records": "CheckpointInfo Damage MessageType PendingRequest ThreadInfo WorkflowMessage",
    "perdure.storages": (
        "FileCheckpointStorage InMemoryCheckpointStorage PostgresCheckpointStorage SqliteCheckpointStorage open_store"
    ),
    "perdure.stores.encrypted.keys": "NotRekeyed RekeyReport",
    "perdure.stores.encrypted.store": "EncryptedStore",
    "perdure.stores.memory.store": "MemoryStore",
    "perdure.workflows.agent": "WorkflowAgent",
    "perdure.workflows.agent_output": "RequestInfoFunctionArgs",
    "perdure.workflows.builder": "DEFAULT_MAX_ITERATIONS WorkflowBuilder",
    "perdure.workflows.functions": "FunctionalWorkflow FunctionalWorkflowAgent FunctionalWorkflowDefinition workflow",
    "perdure.workflows.handle": "RunHandle",
    "perdure.workflows.migration_check": "ThreadFit ThreadFits",
    "perdure.workflows.workflow": "Workflow",
}
_HOME = dict(sorted((name, home) for home, names in _NAMES.items() for name in names.split()))

__all__ = list(_HOME)


if not TYPE_CHECKING:  # checkers take the imports above; with this in sight they would let every misspelt name pass

    def __getattr__(name: str) -> object:
        from perdure.names import lazy_exports

        find, _ = lazy_exports(__name__, _HOME)
        return find(name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])


if os.environ.get("PERDURE_LOG"):
    from perdure.log import configure_from_environment

    configure_from_environment()
