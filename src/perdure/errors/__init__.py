"""Every error that perdure raises. A message gives the failure, its reason, and the remedy.

PerdureError
├── WorkflowException                          about a workflow or one of its threads
│   ├── WorkflowValidationError                the graph is invalid (raised by `build`)
│   │   ├── EdgeDuplicationError
│   │   ├── TypeCompatibilityError
│   │   ├── GraphConnectivityError
│   │   └── DuplicateExecutorId                (also ValueError)
│   ├── DefinitionNotFound                     (also LookupError)
│   ├── DamagedDefinition
│   ├── InvalidDefinition                      a workflow of agents, or its document, is invalid (also ValueError)
│   ├── InvalidRun                             a call of `run` without meaning (also ValueError)
│   │   ├── NoStorage
│   │   ├── NoEventLog
│   │   └── UnknownExecutor
│   ├── RequestError                           about a request for input
│   │   ├── NoPendingRequests                  (also RuntimeError)
│   │   ├── UnknownRequest                     (also ValueError)
│   │   ├── AlreadyAnswered                    (also ValueError)
│   │   ├── AnswerRejected                     (also ValueError)
│   │   ├── DuplicateRequest                   (also ValueError)
│   │   ├── NoResponseHandler                  (also ValueError)
│   │   ├── RequestExpired
│   │   └── RequestWithdrawn
│   └── WorkflowRunnerException                a run could not start or continue
│       ├── ContextEnded                       (also RuntimeError)
│       ├── HandlerCancelled                   (also RuntimeError)
│       ├── TimedOut                           (also TimeoutError)
│       ├── ApprovalTimedOut                   (also TimeoutError)
│       ├── PredicateFailed                    (also ValueError)
│       ├── InputMismatch                      (also ValueError)
│       ├── SubWorkflowFailed
│       ├── StepOutsideWorkflow                (also RuntimeError)
│       ├── StepNameTaken                      (also ValueError)
│       ├── WrongInputType                     (also RuntimeError)
│       ├── InvalidSelection                   (also RuntimeError)
│       ├── WorkflowConvergenceException
│       ├── StateConflict
│       ├── MissingSecret
│       ├── ThreadBusy                         (also RuntimeError)
│       ├── RunInterrupted                     (also RuntimeError)
│       ├── ThreadNotIdle                      (also RuntimeError)
│       ├── ThreadConflict
│       ├── CursorExpired
│       └── WorkflowCheckpointException        saving or loading
│           ├── CheckpointNotFound
│           ├── CheckpointPinned                   (also ValueError)
│           ├── ThreadNotFound
│           │   └── ExecutionNotFound
│           ├── ConversationNotFound
│           ├── ThreadExists                       (also ValueError)
│           ├── WrongStateType                     (also TypeError)
│           ├── NoThreadFile                       (also ValueError)
│           ├── IncompatibleWorkflow
│           ├── MigrationFailed
│           ├── DamagedCheckpoint
│           ├── DamagedStore
│           ├── NewerFormat
│           ├── CheckpointHookFailed
│           ├── StorageFailed
│           │   ├── StoreUnavailable               (also ConnectionError)
│           │   └── PoolExhausted                  (also TimeoutError)
│           ├── UnsupportedId                      (also ValueError)
│           ├── MissingKey
│           ├── PlaintextRefused
│           ├── UnsavableValue                 (also TypeError)
│           │   └── StepArgumentsUnsavable
│           └── UnreadableValue
├── AgentFailed                                a turn of an agent did not finish (also RuntimeError)
│   ├── AnswerNotUsable                        (also ValueError)
│   └── UsageLimitReached
├── MissingExtra                               an optional dependency is not installed (also ImportError)
├── MissingProgram                             a program outside of perdure is missing (also RuntimeError)
└── NotInAsyncCode                             `run_sync` inside a running event loop (also RuntimeError)
"""

from __future__ import annotations

