"""The context of a handler: the contract between executors and the engine (engine/delivery/context.py)."""

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
    """The context argument of a handler: `WorkflowContext[Sent]`, or `WorkflowContext[Sent, Yielded]`.

    Effects of a handler are invisible to others until its superstep is committed, except events, which stream
    immediately. A failed handler leaves no trace.
    """

    __slots__ = ()

    if not TYPE_CHECKING:

        def __class_getitem__(cls, parameters: Any) -> Any:
            types = parameters if isinstance(parameters, tuple) else (parameters,)
            return super().__class_getitem__((*types, Never) if len(types) == 1 else types)

    async def send_message(self, message: OutT, target_id: str | None = None) -> None:
        """Send a copy along the executor's edges, or only to `target_id`. Delivered in the next superstep."""

    async def yield_output(self, output: WOutT) -> None:
        """Return a result to the caller of the workflow."""

    async def add_event(self, event: WorkflowEvent) -> None:
        """Emit an event of your own to the run's consumer."""

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
        """Request input from outside. The answer arrives, maybe weeks later, at a matching `@response_handler`.

        When `deadline` passes without an answer, `default` is delivered; without a default the request expires.
        """

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
        """Call a function and record its result. A recorded step is not called again for this delivery.

        Name, arguments and occurrence identify the record, or `key`. A function that is not async runs in a thread.
        Raises StepArgumentsUnsavable, without calling it, if the arguments cannot be encoded and `key` is None.
        """

    async def sleep(self, duration: float | timedelta | datetime) -> None:
        """Wait for some seconds, or until a time, across restarts.

        The handler is cancelled meanwhile, and then runs again from the start. Its recorded steps are not called again;
        it repeats all else.
        """

    @property
    def idempotency_key(self) -> str:
        """For outside services: stable over all attempts of this delivery, or of the step that runs now. A fork or
        rewind changes it."""

    @property
    def logger(self) -> LoggerAdapter[Logger]:
        """Adds thread, run and executor to every line."""

    def get_state(self, key: str, default: Any = None) -> Any:
        """The committed value plus this executor's own writes; never a sibling's. The returned value may be changed."""

    def set_state(self, key: str, value: Any) -> None:
        """Write a shared value; for a key with a reducer, contribute to it."""

    def delete_state(self, key: str) -> None: ...

    @property
    def state(self) -> MutableMapping[str, Any]:
        """The shared state as a mapping, read and written as `get_state` and `set_state` do."""

    @property
    def private(self) -> MutableMapping[str, Any]:
        """State of this executor alone; saved with the checkpoint."""

    @property
    def executor_id(self) -> str: ...

    @property
    def thread_id(self) -> str: ...

    @property
    def run_id(self) -> str: ...

    @property
    def request_id(self) -> str | None:
        """In a response handler: the answered request."""

    @property
    def source_executor_ids(self) -> list[str]: ...

    def get_source_executor_id(self) -> str:
        """The sender. Raises RuntimeError if a fan-in joined several: use `source_executor_ids`."""

    def get_sent_messages(self) -> list[Any]: ...

    def get_yielded_outputs(self) -> list[Any]: ...

    def is_streaming(self) -> bool:
        """Whether the run's events are streamed."""

    @property
    def function_invocation_kwargs(self) -> Mapping[str, Any]:
        """Arguments of this run for tools; only this executor's, if they are set by executor."""

    @property
    def client_kwargs(self) -> Mapping[str, Any]:
        """Arguments of this run for model clients; only this executor's, if they are set by executor."""

    def get_runtime_tools(self) -> list[Any] | None:
        """The tools of this run, `run(..., tools=...)`; None without."""
