"""The executor of a node: runs its agent or its workflow, asks for approval, and reports to the conductor."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any, ClassVar

import msgspec

from perdure.agent_workflow import events
from perdure.agent_workflow.conversations import Conversations
from perdure.agent_workflow.definition import ANSWER, ApprovalConfig
from perdure.agent_workflow.execution.turn import NodeTurn, Turns
from perdure.agent_workflow.state import (
    ExecutionResult,
    InnerInput,
    NodeOutcome,
    NodeTask,
    OutOfTime,
    Status,
    clock,
    delivery,
    emit,
    is_over,
    limit,
)
from perdure.agents.tools import types_of
from perdure.errors import ApprovalTimedOut
from perdure.graph.context import WorkflowContext
from perdure.graph.executor import Executor
from perdure.graph.handlers import handler

CONDUCTOR = "workflow.conductor"
"""The id of the executor that leads the execution. No node can have it."""
INNER = ".workflow"
"""Ends the id of the executor that runs the workflow of a node."""
Context = WorkflowContext[NodeOutcome | InnerInput | NodeTask]
"""NodeTask makes the edges to other nodes valid. Only the conductor sends along them."""


class ApprovalContext(msgspec.Struct, frozen=True):
    """The argument of a predicate: `requires_approval(when=lambda context: ...)`."""

    node_id: str
    outputs: dict[str, Any]
    original_input: Any
    workflow_data: dict[str, dict[str, Any]] = {}  # msgspec copies it
    """Outputs of the other nodes, by node."""

    def has_output(self, key: str) -> bool:
        return key in self.outputs


class ApprovalRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request to approve outputs of a node."""

    node_id: str
    message: str
    outputs: dict[str, Any]
    original_input: Any = None
    description: str | None = None


