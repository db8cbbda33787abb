"""The executor of one node: its agent's turn, what becomes of a failure, and somebody's word before it counts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast.agents.adapters import adapted
from holdfast.agents.executor import run_arguments
from holdfast.agents.message import Message
from holdfast.agents.recording import working_for
from holdfast.agents.response import AgentResponse
from holdfast.agents.tools import Tool, types_of
from holdfast.agents.turns import take_live_turn
from holdfast.engine.context import DeliveryContext
from holdfast.errors import ApprovalTimedOut, TimedOut
from holdfast.events import WorkflowEvent
from holdfast.graph.context import WorkflowContext
from holdfast.graph.executor import Executor
from holdfast.graph.handlers import handler
from holdfast.orchestrations.agent_workflow import events as told
from holdfast.orchestrations.agent_workflow.approvals import (
    ApprovalContext,
    ApprovalDecision,
    Predicate,
    decided,
    is_needed,
)
from holdfast.orchestrations.agent_workflow.conversations import Conversations
from holdfast.orchestrations.agent_workflow.definition import ANSWER, NodeConfig
from holdfast.orchestrations.agent_workflow.inputs import Values, input_of, messages_for
from holdfast.orchestrations.agent_workflow.limits import Turnstile
from holdfast.orchestrations.agent_workflow.outputs import handoff_tools, outputs_of
from holdfast.orchestrations.agent_workflow.retrying import policy_of
from holdfast.orchestrations.agent_workflow.standing import ExecutionResult, NodeOutcome, NodeTask, SessionRef, Status

Context = WorkflowContext[NodeOutcome | str]


class TurnTaken(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is recorded of a turn."""

    response: AgentResponse
    said: list[Message] = []  # msgspec copies it
    """What it added to its conversation, where it is part of one."""


class Failed(msgspec.Struct, frozen=True):
    """An item of a map that came to nothing."""

    reason: str


class OutOfTime(Exception):
    """The execution's time is up, not the node's alone: whatever the node does about errors, nothing more is begun."""


@dataclass(frozen=True)
class NodeParts:
    """What a node is made of, beside its config: all that only Python has."""

    agent: Any = None
    types: Sequence[type] = ()
    tools: Sequence[Tool] = ()
    needs_approval: Predicate | None = None
    workflow: str | None = None
    """The executor that runs the workflow of the node, if it is one."""
    conversations: Conversations | None = None


