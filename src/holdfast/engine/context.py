"""The context of one delivery: every wish of a handler goes into its effects."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast.engine.effects import DELETED, Effects
from holdfast.engine.requests import agreed_terms
from holdfast.engine.run_arguments import RunArguments, arguments_for
from holdfast.engine.state import StateMapping, is_missing
from holdfast.engine.telling import own_event
from holdfast.errors import ContextEnded, InvalidRun, UnknownExecutor, type_name
from holdfast.events import RESERVED_FOR_ENGINE, WorkflowEvent, WorkflowEventSource
from holdfast.graph.context import WorkflowContext
from holdfast.graph.isolation import isolated
from holdfast.names import check_identifier
from holdfast.records import WorkflowMessage

if TYPE_CHECKING:
    from holdfast.engine.lane import Lane


class _Ended:
    """In place of the effects of a delivery that has ended."""

    def __init__(self, executor_id: str) -> None:
        self._executor_id = executor_id

    def __getattr__(self, name: str) -> Any:
        raise ContextEnded(self._executor_id)


_ended = lru_cache(1024)(_Ended)


class DeliveryContext(WorkflowContext[Any, Any]):
    """What `holdfast.WorkflowContext` promises, for one delivery."""

    __slots__ = ("_arguments", "_effects", "_lane", "_message")

    def __init__(self, lane: Lane, message: WorkflowMessage, effects: Effects) -> None:
        self._lane = lane
        self._message = message
        self._effects = effects
        self._arguments: dict[str, RunArguments] | None = None

    def end(self) -> None:
        """The handler is done: what a task that it left behind does now would reach nobody, so it is refused."""
        self._effects = cast(Effects, _ended(self._lane.executor_id))

    async def send_message(self, message: Any, target_id: str | None = None) -> None:
        nodes = self._lane.scope.compiled.graph.nodes
        if target_id is not None and target_id not in nodes:
            raise UnknownExecutor(target_id, nodes, f"A message of executor {self.executor_id!r}")
        self._effects.sends.append((isolated(message), target_id))

    async def yield_output(self, output: Any) -> None:
        kind = self._lane.scope.compiled.graph.designation.event_type(self._lane.executor_id)
        if kind is None:
            return
        event = WorkflowEvent(kind, isolated(output), executor_id=self._lane.executor_id)
        self._effects.outputs.append(event)
        self._lane.tell(own_event(event), self._effects)

    async def add_event(self, event: WorkflowEvent) -> None:
        if event.type in RESERVED_FOR_ENGINE:
            text = f"Executor {self.executor_id!r} tried to add a {event.type!r} event; only the engine makes those."
            self._lane.tell(WorkflowEvent("warning", text, executor_id=self.executor_id), self._effects)
            return
        taken = msgspec.structs.replace(
            event,
            data=isolated(event.data),
            origin=WorkflowEventSource.EXECUTOR,
            executor_id=event.executor_id or self.executor_id,
        )
        self._lane.tell(taken, self._effects)

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
        check_identifier("assignee", assignee)
        terms = agreed_terms(response_type, deadline, default, assignee)
        # Made from the delivery, so that one that is run again after a crash asks the same question, not a second one.
        made_id = f"{self.executor_id}-{self._message.delivery_id}-{len(self._effects.requests) + 1}"
        chosen = request_id if request_id is not None else made_id
        taken = any(chosen == one.request_id for one in self._effects.requests)
        if taken or chosen in self._lane.position.requests:
            raise InvalidRun(
                f"Request {chosen!r} is already pending in thread {self.thread_id!r}. Choose another request_id."
            )
        event = WorkflowEvent(
            "request_info",
            isolated(request_data),
            executor_id=self.executor_id,
            request_id=chosen,
            source_executor_id=self.executor_id,
            request_type=type(request_data),
            response_type=type(None) if response_type is None else response_type,
            terms=terms,
        )
        self._effects.requests.append(event)
        self._lane.tell(own_event(event), self._effects)
        self._lane.scope.on_request()
        self._warn_if_unanswerable(request_data, response_type)

    def _warn_if_unanswerable(self, request_data: object, response_type: Any) -> None:
        if self._lane.executor.is_request_supported(type(request_data), response_type):
            return
        text = (
            f"Executor {self.executor_id!r} asks with {type_name(type(request_data))} for {type_name(response_type)}, "
            "but has no @response_handler for these types, so no answer can be accepted. Add one."
        )
        self._lane.tell(WorkflowEvent("warning", text, executor_id=self.executor_id), self._effects)

    # ------------------------------------------------------------ state

    def get_state(self, key: str, default: Any = None) -> Any:
        value = self._lane.state.get(key)
        return default if is_missing(value) else value

    def set_state(self, key: str, value: Any) -> None:
        self._write(key, isolated(value))

    def delete_state(self, key: str) -> None:
        self._write(key, DELETED)

    def _write(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise InvalidRun(f"State keys are strings, got {key!r} from executor {self.executor_id!r}.")
        self._effects.writes.append((key, value))
        self._lane.state.write(key, value)

    @property
    def state(self) -> MutableMapping[str, Any]:
        return StateMapping(self._lane.state, self._write)

    @property
    def private(self) -> MutableMapping[str, Any]:
        if isinstance(self._effects, _Ended):
            raise ContextEnded(self.executor_id)
        return self._lane.private

    # ------------------------------------------------------------ who and what

    @property
    def executor_id(self) -> str:
        return self._lane.executor_id

    @property
    def thread_id(self) -> str:
        return self._lane.scope.thread.thread_id

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
            raise RuntimeError(f"This message joins those of {', '.join(map(repr, sources))}: use source_executor_ids.")
        return sources[0]

    def get_sent_messages(self) -> list[Any]:
        return [isolated(data) for data, _ in self._effects.sends]

    def get_yielded_outputs(self) -> list[Any]:
        return [isolated(event.data) for event in self._effects.outputs]

    def is_streaming(self) -> bool:
        return self._lane.scope.is_streaming

    @property
    def function_invocation_kwargs(self) -> Mapping[str, Any]:
        return self._arguments_named("function_invocation_kwargs")

    @property
    def client_kwargs(self) -> Mapping[str, Any]:
        return self._arguments_named("client_kwargs")

    def _arguments_named(self, parameter: str) -> RunArguments:
        if self._arguments is None:
            self._arguments = {}
        if parameter not in self._arguments:
            given = self._lane.position.run_kwargs.get(parameter)
            self._arguments[parameter] = arguments_for(given, self.executor_id)
        return self._arguments[parameter]