class ApprovalDecision(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The answer to an approval request; as JSON `{"approved": true}`, or just `true`."""

    sample_answer: ClassVar[str] = '{"approved": true}'
    """The command line shows it with the request."""
    approved: bool
    reason: str | None = None
    data: dict[str, Any] = {}  # msgspec copies it
    """Merged into the node's outputs; its keys win."""
    timed_out: bool = False


async def _request_decision(
    config: ApprovalConfig, context: ApprovalContext, latest: datetime | None
) -> ApprovalDecision:
    """Wait for the answer, which may arrive in another process. `latest`: the deadline of the whole execution."""
    # The terms of the first request are recorded: after a restart it is the same request, with the same deadline.
    is_limited = bool(config.timeout) and config.timeout_behavior != "suspend"
    own = limit(clock().now(), config.timeout if is_limited else None, None)
    is_own = own is not None and (latest is None or own <= latest)
    deadline = own if is_own else latest
    late = ApprovalDecision(is_own and config.timeout_behavior == "auto_approve", timed_out=True)
    request = ApprovalRequest(
        context.node_id, config.message, context.outputs, context.original_input, config.description
    )
    answer: bool | ApprovalDecision = await delivery().ask(
        request,
        bool | ApprovalDecision,
        request_id=delivery().delivery_name,  # not with the thread's id: a fork has the same request
        deadline=deadline,
        default=... if deadline is None else late,
    )
    return ApprovalDecision(answer) if isinstance(answer, bool) else answer


class InnerTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """The current task of a node that is a workflow."""

    task: NodeTask
    text: str
    attempts: int = 1


class InnerFailed(Exception):
    """The workflow of a node did not succeed."""


class AgentNode(Executor):
    """Executes tasks of the conductor and reports their outcomes."""

    def __init__(
        self, turns: Turns, workflow_name: str, *, conversations: Conversations | None, is_inner: bool
    ) -> None:
        super().__init__(turns.node_id)
        self._turns = turns
        self._node = turns.node
        self._config = turns.node.config
        self._emit = partial(emit, workflow_name)
        self._conversations = conversations
        self._is_inner = is_inner
        """Whether its workflow is a node of another workflow: then a failure ends that node, not the run."""
        self.inner_id = f"{self.id}{INNER}"
        """The id of the executor that runs the workflow of the node, if the node is a workflow."""
        self.agent_name = turns.agent_name
        self.description = getattr(turns.agent, "description", None)
        known = () if turns.agent is None else types_of(turns.agent)
        self.value_types = (*known, NodeTurn, InnerTask, OutOfTime, ApprovalDecision, *events.OWN, *self._node.types)

    @handler
    async def work(self, task: NodeTask, ctx: Context) -> None:
        if task.delay is not None:
            await ctx.sleep(task.delay)
        event = events.WorkflowAgentStartedEvent(agent_id=self.id, agent_name=self.agent_name, layer_index=task.layer)
        await self._emit(ctx, event)
        # Outside of `try`: an error of a session store is not a failure of the node.
        session = None
        if self._conversations is not None and task.session is not None:
            session = await self._conversations.load(task.session, self.id)
        try:
            if self._node.workflow is not None:
                ctx.private["inner"] = InnerTask(task, self._turns.input_text(task))
                await self._send_inner(ctx)
                return
            turn = await self._turns.take(task, session, ctx)
        except Exception as error:  # noqa: BLE001  # the node's error mode decides about any exception of an agent
            await self._fail(task, error, ctx)
            return
        await self._settle(task, turn, ctx)

    @handler
    async def process_result(self, result: ExecutionResult, ctx: Context) -> None:
        """Process the result of the workflow that is this node."""
        inner: InnerTask = ctx.private["inner"]
        task = inner.task
        if not result.success:
            error = OutOfTime() if is_over(task) else InnerFailed(result.error or "it was not successful")
            retry = self._turns.retry(task)
            if retry is not None and retry.retries(error, inner.attempts):
                # Recorded: a delay may be random, and the handler runs again from the start after it.
                await ctx.sleep(await ctx.step(retry.delay_after, inner.attempts, name="delay", key="delay"))
                ctx.private["inner"] = msgspec.structs.replace(inner, attempts=inner.attempts + 1)
                await self._send_inner(ctx)
                return
            await self._fail(task, error, ctx)
            return
        by_node: dict[str, dict[str, Any]] = {}
        for path, value in result.outputs.items():
            node, _, key = path.partition(".")
            by_node.setdefault(node, {})[key] = value
        outputs = {self._config.output_key or ANSWER: result.final_answer, "outputs": by_node}
        await self._settle(task, NodeTurn(outputs), ctx)

    async def _send_inner(self, ctx: Context) -> None:
        """Start the workflow of this node. Each attempt starts it from the beginning."""
        inner: InnerTask = ctx.private["inner"]
        deadline = limit(clock().now(), self._config.timeout, inner.task.deadline)
        await ctx.send_message(InnerInput(inner.text, deadline), target_id=self.inner_id)

    async def _settle(self, task: NodeTask, turn: NodeTurn, ctx: Context) -> None:
        try:
            outputs = await self._approve(task, dict(turn.outputs), ctx)
        except Exception as error:  # noqa: BLE001  # no answer arrived in time, or a predicate failed
            await self._fail(task, error, ctx)
            return
        if isinstance(outputs, str):
            await self._emit(ctx, events.WorkflowAgentSkippedEvent(agent_id=self.id, reason=outputs))
            await self._report("skipped", ctx, reason=outputs)
            return
        # Denied messages do not become part of the conversation.
        session = None
        if self._conversations is not None and task.session is not None and turn.recorded is not None:
            # Saved before a checkpoint refers to them.
            save, arguments = self._conversations.save, (task.session, turn.recorded, self.id)
            session = await ctx.step(save, *arguments, name="save the conversation", key="conversation")
        await self._emit(ctx, self._completion_event(task, outputs, None))
        await self._report("done", ctx, outputs=outputs, session=session)

    async def _approve(self, task: NodeTask, outputs: dict[str, Any], ctx: Context) -> dict[str, Any] | str:
        """The outputs, with the data of the approval; or the reason why they are not used."""
        config, predicate = self._config.approval, self._node.needs_approval
        if config is None or (config.when is not None and not config.when.holds(outputs)):
            return outputs
        context = ApprovalContext(self.id, outputs, task.input, task.outputs)
        if predicate is not None and not predicate(context):
            return outputs
        decision = await _request_decision(config, context, task.deadline)
        event = events.WorkflowApprovalResolvedEvent(
            request_id=f"{ctx.thread_id}:{delivery().delivery_name}",
            agent_id=self.id,
            approved=decision.approved,
            reason=decision.reason,
            timed_out=decision.timed_out,
        )
        await self._emit(ctx, event)
        if decision.timed_out and not decision.approved:
            raise OutOfTime if is_over(task) else ApprovalTimedOut(self.id, config.timeout or 0)
        if not decision.approved:
            return f"denied: {decision.reason}" if decision.reason else "denied"
        return {**outputs, **msgspec.json.decode(msgspec.json.encode(decision.data))}  # outputs are plain data

    async def _fail(self, task: NodeTask, error: Exception, ctx: Context) -> None:
        """Apply the node's error mode. `stop` leaves the thread where it can be resumed. An error that keeps this
        handler's work from being recorded is not a failure of the node: it is raised."""
        if (trouble := delivery().delivery.journal_error) is not None:
            raise trouble
        reason = str(error) if isinstance(error, OutOfTime | InnerFailed) else f"{type(error).__name__}: {error}"
        await self._emit(ctx, self._completion_event(task, {}, reason))
        ends_all = isinstance(error, OutOfTime)
        if self._config.on_error.mode == "stop" and not ends_all:
            # A missed deadline is recorded like an answer, and so is the result of an inner workflow:
            # another attempt would read the same.
            ends_all = self._is_inner or isinstance(error, ApprovalTimedOut | InnerFailed)
            if not ends_all:
                raise error
        await self._report("failed", ctx, reason=reason, ends_all=ends_all)

    async def _report(self, status: Status, ctx: Context, **what: Any) -> None:
        await ctx.send_message(NodeOutcome(self.id, status, **what), target_id=CONDUCTOR)

    def _completion_event(
        self, task: NodeTask, outputs: dict[str, Any], error: str | None
    ) -> events.WorkflowAgentCompletedEvent:
        return events.WorkflowAgentCompletedEvent(
            agent_id=self.id,
            agent_name=self.agent_name,
            layer_index=task.layer,
            success=error is None,
            duration=(clock().now() - task.began).total_seconds(),
            outputs=outputs,
            error_message=error,
        )
