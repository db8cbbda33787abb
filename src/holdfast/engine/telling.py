"""Events that leave the engine: what their reader does to them changes nothing that is kept."""

from __future__ import annotations

import msgspec

from holdfast.events import WorkflowEvent
from holdfast.graph.isolation import is_unchangeable, isolated


def own_event(event: WorkflowEvent, *, replayed: bool | None = None) -> WorkflowEvent:
    """The event with data of its own; the event itself where nothing in it can change."""
    if event.terms is not None and not is_unchangeable(event.terms.default):
        event = msgspec.structs.replace(
            event, terms=msgspec.structs.replace(event.terms, default=isolated(event.terms.default))
        )
    if replayed is not None and event.replayed is not replayed:
        return msgspec.structs.replace(event, data=isolated(event.data), replayed=replayed)
    if is_unchangeable(event.data):
        return event
    return msgspec.structs.replace(event, data=isolated(event.data))
