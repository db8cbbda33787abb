"""A graph made ready to run: what every run of it needs and none of them changes."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.checkpoints.encoding.checkpoint import codec_for, declared_for
from perdure.checkpoints.migration.migrations import AnyMigration, Migrations, Migrator
from perdure.codec import Codec
from perdure.engine.superstep.routing import Routes
from perdure.graph.graph import Graph
from perdure.graph.signature import graph_signature, signature_hash
from perdure.graph.sub_workflow import WorkflowExecutor


class Compiled:
    def __init__(
        self,
        graph: Graph,
        allowed_types: Iterable[type | str] = (),
        migrations: Iterable[AnyMigration] = (),
    ) -> None:
        self.graph = graph
        self.migrations = Migrations(migrations)
        self.routes = Routes(graph)
        self.signature = graph_signature(graph)
        self.signature_hash = signature_hash(self.signature)
        self.hooked = {executor_id: None for executor_id, one in graph.executors.items() if one.saves_state}
        """Executors that have checkpoint hooks; the others are never asked."""
        self.children = {
            executor_id: Compiled(one.graph, getattr(one.workflow, "allowed_types", ()))
            for executor_id, one in graph.executors.items()
            if isinstance(one, WorkflowExecutor)
        }
        self.has_hooks: bool = bool(self.hooked) or any(child.has_hooks for child in self.children.values())
        """Here or in any sub-workflow."""
        self.declared = declared_for(graph.annotations, (one.code for one in graph.executors.values()), allowed_types)
        for child in self.children.values():
            self.declared = self.declared.union(child.declared)
        self._codec: Codec | None = None

    def migrator(self, *, force: bool = False) -> Migrator:
        """For one run: brings what is stored of its thread to this graph."""
        return Migrator(self.migrations, self.graph.name, self.signature, signature_hash, force=force)

    @property
    def codec(self) -> Codec:
        """For digests where there is no storage, and so no codec of its own."""
        if self._codec is None:
            self._codec = codec_for(self.declared)
        return self._codec
