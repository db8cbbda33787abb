"""The executor that leads an execution: gives nodes their tasks, hears what came of them, decides what is next."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from perdure.agent_workflow import events as told
from perdure.agent_workflow.conversations.policy import Conversations
from perdure.agent_workflow.definition.config import ANSWER, START
from perdure.agent_workflow.execution.edge_graph import NodeEdge
from perdure.agent_workflow.execution.node import CONDUCTOR
from perdure.agent_workflow.execution.planner import Next, Planner
from perdure.agent_workflow.execution.values import INPUT, as_text
from perdure.agent_workflow.state import (
    DEFINITION,
    Begin,
    ExecutionResult,
    ExecutionState,
    LayerStanding,
    NodeOutcome,
    NodeStanding,
    NodeTask,
    SessionRef,
    clock,
    flat,
)
from perdure.events import WorkflowEvent
from perdure.graph.context import WorkflowContext
from perdure.graph.executor import Executor
from perdure.graph.handlers import handler

Context = WorkflowContext[NodeTask, ExecutionResult]


class Conductor(Executor):
    """Every node answers to it. How far the execution is stands in `ctx.private`."""

    may_end_here = True

    def __init__(
        self,
        workflow_name: str,
        planner: Planner,
        output_keys: Mapping[str, str | None],
        needs: Mapping[str, Collection[str]],
        *,
        version: Mapping[str, Any],
        timeout: float | None = None,
        max_passes: int | None = None,
        conversations: Conversations | None = None,
    ) -> None:
        super().__init__(CONDUCTOR)
        self.value_types = (ExecutionState, *told.OWN)
        self._name = workflow_name
        self._planner = planner
        self._output_keys = output_keys
        self._needs = needs
        self._version = version
        """Of the definition, for whoever looks at an execution later."""
        self._timeout = timeout
        self._max_passes = max_passes
        self._conversations = conversations

    @handler
    async def begin(self, message: str | dict[str, Any] | Begin, ctx: Context) -> None:
        before: ExecutionState | None = ctx.private.get("standing")
        if before is not None:  # somebody else began it in the same moment; whoever asks is given what it comes to
            await self._begin_again(before, message, ctx)
            return
        given = message.input if isinstance(message, Begin) else message
        now = clock().now()
        own = None if self._timeout is None else now + timedelta(seconds=self._timeout)
        outer = message.deadline if isinstance(message, Begin) else None
        deadline = min((one for one in (own, outer) if one is not None), default=None)
        conversations: dict[str, SessionRef] = {}
        if self._conversations is not None:
            conversations = await ctx.step(self._conversations.begin, ctx.thread_id, name="begin the conversation")
        ctx.set_state(DEFINITION, dict(self._version))
        standing = ExecutionState(given, now, deadline, conversations=conversations)
        await self._tell(
            ctx,
            told.WorkflowStartedEvent(node_count=len(self._output_keys), layer_count=len(self._planner.ways.layers)),
        )
        outputs = {**given, INPUT: given.get(INPUT, given)} if isinstance(given, dict) else {INPUT: given}
        await self._do(self._planner.begin(standing, outputs), ctx)

    @handler
    async def hear(self, outcome: NodeOutcome, ctx: Context) -> None:
        standing: ExecutionState = ctx.private["standing"]
        standing = self._planner.settle(standing, outcome.node, outcome.status, outcome.outputs, outcome.reason)
        if outcome.session is not None and self._conversations is not None:
            standing = await self._joined(standing, outcome, ctx)
        if outcome.ends_all:
            standing = msgspec.structs.replace(standing, stopped=outcome.reason)
        await self._go_on(standing, ctx)

    async def _begin_again(self, standing: ExecutionState, message: Any, ctx: Context) -> None:
        if message != standing.input:
            text = "Another input was ignored: an execution has one."
            await self._tell(ctx, told.WorkflowDiagnosticEvent(level="warning", source="workflow", message=text))
        if standing.result is not None:
            await ctx.yield_output(standing.result)

    async def _go_on(self, standing: ExecutionState, ctx: Context) -> None:
        if standing.deadline is not None and clock().now() >= standing.deadline:
            seconds = (standing.deadline - standing.began).total_seconds()
            standing = msgspec.structs.replace(standing, stopped=f"timed out after {seconds:g} s")
        if standing.stopped is None:
            await self._do(self._planner.go_on(standing), ctx)
            return
        waiting = tuple(node for node, one in standing.nodes.items() if one.status == "waiting")
        reason = f"the execution has ended: {standing.stopped}"
        skipped = {node: NodeStanding("skipped", reason=reason) for node in waiting}
        nodes = {**standing.nodes, **skipped}
        await self._do(Next(msgspec.structs.replace(standing, nodes=nodes), skipped=waiting), ctx)

    async def _joined(self, standing: ExecutionState, outcome: NodeOutcome, ctx: Context) -> ExecutionState:
        """What was said goes on with what others said in the same thread meanwhile."""
        assert outcome.session is not None  # noqa: S101  # asked only then
        assert self._conversations is not None  # noqa: S101
        known, new = standing.conversations, outcome.session
        heard = await ctx.step(self._conversations.heard, known, new, name="hear the conversation")
        return msgspec.structs.replace(standing, conversations=heard)

    # ------------------------------------------------------------ doing what was decided

    async def _do(self, found: Next, ctx: Context) -> None:
        standing = found.standing
        for edge in found.traversed:
            await self._tell_edge(edge, ctx)
        for node in found.skipped:
            reason = standing.nodes[node].reason or ""
            await self._tell(ctx, told.WorkflowAgentSkippedEvent(agent_id=node, reason=reason))
        await self._tell_loop(found, ctx)
        if found.ended is not None:  # what has come to its end with a pass, before the next one begins
            ended = await self._with_layers(msgspec.structs.replace(found.ended, layers=standing.layers), ctx)
            standing = msgspec.structs.replace(standing, layers=ended.layers)
        standing = await self._with_layers(standing, ctx)
        for node, taken in found.ready.items():
            await ctx.send_message(self._task(node, taken, standing, ctx), target_id=node)
        if not any(one.status in ("running", "waiting") for one in standing.nodes.values()):
            standing = await self._end(standing, ctx)
        ctx.private["standing"] = standing

    def _task(self, node: str, taken: Sequence[NodeEdge], standing: ExecutionState, ctx: Context) -> NodeTask:
        session = None
        if self._conversations is not None:
            session = self._conversations.ref_for(node, ctx.thread_id, standing.conversations)
        nodes, ways = standing.nodes, self._planner.ways
        speakers = dict.fromkeys(ways.speaker(edge, nodes) for edge in taken if edge.source != START)
        outputs: dict[str, dict[str, Any]] = {}
        for one in (*speakers, *self._needs[node]):
            voice = ways.voice_of(one, nodes)  # what a fallback gave is found under the name of whom it stands in for
            if nodes[voice].outputs and (voice == one or voice != node):
                outputs[one] = nodes[voice].outputs
        return NodeTask(
            standing.input,
            clock().now(),
            outputs,
            tuple(speakers),
            tuple(one for one, its in nodes.items() if its.status == "waiting" and not its.outputs),
            self._planner.ways.layer_of(node),
            self._delay(taken, standing),
            standing.deadline,
            session,
        )

    @staticmethod
    def _delay(taken: Sequence[NodeEdge], standing: ExecutionState) -> float | None:
        """The longest of the edges, and no longer than the execution may take."""
        delay = max((edge.delay for edge in taken if edge.delay is not None), default=None)
        if delay is None or standing.deadline is None:
            return delay
        return min(delay, max(0.0, (standing.deadline - clock().now()).total_seconds()))

    async def _end(self, standing: ExecutionState, ctx: Context) -> ExecutionState:
        for edge in self._planner.ended_by(standing):
            await self._tell_edge(edge, ctx)
        nodes = {node: one for node, one in standing.nodes.items() if node != START}
        failed = {node: one.reason for node, one in nodes.items() if self._planner.ways.is_failed(node, standing.nodes)}
        problems = [standing.stopped] if standing.stopped else [f"{node}: {reason}" for node, reason in failed.items()]
        finals = [node for node in nodes if self._planner.is_final(node, standing)]
        answers = [self._answer(node, nodes[node].outputs) for node in finals]
        result = ExecutionResult(
            "\n\n".join(one for one in answers if one) if any(answers) else None,
            flat(standing.outputs()),
            not failed and standing.stopped is None,
            (clock().now() - standing.began).total_seconds(),
            "; ".join(problems) or None,
            sum(one.has_succeeded for one in nodes.values()),
            len(failed),
            sum(one.status == "skipped" and not one.has_succeeded for one in nodes.values()),
        )
        await ctx.yield_output(result)
        await self._tell(
            ctx,
            told.WorkflowCompletedEvent(
                duration=result.duration,
                successful_nodes=result.successful_nodes,
                failed_nodes=result.failed_nodes,
                skipped_nodes=result.skipped_nodes,
                success=result.success,
                error=result.error,
            ),
        )
        return msgspec.structs.replace(standing, result=result)

    def _answer(self, node: str, outputs: Mapping[str, Any]) -> str:
        """A node's own words: its one output, or all of them as JSON."""
        key = self._output_keys.get(node) or ANSWER
        value = outputs.get(key, outputs)
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            return "\n\n".join(value)
        return as_text(value) if value not in (None, {}) else ""

    # ------------------------------------------------------------ telling

    async def _tell(self, ctx: Context, event: told.AgentWorkflowEvent) -> None:
        named = msgspec.structs.replace(event, workflow_name=self._name)
        await ctx.add_event(WorkflowEvent(told.EVENT, named))

    async def _tell_edge(self, edge: NodeEdge, ctx: Context) -> None:
        event = told.WorkflowEdgeTraversedEvent(
            from_node_id=edge.source,
            to_node_id=edge.target,
            has_condition=edge.test is not None or edge.is_default or edge.kind == "fallback",
            condition_description=edge.description,
        )
        await self._tell(ctx, event)

    async def _tell_loop(self, found: Next, ctx: Context) -> None:
        message = None
        if found.is_limited:
            message = f"A loop was left after {self._max_passes} passes (max_iterations), although an edge leads back."
        elif found.has_converged:
            message = "A loop was left: its last pass changed nothing."
        if message is not None:
            level: told.Level = "warning" if found.is_limited else "info"
            await self._tell(ctx, told.WorkflowDiagnosticEvent(level=level, source="workflow", message=message))

    async def _with_layers(self, standing: ExecutionState, ctx: Context) -> ExecutionState:
        """Layers that have begun or ended with what was decided, told."""
        layers = dict(standing.layers)
        for index, nodes in enumerate(self._planner.ways.layers):
            those = [standing.nodes[node] for node in nodes]
            is_settled = all(one.is_settled for one in those)
            layer = layers.get(index)
            if layer is not None and layer.has_ended and not is_settled:  # another pass
                layer = None
            if layer is None and any(one.status != "waiting" for one in those):
                layer = LayerStanding(clock().now())
                await self._tell(ctx, told.WorkflowLayerStartedEvent(layer_index=index, node_count=len(nodes)))
            if layer is not None and is_settled and not layer.has_ended:
                event = told.WorkflowLayerCompletedEvent(
                    layer_index=index,
                    duration=(clock().now() - layer.began).total_seconds(),
                    successful_nodes=sum(one.status == "done" for one in those),
                )
                await self._tell(ctx, event)
                layer = LayerStanding(layer.began, has_ended=True)
            if layer is not None:
                layers[index] = layer
        return msgspec.structs.replace(standing, layers=layers)
