"""Checkpoints in memory, found by id and listed in the order of their commits, whatever else is stored."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from holdfast.errors import CheckpointNotFound
from holdfast.records import StoredCheckpoint


class _Order:
    """Places in ascending order. A list that was long and is mostly gone is made anew."""

    __slots__ = ("_at", "_places")

    def __init__(self) -> None:
        self._places: list[int] = []
        self._at: dict[int, str] = {}

    def append(self, place: int, checkpoint_id: str) -> None:
        self._places.append(place)
        self._at[place] = checkpoint_id

    def remove(self, place: int) -> None:
        del self._at[place]
        if len(self._places) > 2 * len(self._at) + 8:
            self._places = [one for one in self._places if one in self._at]

    def newest_first(self, before: int | None) -> Iterator[str]:
        places = self._places
        end = len(places) if before is None else bisect_left(places, before)
        for index in range(end - 1, -1, -1):
            found = self._at.get(places[index])
            if found is not None:
                yield found


class CheckpointsInOrder:
    def __init__(self) -> None:
        self._found: dict[str, tuple[StoredCheckpoint, int]] = {}
        self._all = _Order()
        self._by_workflow: dict[str, _Order] = {}
        self._by_thread: dict[str, _Order] = {}

    def add(self, stored: StoredCheckpoint, place: int) -> None:
        info = stored.info
        self._found[info.checkpoint_id] = stored, place
        for order in self._orders(stored):
            order.append(place, info.checkpoint_id)

    def _orders(self, stored: StoredCheckpoint) -> tuple[_Order, _Order, _Order]:
        info = stored.info
        of_workflow = self._by_workflow.get(info.workflow_name)
        if of_workflow is None:
            of_workflow = self._by_workflow[info.workflow_name] = _Order()
        of_thread = self._by_thread.get(info.thread_id)
        if of_thread is None:
            of_thread = self._by_thread[info.thread_id] = _Order()
        return self._all, of_workflow, of_thread

    def find(self, checkpoint_id: str) -> StoredCheckpoint | None:
        found = self._found.get(checkpoint_id)
        return None if found is None else found[0]

    def remove(self, checkpoint_id: str) -> StoredCheckpoint:
        stored, place = self._found.pop(checkpoint_id)
        for order in self._orders(stored):
            order.remove(place)
        return stored

    def replace(self, stored: StoredCheckpoint) -> None:
        """One with the same id, at the same place."""
        _, place = self._found[stored.info.checkpoint_id]
        self._found[stored.info.checkpoint_id] = stored, place

    def of_thread(self, thread_id: str) -> list[StoredCheckpoint]:
        return list(self.newest_first(None, thread_id, None))[::-1]

    def newest_first(
        self, workflow_name: str | None, thread_id: str | None, before: str | None
    ) -> Iterator[StoredCheckpoint]:
        """Raises CheckpointNotFound for a `before` that there is not."""
        if before is not None and before not in self._found:
            raise CheckpointNotFound(before)
        order: _Order | None = self._all
        if thread_id is not None:
            order = self._by_thread.get(thread_id)
        elif workflow_name is not None:
            order = self._by_workflow.get(workflow_name)
        place = None if before is None else self._found[before][1]
        found = () if order is None else order.newest_first(place)
        newest_first = (self._found[checkpoint_id][0] for checkpoint_id in found)
        return (stored for stored in newest_first if workflow_name in (None, stored.info.workflow_name))
