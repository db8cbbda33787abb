"""The errors under the module name that users of Agent Framework know; they live in `holdfast.errors`."""

from holdfast.errors import (
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
