"""A workflow of agents as a tool of another agent: one call is one execution, found again after a crash."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.agents.approval import ApprovalResponse
from holdfast.agents.content import Content
from holdfast.agents.recording import recorded, working_for
from holdfast.agents.tools import Tool, ToolContext
from holdfast.engine.context import DeliveryContext
from holdfast.errors import InvalidRun
from holdfast.graph.policy import Seconds
from holdfast.names import new_thread_id
from holdfast.orchestrations.agent_workflow.approvals import ApprovalDecision
from holdfast.orchestrations.agent_workflow.events import AgentWorkflowEvent, WorkflowApprovalRequestedEvent
from holdfast.orchestrations.agent_workflow.result import WorkflowResult

if TYPE_CHECKING:
    from holdfast.orchestrations.agent_workflow.instance import AgentWorkflowInstance

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
"""Models take no more than letters, digits, _ and - in the name of a tool."""


def workflow_tool(
    instance: AgentWorkflowInstance,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: Seconds | None = None,
    stream_events: bool = True,
) -> Tool:
    """The model calls it with a text, and is told the final answer, or why there is none.

    In a workflow the execution is named by the call: whoever makes the call again after a crash goes on with it. For
    that the workflow needs checkpointing. Approvals that it waits for are asked by the workflow around it. `timeout` is
    of one attempt; `stream_events` passes its events on, as `data`, to whoever watches the workflow around it.
    """

    async def run_workflow(input: str, context: ToolContext) -> str:
        is_named = context.thread_id is not None
        execution_id = f"tool-{context.idempotency_key}" if is_named else new_thread_id()
        return await _Call(instance, input, execution_id, stream_events).answer()

    return Tool(
        run_workflow,
        name=name or _NOT_IN_NAMES.sub("_", instance.name).strip("_") or "workflow",
        description=description or instance.definition.description or f"Runs {instance.name}, and gives its answer.",
        timeout=timeout,
    )


class _Call:
    """Of the tool. Each time that it must wait for somebody ends a round; what a round came to is recorded."""

    def __init__(self, instance: AgentWorkflowInstance, given: str, execution_id: str, stream_events: bool) -> None:
        self._instance = instance
        self._input = given
        self._execution_id = execution_id
        self._stream_events = stream_events
        self._one_at_a_time = asyncio.Lock()

    async def answer(self) -> str:
        """Raises RuntimeError if the execution was not successful."""
        round_number = 0
        while True:
            key = f"{self._execution_id} {round_number}"
            reached: dict[str, Any] = await recorded(self._round, name=f"{self._instance.name}.round", key=key)
            context = working_for()
            if "answer" in reached:
                if context is not None:
                    context.add_usage(reached["usage"])
                return str(reached["answer"])
            if context is None:
                raise InvalidRun(self._nobody(reached["pending"]))
            await asyncio.gather(*(self._asked(context, one) for one in reached["pending"]))
            round_number += 1

    async def _round(self) -> dict[str, Any]:
        result = await self._moved()
        if result.state == "waiting":
            return {"pending": [_plain(one) for one in result.pending]}
        if not result.success:
            raise RuntimeError(
                f"Workflow {self._instance.name!r} was not successful: {result.error or result.state}. It is "
                f"execution {self._execution_id!r}."
            ) from result.exception
        return {"answer": result.final_answer or "", "usage": result.usage}

    async def _moved(self) -> WorkflowResult:
        """Whoever moves the thread around it may move this one: an owner before is gone, or lost that one too."""
        context = working_for()
        options = {} if context is None else {"takeover": True}
        stream = self._instance.stream(self._input, self._execution_id, **options)
        async for event in stream:
            is_told = self._stream_events and context is not None and context.is_streaming()
            if is_told and context is not None and isinstance(event, AgentWorkflowEvent):
                context.tell_live(event)
        return await stream

    async def _asked(self, context: DeliveryContext, pending: Mapping[str, Any]) -> None:
        """Ask whoever answers the workflow around it, and pass the answer on."""
        request, deadline = pending["request"], pending["deadline"]
        request_id = str(pending["request_id"])  # which begins with the id of the execution
        is_tool = isinstance(request, Content)
        late = {} if deadline is None else {"deadline": deadline, "default": _late(is_tool)}
        wanted: Any = ApprovalResponse if is_tool else bool | ApprovalDecision
        answer = await context.ask(request, wanted, request_id=request_id, **late)

        async def pass_on() -> None:
            async with self._one_at_a_time:
                result = await self._moved()  # where it was lost with its process, it asks again first
                if any(one.request_id == request_id for one in result.pending):
                    await self._passed(request_id, answer)

        await recorded(pass_on, name=f"{self._instance.name}.answer", key=request_id)

    async def _passed(self, request_id: str, answer: Any) -> None:
        said = ApprovalDecision(answer) if isinstance(answer, bool) else answer
        if said.approved:
            data = said.data if isinstance(said, ApprovalDecision) else _changed_arguments(said)
            await self._instance.approve(request_id, reason=said.reason, data=data)
        else:
            await self._instance.deny(request_id, reason=said.reason)

    def _nobody(self, pending: list[Mapping[str, Any]]) -> str:
        asked = ", ".join(repr(one["request_id"]) for one in pending)
        return (
            f"Workflow {self._instance.name!r} waits for an approval ({asked}), and a tool can ask nobody outside of a "
            f"workflow. Its execution {self._execution_id!r} is kept as it stands: answer it with `approve` or `deny` "
            "of that workflow, or run the agent in a workflow."
        )


def _plain(pending: WorkflowApprovalRequestedEvent) -> dict[str, Any]:
    deadline: datetime | None = pending.deadline
    return {"request_id": pending.request_id, "request": pending.request, "deadline": deadline}


def _late(is_tool: bool) -> Any:
    """In place of an answer that did not come in time: the execution inside, whose time is up too, decides."""
    reason = "nobody answered in time"
    if is_tool:
        return ApprovalResponse(approved=False, reason=reason)
    return ApprovalDecision(False, reason, timed_out=True)


def _changed_arguments(answer: Content) -> dict[str, Any] | None:
    """Those that somebody put in place of what the model called the tool with."""
    changed = answer if answer.function_call is None else answer.function_call
    return None if changed.arguments is None else dict(changed.parse_arguments())
