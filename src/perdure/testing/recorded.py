"""The recorded work of a thread, derived from the writes of its store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from perdure.checkpoints.checkpoint import WorkflowCheckpoint, decode_body
from perdure.checkpoints.delta.assembly import Assembly
from perdure.checkpoints.encode import tool_codec
from perdure.checkpoints.thread import TAKEN_BACK
from perdure.codec import Tree
from perdure.codecs.walk import from_bytes
from perdure.errors import UnreadableValue
from perdure.graph.graph import Graph, WorkflowExecutor
from perdure.records import ChildCheckpoint, Commit, JournalEntry

Doing: TypeAlias = tuple[str, int | None]
"""An executor or step, by the path in its events, and the child that it belongs to."""


class RecordedWork:
    """Counts, for one thread, the calls of executors and steps that are recorded: none of them may happen again.

    Pass it to `Faults.watch`. It counts only calls that are certainly recorded.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._codec = tool_codec()
        self._places: dict[int, tuple[Doing, str]] = {}
        """Deliveries that are due or suspended: the executor of each, and the path of its steps."""
        self._committed: Counter[Doing] = Counter()
        """Executors that events of committed supersteps name."""
        self._outcomes: dict[int, Doing] = {}
        """Deliveries that ended since the head."""
        self._steps: dict[tuple[int, int], Doing] = {}
        """By delivery, and place among its records."""
        self._chunks: dict[int, Mapping[str, bytes]] = {}

    @property
    def counts(self) -> Counter[Doing]:
        return self._committed + Counter(self._outcomes.values()) + Counter(self._steps.values())

    def take(self, point: str, written: Any) -> None:
        """As `Faults.watch` calls it."""
        if isinstance(written, Commit):
            self._take_commit(written)
        elif isinstance(written, JournalEntry):
            self._take_entry(written)

    def _take_commit(self, commit: Commit) -> None:
        self._chunks[commit.number] = commit.chunks
        if commit.events is not None:
            executors = {doing for doing, _ in self._places.values()}
            events = [event for event in self._whole(commit.events.body) or () if event[0] == "in"]
            calls = [(event[1], event[2].get("child_id") if len(event) > 2 else None) for event in events]
            self._committed.update(doing for doing in calls if doing in executors)  # steps have records of their own
        if commit.info is not None and commit.root is not None:
            tree = self._whole(commit.root)
            self._places = (
                {} if tree is None else dict(_places(decode_body(tree, commit.info, self._codec), self._graph))
            )
            self._outcomes = {key: doing for key, doing in self._outcomes.items() if key in commit.unsettled}

    def _whole(self, data: bytes) -> Tree | None:
        """None if it refers to what was written before the watch began."""

        async def read_chunks(numbers: Iterable[int]) -> Mapping[int, Mapping[str, bytes]]:
            return {number: self._chunks[number] for number in numbers if number in self._chunks}

        work = Assembly(read_chunks).tree(data, "commit")
        try:
            work.send(None)  # it never waits: all that it reads is at hand
        except StopIteration as ended:
            return ended.value[0]
        except UnreadableValue:
            return None
        raise AssertionError("reading chunks at hand does not wait")

    def _take_entry(self, entry: JournalEntry) -> None:
        tree = from_bytes(entry.body, "journal")
        delivery_id = entry.delivery_id
        if delivery_id not in self._places:
            return
        executor, steps_path = self._places[delivery_id]
        if "kind" not in tree:
            self._outcomes.pop(delivery_id, None)
            if tree != TAKEN_BACK:
                self._outcomes[delivery_id] = executor
        elif tree["kind"] in ("step", "failed"):  # the step is not called again
            self._steps[delivery_id, tree["n"]] = f"{steps_path}{tree['name']}", executor[1]
        elif tree["kind"] == "gone":  # taken back: the step is to be called again
            self._steps.pop((delivery_id, tree["n"]), None)


def _places(
    level: WorkflowCheckpoint | ChildCheckpoint, graph: Graph, path: str = "", child_id: int | None = None
) -> Iterator[tuple[int, tuple[Doing, str]]]:
    for message in (*level.deliveries, *(delivery.message for delivery in level.suspended.values())):
        executor_id = str(message.target_id)
        full_id = f"{path}{executor_id}"
        is_function = executor_id in graph.executors and graph.executors[executor_id].is_function
        yield message.delivery_id, ((full_id, child_id), path if is_function else f"{full_id}/")
    for inner_id, child in level.children.items():
        executor = graph.executors.get(child.executor_id)
        if isinstance(executor, WorkflowExecutor):
            yield from _places(child, executor.graph, f"{path}{child.executor_id}/", inner_id)
