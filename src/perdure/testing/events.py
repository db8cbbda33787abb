"""EventRecorder: the events of a stream, recorded for assertions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Iterator
from typing import Any

from perdure.engine.run.stream import ResponseStream
from perdure.events import WorkflowEvent


class EventRecorder:
    """Records the events of a stream, also if the run fails in the end."""

    def __init__(self) -> None:
        self.events: list[WorkflowEvent] = []
        self._awaited: list[tuple[str, dict[str, Any], asyncio.Future[WorkflowEvent]]] = []

    async def collect(self, stream: AsyncIterable[WorkflowEvent]) -> Any:
        """Take every event; the result of the run, where the stream has one: `await recorder.collect(workflow.run(
        message, stream=True))`. Raises what the run raised."""
        async for event in stream:
            self.take(event)
        return await stream.get_final_response() if isinstance(stream, ResponseStream) else None

    def take(self, event: WorkflowEvent) -> None:
        self.events.append(event)
        for kind, fields, future in self._awaited:
            if not future.done() and _fits(event, kind, fields):
                future.set_result(event)
        self._awaited = [entry for entry in self._awaited if not entry[2].done()]

    def of_type(self, *types: str, **fields: Any) -> list[WorkflowEvent]:
        """The events of these types, in order, whose fields are as given: `of_type("output", executor_id="a")`."""
        return [event for event in self.events if any(_fits(event, kind, fields) for kind in types)]

    async def seen(self, kind: str, **fields: Any) -> WorkflowEvent:
        """The first such event: now, or as soon as it is collected. Waits without polling."""
        events = self.of_type(kind, **fields)
        if events:
            return events[0]
        future: asyncio.Future[WorkflowEvent] = asyncio.get_running_loop().create_future()
        self._awaited.append((kind, fields, future))
        return await future

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.events]

    @property
    def outputs(self) -> list[Any]:
        """The outputs, in the order of the events."""
        return [event.data for event in self.of_type("output")]

    def clear(self) -> None:
        self.events.clear()

    def __iter__(self) -> Iterator[WorkflowEvent]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)


def _fits(event: WorkflowEvent, kind: str, fields: dict[str, Any]) -> bool:
    return event.type == kind and all(getattr(event, name, None) == value for name, value in fields.items())
