"""Errors of `build`: the graph is invalid."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from perdure.errors.base import WorkflowException, type_names


class ValidationTypeEnum(Enum):
    """What is wrong with a graph that `build` rejects."""

    EDGE_DUPLICATION = "EDGE_DUPLICATION"
    EXECUTOR_DUPLICATION = "EXECUTOR_DUPLICATION"
    TYPE_COMPATIBILITY = "TYPE_COMPATIBILITY"
    GRAPH_CONNECTIVITY = "GRAPH_CONNECTIVITY"
    HANDLER_OUTPUT_ANNOTATION = "HANDLER_OUTPUT_ANNOTATION"
    OUTPUT_VALIDATION = "OUTPUT_VALIDATION"


class WorkflowValidationError(WorkflowException):
    code = "validation"

    def __init__(self, message: str, validation_type: ValidationTypeEnum) -> None:
        self.message = message
        self.validation_type = validation_type
        super().__init__(f"[{validation_type.value}] {message}")


class EdgeDuplicationError(WorkflowValidationError):
    code = "edge_duplication"

    def __init__(self, edge_id: str) -> None:
        self.edge_id = edge_id
        super().__init__(
            f"The edge {edge_id!r} was added twice. Remove one of the calls; to send by "
            "condition, give one switch-case group instead of several edges to one target.",
            ValidationTypeEnum.EDGE_DUPLICATION,
        )


class TypeCompatibilityError(WorkflowValidationError):
    code = "type_compatibility"

    def __init__(
        self,
        source_executor_id: str,
        target_executor_id: str,
        source_types: Sequence[object],
        target_types: Sequence[object],
    ) -> None:
        self.source_executor_id = source_executor_id
        self.target_executor_id = target_executor_id
        self.source_types = list(source_types)
        self.target_types = list(target_types)
        super().__init__(
            f"{source_executor_id!r} sends {type_names(source_types)}, but {target_executor_id!r} accepts only "
            f"{type_names(target_types)}. Add a handler for one of these types to {target_executor_id!r}, or "
            f"correct the annotation of {source_executor_id!r}'s context.",
            ValidationTypeEnum.TYPE_COMPATIBILITY,
        )


class GraphConnectivityError(WorkflowValidationError):
    code = "graph_connectivity"

    def __init__(self, message: str) -> None:
        super().__init__(message, ValidationTypeEnum.GRAPH_CONNECTIVITY)


class DuplicateExecutorId(WorkflowValidationError, ValueError):
    code = "duplicate_executor_id"

    def __init__(self, executor_id: str) -> None:
        self.executor_id = executor_id
        super().__init__(
            f"Two different executors have the id {executor_id!r}. Give one of them another `id=`; "
            "checkpoints find an executor's state by it.",
            ValidationTypeEnum.EXECUTOR_DUPLICATION,
        )
