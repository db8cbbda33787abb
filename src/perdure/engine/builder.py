"""WorkflowBuilder: the graph builder whose `build` makes a Workflow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

from perdure.checkpoints.migrations import AnyMigration
from perdure.clock import Clock
from perdure.engine.request import Durability, check_storage
from perdure.engine.workflow import Workflow
from perdure.graph.builder import DEFAULT_MAX_ITERATIONS, Designated, GraphBuilder, Participant
from perdure.graph.reducers import Reducer


class WorkflowBuilder(GraphBuilder):
    """`WorkflowBuilder(start_executor=a).add_edge(a, b).build()`.

    Where executors are expected, agents and functions that make one are accepted too.
    """

    workflow_class: ClassVar[type[Workflow]] = Workflow
    """What it builds."""

    def __init__(
        self,
        max_iterations: int = DEFAULT_MAX_ITERATIONS,
        name: str | None = None,
        description: str | None = None,
        *,
        start_executor: Participant | None = None,
        checkpoint_storage: Any = None,
        output_from: Designated = None,
        intermediate_output_from: Designated = None,
        output_executors: Designated = None,
        state: Mapping[str, Reducer] | None = None,
        allowed_types: Iterable[type | str] = (),
        migrations: Iterable[AnyMigration] = (),
        clock: Clock | None = None,
        durability: Durability = "sync",
    ) -> None:
        super().__init__(
            max_iterations,
            name,
            description,
            start_executor=start_executor,
            output_from=output_from,
            intermediate_output_from=intermediate_output_from,
            output_executors=output_executors,
            state=state,
        )
        self._allowed_types = tuple(allowed_types)
        self._migrations = tuple(migrations)
        self._clock = clock
        self._durability = durability
        self._storage: Any = None
        if checkpoint_storage is not None:
            self.with_checkpointing(checkpoint_storage)

    def with_checkpointing(self, checkpoint_storage: Any) -> Self:
        """Save a checkpoint after every superstep. Any class with the six methods of CheckpointStorage will do."""
        check_storage(checkpoint_storage)
        self._storage = checkpoint_storage
        return self

    def build(self) -> Workflow:
        """Check the graph and make the workflow. Raises WorkflowValidationError."""
        return self.workflow_class(
            self.graph(),
            self._storage,
            allowed_types=self._allowed_types,
            migrations=self._migrations,
            clock=self._clock,
            durability=self._durability,
        )
