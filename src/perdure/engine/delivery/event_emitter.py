"""Events that leave the engine: what their reader does to them changes nothing that is kept."""

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
    """The event with data of its own; the event itself where nothing in it can change."""
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
"""Events that are results of the workflow, and so count only if their delivery does."""


class DeliveryEvents:
    """What one delivery tells. One that was suspended runs from the top again, and comes by what it told before."""

    __slots__ = ("_before", "_delivery", "_effects", "_lane", "_left", "_new", "emitted")

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._lane = delivery.lane
        self._effects = delivery.effects
        self._before = delivery.before
        self._left = Counter(self._before.emitted) if self._before is not None else None
        self._new: list[WorkflowEvent] = []
        self.emitted: list[WorkflowEvent] = []
        """As they left the engine."""

    def emit_once(self, event: WorkflowEvent) -> None:
        """To the consumer and the log; but what was told before is only told again to whoever did not hear it."""
        if self._left is None:
            if frame_of(self._delivery) is None:
                self._new.append(event)
            self._emit(own_event(event))
            return
        if frame_of(self._delivery) is None:  # a step that is recorded is not run again, so it tells nothing twice
            self._new.append(event)
            digest = _digest(event, self._codec)
            if self._left[digest] > 0:
                self._left[digest] -= 1
                if self._before is not None and self._before.run_id != self._lane.scope.run_id:
                    self._lane.scope.emit(own_event(event, replayed=True))
                if event.type in RESULTS and self._lane.scope.is_logged:
                    self._effects.events.append(event)  # told before, but logged only with the end of its delivery
                return
        self._emit(own_event(event))

    def _emit(self, event: WorkflowEvent) -> None:
        frame = frame_of(self._delivery)
        # A question stays asked when the step that it was asked in is run again.
        (self.emitted if frame is None or event.type == "request_info" else frame.emitted).append(event)
        if event.type in RESULTS:
            told = self._lane.scope.emitted_results
            told.setdefault(self._delivery.message.delivery_id, []).append(event)
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
    told = msgspec.json.encode([event.type, event.executor_id, event.request_id, data])
    return hashlib.blake2b(told, digest_size=8).hexdigest()
