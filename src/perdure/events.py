"""Events of a run, as its consumer receives them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias

import msgspec

from perdure.errors import UnreadableValue
from perdure.records import CheckpointInfo

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    DataT = TypeVar("DataT", default=Any)

    class _Event(msgspec.Struct, Generic[DataT]):
        """Type checkers know an event by the type of its data: `WorkflowEvent[str]`.

        An event is frozen, which they do not see: a subclass with an `__init__` sets attributes of its own.
        """

else:
    DataT = Any

    class _EventType(type(msgspec.Struct)):
        """Lets a subclass have an `__init__`, which a Struct cannot. Then it has a `__dict__` for attributes, too.

        On Python 3.11 a call of a class with a metaclass takes 0.13 us more. Hot code copies a constant instead, with
        `msgspec.structs.replace`.
        """

        def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> type:
            init = namespace.pop("__init__", None)
            if init is None:
                return super().__new__(mcls, name, bases, namespace, **options)
            options = {"dict": True, "frozen": False, **options}
            cls = super().__new__(_EventTypeWithInit, name, bases, namespace, **options)
            cls.__init__ = init
            return cls

    class _EventTypeWithInit(_EventType):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            event = type(msgspec.Struct).__call__(cls, "")
            cls.__init__(event, *args, **kwargs)
            return event

    class _Event(msgspec.Struct, frozen=True, metaclass=_EventType):
        def __class_getitem__(cls, kind: Any) -> type:
            return cls


class WorkflowRunState(str, Enum):
    """IN_PROGRESS -> IDLE | IDLE_WITH_PENDING_REQUESTS | FAILED | CANCELLED; any of these -> IN_PROGRESS."""

    STARTED = "STARTED"
    IN_PROGRESS = "IN_PROGRESS"
    IN_PROGRESS_PENDING_REQUESTS = "IN_PROGRESS_PENDING_REQUESTS"
    IDLE = "IDLE"
    IDLE_WITH_PENDING_REQUESTS = "IDLE_WITH_PENDING_REQUESTS"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


AT_REST = frozenset({"IDLE", "IDLE_WITH_PENDING_REQUESTS", "FAILED", "CANCELLED"})
"""The states in which no run moves the thread."""


class WorkflowEventSource(str, Enum):
    """Who made an event: the engine, or user code through `ctx.add_event`."""

    FRAMEWORK = "FRAMEWORK"
    EXECUTOR = "EXECUTOR"


_REQUEST_FIELDS = ("data", "request_id", "source_executor_id", "request_type", "response_type")

WorkflowEventType: TypeAlias = Literal[
    "started",
    "status",
    "failed",
    "output",
    "intermediate",
    "data",
    "request_info",
    "warning",
    "error",
    "superstep_started",
    "superstep_completed",
    "superstep_discarded",
    "checkpoint_saved",
    "executor_invoked",
    "executor_completed",
    "executor_failed",
    "executor_bypassed",
    "executor_retrying",
    "executor_skipped",
    "group_chat",
    "handoff_sent",
    "magentic_orchestrator",
    "agent_workflow",
]

RESERVED_FOR_ENGINE = frozenset({"started", "status", "failed", "output", "intermediate"})
"""Types that report a run's status and results. User code may not add them with `ctx.add_event`."""


class WorkflowErrorDetails(msgspec.Struct, frozen=True):
    """An error as data that can be stored and displayed."""

    error_type: str
    message: str
    traceback: str | None = None
    executor_id: str | None = None
    extra: dict[str, Any] | None = None

    @classmethod
    def from_exception(
        cls, error: BaseException, *, executor_id: str | None = None, extra: dict[str, Any] | None = None
    ) -> WorkflowErrorDetails:
        return cls(type(error).__name__, _sentence(error), _traceback(error), executor_id, extra)