from perdure.errors.agents import (
    AgentFailed,
    AnswerNotUsable,
    ApprovalTimedOut,
    ConversationNotFound,
    DamagedDefinition,
    DefinitionNotFound,
    ExecutionNotFound,
    InputMismatch,
    InvalidDefinition,
    PredicateFailed,
    UsageLimitReached,
)
from perdure.errors.base import (
    MissingExtra,
    MissingProgram,
    NotInAsyncCode,
    PerdureError,
    WorkflowException,
    did_you_mean,
    type_name,
    type_names,
)
from perdure.errors.checkpoints import (
    CheckpointHookFailed,
    CheckpointNotFound,
    CheckpointPinned,
    DamagedCheckpoint,
    DamagedStore,
    IncompatibleWorkflow,
    MigrationFailed,
    MissingKey,
    NewerFormat,
    NoThreadFile,
    PlaintextRefused,
    PoolExhausted,
    StepArgumentsUnsavable,
    StorageFailed,
    StoreUnavailable,
    ThreadExists,
    ThreadNotFound,
    UnreadableValue,
    UnsavableValue,
    UnsupportedId,
    WorkflowCheckpointException,
    WrongStateType,
)
from perdure.errors.graph import (
    DuplicateExecutorId,
    EdgeDuplicationError,
    GraphConnectivityError,
    TypeCompatibilityError,
    ValidationTypeEnum,
    WorkflowValidationError,
)
from perdure.errors.requests import (
    AlreadyAnswered,
    AnswerRejected,
    DuplicateRequest,
    InvalidRun,
    NoEventLog,
    NoPendingRequests,
    NoResponseHandler,
    NoStorage,
    RequestError,
    RequestExpired,
    RequestWithdrawn,
    UnknownExecutor,
    UnknownRequest,
)
from perdure.errors.running import (
    ContextEnded,
    CursorExpired,
    HandlerCancelled,
    InvalidSelection,
    MissingSecret,
    RunInterrupted,
    StateConflict,
    StepNameTaken,
    StepOutsideWorkflow,
    SubWorkflowFailed,
    ThreadBusy,
    ThreadConflict,
    ThreadNotIdle,
    TimedOut,
    WorkflowConvergenceException,
    WorkflowRunnerException,
    WrongInputType,
)

__all__ = [
    "AgentFailed",
    "AlreadyAnswered",
    "AnswerNotUsable",
    "AnswerRejected",
    "ApprovalTimedOut",
    "CheckpointHookFailed",
    "CheckpointNotFound",
    "CheckpointPinned",
    "ContextEnded",
    "ConversationNotFound",
    "CursorExpired",
    "DamagedCheckpoint",
    "DamagedDefinition",
    "DamagedStore",
    "DefinitionNotFound",
    "DuplicateExecutorId",
    "DuplicateRequest",
    "EdgeDuplicationError",
    "ExecutionNotFound",
    "GraphConnectivityError",
    "HandlerCancelled",
    "IncompatibleWorkflow",
    "InputMismatch",
    "InvalidDefinition",
    "InvalidRun",
    "InvalidSelection",
    "MigrationFailed",
    "MissingExtra",
    "MissingKey",
    "MissingProgram",
    "MissingSecret",
    "NewerFormat",
    "NoEventLog",
    "NoPendingRequests",
    "NoResponseHandler",
    "NoStorage",
    "NoThreadFile",
    "NotInAsyncCode",
    "PerdureError",
    "PlaintextRefused",
    "PoolExhausted",
    "PredicateFailed",
    "RequestError",
    "RequestExpired",
    "RequestWithdrawn",
    "RunInterrupted",
    "StateConflict",
    "StepArgumentsUnsavable",
    "StepNameTaken",
    "StepOutsideWorkflow",
    "StorageFailed",
    "StoreUnavailable",
    "SubWorkflowFailed",
    "ThreadBusy",
    "ThreadConflict",
    "ThreadExists",
    "ThreadNotFound",
    "ThreadNotIdle",
    "TimedOut",
    "TypeCompatibilityError",
    "UnknownExecutor",
    "UnknownRequest",
    "UnreadableValue",
    "UnsavableValue",
    "UnsupportedId",
    "UsageLimitReached",
    "ValidationTypeEnum",
    "WorkflowCheckpointException",
    "WorkflowConvergenceException",
    "WorkflowException",
    "WorkflowRunnerException",
    "WorkflowValidationError",
    "WrongInputType",
    "WrongStateType",
    "did_you_mean",
    "type_name",
    "type_names",
]

# Tracebacks, spans and pickles name an error by its public module, wherever the class is defined.
for _name in __all__:
    globals()[_name].__module__ = __name__
