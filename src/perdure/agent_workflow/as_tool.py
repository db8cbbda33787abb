"""A workflow of agents as a tool of another agent: one call is one execution, which resumes after a crash."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perdure.agent_workflow.events import AgentWorkflowEvent
from perdure.agent_workflow.execution.execution import WorkflowResult
from perdure.agent_workflow.execution.node import ApprovalDecision
from perdure.agents.conversation.content import Content
from perdure.agents.recording import ApprovalResponse, current_delivery, record_call
from perdure.agents.tools import Tool, ToolContext
from perdure.engine.delivery.context import DeliveryContext
from perdure.errors import InvalidRun
from perdure.graph.policy import Seconds
from perdure.names import new_thread_id

if TYPE_CHECKING:
    from perdure.agent_workflow.instance import AgentWorkflowInstance


def workflow_tool(
    instance: AgentWorkflowInstance,
    name: str | None = None,
    *,
    description: str | None = None,
    timeout: Seconds | None = None,
    stream_events: bool = True,
) -> Tool:
    """A tool for an agent: `Agent(..., tools=[workflow.as_tool()])`. The model calls it with a text and gets the final
    answer, or the reason of the failure.

    In a workflow the idempotency key of the call names the execution, so a repeated call after a crash resumes it. That
    needs checkpointing. The outer workflow asks for approvals that the execution waits for. `timeout` limits one
    attempt; `stream_events` passes events of the execution on, as `data`, to subscribers of the outer workflow.
    """

    async def run_workflow(input: str, context: ToolContext) -> str:
        execution_id = f"tool-{context.idempotency_key}" if context.thread_id is not None else new_thread_id()
        return await _WorkflowCall(instance, input, execution_id, stream_events).answer()

    # Models accept only letters, digits, _ and - in the name of a tool.
    own_name = re.sub(r"[^A-Za-z0-9_-]+", "_", instance.name).strip("_")
    return Tool(
        run_workflow,
        name=name or own_name or "workflow",
        description=description or instance.definition.description or f"Runs {instance.name}, and gives its answer.",
        timeout=timeout,
    )


_LATE = "no answer arrived in time"


@dataclass(eq=False)
class _WorkflowCall:
    """One call of the tool. Each wait for an answer ends a round; the result of a round is recorded."""

    _instance: AgentWorkflowInstance
    _input: str
    _execution_id: str
    _stream_events: bool
    _answers: dict[str, Any] = field(default_factory=dict)
    """By request: an execution that was lost with its process asks the same again."""
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def answer(self) -> str:
        """Raises RuntimeError if the execution was not successful."""
        context = current_delivery()
        if context is None:
            outcome = await self._run_round()
            if "pending" in outcome:
                request_ids = ", ".join(repr(request["request_id"]) for request in outcome["pending"])
                raise InvalidRun(
                    f"Workflow {self._instance.name!r} waits for an approval ({request_ids}), and a tool cannot ask "
                    f"outside of a workflow. Its execution {self._execution_id!r} stays pending: answer it with "
                    "`approve` or `deny` of that workflow, or run the agent in a workflow."
                )
            return str(outcome["answer"])

        def forward(event: AgentWorkflowEvent) -> None:
            if event.execution_id == self._execution_id:
                context.emit_live(event)

        with ExitStack() as stack:
            if self._stream_events and context.is_streaming():
                stack.callback(self._instance.subscribe(AgentWorkflowEvent, forward))
            outcome = await self._run_rounds(context)
        context.add_usage(outcome["usage"])
        return str(outcome["answer"])

    async def _run_rounds(self, context: DeliveryContext) -> dict[str, Any]:
        number = 0
        while True:
            name, key = f"{self._instance.name}.round", f"{self._execution_id} {number}"
            outcome: dict[str, Any] = await record_call(self._run_round, name=name, key=key)
            if "pending" in outcome:
                answering = (self._ask(context, pending, number) for pending in outcome["pending"])
                outcomes = await asyncio.gather(*answering)
                # An execution without checkpointing is deleted when it ends: its state cannot be read again.
                outcome = next((each for each in outcomes if "answer" in each), outcome)
            if "answer" in outcome:
                return outcome
            number += 1

    async def _run_round(self) -> dict[str, Any]:
        return self._outcome_of(await self._run_instance())

    def _outcome_of(self, result: WorkflowResult) -> dict[str, Any]:
        """The recorded value: the answer, or the pending requests."""
        if result.state == "waiting":
            fields = ("request_id", "request", "deadline")
            return {"pending": [{name: getattr(event, name) for name in fields} for event in result.pending]}
        if not result.success:
            raise RuntimeError(
                f"Workflow {self._instance.name!r} was not successful: {result.error or result.state}. It is "
                f"execution {self._execution_id!r}."
            ) from result.exception
        return {"answer": result.final_answer or "", "usage": result.usage}

    async def _run_instance(self) -> WorkflowResult:
        """Takes over the inner thread: the owner of the outer thread is the only process that may run it."""
        return await self._instance.run(self._input, self._execution_id, takeover=current_delivery() is not None)

    async def _ask(self, context: DeliveryContext, pending: Mapping[str, Any], number: int) -> dict[str, Any]:
        """Ask through the outer workflow, pass the answer on, and return the outcome."""
        request, deadline = pending["request"], pending["deadline"]
        request_id = str(pending["request_id"])  # which begins with the id of the execution
        wanted: Any = bool | ApprovalDecision
        late: Any = ApprovalDecision(False, _LATE, timed_out=True)
        if isinstance(request, Content):
            wanted, late = ApprovalResponse, ApprovalResponse(approved=False, reason=_LATE)
        # After the deadline the inner execution decides: its deadline has passed too.
        terms = {} if deadline is None else {"deadline": deadline, "default": late}
        if request_id not in self._answers:
            self._answers[request_id] = await context.ask(request, wanted, request_id=request_id, **terms)
        answer = self._answers[request_id]

        async def pass_on() -> dict[str, Any]:
            async with self._lock:
                result = await self._run_instance()  # an execution lost with its process asks again first
                if any(event.request_id == request_id for event in result.pending):
                    result = await self._pass_answer(request_id, answer)
                return self._outcome_of(result)

        name, key = f"{self._instance.name}.answer", f"{request_id} {number}"
        outcome: dict[str, Any] = await record_call(pass_on, name=name, key=key)
        return outcome

    async def _pass_answer(self, request_id: str, answer: Any) -> WorkflowResult:
        decision = ApprovalDecision(answer) if isinstance(answer, bool) else answer
        if not decision.approved:
            return await self._instance.deny(request_id, reason=decision.reason)
        if isinstance(decision, ApprovalDecision):
            data: dict[str, Any] | None = decision.data
        else:  # of a tool: the arguments that replace those of the model, if there are any
            call = decision.function_call or decision
            data = None if call.arguments is None else dict(call.parse_arguments())
        return await self._instance.approve(request_id, reason=decision.reason, data=data)
