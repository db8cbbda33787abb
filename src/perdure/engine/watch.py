"""Metrics and spans of one run. Created only if tracing is on or observers exist."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from time import perf_counter
from typing import TYPE_CHECKING, Any

from perdure import observing
from perdure.engine import tracing
from perdure.engine.tracing import SCOPE, Opened, Tracing, to_text
from perdure.errors import RunInterrupted, ThreadConflict, type_name
from perdure.events import WorkflowRunState

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from perdure.checkpoints.checkpoint import WorkflowCheckpoint
    from perdure.checkpoints.thread import OnSaved
    from perdure.engine.delivery.lane import Lane
    from perdure.engine.run.request import RunRequest
    from perdure.engine.thread.compiled import Compiled
    from perdure.engine.thread.level import Level
    from perdure.engine.thread.live_threads import LiveThread
    from perdure.engine.thread.position import Effects, Position
    from perdure.events import WorkflowEvent
    from perdure.records import CheckpointInfo, WorkflowMessage


class RunSpans:
    """The spans of one run, from one tracer, nested by OpenTelemetry's current context."""

    def __init__(self, tracing: Tracing, durability: str) -> None:
        self.tracing = tracing
        self._tracer = tracing.provider.get_tracer(SCOPE)
        self._durability = durability
        self._levels: dict[Level, Opened] = {}
        """Spans of sub-workflows with work in the present superstep."""
        self._deliveries: dict[Lane, Opened] = {}

    def open(self, name: str, attributes: dict[str, Any], context: Context | None = None, **options: Any) -> Opened:
        """`options` are those of OpenTelemetry's `start_span`."""
        options = {"record_exception": False, "set_status_on_exception": False, **options}
        return Opened(self.tracing, self._tracer.start_span(name, context, attributes=attributes, **options))

    def run(self, compiled: Compiled, thread_id: str, run_id: str, request: RunRequest) -> Opened:
        """Open the span of the run, in the thread's trace and linked to the caller."""
        from opentelemetry import trace

        caller = trace.get_current_span().get_span_context()
        links = [trace.Link(caller, {"perdure.link": "caller"})] if caller.is_valid else []
        attributes: dict[str, Any] = {
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
            attributes = {
                "workflow.name": level.compiled.graph.name,
                "executor.id": level.full_id,
                "perdure.child_id": level.child_id or 0,
            }
            outer = self._context_of(level.parent)
            opened = self._levels[level] = self.open("workflow.superstep", attributes, outer)
        return opened.context

    async def delivery(self, lane: Lane, message: WorkflowMessage) -> Effects:
        attributes: dict[str, Any] = {
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
                level = lane.level
                while level.parent is not None:
                    self._levels[level].note(error)
                    level = level.parent
                raise
            finally:
                del self._deliveries[lane]
            opened.outcome = _outcome(effects, has_failed=opened.failure is not None)
            if self.tracing.sensitive:
                opened.span.set_attribute("executor.output", to_text([data for data, _ in effects.sends]))
        return effects

    def delivery_failed(self, lane: Lane, error: BaseException) -> None:
        """Record the failure of a delivery, whatever its policy does."""
        self._deliveries[lane].note(error)

    def record_bypass(self, kind: str, path: str) -> None:
        """Note a replay of an `executor` or `step` that an earlier attempt recorded."""
        from opentelemetry import trace

        name = "executor.id" if kind == "executor" else "step.name"
        trace.get_current_span().add_event(f"{kind}.bypassed", {name: path})

    async def step(
        self, path: str, attempt: int, work: Coroutine[Any, Any, tuple[Any, Exception | None]]
    ) -> tuple[Any, Exception | None]:
        with self.open(f"step.process {path}", {"step.name": path, "perdure.attempt": attempt}) as opened:
            value, failure = await work
            opened.outcome = "completed"
            if failure is not None:
                opened.outcome = "failed"
                opened.note(failure)
        return value, failure

    def commit(self, checkpoint: WorkflowCheckpoint | None, events: int) -> Opened:
        attributes = {"perdure.durability": self._durability, "checkpoint.events": events}
        if checkpoint is not None:
            attributes["checkpoint.id"] = checkpoint.checkpoint_id
            attributes["checkpoint.number"] = checkpoint.number
        return self.open("checkpoint.commit", attributes)

    def record_request(self, request: WorkflowEvent, how: str | None = None) -> None:
        """A request was made; or settled, if `how` says how."""
        from opentelemetry.trace import SpanKind

        attributes = {
            "request.id": str(request.request_id),
            "request.type": type_name(request.request_type),
            "executor.id": str(request.source_executor_id),
        }
        if how is not None:
            opened = self.open("request.settle", attributes, kind=SpanKind.CONSUMER)
            opened.outcome = how
            opened.end()
            return
        attributes["response.type"] = type_name(request.response_type)
        if self.tracing.sensitive:
            attributes["request.content"] = to_text(request.data)
        self.open("request.ask", attributes, kind=SpanKind.PRODUCER).end()


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


_OUTCOMES: dict[WorkflowRunState | None, str] = {
    WorkflowRunState.IDLE_WITH_PENDING_REQUESTS: "waiting",
    WorkflowRunState.CANCELLED: "cancelled",
}


class Watch:
    """Observes one run from its call to its end."""

    def __init__(self, compiled: Compiled, thread_id: str, run_id: str, request: RunRequest) -> None:
        self._compiled, self._thread_id, self._run_id, self._request = compiled, thread_id, run_id, request
        self._workflow = compiled.graph.name
        self._began = perf_counter()
        self._owns = False
        self._has_observers = bool(observing.observers)
        """An observer that registers later must not get the end of a run without its start."""
        self.pending: set[Saving] = set()
        """Commits that are not stored yet."""
        self.spans: RunSpans | None = None
        if tracing.active is not None:
            self.spans = RunSpans(tracing.active, request.durability)

    def notify(self, observation: observing.Observation) -> None:
        if self._has_observers:
            observing.notify_observers(observation)

    @contextmanager
    def run(self, has_begun: Callable[[], bool], statuses: Sequence[WorkflowEvent]) -> Iterator[None]:
        """The block is the run. `statuses` holds its status events, the final one last."""
        spans, outcome = self.spans, "failed"
        self.notify(observing.RunWaits(self._workflow))
        span = None if spans is None else spans.run(self._compiled, self._thread_id, self._run_id, self._request)
        with nullcontext() if span is None else span as opened:
            try:
                yield
                outcome = _OUTCOMES.get(statuses[-1].state, "idle")
                if opened is not None:
                    opened.span.add_event("workflow.completed")
            except BaseException as error:
                outcome = _outcome_of(error, has_begun=has_begun())
                if opened is not None and isinstance(error, Exception):
                    opened.span.add_event("workflow.error", {"error.type": tracing.error_type(error)})
                raise
            finally:
                if opened is not None:
                    opened.outcome = outcome
                for saving in tuple(self.pending):
                    saving.end(is_stored=False)
                self.notify(observing.RunEnded(self._workflow, outcome, perf_counter() - self._began, self._owns))

    def report_claim(self) -> None:
        """The run owns its thread from now on."""
        self._owns = True
        self.notify(observing.RunBegan(self._workflow, perf_counter() - self._began))

    async def superstep(self, work: Coroutine[Any, Any, None], thread: LiveThread) -> None:
        began, before = perf_counter(), thread.position.iteration
        try:
            if self.spans is None:
                await work
            else:
                await self.spans.superstep(work, before + 1)
        finally:
            is_discarded = thread.position.iteration == before
            self.notify(observing.SuperstepEnded(self._workflow, perf_counter() - began, is_discarded))

    def report_requests(self, before: Position, after: Position) -> None:
        """The thread has a new position: report new and settled requests."""
        if after.requests is before.requests:
            return
        for request_id, request in after.requests.items():
            if request_id not in before.requests:
                self.notify(observing.RequestAsked(self._workflow))
                if self.spans is not None:
                    self.spans.record_request(request)
        for request_id, request in before.requests.items():
            answer = None if request_id in after.requests else after.answered.get(request_id)
            if answer is not None:  # else the thread was rewound to before the request
                how = "withdrawn" if answer.is_withdrawn else "answered" if answer.expired_for is None else "expired"
                self.notify(observing.RequestSettled(self._workflow, how))
                if self.spans is not None:
                    self.spans.record_request(request, how)


class Saving:
    """One commit, from the engine until it is stored."""

    def __init__(
        self, watch: Watch, checkpoint: WorkflowCheckpoint | None, events: int, on_saved: OnSaved | None = None
    ) -> None:
        self._watch = watch
        self._on_saved = on_saved
        self.on_saved = None if on_saved is None else self._report_saved
        """Replaces the caller's `on_saved`."""
        self._began = perf_counter()
        self._opened = None if watch.spans is None else watch.spans.commit(checkpoint, events)
        watch.pending.add(self)
        watch.notify(observing.CommitBegan())

    async def watch(self, commit: Coroutine[Any, Any, CheckpointInfo | None]) -> CheckpointInfo | None:
        opened, error = self._opened, None
        if opened is not None:
            opened.enter()
        try:
            info = await commit
        except BaseException as raised:
            error = raised
            raise
        finally:
            if opened is not None:
                opened.leave(error)
            if error is not None:
                self.end(None if isinstance(error, GeneratorExit) else error, is_stored=False)
        if self._on_saved is None:
            self.end(is_stored=True)
        return info

    def _report_saved(self, info: CheckpointInfo | None, last_seq: int) -> None:
        self.end(is_stored=True)
        if self._on_saved is not None:
            self._on_saved(info, last_seq)

    def end(self, error: BaseException | None = None, *, is_stored: bool) -> None:
        """Report the end of the commit. Only the first call has an effect."""
        if self not in self._watch.pending:
            return
        self._watch.pending.discard(self)
        self._watch.notify(observing.CommitEnded(perf_counter() - self._began, is_stored))
        if self._opened is not None:
            self._opened.outcome = "stored" if is_stored else "not stored"
            if error is not None:
                self._opened.note(error)
            self._opened.end()


def _outcome_of(error: BaseException, *, has_begun: bool) -> str:
    if isinstance(error, ThreadConflict):
        return "conflict"
    if isinstance(error, RunInterrupted):
        return "interrupted"
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        return "cancelled"
    return "failed" if has_begun else "refused"
