"""The spans of one run: the run itself, its supersteps, deliveries, steps, commits and requests."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from perdure.engine.tracing.tracing import Attributes, Opened, Spans, Tracing, to_text
from perdure.errors import type_name

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from perdure.checkpoints.checkpoint import WorkflowCheckpoint
    from perdure.engine.delivery.lane import Lane
    from perdure.engine.run.options import RunRequest
    from perdure.engine.thread.compiled import Compiled
    from perdure.engine.thread.effects import Effects
    from perdure.engine.thread.level import Level
    from perdure.events import WorkflowEvent
    from perdure.records import WorkflowMessage


class RunSpans(Spans):
    def __init__(self, tracing: Tracing, durability: str) -> None:
        super().__init__(tracing)
        self._durability = durability
        self._levels: dict[Level, Opened] = {}
        """Spans of sub-workflows with work in the present superstep."""
        self._deliveries: dict[Lane, Opened] = {}
        """Spans of running deliveries."""

    def run(self, compiled: Compiled, thread_id: str, run_id: str, request: RunRequest) -> Opened:
        """Open the span of the run, in the thread's trace and linked to the caller."""
        from opentelemetry import trace

        caller = trace.get_current_span().get_span_context()
        links = [trace.Link(caller, {"perdure.link": "caller"})] if caller.is_valid else []
        attributes: dict[str, str | int | float | bool] = {
            "workflow.id": compiled.signature_hash,
            "workflow.name": compiled.graph.name,
            "gen_ai.conversation.id": thread_id,
            "perdure.run_id": run_id,
            "perdure.durability": request.durability,
            "perdure.entry": _entry(request),
        }
        if compiled.graph.description:
            attributes["workflow.description"] = compiled.graph.description
        opened = self.open("workflow.run", attributes, self.tracing.thread_context(thread_id), links=links)
        opened.span.add_event("workflow.started")
        return opened

    async def superstep(self, work: Coroutine[Any, Any, None], iteration: int) -> None:
        with self.open("workflow.superstep", {"perdure.superstep": iteration}):
            try:
                await work
            finally:
                for level, opened in reversed(self._levels.items()):
                    if level.failure is not None:
                        opened.note(level.failure)
                    opened.end()
                self._levels.clear()

    def _context_of(self, level: Level) -> Context | None:
        """The context of a sub-workflow's superstep; None, the current context, for the thread's own workflow."""
        if level.parent is None:
            return None
        opened = self._levels.get(level)
        if opened is None:
            attributes: Attributes = {
                "workflow.name": level.compiled.graph.name,
                "executor.id": level.full_id,
                "perdure.child_id": level.child_id or 0,
            }
            opened = self.open("workflow.superstep", attributes, self._context_of(level.parent))
            self._levels[level] = opened
        return opened.context

    async def delivery(self, lane: Lane, message: WorkflowMessage) -> Effects:
        attributes: dict[str, str | int | float | bool] = {
            "executor.id": lane.full_id,
            "executor.type": type(lane.executor).__name__,
            "message.source_id": message.source_id,
            "message.type": message.type.value,
            "message.payload_type": type_name(type(message.data)),
            "perdure.delivery_id": message.delivery_id,
        }
        if self.tracing.sensitive:
            attributes["executor.input"] = to_text(message.data)
        with self.open(f"executor.process {lane.full_id}", attributes, self._context_of(lane.level)) as opened:
            self._deliveries[lane] = opened
            try:
                effects = await lane.deliver(message)
            except Exception as error:
                self._note_around(lane.level, error)
                raise
            finally:
                del self._deliveries[lane]
            opened.outcome = _outcome(effects, has_failed=opened.has_failed)
            if self.tracing.sensitive:
                opened.span.set_attribute("executor.output", to_text([data for data, _ in effects.sends]))
        return effects

    def _note_around(self, level: Level, error: BaseException) -> None:
        while level.parent is not None:
            self._levels[level].note(error)
            level = level.parent

    def delivery_failed(self, lane: Lane, error: BaseException) -> None:
        """Record the failure of a delivery, whatever its policy does."""
        opened = self._deliveries.get(lane)
        if opened is not None:
            opened.note(error)

    def bypassed(self, kind: str, path: str) -> None:
        """Note a replay of an `executor` or `step` that an earlier attempt recorded."""
        self.add_event(f"{kind}.bypassed", {"executor.id" if kind == "executor" else "step.name": path})

    async def step(
        self, path: str, attempt: int, work: Coroutine[Any, Any, tuple[Any, Exception | None]]
    ) -> tuple[Any, Exception | None]:
        """One attempt of a step."""
        with self.open(f"step.process {path}", {"step.name": path, "perdure.attempt": attempt}) as opened:
            value, failure = await work
            opened.outcome = "completed"
            if failure is not None:
                opened.outcome = "failed"
                opened.note(failure)
        return value, failure

    def commit(self, checkpoint: WorkflowCheckpoint | None, events: int) -> Opened:
        attributes: dict[str, str | int | float | bool] = {
            "perdure.durability": self._durability,
            "checkpoint.events": events,
        }
        if checkpoint is not None:
            attributes["checkpoint.id"] = checkpoint.checkpoint_id
            attributes["checkpoint.number"] = checkpoint.number
        return self.open("checkpoint.commit", attributes)

    def record_request(self, request: WorkflowEvent) -> None:
        from opentelemetry.trace import SpanKind

        attributes = _of_request(request)
        attributes["response.type"] = type_name(request.response_type)
        if self.tracing.sensitive:
            attributes["request.content"] = to_text(request.data)
        self.open("request.ask", attributes, kind=SpanKind.PRODUCER).end()

    def settled(self, request: WorkflowEvent, how: str) -> None:
        from opentelemetry.trace import SpanKind

        opened = self.open("request.settle", _of_request(request), kind=SpanKind.CONSUMER)
        opened.outcome = how
        opened.end()


def _of_request(request: WorkflowEvent) -> dict[str, str | int | float | bool]:
    return {
        "request.id": str(request.request_id),
        "request.type": type_name(request.request_type),
        "executor.id": str(request.source_executor_id),
    }


def _entry(request: RunRequest) -> str:
    if request.checkpoint_id is not None:
        return "checkpoint"
    if request.responses is not None:
        return "responses"
    return "resume" if request.message is None else "message"


def _outcome(effects: Effects, *, has_failed: bool) -> str:
    if effects.suspended is not None:
        return "retrying" if has_failed else "suspended"
    if has_failed:
        return "stepped over"
    return "started" if effects.is_start else "completed"
