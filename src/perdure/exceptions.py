"""The errors under the module name that users of Agent Framework know; they live in `perdure.errors`."""

from perdure.errors import (
    WorkflowCheckpointException,
    WorkflowConvergenceException,
    WorkflowException,
    WorkflowRunnerException,
    WorkflowValidationError,
)

__all__ = [
    "WorkflowCheckpointException",
    "WorkflowConvergenceException",
    "WorkflowException",
    "WorkflowRunnerException",
    "WorkflowValidationError",
]
