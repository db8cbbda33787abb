"""RunContext: what a function workflow may do beside calling its steps."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, TypeVar, overload

from perdure.engine.delivery.context import DeliveryContext
from perdure.errors import InvalidRun
from perdure.events import WorkflowEvent
from perdure.graph.policy import STOP, RetryPolicy, Seconds

T = TypeVar("T")


class RunContext:
    """Handed to a function marked `@workflow` that takes it; `get_run_context()` finds it inside steps."""

    __slots__ = ("_inner",)

    is_context_of_perdure = True

    def __init__(self, inner: DeliveryContext) -> None:
        self._inner = inner

    @overload
    async def request_info(
        self,
        request_data: object,
        response_type: type[T],
        *,
        request_id: str | None = None,
        deadline: datetime | None = None,
        default: Any = ...,
        assignee: str | None = None,
    ) -> T: ...
    @overload
    async def request_info(
        self,
        request_data: object,
        response_type: Any,
        *,
        request_id: str | None = None,
        deadline: datetime | None = None,
        default: Any = ...,
        assignee: str | None = None,
    ) -> Any: ...
    async def request_info(
        self,
        request_data: object,
        response_type: Any,
        *,
        request_id: str | None = None,
        deadline: datetime | None = None,
        default: Any = ...,
        assignee: str | None = None,
    ) -> Any:
        """Ask somebody outside, and get the answer, maybe weeks later and in another process.

        When `deadline` passes unanswered, `default` is the answer; without a default RequestExpired is raised.
        """
        return await self._inner.ask(
            request_data,
            response_type,
            request_id=request_id,
            deadline=deadline,
            default=default,
            assignee=assignee,
        )

    @overload
    async def step(
        self,
        function: Callable[..., Awaitable[T]],
        *arguments: Any,
        name: str | None = None,
        key: str | None = None,
        retry: RetryPolicy | int | None = None,
        timeout: Seconds | None = None,
        on_error: Any = STOP,
    ) -> T: ...
    @overload
    async def step(
        self,
        function: Callable[..., T],
        *arguments: Any,
        name: str | None = None,
        key: str | None = None,
        retry: RetryPolicy | int | None = None,
        timeout: Seconds | None = None,
        on_error: Any = STOP,
    ) -> T: ...
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
        """Call any function as a step: its result is recorded, and it is not called again."""
        return await self._inner.step(
            function, *arguments, name=name, key=key, retry=retry, timeout=timeout, on_error=on_error
        )

    async def sleep(self, duration: float | timedelta | datetime) -> None:
        """Wait for a duration or until a time, across restarts."""
        await self._inner.sleep(duration)

    async def add_event(self, event: WorkflowEvent) -> None:
        """Tell the run's consumer something of your own, now."""
        await self._inner.add_event(event)

    def get_state(self, key: str, default: Any = None) -> Any:
        return self._inner.get_state(key, default)

    def set_state(self, key: str, value: Any) -> None:
        """Keep a value with the thread: also one that is set in a step which is replayed later."""
        if str(key).startswith("_"):
            raise InvalidRun(f"State keys that start with '_' are reserved, got {key!r}.")
        self._inner.set_state(key, value)

    def delete_state(self, key: str) -> None:
        self._inner.delete_state(key)

    @property
    def state(self) -> MutableMapping[str, Any]:
        return self._inner.state

    def is_streaming(self) -> bool:
        """Whether somebody watches events as they happen."""
        return self._inner.is_streaming()

    @property
    def idempotency_key(self) -> str:
        """For outside services: the same whenever this run of the function, or the step that runs now, is tried."""
        return self._inner.idempotency_key

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """Adds thread, run and workflow to every line."""
        return self._inner.logger

    @property
    def function_invocation_kwargs(self) -> Mapping[str, Any]:
        """Arguments of this run for tools."""
        return self._inner.function_invocation_kwargs

    @property
    def client_kwargs(self) -> Mapping[str, Any]:
        """Arguments of this run for model clients."""
        return self._inner.client_kwargs

    @property
    def thread_id(self) -> str:
        return self._inner.thread_id

    @property
    def run_id(self) -> str:
        return self._inner.run_id


current_run_context: ContextVar[RunContext | None] = ContextVar("perdure_run_context", default=None)


def get_run_context() -> RunContext | None:
    """The context of the function workflow that runs in this task; None outside of one."""
    return current_run_context.get()
