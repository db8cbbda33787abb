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

import re

from perdure.errors.base import *  # noqa: F403  # each error is public
from perdure.errors.running import *  # noqa: F403  # as above
from perdure.errors.wording import did_you_mean as did_you_mean, type_name as type_name, type_names as type_names

__all__ = [
    name
    for name, value in globals().items()
    if not name.startswith("_") and getattr(value, "__module__", "").startswith(f"{__name__}.")
]


def _publish(name: str) -> None:
    """Give an error its public module, which tracebacks, spans and pickles name, and the code of its name."""
    value = globals()[name]
    value.__module__ = __name__
    if isinstance(value, type) and issubclass(value, PerdureError) and "code" not in vars(value):  # noqa: F405
        value.code = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


for _name in __all__:
    _publish(_name)
