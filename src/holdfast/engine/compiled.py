"""A graph made ready to run: what every run of it needs and none of them changes."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.checkpoints.declared import declared_for
from holdfast.engine.routing import Routes
from holdfast.graph.graph import Graph
from holdfast.graph.signature import graph_signature, signature_hash


class Compiled:
    def __init__(self, graph: Graph, allowed_types: Iterable[type | str] = ()) -> None:
        self.graph = graph
        self.routes = Routes(graph)
        self.signature = graph_signature(graph)
        self.signature_hash = signature_hash(self.signature)
        self.hooked = tuple(executor_id for executor_id, one in graph.executors.items() if one.saves_state)
        """Executors that have checkpoint hooks; the others are never asked."""
        self.declared = declared_for(graph.annotations, map(type, graph.executors.values()), allowed_types)
