"""A graph made ready to run: what every run of it needs and none of them changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.checkpoints.declared import declared_for
from holdfast.engine.routing import Routes
from holdfast.graph.executor import Executor
from holdfast.graph.function_executor import FunctionExecutor
from holdfast.graph.graph import Graph
from holdfast.graph.signature import graph_signature, signature_hash


def _code_of(executor: Executor) -> Any:
    """What the user wrote: the data types beside it may be stored."""
    return executor.func if isinstance(executor, FunctionExecutor) else type(executor)


class Compiled:
    def __init__(self, graph: Graph, allowed_types: Iterable[type | str] = ()) -> None:
        self.graph = graph
        self.routes = Routes(graph)
        self.signature = graph_signature(graph)
        self.signature_hash = signature_hash(self.signature)
        self.hooked = {executor_id: None for executor_id, one in graph.executors.items() if one.saves_state}
        """Executors that have checkpoint hooks; the others are never asked."""
        self.declared = declared_for(graph.annotations, map(_code_of, graph.executors.values()), allowed_types)
