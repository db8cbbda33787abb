"""A workflow of agents as a tool of another agent: one call is one execution, found again after a crash."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from perdure.agent_workflow.events import AgentWorkflowEvent, WorkflowApprovalRequestedEvent
from perdure.agent_workflow.execution.approvals import ApprovalDecision
from perdure.agent_workflow.execution.execution import WorkflowResult
from perdure.agents.conversation.content import Content
from perdure.agents.recording import ApprovalResponse, record_call, working_for
from perdure.agents.tools import Tool, ToolContext
from perdure.engine.delivery.context import DeliveryContext
from perdure.errors import InvalidRun
from perdure.graph.policy import Seconds
from perdure.names import new_thread_id

if TYPE_CHECKING:
    from perdure.agent_workflow.instance import AgentWorkflowInstance


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
        self._answers: dict[str, Any] = {}
        """By request: one that was lost with its process asks the same again."""
        self._one_at_a_time = asyncio.Lock()

    async def answer(self) -> str:
        """Raises RuntimeError if the execution was not successful."""
        context = working_for()
        if context is None:
            reached = await self._round()
            if "pending" in reached:
                raise InvalidRun(self._nobody(reached["pending"]))
            return str(reached["answer"])
        with self._told_to(context):
            reached = await self._answered(context)
        context.add_usage(reached["usage"])
        return str(reached["answer"])

    async def _answered(self, context: DeliveryContext) -> dict[str, Any]:
        number = 0
        while True:
            name, key = f"{self._instance.name}.round", f"{self._execution_id} {number}"
            reached: dict[str, Any] = await record_call(self._round, name=name, key=key)
            if "pending" in reached:
                asked = (self._asked(context, one, number) for one in reached["pending"])
                passed = await asyncio.gather(*asked)
                # One that is not kept is forgotten when it ends: it is not asked where it stands then.
                reached = next((one for one in passed if "answer" in one), reached)
            if "answer" in reached:
                return reached
            number += 1

    @contextmanager
    def _told_to(self, context: DeliveryContext) -> Iterator[None]:
        """Events of the execution go to whoever watches the workflow around it."""

        def tell(event: AgentWorkflowEvent) -> None:
            if event.execution_id == self._execution_id:
                context.emit_live(event)

        is_told = self._stream_events and context.is_streaming()
        end = self._instance.subscribe(AgentWorkflowEvent, tell) if is_told else None
        try:
            yield
        finally:
            if end is not None:
                end()

    async def _round(self) -> dict[str, Any]:
        return self._reached(await self._moved())

    def _reached(self, result: WorkflowResult) -> dict[str, Any]:
        """What is recorded: the answer, or what it waits for."""
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
        return await self._instance.run(self._input, self._execution_id, takeover=working_for() is not None)

    async def _asked(self, context: DeliveryContext, pending: Mapping[str, Any], number: int) -> dict[str, Any]:
        """Ask whoever answers the workflow around it, and pass the answer on. Gives what came of that."""
        request, deadline = pending["request"], pending["deadline"]
        request_id = str(pending["request_id"])  # which begins with the id of the execution
        is_tool = isinstance(request, Content)
        late = {} if deadline is None else {"deadline": deadline, "default": _late(is_tool)}
        wanted: Any = ApprovalResponse if is_tool else bool | ApprovalDecision
        if request_id not in self._answers:
            self._answers[request_id] = await context.ask(request, wanted, request_id=request_id, **late)
        answer = self._answers[request_id]

        async def pass_on() -> dict[str, Any]:
            async with self._one_at_a_time:
                result = await self._moved()  # where it was lost with its process, it asks again first
                if any(one.request_id == request_id for one in result.pending):
                    result = await self._passed(request_id, answer)
                return self._reached(result)

        name, key = f"{self._instance.name}.answer", f"{request_id} {number}"
        passed: dict[str, Any] = await record_call(pass_on, name=name, key=key)
        return passed

    async def _passed(self, request_id: str, answer: Any) -> WorkflowResult:
        said = ApprovalDecision(answer) if isinstance(answer, bool) else answer
        if said.approved:
            data = said.data if isinstance(said, ApprovalDecision) else _changed_arguments(said)
            return await self._instance.approve(request_id, reason=said.reason, data=data)
        return await self._instance.deny(request_id, reason=said.reason)

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
