"""What a run streams, told to whoever follows its thread in any process, before any of it is in the log."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from perdure.codecs.json_codec import JsonCodec
from perdure.errors import PerdureError, UnsavableValue
from perdure.events import WorkflowEvent

if TYPE_CHECKING:
    from perdure.checkpoints.open_thread import OpenThread


MAX_LIVE_EVENT_BYTES = 256 * 1024
"""More than this is not told, only logged if it is to be."""

_WITHOUT_DATA = frozenset({"executor_invoked", "executor_completed"})
"""Their data are messages, which may be large, and are not in the log either."""


def live_event_publisher(
    storage: Any, thread_id: str, run_id: str, keeper: OpenThread | None, now: Callable[[], datetime]
) -> Callable[[WorkflowEvent], None] | None:
    """Passes on what a run streams to whoever follows its thread, here and in other processes; None if nobody could."""
    from perdure.checkpoints.storage import StoreCheckpointStorage

    if keeper is None or not isinstance(storage, StoreCheckpointStorage):
        return None
    store = storage.store
    has_subscribers = store.has_subscribers

    def tell(event: WorkflowEvent) -> None:
        if has_subscribers(thread_id):
            body = _told(event, thread_id, run_id, keeper.last_seq, now())
            if body is not None:
                store.publish(thread_id, body)

    return tell


@cache
def _codec() -> JsonCodec:
    # Never the storage's own: what is told may come from anybody, and another codec might run it.
    return JsonCodec(lenient=True)


def _told(event: WorkflowEvent, thread_id: str, run_id: str, last_seq: int, at: datetime) -> bytes | None:
    stamp: dict[str, Any] = {"thread_id": thread_id, "run_id": run_id, "timestamp": at}
    if event.type in _WITHOUT_DATA:
        stamp["data"] = None
    own = msgspec.structs.replace(event, **stamp)
    try:
        body = msgspec.json.encode([last_seq, _plain(own)])
    except (UnsavableValue, msgspec.EncodeError, RecursionError):
        return None  # it cannot leave this process
    return body if len(body) <= MAX_LIVE_EVENT_BYTES else None


def _plain(event: WorkflowEvent) -> dict[str, Any]:
    """As `to_dict` gives it, with a codec that is made once: tokens come fast."""
    codec = _codec()
    defaults = zip(event.__struct_fields__, (..., *event.__struct_defaults__), strict=True)
    fields = ((name, getattr(event, name), default) for name, default in defaults)
    return {name: codec.encode(value, f"event.{name}") for name, value, default in fields if value is not default}


class LiveEvent(NamedTuple):
    after: int
    """The last event of the log when it was told."""
    event: WorkflowEvent


def decode_live_event(body: bytes, codec: JsonCodec) -> LiveEvent | None:
    """None for what is no event: whoever can reach the channel can say anything there."""
    try:
        after, fields = msgspec.json.decode(body, type=tuple[int, dict[str, Any]])
        data = fields.pop("data", None)
        event = msgspec.structs.replace(
            WorkflowEvent.from_dict(fields), data=codec.decode(data, "event.data"), seq=None
        )
    except (PerdureError, msgspec.DecodeError, ValueError, TypeError, RecursionError):
        return None
    return LiveEvent(after, event)
