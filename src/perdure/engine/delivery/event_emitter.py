"""Events that leave the engine, as copies: a consumer cannot change stored data through them."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from perdure.codec import Codec
from perdure.engine.steps.calls import frame_of
from perdure.errors import UnsavableValue
from perdure.events import WorkflowEvent
from perdure.isolation import is_immutable, isolate

if TYPE_CHECKING:
    from perdure.engine.delivery.delivery import Delivery


def own_event(event: WorkflowEvent, *, replayed: bool | None = None) -> WorkflowEvent:
    """The event with a copy of its data; the event itself if nothing in it is mutable."""
    if event.terms is not None and not is_immutable(event.terms.default):
        event = msgspec.structs.replace(
            event, terms=msgspec.structs.replace(event.terms, default=isolate(event.terms.default))
        )
    if replayed is not None and event.replayed is not replayed:
        return msgspec.structs.replace(event, data=isolate(event.data), replayed=replayed)
    if is_immutable(event.data):
        return event
    return msgspec.structs.replace(event, data=isolate(event.data))


RESULTS = frozenset({"output", "intermediate"})
"""Events that are results of the workflow. They count only if their delivery succeeds."""


class DeliveryEvents:
    """Emits the events of one delivery. A suspended delivery runs again from the start and repeats its events, so
    those that it emitted before are recognised by their digests."""

    __slots__ = ("_before", "_delivery", "_effects", "_lane", "_left", "_new", "emitted")

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._lane = delivery.lane
        self._effects = delivery.effects
        self._before = delivery.before
        self._left = Counter(self._before.emitted) if self._before is not None else None
        self._new: list[WorkflowEvent] = []
        self.emitted: list[WorkflowEvent] = []
        """Events as they left the engine."""

    def emit_once(self, event: WorkflowEvent) -> None:
        """Emit to the consumer and the log. An event from an earlier run is emitted again only as `replayed`."""
        if self._left is None:
            if frame_of(self._delivery) is None:
                self._new.append(event)
            self._emit(own_event(event))
            return
        if frame_of(self._delivery) is None:  # a recorded step does not run again, so its events are new
            self._new.append(event)
            digest = _digest(event, self._codec)
            if self._left[digest] > 0:
                self._left[digest] -= 1
                if self._before is not None and self._before.run_id != self._lane.scope.run_id:
                    self._lane.scope.emit(own_event(event, replayed=True))
                if event.type in RESULTS and self._lane.scope.is_logged:
                    self._effects.events.append(event)  # emitted before, but logged only when its delivery ends
                return
        self._emit(own_event(event))

    def _emit(self, event: WorkflowEvent) -> None:
        frame = frame_of(self._delivery)
        # A request stays pending when the step that made it runs again.
        (self.emitted if frame is None or event.type == "request_info" else frame.emitted).append(event)
        if event.type in RESULTS:
            results = self._lane.scope.emitted_results
            results.setdefault(self._delivery.message.delivery_id, []).append(event)
        self._lane.emit(event, self._effects)

    @property
    def _codec(self) -> Codec:
        scope = self._lane.scope
        return scope.codec or scope.compiled.codec

    def digests(self) -> tuple[str, ...]:
        now = Counter(_digest(event, self._codec) for event in self._new)
        before = Counter() if self._before is None else Counter(self._before.emitted)
        return tuple((now | before).elements())


def _digest(event: WorkflowEvent, codec: Codec) -> str:
    try:
        data = codec.encode(event.data, "event")
    except UnsavableValue:
        data = type(event.data).__qualname__
    content = msgspec.json.encode([event.type, event.executor_id, event.request_id, data])
    return hashlib.blake2b(content, digest_size=8).hexdigest()