def _sentence(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as second:  # noqa: BLE001  # a user's __str__ may raise anything; the error itself must get through
        return f"<no text: str() raised {type(second).__name__}>"


def _traceback(error: BaseException) -> str | None:
    try:
        import traceback

        return "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except Exception:  # noqa: BLE001  # as above
        return None


class RequestTerms(msgspec.Struct, frozen=True):
    """The terms of a request, beside its data."""

    deadline: datetime | None = None
    default: Any = ...
    """Delivered when the deadline passes; Ellipsis means none: the request then expires."""
    assignee: str | None = None


class WorkflowEvent(_Event[DataT]):
    """One event. Which fields are set depends on `type`; unset ones are None.

    Events of a live stream have no `seq`: they are provisional until their superstep is committed. Events of a
    thread's log (`events(after=...)`) have one, gap-free per thread.
    """

    type: str
    data: Any = None
    origin: WorkflowEventSource = WorkflowEventSource.FRAMEWORK
    state: WorkflowRunState | None = None
    """`status`: the run's state."""
    details: WorkflowErrorDetails | None = None
    """`failed`, `executor_failed`."""
    executor_id: str | None = None
    iteration: int | None = None
    """`superstep_*`: number of the superstep since the last message."""
    request_id: str | None = None
    """`request_info`, as the next three: they raise RuntimeError where another event does not set them."""
    source_executor_id: str | None = None
    """The executor that asks."""
    request_type: Any = None
    response_type: Any = None
    """Answers must be of this type."""
    terms: RequestTerms | None = None
    """`request_info`: deadline, default and assignee, where given."""
    checkpoint: CheckpointInfo | None = None
    """`superstep_completed`, `checkpoint_saved`: accepted wherever a checkpoint id is."""
    last_seq: int | None = None
    """`superstep_completed`: the cursor for `events(after=...)`."""
    executors: tuple[str, ...] | None = None
    """`superstep_completed`: the executors that ran, in the order of their deliveries."""
    has_pending_messages: bool | None = None
    has_pending_requests: bool | None = None
    child_id: int | None = None
    """Events inside a sub-workflow: the delivery that started it. It distinguishes children of one executor."""
    replayed: bool = False
    """True for an event from before an interruption that is emitted again."""
    seq: int | None = None
    timestamp: datetime | None = None
    thread_id: str | None = None
    run_id: str | None = None

    def __repr__(self) -> str:
        # As Agent Framework's programs print it: a custom event has no executor there.
        is_of_executor = self.type in ("output", "intermediate", "data") or self.type.startswith("executor_")
        executor_id = self.executor_id if is_of_executor else None
        request_id = self.request_id if self.type == "request_info" else None
        shown = (("executor_id", executor_id), ("iteration", self.iteration), ("request_id", request_id))
        parts = [f"{name}={value!r}" for name, value in (*shown, ("data", self.data)) if value is not None]
        state = [] if self.state is None else [f"state={self.state.value}"]
        return f"WorkflowEvent({', '.join([f'type={self.type!r}', *state, *parts])})"

    def to_dict(self) -> dict[str, Any]:
        """The fields that are set, as plain JSON. `from_dict(json.loads(json.dumps(event.to_dict())))` is the event."""
        from perdure.codecs.json_codec import JsonCodec

        codec = JsonCodec(lenient=True)
        return {
            name: codec.encode(value, f"{self.type} event.{name}")
            for name, value in msgspec.structs.asdict(self).items()
            if value is not _DEFAULTS[name] or (self.type == "request_info" and name in _REQUEST_FIELDS)
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], codec: Any = None) -> WorkflowEvent:
        """`codec` decodes values; by default undeclared types are `Opaque`. Raises UnreadableValue for anything that is
        not an event, and KeyError for a request without its fields."""
        from perdure.codecs.json_codec import JsonCodec

        if not isinstance(data, Mapping):
            raise UnreadableValue("event", f"expected a mapping, got {type(data).__name__}")
        codec = codec or JsonCodec(lenient=True)
        if data.get("type", "request_info") == "request_info":
            for name in _REQUEST_FIELDS:
                if name not in data:
                    raise KeyError(f"Missing {name!r} field in WorkflowEvent dictionary.")
        names = [name for name in cls.__struct_fields__ if name in data]
        fields = {name: codec.decode(data[name], f"event.{name}") for name in names}
        try:
            event: WorkflowEvent = msgspec.convert(fields, cls)
        except msgspec.ValidationError as error:
            reason, _, path = str(error).partition(" - at `$")
            raise UnreadableValue(f"event{path.rstrip('`')}", reason) from error
        return event

    # Constructors of the engine's events, for tests of consumers.

    @classmethod
    def started(cls, data: Any = None) -> WorkflowEvent:
        return cls("started", data)

    @classmethod
    def status(cls, state: WorkflowRunState, data: Any = None) -> WorkflowEvent:
        return cls("status", data, state=state)

    @classmethod
    def failed(cls, details: WorkflowErrorDetails, data: Any = None) -> WorkflowEvent:
        return cls("failed", data, details=details)

    @classmethod
    def output(cls, executor_id: str, data: Any) -> WorkflowEvent:
        return cls("output", data, executor_id=executor_id)

    @classmethod
    def intermediate(cls, executor_id: str, data: Any) -> WorkflowEvent:
        return cls("intermediate", data, executor_id=executor_id)

    @classmethod
    def warning(cls, message: str) -> WorkflowEvent:
        return cls("warning", message)

    @classmethod
    def error(cls, error: BaseException) -> WorkflowEvent:
        return cls("error", error)

    @classmethod
    def emit(cls, executor_id: str, data: Any) -> WorkflowEvent:
        return cls("data", data, executor_id=executor_id, origin=WorkflowEventSource.EXECUTOR)

    @classmethod
    def request_info(
        cls, request_id: str, source_executor_id: str, request_data: Any, response_type: Any
    ) -> WorkflowEvent:
        return cls(
            "request_info",
            request_data,
            executor_id=source_executor_id,
            request_id=request_id,
            source_executor_id=source_executor_id,
            request_type=type(request_data),
            response_type=response_type,
        )

    @classmethod
    def superstep_started(cls, iteration: int, data: Any = None) -> WorkflowEvent:
        return cls("superstep_started", data, iteration=iteration)

    @classmethod
    def superstep_completed(cls, iteration: int, data: Any = None) -> WorkflowEvent:
        return cls("superstep_completed", data, iteration=iteration)

    @classmethod
    def executor_invoked(cls, executor_id: str, data: Any = None) -> WorkflowEvent:
        return cls("executor_invoked", data, executor_id=executor_id)

    @classmethod
    def executor_completed(cls, executor_id: str, data: Any = None) -> WorkflowEvent:
        return cls("executor_completed", data, executor_id=executor_id)

    @classmethod
    def executor_failed(cls, executor_id: str, details: WorkflowErrorDetails) -> WorkflowEvent:
        return cls("executor_failed", details, executor_id=executor_id, details=details)

    @classmethod
    def executor_bypassed(cls, executor_id: str, data: Any = None) -> WorkflowEvent:
        return cls("executor_bypassed", data, executor_id=executor_id)