class AgentNode(Executor):
    """Does what the conductor says, and tells it what came of that."""

    def __init__(self, node: str, config: NodeConfig, parts: NodeParts, workflow_name: str, *, is_inner: bool) -> None:
        super().__init__(node)
        self._config = config
        self._parts = parts
        self._workflow_name = workflow_name
        self._is_inner = is_inner
        """Whether it is part of a workflow that is a node of another: then a failure ends that one, not the run."""
        self._retry = policy_of(config.retry)
        self._tools = [*parts.tools, *handoff_tools(config)]
        self._turnstile = Turnstile(config.max_concurrent)
        agent = None if parts.agent is None else adapted(parts.agent)
        self.agent_name = str(getattr(agent, "name", None) or node)
        self.description = getattr(agent, "description", None)
        known = () if agent is None else types_of(agent)
        self.value_types = (*known, TurnTaken, Failed, ApprovalDecision, *told.OWN, *parts.types)

    # ------------------------------------------------------------ what comes in

    @handler
    async def work(self, task: NodeTask, ctx: Context) -> None:
        began = await self._started(task, ctx)
        try:
            if self._parts.workflow is not None:
                ctx.private["task"], ctx.private["began"] = task, began
                await ctx.send_message(input_of(self.id, self._config, Values(task)), target_id=self._parts.workflow)
                return
            outputs, session = await self._performed(task, ctx)
        except Exception as error:  # noqa: BLE001  # whatever an agent raises: what it means is said by the node's mode
            await self._fail(task, error, began, ctx)
            return
        await self._settle(task, outputs, session, began, ctx)

    @handler
    async def hear_workflow(self, result: ExecutionResult, ctx: Context) -> None:
        """Of the workflow that is this node."""
        task, began = ctx.private.pop("task"), ctx.private.pop("began")
        if not result.success:
            error = RuntimeError(result.error or "it was not successful")
            await self._fail(task, error, began, ctx)
            return
        by_node: dict[str, dict[str, Any]] = {}
        for path, value in result.outputs.items():
            node, _, key = path.partition(".")
            by_node.setdefault(node, {})[key] = value
        outputs = {self._config.output_key or ANSWER: result.final_answer, "outputs": by_node}
        await self._settle(task, outputs, None, began, ctx)

    async def _started(self, task: NodeTask, ctx: Context) -> datetime:
        clock = self._context().clock
        if task.delay is not None:
            due = await ctx.step(clock.now, name="due", key="due")
            until = due + timedelta(seconds=task.delay)
            await ctx.sleep(until if task.deadline is None else min(until, task.deadline))
        began: datetime = await ctx.step(clock.now, name="began", key="began")
        event = told.WorkflowAgentStartedEvent(agent_id=self.id, agent_name=self.agent_name, layer_index=task.layer)
        await self._tell(ctx, event)
        return began

    # ------------------------------------------------------------ the turn

    async def _performed(self, task: NodeTask, ctx: Context) -> tuple[dict[str, Any], SessionRef | None]:
        values = Values(task)
        if self._config.map is None:
            text = input_of(self.id, self._config, values)
            taken = await self._turn(text, task, ctx, "turn")
            outputs = outputs_of(self.id, self._config, taken.response, self._parts.types)
            return outputs, await self._kept(task, taken.said, ctx)
        return await self._mapped(task, values, ctx), task.session

    async def _turn(self, text: str, task: NodeTask, ctx: Context, key: str) -> TurnTaken:
        """Recorded: once it is, the agent is not asked again for this task."""
        conversations, options = self._parts.conversations, dict(run_arguments(ctx))
        if self._tools:
            options["tools"] = self._tools
        if self._parts.types:
            options["response_format"] = self._response_format()
        messages = messages_for(self._config, text)

        async def turn() -> TurnTaken:
            if conversations is None or task.session is None:
                return TurnTaken(await take_live_turn(self._parts.agent, messages, **options))
            session = await conversations.load(task.session)
            before = session.version
            response = await take_live_turn(self._parts.agent, messages, session, **options)
            return TurnTaken(response, session.messages[before:])

        seconds, is_all = self._seconds_left(task)
        try:
            async with self._turnstile:
                taken: TurnTaken = await ctx.step(
                    turn, name=self.agent_name, key=key, retry=self._retry, timeout=seconds
                )
        except TimedOut as error:
            if is_all:
                raise OutOfTime("the execution ran out of time") from error
            raise
        return taken

    def _response_format(self) -> Any:
        types = self._parts.types
        wanted: Any = types[0]
        for one in types[1:]:
            wanted = wanted | one
        return wanted

    def _seconds_left(self, task: NodeTask) -> tuple[float | None, bool]:
        """For one attempt; and whether it is the whole execution that ends then. Raises OutOfTime."""
        if task.deadline is None:
            return self._config.timeout, False
        left = (task.deadline - self._context().clock.now()).total_seconds()
        if left <= 0:
            raise OutOfTime("the execution ran out of time")
        own = self._config.timeout
        return (left, True) if own is None or left < own else (own, False)

    async def _kept(self, task: NodeTask, said: Sequence[Message], ctx: Context) -> SessionRef | None:
        """What was said is in the session store before the checkpoint refers to it."""
        conversations = self._parts.conversations
        if conversations is None or task.session is None:
            return None
        kept: SessionRef = await ctx.step(
            conversations.keep, task.session, list(said), self.id, name="keep the conversation"
        )
        return kept

    async def _mapped(self, task: NodeTask, values: Values, ctx: Context) -> dict[str, Any]:
        """The agent, once for each item: what is done of a map that was interrupted is not done again."""
        config = self._config.map
        assert config is not None  # noqa: S101  # asked only of a map
        place = f"agents.{self.id}.map.over"
        items = values.find(config.over, place)
        if not isinstance(items, list | tuple):
            raise TypeError(f"{place}: expected a list, {config.over!r} is {type(items).__name__}: {items!r:.200}")
        limit = asyncio.Semaphore(config.max_parallel)

        async def one(index: int, item: Any) -> Any:
            async with limit:
                try:
                    text = input_of(self.id, self._config, values, {"item": item, "index": index})
                    taken = await self._turn(text, task, ctx, f"turn {index}")
                    outputs = outputs_of(self.id, self._config, taken.response, self._parts.types)
                except OutOfTime:
                    raise
                except Exception as error:
                    if config.on_error == "fail":
                        raise
                    return Failed(_said(error))
                own = outputs.get(self._config.output_key or ANSWER)
                return outputs if own is None or len(outputs) > 1 else own

        done = await asyncio.gather(*(one(*pair) for pair in enumerate(items)), return_exceptions=True)
        for result in done:  # only now: what ended beside a failure is recorded
            if isinstance(result, BaseException):
                raise result
        kept = [None if isinstance(one, Failed) else one for one in done]
        if config.on_error == "omit":
            kept = [one for one in done if not isinstance(one, Failed)]
        return {self._config.output_key or ANSWER: kept}

    # ------------------------------------------------------------ how it ends

    async def _settle(
        self,
        task: NodeTask,
        outputs: Mapping[str, Any],
        session: SessionRef | None,
        began: datetime,
        ctx: Context,
    ) -> None:
        try:
            given = await self._approved(task, dict(outputs), ctx)
        except Exception as error:  # noqa: BLE001  # nobody answered in time, or a predicate failed
            await self._fail(task, error, began, ctx)
            return
        if isinstance(given, str):
            await self._tell(ctx, told.WorkflowAgentSkippedEvent(agent_id=self.id, reason=given))
            await self._answer(task, "skipped", ctx, reason=given, session=session)
            return
        await self._tell(ctx, self._completed(task, began, given, None))
        await self._answer(task, "done", ctx, outputs=given, session=session)

    async def _approved(self, task: NodeTask, outputs: dict[str, Any], ctx: Context) -> dict[str, Any] | str:
        """The outputs, with what somebody put into them; or why they are not used."""
        config = self._config.approval
        context = ApprovalContext(self.id, outputs, task.input, task.outputs)
        if config is None or not is_needed(config, self._parts.needs_approval, context):
            return outputs
        decision = await decided(config, context, ctx, task.deadline)
        event = told.WorkflowApprovalResolvedEvent(
            request_id=f"{ctx.thread_id}:{self._context().delivery_name}",
            agent_id=self.id,
            approved=decision.approved,
            reason=decision.reason,
            timed_out=decision.timed_out,
        )
        await self._tell(ctx, event)
        if decision.timed_out and not decision.approved:
            self._seconds_left(task)  # it may be the execution whose time is up
            raise ApprovalTimedOut(self.id, config.timeout or 0)
        if not decision.approved:
            return f"denied: {decision.reason}" if decision.reason else "denied"
        return {**outputs, **decision.data}

    async def _fail(self, task: NodeTask, error: Exception, began: datetime, ctx: Context) -> None:
        """As the node's mode says; one that stops leaves the thread where it can be resumed from."""
        reason = _said(error)
        await self._tell(ctx, self._completed(task, began, {}, reason))
        ends_all = isinstance(error, OutOfTime)
        if self._config.on_error.mode == "stop" and not ends_all:
            # Nobody's answer in time is an answer that was given: trying again would find it again.
            ends_all = self._is_inner or isinstance(error, ApprovalTimedOut)
            if not ends_all:
                raise error
        await self._answer(task, "failed", ctx, reason=reason, ends_all=ends_all)

    async def _answer(self, task: NodeTask, status: Status, ctx: Context, **what: Any) -> None:
        await ctx.send_message(NodeOutcome(self.id, task.execution, status, **what), target_id="workflow.conductor")

    def _completed(
        self, task: NodeTask, began: datetime, outputs: dict[str, Any], error: str | None
    ) -> told.WorkflowAgentCompletedEvent:
        return told.WorkflowAgentCompletedEvent(
            agent_id=self.id,
            agent_name=self.agent_name,
            layer_index=task.layer,
            success=error is None,
            duration=(self._context().clock.now() - began).total_seconds(),
            outputs=outputs,
            error_message=error,
        )

    async def _tell(self, ctx: Context, event: told.AgentWorkflowEvent) -> None:
        await ctx.add_event(
            WorkflowEvent(told.EVENT, msgspec.structs.replace(event, workflow_name=self._workflow_name))
        )

    @staticmethod
    def _context() -> DeliveryContext:
        context = working_for()
        assert context is not None  # noqa: S101  # asked in a handler
        return context


def _said(error: BaseException) -> str:
    return str(error) if isinstance(error, OutOfTime) else f"{type(error).__name__}: {error}"
