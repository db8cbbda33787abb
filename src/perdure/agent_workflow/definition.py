"""A workflow of agents as data: the content of a document, and what a builder has gathered of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from perdure.agent_workflow.condition import Condition
from perdure.agents.tools import Tool
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.clock import Clock
from perdure.errors import InvalidDefinition
from perdure.graph.policy import LONGEST, RetryPolicy

OutputMode: TypeAlias = Literal["string", "structured", "union", "handoff"]
StructuredMode: TypeAlias = Literal["native", "tool"]
ErrorMode: TypeAlias = Literal["stop", "skip", "isolate", "fallback"]
TimeoutBehavior: TypeAlias = Literal["fail", "auto_approve", "suspend"]
RetryStrategy: TypeAlias = Literal["constant", "linear", "exponential", "jittered"]
ConversationMode: TypeAlias = Literal["none", "shared", "per_agent", "fork_per_agent"]
MapErrors: TypeAlias = Literal["fail", "null", "omit"]

Name: TypeAlias = Annotated[str, Meta(pattern=r"\S", description="a text that is not empty")]
ImportPath: TypeAlias = Annotated[str, Meta(description="an import path such as 'package.module:name'")]
Count: TypeAlias = Annotated[int, Meta(ge=1, description="a positive integer")]
Duration: TypeAlias = Annotated[
    float, Meta(gt=0, le=LONGEST, description="a positive number of seconds, at most a century")
]
Delay: TypeAlias = Annotated[float, Meta(ge=0, le=LONGEST, description="a number of seconds, from 0 to a century")]

FORMAT = "1"
"""The format of documents. perdure rejects a newer format."""
START, END = "START", "END"
"""In the place of a node's id: the input of the execution, and its end."""
ANSWER = "answer"
"""The output of a node without an output key."""


