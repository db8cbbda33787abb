"""What a thread has durably done, read off the writes that its store did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from holdfast.checkpoints.checkpoint import ChildCheckpoint, WorkflowCheckpoint
from holdfast.checkpoints.event_log import unpack
from holdfast.checkpoints.format import decode_checkpoint, tool_codec
from holdfast.checkpoints.keepers import TAKEN_BACK
from holdfast.codecs.json_bytes import from_bytes
from holdfast.graph.graph import Graph
from holdfast.graph.workflow_executor import WorkflowExecutor
from holdfast.records import Commit, JournalEntry, LoggedEvents

Doing: TypeAlias = tuple[str, int | None]
"""An executor or step, by the path under which it is told, and the child that it belongs to."""

_STEP_KINDS = ("step", "failed")
"""Records of a step that is not called again."""


@dataclass(frozen=True)
class _Place:
    """Where a delivery goes, as a consumer is told."""

    told_id: str
    steps_path: str
    child_id: int | None


class RecordedWork:
    """Counts, for one thread, the calls of executors and steps that are recorded: none of them may happen again.

    Made to `Faults.watch` a store. It counts only what it is sure of.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._codec = tool_codec()
        self._places: dict[int, _Place] = {}
        self._committed: Counter[Doing] = Counter()
        """Told in committed supersteps."""
        self._kept: dict[tuple[int, int], Doing] = {}
        """Steps of suspended deliveries: (delivery, place among its records)."""
        self._journal: dict[tuple[int, int | None], Doing] = {}
        """Since the head: steps by their place, and whole deliveries under None."""

    @property
    def counts(self) -> Counter[Doing]:
        return self._committed + Counter(self._journal.values())

    def take(self, point: str, written: Any) -> None:
        """As `Faults.watch` calls it."""
        if isinstance(written, Commit):
            self._take_commit(written)
        elif isinstance(written, JournalEntry):
            self._take_entry(written)

    def _take_commit(self, commit: Commit) -> None:
        if commit.events is not None:
            self._committed.update(invoked(commit.events, commit.lease.thread_id))
        if commit.info is None or commit.root is None:
            return
        checkpoint = decode_checkpoint(from_bytes(commit.root, "checkpoint"), self._codec)
        self._places = dict(_places(checkpoint, self._graph))
        self._kept = dict(self._kept_steps(checkpoint))
        kept = set(commit.unsettled)
        self._journal = {key: doing for key, doing in self._journal.items() if key[0] in kept}

    def _kept_steps(self, level: WorkflowCheckpoint | ChildCheckpoint) -> Iterator[tuple[tuple[int, int], Doing]]:
        for delivery_id, suspended in level.suspended.items():
            for place, record in enumerate(suspended.records):
                if record.kind in _STEP_KINDS:
                    yield (delivery_id, place), self._step(delivery_id, record.name)
        for child in level.children.values():
            yield from self._kept_steps(child)

    def _step(self, delivery_id: int, name: str) -> Doing:
        where = self._places[delivery_id]
        return f"{where.steps_path}{name}", where.child_id

    def _take_entry(self, entry: JournalEntry) -> None:
        tree = from_bytes(entry.body, "journal")
        delivery_id = entry.delivery_id
        if delivery_id not in self._places:
            return
        if "kind" not in tree:
            where = self._places[delivery_id]
            self._journal.pop((delivery_id, None), None)
            if tree != TAKEN_BACK:
                self._journal[delivery_id, None] = where.told_id, where.child_id
        elif tree["kind"] in _STEP_KINDS:
            self._journal[delivery_id, tree["n"]] = self._step(delivery_id, tree["name"])
        elif tree["kind"] == "gone":
            self._forget(delivery_id, tree["n"])

    def _forget(self, delivery_id: int, place: int) -> None:
        """Its record was taken back: the step is to be called again."""
        if self._journal.pop((delivery_id, place), None) is None and (delivery_id, place) in self._kept:
            self._committed[self._kept.pop((delivery_id, place))] -= 1


def invoked(logged: LoggedEvents, thread_id: str) -> Iterator[Doing]:
    for event in unpack(logged, thread_id, tool_codec()):
        if event.type == "executor_invoked":
            yield str(event.executor_id), event.child_id


def _places(
    level: WorkflowCheckpoint | ChildCheckpoint, graph: Graph, path: str = "", child_id: int | None = None
) -> Iterator[tuple[int, _Place]]:
    for message in (*level.deliveries, *(one.message for one in level.suspended.values())):
        executor_id = str(message.target_id)
        told_id = f"{path}{executor_id}"
        is_function = executor_id in graph.executors and graph.executors[executor_id].is_function
        yield message.delivery_id, _Place(told_id, path if is_function else f"{told_id}/", child_id)
    for inner_id, child in level.children.items():
        executor = graph.executors.get(child.executor_id)
        if isinstance(executor, WorkflowExecutor):
            yield from _places(child, executor.graph, f"{path}{child.executor_id}/", inner_id)
