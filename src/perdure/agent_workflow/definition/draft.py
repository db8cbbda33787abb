"""What a builder has gathered so far: the definition, and the objects that only Python has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import msgspec

from perdure.agent_workflow.definition.config import (
    EdgeConfig,
    HandoffConfig,
    NodeConfig,
    SettingsConfig,
    WorkflowConfig,
)
from perdure.agents.tools import Tool
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.clock import Clock
from perdure.errors import InvalidDefinition
from perdure.graph.policy import RetryPolicy


@dataclass
class NodeDraft:
    """A node, with its Python objects."""

    config: NodeConfig = field(default_factory=NodeConfig)
    agent: Any = None
    workflow: Any = None
    """An AgentWorkflowInstance."""
    types: tuple[type, ...] = ()
    tools: tuple[Tool, ...] = ()
    needs_approval: Callable[..., bool] | None = None
    retry: RetryPolicy | None = None
    """A policy that a document cannot express."""


@dataclass
class EdgeDraft:
    config: EdgeConfig
    predicate: Callable[..., bool] | None = None


class NodeLink(NamedTuple):
    """A way from a node to the next one."""

    source: str
    target: str
    kind: Literal["edge", "handoff", "default_handoff", "fallback"]
    edge: EdgeDraft | None = None
    handoff: HandoffConfig | None = None


@dataclass
class Draft:
    """Shared and changed by every builder of one `AgentWorkflow.create()`."""

    name: str = ""
    """Empty: built from the nodes' ids."""
    version: str = "1.0.0"
    description: str | None = None
    nodes: dict[str, NodeDraft] = field(default_factory=dict)
    edges: list[EdgeDraft] = field(default_factory=list)
    settings: SettingsConfig = field(default_factory=SettingsConfig)
    store: StoreCheckpointStorage | None = None
    session_store: Any = None
    clock: Clock | None = None
    number: int | None = None
    """The number of the stored definition that it was loaded from."""
    source: str | None = None
    """The file that it was read from."""
    durability: Any = "sync"

    @classmethod
    def from_config(cls, config: WorkflowConfig, source: str | None = None) -> Draft:
        return Draft(
            name=config.name,
            version=config.version,
            description=config.description,
            nodes={node_id: NodeDraft(node) for node_id, node in config.agents.items()},
            edges=[EdgeDraft(edge) for edge in config.edges],
            settings=config.settings,
            source=source,
        )

    def to_config(self) -> WorkflowConfig:
        """The definition, without the objects that only Python has."""
        return WorkflowConfig(
            name=self.name,
            version=self.version,
            description=self.description,
            agents={node_id: node.config for node_id, node in self.nodes.items()},
            edges=tuple(edge.config for edge in self.edges),
            settings=self.settings,
        )

    def copy(self) -> Draft:
        """A copy: later changes of the builder do not affect built workflows."""
        nodes = {node_id: replace(node) for node_id, node in self.nodes.items()}
        return replace(self, nodes=nodes, edges=[replace(edge) for edge in self.edges])

    def add(self, node_id: str, node: NodeDraft) -> NodeDraft:
        """Raises InvalidDefinition if a node has this id already."""
        if node_id in self.nodes:
            raise InvalidDefinition([(f"agents.{node_id}", "a node with this id exists already. Use another id")])
        self.nodes[node_id] = node
        return node

    def links(self) -> Iterator[NodeLink]:
        """All edges, then the handoffs and the fallback of each node."""
        for edge in self.edges:
            yield NodeLink(edge.config.source, edge.config.target, "edge", edge)
        for node_id, node in self.nodes.items():
            config = node.config
            for handoff in config.handoffs:
                yield NodeLink(node_id, handoff.target, "handoff", handoff=handoff)
            if config.default_handoff is not None:
                yield NodeLink(node_id, config.default_handoff, "default_handoff")
            if config.on_error.mode == "fallback" and config.on_error.fallback is not None:
                yield NodeLink(node_id, config.on_error.fallback, "fallback")

    def change_settings(self, **changes: Any) -> None:
        self.settings = msgspec.structs.replace(self.settings, **changes)
