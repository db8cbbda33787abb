"""The executor of a node: runs its agent or its workflow, and reports the outcome to the conductor."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from perdure.agent_workflow import events as told
from perdure.agent_workflow.conversations.policy import kept, opened
from perdure.agent_workflow.definition.config import ANSWER, NodeConfig
from perdure.agent_workflow.execution.approvals import ApprovalContext, ApprovalDecision, decided, is_needed
from perdure.agent_workflow.execution.turn import NodeParts, NodeTurn, Turns
from perdure.agent_workflow.state import (
    Begin,
    ExecutionResult,
    NodeOutcome,
    NodeTask,
    OutOfTime,
    Status,
    clock,
    delivery,
    is_over,
    raise_trouble,
)
from perdure.agents.adapters import adapted
from perdure.agents.tools import types_of
from perdure.errors import ApprovalTimedOut
from perdure.events import WorkflowEvent
from perdure.graph.context import WorkflowContext
from perdure.graph.executor import Executor
from perdure.graph.handlers import handler

CONDUCTOR = "workflow.conductor"
"""The executor that leads the execution. No node can have this id."""
Context = WorkflowContext[NodeOutcome | Begin | NodeTask]
"""NodeTask: so that its edges to other nodes, along which only the conductor sends, fit."""


class InnerTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a workflow that is a node is at."""

    task: NodeTask
    text: str
    attempts: int = 1


class InnerFailed(Exception):
    """The workflow that is a node was not successful."""


class AgentNode(Executor):
    """Does what the conductor says, and tells it what came of that."""

    def __init__(self, node: str, config: NodeConfig, parts: NodeParts, workflow_name: str, *, is_inner: bool) -> None:
        super().__init__(node)
        self._config = config
        self._parts = parts
        self._workflow_name = workflow_name
        self._is_inner = is_inner
        """Whether it is part of a workflow that is a node of another: then a failure ends that one, not the run."""
        agent = None if parts.agent is None else adapted(parts.agent)
        self.agent_name = str(getattr(agent, "name", None) or node)
        self.description = getattr(agent, "description", None)
        self._turns = Turns(node, self.agent_name, config, parts)
        known = () if agent is None else types_of(agent)
        self.value_types = (*known, NodeTurn, InnerTask, OutOfTime, ApprovalDecision, *told.OWN, *parts.types)

    # ------------------------------------------------------------ what comes in

    @handler
    async def work(self, task: NodeTask, ctx: Context) -> None:
        if task.delay is not None:
            await ctx.sleep(task.delay)
        event = told.WorkflowAgentStartedEvent(agent_id=self.id, agent_name=self.agent_name, layer_index=task.layer)
        await self._tell(ctx, event)
        # Not in `try`: trouble with a session store is no failure of the node.
        session = await opened(self._parts.conversations, task.session, self.id)
        try:
            if self._parts.workflow is not None:
                ctx.private["inner"] = InnerTask(task, self._turns.told(task))
                await self._send_inner(ctx)
                return
            taken = await self._turns.taken(task, session, ctx)
        except Exception as error:  # noqa: BLE001  # whatever an agent raises: what it means is said by the node's mode
            raise_trouble()
            await self._fail(task, error, ctx)
            return
        await self._settle(task, taken, ctx)

    @handler
    async def hear_workflow(self, result: ExecutionResult, ctx: Context) -> None:
        """Of the workflow that is this node."""
        inner: InnerTask = ctx.private["inner"]
        task = inner.task
        if not result.success:
            error = OutOfTime() if is_over(task) else InnerFailed(result.error or "it was not successful")
            retry = self._turns.retry(task)
            if retry is not None and retry.retries(error, inner.attempts):
                # Recorded: a delay may be left to chance, and the handler runs again from the top after it.
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
        """To the workflow that is this node: each time it begins anew."""
        inner: InnerTask = ctx.private["inner"]
        own = self._config.timeout
        limits = (inner.task.deadline, None if own is None else clock().now() + timedelta(seconds=own))
        deadline = min((one for one in limits if one is not None), default=None)
        await ctx.send_message(Begin(inner.text, deadline), target_id=self._parts.workflow)

    # ------------------------------------------------------------ how it ends

    async def _settle(self, task: NodeTask, taken: NodeTurn, ctx: Context) -> None:
        try:
            given = await self._approved(task, dict(taken.outputs), ctx)
        except Exception as error:  # noqa: BLE001  # nobody answered in time, or a predicate failed
            raise_trouble()
            await self._fail(task, error, ctx)
            return
        if isinstance(given, str):
            await self._tell(ctx, told.WorkflowAgentSkippedEvent(agent_id=self.id, reason=given))
            await self._answer("skipped", ctx, reason=given)
            return
        # What was denied is not part of the conversation.
        session = await kept(self._parts.conversations, task.session, taken.said, self.id, ctx)
        await self._tell(ctx, self._completed(task, given, None))
        await self._answer("done", ctx, outputs=given, session=session)

    async def _approved(self, task: NodeTask, outputs: dict[str, Any], ctx: Context) -> dict[str, Any] | str:
        """The outputs, with what somebody put into them; or why they are not used."""
        config = self._config.approval
        context = ApprovalContext(self.id, outputs, task.input, task.outputs)
        if config is None or not is_needed(config, self._parts.needs_approval, context):
            return outputs
        decision = await decided(config, context, ctx, task.deadline)
        event = told.WorkflowApprovalResolvedEvent(
            request_id=f"{ctx.thread_id}:{delivery().delivery_name}",
            agent_id=self.id,
            approved=decision.approved,
            reason=decision.reason,
            timed_out=decision.timed_out,
        )
        await self._tell(ctx, event)
        if decision.timed_out and not decision.approved:
            raise OutOfTime if is_over(task) else ApprovalTimedOut(self.id, config.timeout or 0)
        if not decision.approved:
            return f"denied: {decision.reason}" if decision.reason else "denied"
        return {**outputs, **msgspec.json.decode(msgspec.json.encode(decision.data))}  # outputs are plain data

    async def _fail(self, task: NodeTask, error: Exception, ctx: Context) -> None:
        """As the node's mode says; one that stops leaves the thread where it can be resumed from."""
        reason = str(error) if isinstance(error, OutOfTime | InnerFailed) else f"{type(error).__name__}: {error}"
        await self._tell(ctx, self._completed(task, {}, reason))
        ends_all = isinstance(error, OutOfTime)
        if self._config.on_error.mode == "stop" and not ends_all:
            # Nobody's answer in time is an answer that was given, and what a workflow came to is what it came to:
            # trying again would find the same.
            ends_all = self._is_inner or isinstance(error, ApprovalTimedOut | InnerFailed)
            if not ends_all:
                raise error
        await self._answer("failed", ctx, reason=reason, ends_all=ends_all)

    async def _answer(self, status: Status, ctx: Context, **what: Any) -> None:
        await ctx.send_message(NodeOutcome(self.id, status, **what), target_id=CONDUCTOR)

    def _completed(
        self, task: NodeTask, outputs: dict[str, Any], error: str | None
    ) -> told.WorkflowAgentCompletedEvent:
        return told.WorkflowAgentCompletedEvent(
            agent_id=self.id,
            agent_name=self.agent_name,
            layer_index=task.layer,
            success=error is None,
            duration=(clock().now() - task.began).total_seconds(),
            outputs=outputs,
            error_message=error,
        )

    async def _tell(self, ctx: Context, event: told.AgentWorkflowEvent) -> None:
        named = msgspec.structs.replace(event, workflow_name=self._workflow_name)
        await ctx.add_event(WorkflowEvent(told.EVENT, named))