_DEFAULTS = dict(zip(WorkflowEvent.__struct_fields__, (..., *WorkflowEvent.__struct_defaults__), strict=True))


class _NotARequest(RuntimeError, AttributeError):
    """An AttributeError too, so that `getattr(event, "request_id", None)` reads any event."""


def _of_requests(name: str) -> property:
    slot = WorkflowEvent.__dict__[name]

    def read(event: WorkflowEvent) -> Any:
        value = slot.__get__(event)
        if value is None and event.type != "request_info":
            raise _NotARequest(f"{name} is only available for request_info events, got type={event.type!r}.")
        return value

    return property(read, slot.__set__)


for _name in _REQUEST_FIELDS[1:]:  # a property in the class body would not be a field
    setattr(WorkflowEvent, _name, _of_requests(_name))


def change_event(event: WorkflowEvent, **fields: Any) -> WorkflowEvent:
    """A copy with other fields, and with the attributes of a subclass that has some."""
    changed = msgspec.structs.replace(event, **fields)
    attributes: dict[str, Any] = getattr(event, "__dict__", {})
    for name, value in attributes.items():
        setattr(changed, name, value)
    return changed


def _set_fields(event: WorkflowEvent, *args: Any, **fields: Any) -> None:
    """`super().__init__(...)` of a subclass with an `__init__`."""
    stated = dict(zip(event.__struct_fields__, args, strict=False)) | fields
    unknown = next((name for name in stated if name not in event.__struct_fields__), None)
    if unknown is not None or len(args) > len(event.__struct_fields__):
        raise TypeError(f"WorkflowEvent() got an unexpected argument {unknown or args[-1]!r}")
    for name, value in stated.items():
        msgspec.structs.force_setattr(event, name, value)


WorkflowEvent.__init__ = _set_fields  # type: ignore[method-assign, assignment]  # a Struct takes none in its body
