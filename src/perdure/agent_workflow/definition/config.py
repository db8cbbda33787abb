"""A workflow of agents as data: what a document holds, and what the builder makes."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from perdure.agent_workflow.definition.condition import Condition

OutputMode: TypeAlias = Literal["string", "structured", "union", "handoff"]
StructuredMode: TypeAlias = Literal["native", "tool"]
ErrorMode: TypeAlias = Literal["stop", "skip", "isolate", "fallback"]
TimeoutBehavior: TypeAlias = Literal["fail", "auto_approve", "suspend"]
RetryStrategy: TypeAlias = Literal["constant", "linear", "exponential", "jittered"]
ConversationMode: TypeAlias = Literal["none", "shared", "per_agent", "fork_per_agent"]
MapErrors: TypeAlias = Literal["fail", "null", "omit"]

FORMAT = "1"
"""Of documents. One of a newer format is refused."""
START, END = "START", "END"
"""In place of a node's id: what was given to the execution, and its end."""
ANSWER = "answer"
"""The output of a node that was given no other name for it."""


class DefinitionPart(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """Of a document: a field that there is not is a mistake, and told as one. Durations are seconds."""


class AgentConfig(DefinitionPart, frozen=True):
    """An agent that is made when it is first needed: with `perdure.agents.Agent`, so with the extra `agents`."""

    model: str | None = None
    """As pydantic-ai names it; None: the workflow's own, `settings.model`."""
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
    """How often a node is tried again, and when."""

    max_attempts: int = 3
    """The first one included."""
    initial_delay: float = 1.0
    strategy: RetryStrategy = "exponential"
    max_delay: float | None = None
    only_transient: bool = False
    """Only what may pass: timeouts, broken connections, services that are busy."""


class ErrorConfig(DefinitionPart, frozen=True):
    """What becomes of a failure of a node."""

    mode: ErrorMode = "stop"
    fallback: str | None = None
    """The node that stands in, with `mode="fallback"`."""


class ApprovalConfig(DefinitionPart, frozen=True):
    """Somebody is asked after the agent has answered, before anybody uses what it said."""

    message: str = "Approve?"
    description: str | None = None
    when: Condition | None = None
    """Of the node's outputs; None: always, unless there is a predicate."""
    predicate: str | None = None
    """The import path of a function of an ApprovalContext."""
    timeout: float | None = None
    """None, or 0: it waits as long as it takes."""
    timeout_behavior: TimeoutBehavior = "fail"


class MapConfig(DefinitionPart, frozen=True):
    """The agent runs once for each item of a list."""

    over: str
    """The key of the list."""
    max_parallel: int = 4
    on_error: MapErrors = "fail"
    """Of one item: the node fails, or goes on with null in its place, or without it."""


class HandoffConfig(DefinitionPart, frozen=True):
    """A node that a router may hand off to."""

    target: str
    description: str | None = None


class NodeConfig(DefinitionPart, frozen=True):
    """One node: its agent, what goes in and comes out, and what happens when it fails."""

    agent: AgentConfig | str | None = None
    """What makes the agent, or its import path. None for one that only Python knows."""
    workflow: WorkflowConfig | str | None = None
    """In place of an agent: a workflow, or the import path of one."""
    output_mode: OutputMode = "string"
    output_types: tuple[str, ...] = ()
    """Import paths of the types of structured and union outputs."""
    structured_mode: StructuredMode = "tool"
    input_key: str | None = None
    output_key: str | None = None
    input_template: str | None = None
    instructions: str | None = None
    """Beside those that the agent has."""
    context: dict[str, Any] = {}
    """What the agent is told with its input, by name."""
    tools: tuple[str, ...] = ()
    """Import paths of functions that the agent may call here, beside its own."""
    timeout: float | None = None
    """Of one attempt."""
    max_concurrent: int | None = None
    """How many executions may run this node at a time, in one process."""
    retry: RetryConfig | None = None
    on_error: ErrorConfig = ErrorConfig()
    approval: ApprovalConfig | None = None
    handoffs: tuple[HandoffConfig, ...] = ()
    default_handoff: str | None = None
    map: MapConfig | None = None
    metadata: dict[str, Any] = {}


class EdgeConfig(DefinitionPart, frozen=True):
    """What comes after a node, and under which condition."""

    source: str = msgspec.field(name="from")
    target: str = msgspec.field(name="to")
    when: Condition | None = None
    predicate: str | None = None
    """The import path of a function of the source's outputs."""
    matched_type: str | None = None
    """The name of the type that a union output must have."""
    is_default: bool = msgspec.field(default=False, name="default")
    """Taken if no other edge of its source is."""
    delay: float | None = None


class ConversationConfig(DefinitionPart, frozen=True):
    """What agents know of earlier turns."""

    mode: ConversationMode = "none"
    session_id: str | None = None
    """None: one for each execution."""
    root_thread_id: str = "workflow"
    thread_prefix: str = "workflow-agent"


class SettingsConfig(DefinitionPart, frozen=True):
    """What holds for the whole workflow."""

    checkpointing: bool = False
    max_iterations: int | None = None
    """How often a loop may be gone through. A workflow with a loop needs it."""
    convergence: bool = True
    """Whether a loop ends when a pass through it has changed nothing."""
    timeout: float | None = None
    """Of a whole execution, from its start, whatever happens between."""
    model: str | None = None
    """Of agents that name none."""
    conversation: ConversationConfig = ConversationConfig()


class WorkflowConfig(DefinitionPart, frozen=True):
    """A whole document."""

    name: str
    format: str = FORMAT
    version: str = "1.0.0"
    """Of the workflow, as its authors count."""
    description: str | None = None
    agents: dict[str, NodeConfig] = {}
    edges: tuple[EdgeConfig, ...] = ()
    settings: SettingsConfig = SettingsConfig()
