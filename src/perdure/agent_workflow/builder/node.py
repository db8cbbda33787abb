"""AgentNodeOptions: options of a node, as in `add_agent(..., lambda node: node.with_timeout(30))`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import UnionType
from typing import Any, Self, Union, get_origin

import msgspec

from perdure.agent_workflow import condition
from perdure.agent_workflow.condition import Condition
from perdure.agent_workflow.definition import (
    AgentConfig,
    ApprovalConfig,
    ErrorConfig,
    HandoffConfig,
    MapConfig,
    MapErrors,
    NodeConfig,
    NodeDraft,
    RetryConfig,
    RetryStrategy,
    StructuredMode,
    TimeoutBehavior,
    WorkflowConfig,
)
from perdure.agent_workflow.documents.convert import config_of
from perdure.agent_workflow.execution.node import ApprovalContext
from perdure.agent_workflow.execution.turn import is_transient
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.agents.tools import as_tool
from perdure.errors import InvalidDefinition
from perdure.graph.graph import is_agent
from perdure.graph.policy import RetryPolicy, Seconds, in_seconds


class AgentNodeOptions:
    """The options of one node. Each method changes and returns it."""

    def __init__(self, draft: NodeDraft) -> None:
        self._draft = draft

    def _set(self, **changes: Any) -> Self:
        self._draft.config = msgspec.structs.replace(self._draft.config, **changes)
        return self

    def with_input_key(self, key: str) -> Self:
        """The agent's input is this output of an earlier node: `key`, or `node.key`."""
        return self._set(input_key=key)

    def with_output_key(self, key: str) -> Self:
        """The name of the output for its answer."""
        return self._set(output_key=key)

    def with_input_template(self, template: str) -> Self:
        """The agent's input is this text, with each `{{key}}` replaced."""
        return self._set(input_template=template)

    def with_instructions(self, instructions: str) -> Self:
        """Added to the agent's own instructions."""
        return self._set(instructions=instructions)

    def with_context(self, name: str, value: Any) -> Self:
        """A value that the agent gets with each input: a text, or JSON data."""
        try:
            msgspec.json.encode(value)
        except TypeError as error:
            raise TypeError(
                f"with_context({name!r}, ...) expects what JSON has, got {value!r:.200}: {error}"
            ) from error
        return self._set(context={**self._draft.config.context, name: value})

    def with_tools(self, *tools: Any) -> Self:
        """Functions that the agent may call here, beside its own tools."""
        self._draft.tools = (*self._draft.tools, *map(as_tool, tools))
        return self

    def with_metadata(self, **metadata: Any) -> Self:
        return self._set(metadata={**self._draft.config.metadata, **metadata})

    def structured_output(self, kind: type, mode: StructuredMode = "tool") -> Self:
        """Its answer is a value of this type, whose fields are the node's outputs."""
        self._draft.types = (_check_kind(kind, "structured_output"),)
        return self._set(output_mode="structured", structured_mode=mode)

    def union_output(self, *kinds: type) -> Self:
        """Its answer is a value of one of these types; the output `matched_type` names it."""
        self._draft.types = tuple(_check_kind(kind, "union_output") for kind in kinds)
        return self._set(output_mode="union")

    def map_over(self, key: str, *, max_parallel: int = 4, on_error: MapErrors = "fail") -> Self:
        """Run the agent once for each item of this list; the output is a list."""
        return self._set(map=MapConfig(over=key, max_parallel=max_parallel, on_error=on_error))

    def with_retry(
        self,
        max_attempts: int | RetryPolicy = 3,
        strategy: RetryStrategy = "exponential",
        *,
        initial_delay: Seconds = 1.0,
        max_delay: Seconds | None = None,
        only_transient: bool = False,
    ) -> Self:
        """Retry after any failure. A RetryPolicy is accepted too; a policy that a document cannot express fails only at
        an export."""
        if isinstance(max_attempts, RetryPolicy):
            config = _as_config(max_attempts)
            self._draft.retry = max_attempts if config is None else None
            return self._set(retry=config)
        self._draft.retry = None
        config = RetryConfig(
            max_attempts=max_attempts,
            initial_delay=in_seconds("with_retry(initial_delay=...)", initial_delay),
            strategy=strategy,
            max_delay=None if max_delay is None else in_seconds("with_retry(max_delay=...)", max_delay),
            only_transient=only_transient,
        )
        return self._set(retry=config)

    def with_retry_transient(self, max_attempts: int = 3, strategy: RetryStrategy = "exponential") -> Self:
        """Retry only after transient errors: timeouts, broken connections, busy services."""
        return self.with_retry(max_attempts, strategy, only_transient=True)

    def with_timeout(self, timeout: Seconds) -> Self:
        """The timeout of one attempt."""
        return self._set(timeout=in_seconds("with_timeout", timeout))

    def with_max_concurrent(self, count: int) -> Self:
        """How many executions of this process may run this node at the same time."""
        return self._set(max_concurrent=count)

    def on_error_stop(self) -> Self:
        """A failure stops the execution, which can be resumed there. The default."""
        return self._set(on_error=ErrorConfig(mode="stop"))

    def on_error_skip(self) -> Self:
        """A failure skips the targets of this node's edges, even if other edges lead to them; other nodes continue."""
        return self._set(on_error=ErrorConfig(mode="skip"))

    def on_error_isolate(self) -> Self:
        """A failure affects only this node: targets of other edges continue without it."""
        return self._set(on_error=ErrorConfig(mode="isolate"))

    def on_error_fallback(self, node_id: str) -> Self:
        """Another node replaces a failed node, and its outputs go to the targets of this node."""
        return self._set(on_error=ErrorConfig(mode="fallback", fallback=node_id))

    def with_handoff(self, target: str, description: str | None = None) -> Self:
        """The agent may hand off to this node."""
        handoffs = (*self._draft.config.handoffs, HandoffConfig(target=target, description=description))
        return self._set(output_mode="handoff", handoffs=handoffs)

    def with_handoffs(self, *targets: str) -> Self:
        for target in targets:
            self.with_handoff(target)
        return self

    def with_default_handoff(self, target: str) -> Self:
        """The target if the agent does not choose one."""
        return self._set(output_mode="handoff", default_handoff=target)

    def requires_approval(
        self,
        message: str | ApprovalConfig = "Approve?",
        timeout: timedelta | float | None = None,
        *,
        when: Condition | Callable[[ApprovalContext], bool] | None = None,
        description: str | None = None,
        timeout_behavior: TimeoutBehavior = "fail",
    ) -> Self:
        """The output waits for approval before other nodes use it: always, or if `when` holds. Without a timeout, or
        with `timeout_behavior="suspend"`, it waits without limit."""
        if isinstance(message, ApprovalConfig):
            return self._set(approval=message)
        self._draft.needs_approval = None if when is None or isinstance(when, Condition) else when
        seconds = None if timeout is None else in_seconds("requires_approval(timeout=...)", timeout)
        config = ApprovalConfig(
            message=message,
            description=description,
            when=when if isinstance(when, Condition) else None,
            timeout=seconds or None,
            timeout_behavior=timeout_behavior,
        )
        return self._set(approval=config)

    def requires_approval_when(self, field: str, value: Any, message: str = "Approve?", **options: Any) -> Self:
        """Approval if an output equals a value."""
        return self.requires_approval(message, when=condition.equals(field, value), **options)

    def requires_approval_when_exists(self, field: str, message: str = "Approve?", **options: Any) -> Self:
        return self.requires_approval(message, when=condition.exists(field), **options)


