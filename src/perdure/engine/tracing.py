"""OpenTelemetry spans, if switched on: one thread is one trace, in all processes."""

from __future__ import annotations

import asyncio
import os
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.errors import MissingExtra
from perdure.log import get_logger

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span


logger = get_logger("engine")

ENVIRONMENT_VARIABLE = "PERDURE_TRACING"
SCOPE = "perdure"
"""The instrumentation scope of every span."""
LONGEST_CONTENT = 8_192
"""Characters of a message that a span holds, with `sensitive=True`."""


class Tracing(msgspec.Struct, eq=False):
    """The tracing configuration. One exists while tracing is switched on."""

    _provider: Any
    sensitive: bool

    @property
    def provider(self) -> Any:
        """The configured provider, or OpenTelemetry's present one: an application may set it after the first import."""
        from opentelemetry import trace

        return trace.get_tracer_provider() if self._provider is None else self._provider

    def thread_context(self, thread_id: str) -> Context:
        """The parent context of a run's span: the same for all runs of a thread, in every process."""
        from opentelemetry import trace
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanContext, TraceFlags

        trace_id, span_id = trace_ids(thread_id)
        # A parent decides for its children, so ask the sampler as for a root: by the trace's id.
        sampler = getattr(self.provider, "sampler", None)
        is_sampled = sampler is None or sampler.should_sample(None, trace_id, "workflow.run").decision.is_sampled()
        flags = TraceFlags(TraceFlags.SAMPLED if is_sampled else TraceFlags.DEFAULT)
        parent = SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags)
        return trace.set_span_in_context(trace.NonRecordingSpan(parent), Context())


class Opened:
    """A span that is current while its block runs. It ends with the block, and records the block's error."""

    __slots__ = ("_token", "_tracing", "context", "failure", "outcome", "span")

    def __init__(self, tracing: Tracing, span: Span) -> None:
        from opentelemetry import trace

        self._tracing = tracing
        self._token: Any = None
        self.failure: BaseException | None = None
        """The failure that it has recorded."""
        self.span = span
        self.context = trace.set_span_in_context(span)
        self.outcome: str | None = None
        """Set as `perdure.outcome` when it ends."""

    def note(self, error: BaseException) -> None:
        """Record a failure, even if the block succeeds: its status and the exception. The same error is recorded once.
        Its text may contain a message, so only sensitive spans have it; the frames show the location."""
        if error is self.failure:
            return
        self.failure = error
        from opentelemetry.trace import Status, StatusCode

        kind = error_type(error)
        text, frames = kind, "".join([*traceback.format_tb(error.__traceback__), kind])
        noted = {"exception.type": kind}
        self.span.set_attribute("error.type", kind)
        if self._tracing.sensitive:
            noted["exception.message"] = text = to_text(error, str)
            self.span.set_attribute("error.message", text)
            frames = to_text(error, lambda raised: "".join(traceback.format_exception(raised)))
        self.span.add_event("exception", {**noted, "exception.stacktrace": frames})
        self.span.set_status(Status(StatusCode.ERROR, text))

    def end(self) -> None:
        if self.outcome is not None:
            self.span.set_attribute("perdure.outcome", self.outcome)
        self.span.end()

    def enter(self) -> Opened:
        from opentelemetry.context import attach

        self._token = attach(self.context)
        return self

    __enter__ = enter

    def leave(self, error: BaseException | None) -> None:
        from opentelemetry.context import detach

        if not isinstance(error, GeneratorExit):  # the event loop is closing in another context: none is to restore
            detach(self._token)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.leave(error)
        if isinstance(error, GeneratorExit):
            self.outcome = "abandoned"
        elif isinstance(error, asyncio.CancelledError):
            self.outcome = self.outcome or "cancelled"
        elif error is not None:
            self.outcome = self.outcome or "failed"
            self.note(error)
        self.end()


def trace_ids(thread_id: str) -> tuple[int, int]:
    """The trace of a thread, and the parent span of its runs, which is never created.

    The trace's id is the column `thread` of a PostgreSQL store: the first 16 bytes of the SHA-256 of the thread's id.
    """
    digest = sha256(thread_id.encode("utf-8", "surrogatepass")).digest()
    # An id of zeros is invalid.
    return int.from_bytes(digest[:16], "big") or 1, int.from_bytes(digest[16:24], "big") or 1


def error_type(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def to_text(value: Any, how: Any = repr) -> str:
    """Content for sensitive spans, truncated. Never raises, even if a user's `__repr__` does."""
    try:
        text: str = how(value)
    except Exception as error:  # noqa: BLE001  # a user's `__repr__` may raise anything
        return f"<repr raised {type(error).__name__}>"
    return text if len(text) <= LONGEST_CONTENT else f"{text[:LONGEST_CONTENT]}..."


active: Tracing | None = None
"""None: no spans, and OpenTelemetry is not imported."""


def configure_tracing(tracer_provider: Any = None, *, sensitive: bool = False) -> None:
    """Switch spans on for later runs; `configure_tracing(False)` switches them off.

    `tracer_provider`: default is OpenTelemetry's global one. `sensitive`: spans may contain messages, answers and the
    texts of errors. Raises MissingExtra if OpenTelemetry is not installed.
    """
    global active
    if tracer_provider is False:
        active = None
        return
    try:
        import opentelemetry.trace  # noqa: F401  # only checks that it is installed
    except ImportError as error:
        raise MissingExtra("configure_tracing()", "opentelemetry-api", "otel") from error
    if tracer_provider is not None and not callable(getattr(tracer_provider, "get_tracer", None)):
        raise TypeError(
            f"{tracer_provider!r} is not a tracer provider: it has no get_tracer. Give one of OpenTelemetry's, such as "
            "opentelemetry.sdk.trace.TracerProvider(), nothing for the global one, or False to switch tracing off."
        )
    active = Tracing(tracer_provider, sensitive=sensitive)


def configure_from_environment() -> None:
    """`PERDURE_TRACING`: 1 for spans, `sensitive` for spans with content, 0 or nothing for none."""
    wanted = os.environ.get(ENVIRONMENT_VARIABLE, "").strip().lower()
    if wanted in ("1", "true", "on", "yes", "sensitive"):
        configure_tracing(sensitive=wanted == "sensitive")
    elif wanted not in ("", "0", "false", "off", "no"):
        logger.warning("%s=%s is not 1, 0 or sensitive; tracing stays off", ENVIRONMENT_VARIABLE, wanted)


@contextmanager
def link_to_caller(headers: Mapping[str, str]) -> Iterator[None]:
    """Link runs that begin inside to the caller that `traceparent` names. Header names are in lower case. Call it only
    if tracing is `active`.

    A current span, such as that of an instrumented web framework, takes precedence as the caller.
    """
    from opentelemetry import trace
    from opentelemetry.context import attach, detach, get_current
    from opentelemetry.propagate import extract

    has_caller = trace.get_current_span().get_span_context().is_valid
    token = attach(get_current() if has_caller else extract(headers))
    try:
        yield
    finally:
        detach(token)


configure_from_environment()
