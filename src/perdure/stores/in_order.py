"""Checkpoints in memory, found by id and listed in the order of their commits, whatever else is stored."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from perdure.errors import CheckpointNotFound
from perdure.records import StoredCheckpoint


class CheckpointsInOrder:
    """Each has a place, and each order of them is a list of places. What is gone is taken out of a list later."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[StoredCheckpoint, int]] = {}
        self._at: dict[int, StoredCheckpoint] = {}
        self._all: list[int] = []
        self._by_workflow: dict[str, list[int]] = {}
        self._by_thread: dict[str, list[int]] = {}
        self._numbers: dict[str, list[int]] = {}
        """By thread: of the commits at its places. They grow with them."""
        self._gone = 0
        self.is_complete = True
        """Whether nothing was ever taken out."""

    def add(self, stored: StoredCheckpoint, place: int) -> None:
        info = stored.info
        self._found[info.checkpoint_id] = stored, place
        self._at[place] = stored
        self._all.append(place)
        of_workflow = self._by_workflow.get(info.workflow_name)
        if of_workflow is None:
            self._by_workflow[info.workflow_name] = [place]
        else:
            of_workflow.append(place)
        of_thread = self._by_thread.get(info.thread_id)
        if of_thread is None:
            self._by_thread[info.thread_id] = [place]
            self._numbers[info.thread_id] = [info.number]
        else:
            of_thread.append(place)
            self._numbers[info.thread_id].append(info.number)

    def find(self, checkpoint_id: str) -> StoredCheckpoint | None:
        found = self._found.get(checkpoint_id)
        return None if found is None else found[0]

    def at(self, thread_id: str, number: int) -> StoredCheckpoint | None:
        """The one that this commit of the thread made."""
        numbers = self._numbers.get(thread_id, [])
        index = bisect_left(numbers, number)
        if index == len(numbers) or numbers[index] != number:
            return None
        return self._at.get(self._by_thread[thread_id][index])

    def remove(self, checkpoint_id: str) -> StoredCheckpoint:
        self.is_complete = False
        stored, place = self._found.pop(checkpoint_id)
        del self._at[place]
        self._gone += 1
        if self._gone > len(self._at) + 8:
            self._tidy()
        return stored

    def remove_thread(self, thread_id: str) -> None:
        for stored in self.of_thread(thread_id):
            self.remove(stored.info.checkpoint_id)
        self._by_thread.pop(thread_id, None)  # at once: another thread of that name counts from 1
        self._numbers.pop(thread_id, None)

    def _tidy(self) -> None:
        self._gone = 0
        for key, places in self._by_thread.items():
            pairs = zip(places, self._numbers[key], strict=True)
            self._numbers[key] = [number for place, number in pairs if place in self._at]
        for places in (self._all, *self._by_workflow.values(), *self._by_thread.values()):
            places[:] = [place for place in places if place in self._at]
        for key in [key for key, places in self._by_workflow.items() if not places]:
            del self._by_workflow[key]
        for key in [key for key, places in self._by_thread.items() if not places]:
            del self._by_thread[key], self._numbers[key]

    def replace(self, stored: StoredCheckpoint) -> None:
        """One with the same id, at the same place."""
        _, place = self._found[stored.info.checkpoint_id]
        self._found[stored.info.checkpoint_id] = stored, place
        self._at[place] = stored

    def of_thread(self, thread_id: str) -> list[StoredCheckpoint]:
        return list(self.newest_first(None, thread_id, None))[::-1]

    def newest_first(
        self, workflow_name: str | None, thread_id: str | None, before: str | None
    ) -> Iterator[StoredCheckpoint]:
        """Raises CheckpointNotFound for a `before` that there is not."""
        if before is not None and before not in self._found:
            raise CheckpointNotFound(before)
        places = self._all
        if thread_id is not None:
            places = self._by_thread.get(thread_id, [])
        elif workflow_name is not None:
            places = self._by_workflow.get(workflow_name, [])
        end = len(places) if before is None else bisect_left(places, self._found[before][1])
        found = (self._at.get(places[index]) for index in range(end - 1, -1, -1))
        return (stored for stored in found if stored is not None and workflow_name in (None, stored.info.workflow_name))