def _check_kind(kind: Any, method: str) -> Any:
    if kind is str and method == "structured_output":
        raise TypeError(f"{method}(str): a text is what an agent gives without it. Leave it out.")
    if get_origin(kind) in (Union, UnionType) or not (isinstance(kind, type) or get_origin(kind) is not None):
        raise TypeError(f"{method} expects a type, got {kind!r}. Several: union_output(First, Second).")
    return kind


def _as_config(policy: RetryPolicy) -> RetryConfig | None:
    """None for a policy that a document cannot express."""
    if policy.retry_on not in (Exception, is_transient) or policy.backoff not in (1.0, 2.0) or policy.jitter:
        return None
    return RetryConfig(
        max_attempts=policy.max_attempts,
        initial_delay=in_seconds("initial_delay", policy.initial_delay),
        strategy="constant" if policy.backoff == 1 else "exponential",
        max_delay=None if policy.max_delay is None else in_seconds("max_delay", policy.max_delay),
        only_transient=policy.retry_on is is_transient,
    )


def node_of_agent(agent: Any) -> NodeDraft:
    if not isinstance(agent, AgentConfig) and not is_agent(agent) and callable(agent) and not isinstance(agent, type):
        agent = agent(AgentConfig())
    if isinstance(agent, AgentConfig | str):
        return NodeDraft(NodeConfig(agent=agent))
    if agent is None:
        raise TypeError("add_agent expects an agent, an AgentConfig, or a function that returns one; got None.")
    return NodeDraft(agent=agent)


def node_of_workflow(node_id: str, workflow: Any) -> NodeDraft:
    if isinstance(workflow, AgentWorkflowInstance):
        return NodeDraft(workflow=workflow)
    if isinstance(workflow, WorkflowConfig | dict):
        config = workflow if isinstance(workflow, WorkflowConfig) else config_of(workflow)
        return NodeDraft(NodeConfig(workflow=config))
    path = f"agents.{node_id}.workflow"
    advice = "call build() first" if hasattr(workflow, "build") else "AgentWorkflow.create()...build() builds one"
    raise InvalidDefinition([(path, f"expected a workflow that was built, got {workflow!r:.200}: {advice}")])
