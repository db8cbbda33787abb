"""Positions with what deliveries have recorded: put into them before a commit, or before anything comes in."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from perdure.engine.position import Position, every_level
from perdure.engine.thread import Thread
from perdure.records import Record, SuspendedDelivery


def with_records(position: Position, records: Mapping[int, list[Record]]) -> Position:
    """The position in which what deliveries have recorded so far is part of them. The one given is left as it is."""
    after = held_back(position, records)
    running = {
        message.delivery_id: SuspendedDelivery(message, records=tuple(records[message.delivery_id]), is_ready=True)
        for message in after.mailbox
        if message.delivery_id in records
    }
    after.mailbox = [message for message in after.mailbox if message.delivery_id not in running]
    after.suspended = {**after.suspended, **running}
    after.children = {key: child.at(with_records(child.position, records)) for key, child in position.children.items()}
    return after


def held_back(position: Position, records: Mapping[int, list[Record]]) -> Position:
    """The position in which deliveries whose next attempt is not due yet wait for it, as when their last one failed,
    and in which those that wait have all that they recorded."""
    waiting = {
        key: msgspec.structs.replace(one, records=tuple(records[key])) if key in records else one
        for key, one in position.suspended.items()
    }
    for message in position.mailbox:
        recorded = records.get(message.delivery_id, ())
        own = [one for one in recorded if one.kind == "attempt" and not one.key]
        if own:
            waiting[message.delivery_id] = SuspendedDelivery(message, own[-1].until, records=tuple(recorded))
    after = position.successor()
    after.mailbox = [message for message in position.mailbox if message.delivery_id not in waiting]
    after.suspended = waiting
    after.children = {key: child.at(held_back(child.position, records)) for key, child in position.children.items()}
    return after


def absorb_records(thread: Thread) -> None:
    """Let what waits have all that it recorded, before anything comes in: an answer is recorded after it."""
    if thread.records:
        thread.position = held_back(thread.position, thread.records)
        waiting = {key for level in every_level(thread.position) for key in level.suspended}
        thread.records = {key: one for key, one in thread.records.items() if key not in waiting}
