"""The executor that leads an execution: sends tasks to nodes, processes their outcomes, decides what is next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from perdure.agent_workflow import events
from perdure.agent_workflow.conversations import Conversations
from perdure.agent_workflow.definition import ANSWER, START, Draft
from perdure.agent_workflow.execution.node import CONDUCTOR
from perdure.agent_workflow.execution.planner import NextSteps, NodeEdge, Planner
from perdure.agent_workflow.execution.values import INPUT, as_text
from perdure.agent_workflow.state import (
    DEFINITION,
    ExecutionResult,
    ExecutionState,
    InnerInput,
    LayerState,
    NodeOutcome,
    NodeState,
    NodeTask,
    SessionRef,
    clock,
    emit,
    is_over,
    limit,
    seconds_left,
)
from perdure.graph.context import WorkflowContext
from perdure.graph.executor import Executor
from perdure.graph.handlers import handler

Context = WorkflowContext[NodeTask, ExecutionResult]


class Conductor(Executor):
    """Every node reports to it. `ctx.private` holds the state of the execution."""

    may_end_here = True

    def __init__(self, draft: Draft, planner: Planner, conversations: Conversations | None) -> None:
        super().__init__(CONDUCTOR)
        config = draft.config
        self.value_types = (ExecutionState, *events.OWN)
        self._emit = partial(emit, config.name)
        self._planner = planner
        self._output_keys = {node_id: node.config.output_key for node_id, node in draft.nodes.items()}
        self._version = {"name": config.name, "version": config.version, "number": draft.number}
        """The version of the definition, stored with each execution."""
        self._timeout = config.settings.timeout
        self._conversations = conversations

    @handler
    async def begin(self, message: str | dict[str, Any] | InnerInput, ctx: Context) -> None:
        before: ExecutionState | None = ctx.private.get("state")
        if before is not None:  # another caller started it at the same time
            if message != before.input:
                await self._emit_diagnostic("warning", "Another input was ignored: an execution has one.", ctx)
            if before.result is not None:
                await ctx.yield_output(before.result)
            return
        start_input = message.input if isinstance(message, InnerInput) else message
        outer = message.deadline if isinstance(message, InnerInput) else None
        began = clock().now()
        conversations: dict[str, SessionRef] = {}
        if self._conversations is not None:
            conversations = await ctx.step(self._conversations.begin, ctx.thread_id, name="begin the conversation")
        ctx.set_state(DEFINITION, dict(self._version))
        state = ExecutionState(start_input, began, limit(began, self._timeout, outer), conversations=conversations)
        counts: dict[str, Any] = {"node_count": len(self._output_keys), "layer_count": len(self._planner.graph.layers)}
        await self._emit(ctx, events.WorkflowStartedEvent(**counts))
        outputs = {INPUT: start_input}
        if isinstance(start_input, dict):
            outputs = {**start_input, INPUT: start_input.get(INPUT, start_input)}
        await self._carry_out(self._planner.begin(state, outputs), ctx)

    @handler
    async def process_outcome(self, outcome: NodeOutcome, ctx: Context) -> None:
        state: ExecutionState = ctx.private["state"]
        state = self._planner.settle(state, outcome.node, outcome.status, outcome.outputs, outcome.reason)
        if outcome.session is not None and self._conversations is not None:
            # The turn's messages follow those that other nodes recorded in the same thread meanwhile.
            merge = self._conversations.merge
            merged = await ctx.step(merge, state.conversations, outcome.session, name="merge the conversation")
            state = msgspec.structs.replace(state, conversations=merged)
        if outcome.ends_all:
            state = msgspec.structs.replace(state, stopped=outcome.reason)
        await self._advance(state, ctx)

    async def _advance(self, state: ExecutionState, ctx: Context) -> None:
        if is_over(state) and state.deadline is not None:
            seconds = (state.deadline - state.began).total_seconds()
            state = msgspec.structs.replace(state, stopped=f"timed out after {seconds:g} s")
        if state.stopped is None:
            await self._carry_out(self._planner.advance(state), ctx)
            return
        waiting = [name for name, node in state.nodes.items() if node.status == "waiting"]
        reason = f"the execution has ended: {state.stopped}"
        nodes = {**state.nodes, **{node: NodeState("skipped", reason=reason) for node in waiting}}
        await self._carry_out(NextSteps(msgspec.structs.replace(state, nodes=nodes), skipped=waiting), ctx)

    async def _carry_out(self, steps: NextSteps, ctx: Context) -> None:
        state = steps.state
        for edge in steps.traversed:
            await self._emit_edge(edge, ctx)
        for node in steps.skipped:
            reason = state.nodes[node].reason or ""
            await self._emit(ctx, events.WorkflowAgentSkippedEvent(agent_id=node, reason=reason))
        await self._emit_loop_end(steps, ctx)
        if steps.ended is not None:  # layers end with their pass, before the next pass begins
            ended = await self._with_layers(msgspec.structs.replace(steps.ended, layers=state.layers), ctx)
            state = msgspec.structs.replace(state, layers=ended.layers)
        state = await self._with_layers(state, ctx)
        for node, taken in steps.ready.items():
            await ctx.send_message(self._task(node, taken, state, ctx), target_id=node)
        if not any(node.status in ("running", "waiting") for node in state.nodes.values()):
            state = await self._end(state, ctx)
        ctx.private["state"] = state

    def _task(self, node: str, taken: Sequence[NodeEdge], state: ExecutionState, ctx: Context) -> NodeTask:
        session = None
        if self._conversations is not None:
            session = self._conversations.ref_for(node, ctx.thread_id, state.conversations)
        nodes, graph = state.nodes, self._planner.graph
        sources = dict.fromkeys(graph.deciding_node(edge, nodes) for edge in taken if edge.source != START)
        outputs: dict[str, dict[str, Any]] = {}
        for other in (*sources, *self._planner.needs.get(node, ())):
            actual = graph.resolve_fallback(other, nodes)  # a fallback's outputs appear under the node it replaces
            if nodes[actual].outputs and (actual == other or actual != node):
                outputs[other] = nodes[actual].outputs
        delay, left = max((edge.delay for edge in taken if edge.delay is not None), default=None), seconds_left(state)
        return NodeTask(
            state.input,
            clock().now(),
            outputs,
            tuple(sources),
            tuple(name for name, other in nodes.items() if other.status == "waiting" and not other.outputs),
            graph.layer_of[node],
            delay if delay is None or left is None else min(delay, left),
            state.deadline,
            session,
        )

    async def _end(self, state: ExecutionState, ctx: Context) -> ExecutionState:
        for edge in self._planner.edges_to_end(state):
            await self._emit_edge(edge, ctx)
        nodes = {name: node for name, node in state.nodes.items() if name != START}
        failed = {name: node.reason for name, node in nodes.items() if self._planner.graph.is_failed(name, state.nodes)}
        problems = [state.stopped] if state.stopped else [f"{name}: {reason}" for name, reason in failed.items()]
        finals = [name for name in nodes if self._planner.is_final(name, state)]
        answers = [self._answer(name, nodes[name].outputs) for name in finals]
        counts = self._planner.graph.count(state.nodes)
        result = ExecutionResult(
            "\n\n".join(answer for answer in answers if answer) if any(answers) else None,
            state.outputs(),
            not failed and state.stopped is None,
            (clock().now() - state.began).total_seconds(),
            "; ".join(problems) or None,
            **counts,
        )
        await ctx.yield_output(result)
        end = events.WorkflowCompletedEvent(
            duration=result.duration, success=result.success, error=result.error, **counts
        )
        await self._emit(ctx, end)
        return msgspec.structs.replace(state, result=result)

    def _answer(self, node: str, outputs: Mapping[str, Any]) -> str:
        """The output of a node as text: its one output, or all of them as JSON."""
        value = outputs.get(self._output_keys.get(node) or ANSWER, outputs)
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return "\n\n".join(value)
        return as_text(value) if value not in (None, {}) else ""

    async def _emit_edge(self, edge: NodeEdge, ctx: Context) -> None:
        event = events.WorkflowEdgeTraversedEvent(
            from_node_id=edge.source,
            to_node_id=edge.target,
            has_condition=edge.test is not None or edge.is_default or edge.kind == "fallback",
            condition_description=edge.description,
        )
        await self._emit(ctx, event)

    async def _emit_loop_end(self, steps: NextSteps, ctx: Context) -> None:
        if steps.is_limited:
            passes = self._planner.max_passes
            text = f"A loop ended after {passes} passes (max_iterations), although an edge leads back."
            await self._emit_diagnostic("warning", text, ctx)
        elif steps.has_converged:
            await self._emit_diagnostic("info", "A loop ended: its last pass changed nothing.", ctx)

    async def _emit_diagnostic(self, level: events.Level, text: str, ctx: Context) -> None:
        await self._emit(ctx, events.WorkflowDiagnosticEvent(level=level, source="workflow", message=text))

    async def _with_layers(self, state: ExecutionState, ctx: Context) -> ExecutionState:
        """The state with updated layers; emits events of layers that have begun or ended."""
        layers = dict(state.layers)
        for index, names in enumerate(self._planner.graph.layers):
            nodes = [state.nodes[name] for name in names]
            is_settled = all(node.is_settled for node in nodes)
            layer = layers.get(index)
            if layer is not None and layer.has_ended and not is_settled:  # another pass
                layer = None
            if layer is None and any(node.status != "waiting" for node in nodes):
                layer = LayerState(clock().now())
                await self._emit(ctx, events.WorkflowLayerStartedEvent(layer_index=index, node_count=len(names)))
            if layer is not None and is_settled and not layer.has_ended:
                event = events.WorkflowLayerCompletedEvent(
                    layer_index=index,
                    duration=(clock().now() - layer.began).total_seconds(),
                    successful_nodes=sum(node.status == "done" for node in nodes),
                )
                await self._emit(ctx, event)
                layer = LayerState(layer.began, has_ended=True)
            if layer is not None:
                layers[index] = layer
        return msgspec.structs.replace(state, layers=layers)