class DefinitionPart(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """A part of a document. Unknown fields are errors. Durations are seconds."""


class AgentConfig(DefinitionPart, frozen=True):
    """An agent of `perdure.agents.Agent`, created with the workflow. Needs the extra `agents`."""

    model: Name | None = None
    """A model name of pydantic-ai; None: the workflow's model, `settings.model`."""
    name: str | None = None
    """None: the node's id."""
    instructions: str | None = None
    description: str | None = None
    tools: tuple[str, ...] = ()
    """Import paths: `package.module:function`."""
    model_settings: dict[str, Any] = {}

    def with_model(self, model: str) -> AgentConfig:
        return msgspec.structs.replace(self, model=model)

    def with_name(self, name: str) -> AgentConfig:
        return msgspec.structs.replace(self, name=name)

    def with_instructions(self, instructions: str) -> AgentConfig:
        return msgspec.structs.replace(self, instructions=instructions)

    def with_description(self, description: str) -> AgentConfig:
        return msgspec.structs.replace(self, description=description)

    def with_tools(self, *tools: str) -> AgentConfig:
        """By import path."""
        return msgspec.structs.replace(self, tools=(*self.tools, *tools))

    def with_model_settings(self, **settings: Any) -> AgentConfig:
        return msgspec.structs.replace(self, model_settings={**self.model_settings, **settings})


class RetryConfig(DefinitionPart, frozen=True):
    """The retries of a node."""

    max_attempts: Count = 3
    """Includes the first attempt."""
    initial_delay: Delay = 1.0
    strategy: RetryStrategy = "exponential"
    max_delay: Delay | None = None
    only_transient: bool = False
    """Retry only transient errors: timeouts, broken connections, busy services."""


class ErrorConfig(DefinitionPart, frozen=True):
    """The effect of a node's failure."""

    mode: ErrorMode = "stop"
    fallback: str | None = None
    """The node that replaces the failed node, with `mode="fallback"`."""


class ApprovalConfig(DefinitionPart, frozen=True):
    """An approval of the agent's output, before other nodes use it."""

    message: str = "Approve?"
    description: str | None = None
    when: Condition | None = None
    """A condition on the node's outputs; None: always, unless there is a predicate."""
    predicate: str | None = None
    """The import path of a function of an ApprovalContext."""
    timeout: Delay | None = None
    """None or 0: it waits without limit."""
    timeout_behavior: TimeoutBehavior = "fail"


class MapConfig(DefinitionPart, frozen=True):
    """The agent runs once for each item of a list."""

    over: Name
    """The key of the list."""
    max_parallel: Count = 4
    on_error: MapErrors = "fail"
    """The effect of a failed item: the node fails, the output has null for it, or the output omits it."""


class HandoffConfig(DefinitionPart, frozen=True):
    """A node that a router may hand off to."""

    target: str
    description: str | None = None


class NodeConfig(DefinitionPart, frozen=True):
    """One node: its agent, its inputs and outputs, and its handling of failures."""

    agent: AgentConfig | ImportPath | None = None
    """The config of the agent, or its import path. None for an agent object."""
    workflow: WorkflowConfig | ImportPath | None = None
    """Instead of an agent: a workflow, or its import path."""
    output_mode: OutputMode = "string"
    output_types: tuple[str, ...] = ()
    """Import paths of the types of structured and union outputs."""
    structured_mode: StructuredMode = "tool"
    input_key: Name | None = None
    output_key: Name | None = None
    input_template: str | None = None
    instructions: str | None = None
    """Added to the agent's own instructions."""
    context: dict[str, Any] = {}
    """Values that the agent gets with its input, by name."""
    tools: tuple[str, ...] = ()
    """Import paths of functions that the agent may call here, beside its own tools."""
    timeout: Duration | None = None
    """Of one attempt."""
    max_concurrent: Count | None = None
    """How many executions of one process may run this node at the same time."""
    retry: RetryConfig | None = None
    on_error: ErrorConfig = ErrorConfig()
    approval: ApprovalConfig | None = None
    handoffs: tuple[HandoffConfig, ...] = ()
    default_handoff: str | None = None
    map: MapConfig | None = None
    metadata: dict[str, Any] = {}


class EdgeConfig(DefinitionPart, frozen=True):
    """An edge between nodes, with its condition."""

    source: str = msgspec.field(name="from")
    target: str = msgspec.field(name="to")
    when: Condition | None = None
    predicate: str | None = None
    """The import path of a function of the source's outputs."""
    matched_type: str | None = None
    """The name of the type that a union output must have."""
    is_default: bool = msgspec.field(default=False, name="default")
    """Taken if no other edge of its source is taken."""
    delay: Delay | None = None


class ConversationConfig(DefinitionPart, frozen=True):
    """The messages of earlier turns that agents get."""

    mode: ConversationMode = "none"
    session_id: Name | None = None
    """None: a session for each execution."""
    root_thread_id: Name = "workflow"
    thread_prefix: Name = "workflow-agent"


class SettingsConfig(DefinitionPart, frozen=True):
    """Settings of the whole workflow."""

    checkpointing: bool = False
    max_iterations: Count | None = None
    """The maximum of passes through a loop. A workflow with a loop needs it."""
    convergence: bool = True
    """Whether a loop ends when a pass changes nothing."""
    timeout: Duration | None = None
    """Of a whole execution, from its start, including pauses."""
    model: Name | None = None
    """The model of agents without their own."""
    conversation: ConversationConfig = ConversationConfig()


class WorkflowConfig(DefinitionPart, frozen=True):
    """A whole document."""

    name: Name
    format: str = FORMAT
    version: Name = "1.0.0"
    """The version of the workflow, chosen by its authors."""
    description: str | None = None
    agents: dict[str, NodeConfig] = {}
    edges: tuple[EdgeConfig, ...] = ()
    settings: SettingsConfig = SettingsConfig()


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

    config: WorkflowConfig
    """Of the whole workflow; agents and edges are below. An empty name is built from the nodes' ids."""
    nodes: dict[str, NodeDraft] = field(default_factory=dict)
    edges: list[EdgeDraft] = field(default_factory=list)
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
        nodes = {node_id: NodeDraft(node) for node_id, node in config.agents.items()}
        return Draft(config, nodes, [EdgeDraft(edge) for edge in config.edges], source=source)

    def to_config(self) -> WorkflowConfig:
        """The definition, without the objects that only Python has."""
        agents = {node_id: node.config for node_id, node in self.nodes.items()}
        return msgspec.structs.replace(self.config, agents=agents, edges=tuple(edge.config for edge in self.edges))

    @property
    def settings(self) -> SettingsConfig:
        return self.config.settings

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

    def change(self, **changes: Any) -> None:
        self.config = msgspec.structs.replace(self.config, **changes)

    def change_settings(self, **changes: Any) -> None:
        self.change(settings=msgspec.structs.replace(self.settings, **changes))
