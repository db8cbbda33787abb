"""What a handler may do: the contract between executors and whatever runs them (engine/context.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from datetime import datetime, timedelta
from logging import Logger, LoggerAdapter
from typing import TYPE_CHECKING, Any, Protocol

from perdure.events import WorkflowEvent
from perdure.graph.policy import STOP, RetryPolicy, Seconds

if TYPE_CHECKING:
    # Only checkers need the defaults; at run time `__class_getitem__` pads instead, so that the
    # package does without typing_extensions.
    from typing import Never

    from typing_extensions import TypeVar

    OutT = TypeVar("OutT", contravariant=True, default=Never)
    WOutT = TypeVar("WOutT", contravariant=True, default=Never)
else:
    from typing import Never, TypeVar

    OutT = TypeVar("OutT", contravariant=True)
    WOutT = TypeVar("WOutT", contravariant=True)


class WorkflowContext(Protocol[OutT, WOutT]):
    """Handed to every handler: `WorkflowContext[Sent]`, or `WorkflowContext[Sent, Yielded]`.

    Nothing a handler does through its context is visible to anybody else before its superstep is committed,
    except events, which stream at once. A handler that fails leaves no trace.
    """

    __slots__ = ()

    if not TYPE_CHECKING:

        def __class_getitem__(cls, parameters: Any) -> Any:
            given = parameters if isinstance(parameters, tuple) else (parameters,)
            return super().__class_getitem__((*given, Never) if len(given) == 1 else given)

    async def send_message(self, message: OutT, target_id: str | None = None) -> None:
        """Send along the executor's edges, or only to `target_id`. Delivered in the next superstep, as it is now."""
        ...

    async def yield_output(self, output: WOutT) -> None:
        """Give a result to whoever runs the workflow."""
        ...

    async def add_event(self, event: WorkflowEvent) -> None:
        """Tell the run's consumer something of your own."""
        ...

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
        """Ask somebody outside. The answer comes, maybe weeks later, to a matching `@response_handler`.

        When `deadline` passes unanswered, `default` is delivered as the answer; without a default the request
        expires.
        """
        ...

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
        """Call a function and record its result: once that is recorded, it is not called again for this delivery.

        The record is found again by name, arguments and occurrence, or by `key`. A function that is not async runs in
        a thread. Raises StepArgumentsUnsavable, without calling it, if the arguments cannot be encoded and there is
        no `key`.
        """
        ...

    async def sleep(self, duration: float | timedelta | datetime) -> None:
        """Wait for some seconds, or until a time, across restarts.

        The handler is cancelled meanwhile, and runs again from the top when the time has come: its steps are not
        called again, all else is done again.
        """
        ...

    @property
    def idempotency_key(self) -> str:
        """For outside services: the same whenever this delivery, or the step that runs now, is tried; another after a
        fork or rewind."""
        ...

    @property
    def logger(self) -> LoggerAdapter[Logger]:
        """Adds thread, run and executor to every line."""
        ...

    def get_state(self, key: str, default: Any = None) -> Any:
        """The committed value plus this executor's own writes; never a sibling's. What you get is yours to change."""
        ...

    def set_state(self, key: str, value: Any) -> None:
        """Write a shared value; for a key with a reducer, contribute to it."""
        ...

    def delete_state(self, key: str) -> None: ...

    @property
    def state(self) -> MutableMapping[str, Any]:
        """The shared state as a mapping, read and written as `get_state` and `set_state` do."""
        ...

    @property
    def private(self) -> MutableMapping[str, Any]:
        """State of this executor alone; saved with the checkpoint."""
        ...

    @property
    def executor_id(self) -> str: ...

    @property
    def thread_id(self) -> str: ...

    @property
    def run_id(self) -> str: ...

    @property
    def request_id(self) -> str | None:
        """In a response handler: the request that was answered."""
        ...

    @property
    def source_executor_ids(self) -> list[str]: ...

    def get_source_executor_id(self) -> str:
        """The one sender. Raises RuntimeError if a fan-in joined several: use `source_executor_ids`."""
        ...

    def get_sent_messages(self) -> list[Any]: ...

    def get_yielded_outputs(self) -> list[Any]: ...

    def is_streaming(self) -> bool:
        """Whether somebody watches events as they happen."""
        ...

    @property
    def function_invocation_kwargs(self) -> Mapping[str, Any]:
        """Arguments of this run for tools, those for this executor if they were given by executor."""
        ...

    @property
    def client_kwargs(self) -> Mapping[str, Any]:
        """Arguments of this run for model clients, those for this executor if they were given by executor."""
        ...
