"""Spans that were made, as a tree that can be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler

from perdure.engine.tracing import configure_tracing


class Traced:
    """What a program of perdure traced."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler, shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """In the order in which they began."""
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def single(self, name: str) -> ReadableSpan:
        [span] = self.named(name)
        return span

    def clear(self) -> None:
        self._exporter.clear()

    @property
    def traces(self) -> set[int]:
        return {span.context.trace_id for span in self.spans if span.context is not None}

    def tree(self, *, without: str = "checkpoint.commit") -> list[str]:
        """A line for each span, below its parent and indented, with its outcome; those of commits left out."""
        ids = {span.context.span_id for span in self.spans if span.context is not None}
        below: dict[int | None, list[ReadableSpan]] = {}
        for span in self.spans:
            parent = span.parent.span_id if span.parent is not None and span.parent.span_id in ids else None
            below.setdefault(parent, []).append(span)

        def lines(parent: int | None, depth: int) -> Iterator[str]:
            for span in below.get(parent, []):
                if span.name != without and span.context is not None:
                    outcome = attributes(span).get("perdure.outcome")
                    yield f"{'  ' * depth}{span.name}{f' ({outcome})' if outcome else ''}"
                    yield from lines(span.context.span_id, depth + 1)

        return list(lines(None, 0))


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def all_text(spans: Sequence[ReadableSpan]) -> str:
    """Everything that a backend would be given."""
    return "\n".join(span.to_json() for span in spans)


@contextmanager
def tracing(sampler: Sampler | None = None, *, sensitive: bool = False) -> Iterator[Traced]:
    traced = Traced(sampler)
    configure_tracing(traced.provider, sensitive=sensitive)
    try:
        yield traced
    finally:
        configure_tracing(False)
