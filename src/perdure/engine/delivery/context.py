"""The context of one delivery: each call of a handler adds to the delivery's effects."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
import logging
from collections.abc import Callable, Mapping, MutableMapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import msgspec

from perdure.clock import Clock
from perdure.engine.delivery.delivery import Delivery
from perdure.engine.delivery.recorder import Work
from perdure.engine.thread.inputs import Terms, make_terms
from perdure.engine.thread.level import RunArguments
from perdure.engine.thread.position import Effects, StateMapping
from perdure.engine.thread.state import DELETED, MISSING
from perdure.errors import ContextEnded, InvalidRun, UnknownExecutor, type_name
from perdure.events import RESERVED_FOR_ENGINE, RequestTerms, WorkflowEvent, WorkflowEventSource, change_event
from perdure.graph.context import WorkflowContext
from perdure.graph.policy import STOP, RetryPolicy, Seconds, in_seconds, step_policy
from perdure.isolation import isolate
from perdure.log import NamedLines, get_logger
from perdure.names import check_identifier
from perdure.records import WorkflowMessage

if TYPE_CHECKING:
    from perdure.engine.delivery.lane import Lane
    from perdure.engine.delivery.session import StepSession

_OUTPUT = WorkflowEvent("output")


class _Ended:
    """In place of the effects of a delivery that has ended."""

    def __init__(self, executor_id: str) -> None:
        self._executor_id = executor_id

    def __getattr__(self, name: str) -> Any:
        raise ContextEnded(self._executor_id)


_ended: Callable[[str], Any] = functools.lru_cache(1024)(_Ended)


class DeliveryContext(msgspec.Struct, eq=False):
    """What `perdure.WorkflowContext` promises, for one delivery."""

    is_context_of_perdure: ClassVar[bool] = True

    _lane: Lane
    _message: WorkflowMessage
    _effects: Effects
    task: asyncio.Task[Any] | None
    """The one that runs the handler."""
    has_own_task: bool = False
    """Whether that task runs only the handler."""
    is_cancelled: bool = False
    """Whether the engine cancelled that task. `task.cancelling()` does not show it: user code can cancel it too."""
    used: Delivery | None = None
    """The engine's side, created with the first record, request or event."""
    steps: StepSession | None = None
    """The engine's side of the context: None until the first recorded call."""
    _arguments: dict[str, RunArguments] = {}

    __repr__ = object.__repr__

    @property
    def delivery(self) -> Delivery:
        if self.used is None:
            if isinstance(self._effects, _Ended):
                raise ContextEnded(self.executor_id)
            self.used = Delivery(self._lane, self._message, self._effects, self)
        return self.used

    def end(self) -> None:
        """The handler has ended. Calls of a task that it left behind raise ContextEnded from now on."""
        self._effects = _ended(self._lane.executor_id)
        if self.steps is not None:
            self.steps.stop()
            self.steps = None
        if self.used is not None:  # they refer to each other: only the garbage collector could free them
            self.used.is_over = True
            self.used.steps = None
            self.used = None
        self.task = None

    async def send_message(self, message: Any, target_id: str | None = None) -> None:
        nodes = self._lane.level.compiled.graph.nodes
        if target_id is not None and target_id not in nodes:
            raise UnknownExecutor(target_id, nodes, f"A message of executor {self.executor_id!r}")
        (self._effects if self.used is None else self.used.sink).sends.append((isolate(message), target_id))

    async def yield_output(self, output: Any) -> None:
        lane = self._lane
        kind = lane.level.compiled.graph.output_kinds.get(lane.executor_id)
        if kind is None:
            return
        event = msgspec.structs.replace(_OUTPUT, type=kind, data=isolate(output), executor_id=lane.executor_id)
        effects = self._effects if self.used is None else self.used.sink
        effects.outputs.append(event)
        self.delivery.emit_once(event if lane.level.parent is None else lane.to_public(event))

    async def add_event(self, event: WorkflowEvent) -> None:
        if event.type in RESERVED_FOR_ENGINE:
            is_output = event.type in ("output", "intermediate")
            text = (
                f"Executor {self.executor_id!r} attempted to emit a {event.type!r} event"
                f"{' directly' if is_output else ''}, which is reserved for "
                f"{'ctx.yield_output()' if is_output else 'framework lifecycle notifications'}. The event was ignored."
            )
            self.delivery.emit_once(WorkflowEvent("warning", text, executor_id=self._lane.full_id))
            return
        lane = self._lane
        taken = change_event(
            event,
            data=isolate(event.data),
            origin=WorkflowEventSource.EXECUTOR,
            executor_id=event.executor_id or self._lane.full_id,
        )
        self.delivery.emit_once(lane.in_child(taken))

    def emit_live(self, data: Any, *, is_output: bool = False) -> None:
        """Emit to live consumers only: the event is not logged and not replayed. `is_output`: whether it is a part of
        the executor's next output."""
        lane = self._lane
        origin = WorkflowEventSource.FRAMEWORK if is_output else WorkflowEventSource.EXECUTOR
        lane.scope.emit(lane.in_child(WorkflowEvent("data", data, origin=origin, executor_id=lane.full_id)))

    def add_usage(self, usage: Mapping[str, int]) -> None:
        """Counts that add up over the whole thread, such as tokens."""
        (self._effects if self.used is None else self.used.sink).use(usage)

    async def request_info(
        self,
        request_data: object,
        response_type: Any,
        *,
        request_id: str | None = None,
        deadline: datetime | None = None,
        default: Any = ...,
        assignee: str | None = None,
    ) -> None:
        check_identifier("request_id", request_id)
        terms = make_terms(response_type, deadline, default, assignee)
        # Derived from the delivery: when it runs again after a crash, it makes the same request, not a second one.
        chosen = request_id if request_id is not None else f"{self.delivery_name}-{self.delivery.requests_made + 1}"
        made = [request.request_id for request in (*self._effects.requests, *self.delivery.sink.requests)]
        if chosen in made or self.is_pending(chosen):
            raise InvalidRun(
                f"Request {chosen!r} is already pending in thread {self.thread_id!r}. Choose another request_id."
            )
        event = self._request(request_data, response_type, chosen, terms)
        self.delivery.sink.ask([event])
        self._emit_request(event)
        if not self._lane.executor.is_request_supported(type(request_data), response_type):
            text = (
                f"Executor {self.executor_id!r} asks with {type_name(type(request_data))} for "
                f"{type_name(response_type)}, but has no @response_handler for these types, so no answer can be "
                "accepted. Add one."
            )
            self.delivery.emit_once(WorkflowEvent("warning", text, executor_id=self._lane.full_id))

    @property
    def delivery_name(self) -> str:
        """A name that is stable over all runs of this delivery, and unique in its thread."""
        return f"{self._lane.full_id}-{self._message.delivery_id}"

    def is_pending(self, request_id: str) -> bool:
        position = self._lane.position
        return request_id in position.requests or request_id in position.asked

    def _request(self, data: object, response_type: Any, request_id: str, terms: RequestTerms | None) -> WorkflowEvent:
        kind = type(None) if response_type is None else response_type
        event = WorkflowEvent.request_info(request_id, self.executor_id, isolate(data), kind)
        return msgspec.structs.replace(event, terms=terms)

    def _emit_request(self, event: WorkflowEvent) -> None:
        lane = self._lane
        self.delivery.emit_once(lane.to_public(event))
        if lane.level.is_asked_outside:
            lane.scope.on_request()

    def get_state(self, key: str, default: Any = None) -> Any:
        value = self._read(key)
        return default if value is MISSING else value

    def _read(self, key: str) -> Any:
        value = self._lane.state.get(key)
        if self.used is not None:
            self.used.remember_read(key, value)
        return value

    def set_state(self, key: str, value: Any) -> None:
        self._write(key, self._lane.state.isolate(key, value))

    def delete_state(self, key: str) -> None:
        self._write(key, DELETED)

    def _write(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise InvalidRun(f"State keys are strings, got {key!r} from executor {self.executor_id!r}.")
        effects = self._effects
        if self.used is not None:
            effects = self.used.sink
            self.used.remember_write(key)
        effects.write([(key, value)])
        self._lane.state.write(key, value)

    @property
    def state(self) -> MutableMapping[str, Any]:
        return StateMapping(self._lane.state.keys, self._read, self.set_state, self.delete_state)

    @property
    def private(self) -> MutableMapping[str, Any]:
        if isinstance(self._effects, _Ended):
            raise ContextEnded(self.executor_id)
        return self._lane.private if self.used is None else self.used.private

    @property
    def executor_id(self) -> str:
        return self._lane.executor_id

    @property
    def thread_id(self) -> str:
        return self._lane.scope.thread.thread_id

    @property
    def clock(self) -> Clock:
        return self._lane.scope.clock

    @property
    def checkpoint_storage(self) -> Any:
        """The storage of the thread; None if it lives only in this process."""
        return self._lane.scope.storage

    @property
    def run_id(self) -> str:
        return self._lane.scope.run_id

    @property
    def request_id(self) -> str | None:
        request = self._message.original_request_info_event
        return None if request is None else str(request.request_id)

    @property
    def source_executor_ids(self) -> list[str]:
        message = self._message
        return [message.source_id] if message.source_ids is None else list(message.source_ids)

    def get_source_executor_id(self) -> str:
        sources = self.source_executor_ids
        if len(sources) > 1:
            raise RuntimeError(
                "Cannot get source executor ID when there are multiple source executors: "
                f"{', '.join(map(repr, sources))}. Use source_executor_ids."
            )
        return sources[0]

    def get_sent_messages(self) -> list[Any]:
        return [isolate(data) for data, _ in self._effects.sends]

    def get_yielded_outputs(self) -> list[Any]:
        return [isolate(event.data) for event in self._effects.outputs]

    def is_streaming(self) -> bool:
        return self._lane.scope.is_streaming

    @property
    def function_invocation_kwargs(self) -> Mapping[str, Any]:
        return self._arguments_named("function_invocation_kwargs")

    @property
    def client_kwargs(self) -> Mapping[str, Any]:
        return self._arguments_named("client_kwargs")

    def get_runtime_tools(self) -> list[Any] | None:
        tools = self._lane.scope.tools
        return tools if tools is None else list(tools) if isinstance(tools, (list, tuple)) else [tools]

    def _arguments_named(self, parameter: str) -> RunArguments:
        if parameter not in self._arguments:
            self._arguments[parameter] = self._lane.level.arguments(parameter, self.executor_id)
        return self._arguments[parameter]

    async def step(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        name: str | None = None,
        key: str | None = None,
        retry: RetryPolicy | int | None = None,
        timeout: Seconds | None = None,
        on_error: Any = STOP,
    ) -> Any:
        chosen = step_name(function, name)
        policy = step_policy(chosen, retry, timeout, on_error)
        return await self.delivery.session.step(Work(function, arguments, {}, policy), chosen, key)

    async def group(self, function: Callable[..., Any], *arguments: Any, name: str) -> Any:
        """Call an async function, with its steps apart from those of other calls. The call itself is not recorded."""
        return await self.delivery.session.group(function, arguments, name)

    async def sleep(self, duration: float | timedelta | datetime) -> None:
        clock, session = self._lane.scope.clock, self.delivery.session
        if isinstance(duration, datetime):
            if duration.tzinfo is None:
                raise InvalidRun(f"ctx.sleep needs a time with a zone, got {duration!r}: try .replace(tzinfo=UTC).")
            until = duration
            return await session.sleep(lambda: until, [duration])
        seconds = in_seconds("ctx.sleep", duration)
        return await session.sleep(lambda: clock.now() + timedelta(seconds=seconds), [seconds])

    async def ask(
        self, data: object, response_type: Any, *, request_id: str | None = None, **terms: Unpack[Terms]
    ) -> Any:
        """`request_info` that returns the answer to the caller, maybe weeks later and in another process."""
        check_identifier("request_id", request_id)
        checked = make_terms(response_type, **terms)
        session = self.delivery.session
        call = session.recorder.calls.identify("request", [data, response_type], {}, request_id)
        chosen = request_id
        if chosen is None and self._lane.executor.is_function and self._lane.level.parent is None:
            chosen = await session.number_request(call)
        elif chosen is None:
            chosen = f"{self.delivery_name}-{hashlib.blake2b(call.key.encode(), digest_size=6).hexdigest()}"

        def ask_once() -> None:
            before = self.delivery.before
            is_own = before is not None and chosen in before.waits
            if self.is_pending(chosen) and not is_own:
                raise InvalidRun(
                    f"Request {chosen!r} is already pending in thread {self.thread_id!r}: another delivery made it. "
                    "Choose another request_id."
                )
            if not is_own:
                event = self._request(data, response_type, chosen, checked)
                self.delivery.asked.append(event)
                self._emit_request(event)

        return await session.answer(call, ask_once, chosen)

    @property
    def idempotency_key(self) -> str:
        return self.delivery.idempotency_key

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        named = {"thread": self.thread_id, "run": self.run_id, "executor": self._lane.full_id}
        return NamedLines(get_logger("executor"), named)


def step_name(function: Any, name: str | None) -> str:
    """`name`, or the function's own name. Raises ValueError for a function without a name."""
    if name is not None:
        check_identifier("A step's name", name)
    if not callable(function):
        raise TypeError(f"A step needs a function, got {function!r}. Pass the function, not what it returns.")
    plain = getattr(function, "function", function)  # of a step
    while isinstance(plain, functools.partial):
        plain = plain.func
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise TypeError(
            f"A step cannot be {plain.__name__!r}: it is a generator, whose result cannot be recorded. Return a list."
        )
    chosen = name or getattr(plain, "__name__", None)
    if chosen is None or (chosen == "<lambda>" and name is None):
        raise ValueError(f"{function!r} has no name of its own: pass ctx.step(..., name='what it does').")
    return str(chosen)


if TYPE_CHECKING:
    _promises: type[WorkflowContext[Any, Any]] = DeliveryContext  # by its shape: it inherits nothing
