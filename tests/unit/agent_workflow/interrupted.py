"""Helpers for the tests of known defects: stores that can be reopened, counted calls, and processes that die."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perdure.agent_workflow.builder.workflow import AgentWorkflow
from perdure.agent_workflow.execution.execution import WorkflowResult
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.agent_workflow.state import ExecutionState
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.storages import FileCheckpointStorage, InMemoryCheckpointStorage, SqliteCheckpointStorage
from perdure.testing import Faults, ProcessGone, ScriptedAgent
from perdure.testing.faults import Point, When

PLACES: dict[str, Callable[..., StoreCheckpointStorage]] = {
    "memory": lambda folder, **options: InMemoryCheckpointStorage(**options),
    "json": lambda folder, **options: FileCheckpointStorage(folder / "workflows", fsync=False, **options),
    "sqlite": lambda folder, **options: SqliteCheckpointStorage(folder / "w.db", synchronous="NORMAL", **options),
}


class Place:
    """A store that can be opened again and again, as new processes do; one in memory stays the same."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self._opened: list[StoreCheckpointStorage] = []

    def open(self, **options: Any) -> StoreCheckpointStorage:
        if self.kind == "memory" and self._opened:
            return self._opened[0]
        self._opened.append(PLACES[self.kind](self.folder, **options))
        return self._opened[-1]

    async def close(self) -> None:
        for storage in self._opened:
            await storage.close()


class Calls:
    """Counts what models are asked."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def agent(self, name: str, replies: Any, **options: Any) -> ScriptedAgent:
        return ScriptedAgent(name, replies, log=self._take, **options)

    def _take(self, call: dict[str, Any]) -> None:
        self.counts[call["agent"] if call["kind"] == "model" else f"{call['agent']}.{call['name']}"] += 1

    def again(self) -> Counter[str]:
        """Return the counts since the last call."""
        counts, self.counts = self.counts, Counter()
        return counts


Make = Callable[[Any], AgentWorkflowInstance]


def stored(storage: Any, name: str = "w") -> AgentWorkflow:
    return AgentWorkflow.create().with_name(name).with_checkpointing().with_workflow_store(storage)


async def cut_off(
    make: Make, storage: Any, workflow_input: Any, execution_id: str, at: tuple[Point, int, When]
) -> None:
    """Run it in a process that dies at this write."""
    point, nth, when = at
    faults = Faults()
    faults.crash(point, nth=nth, when=when)
    try:
        result = await make(faults.wrap(storage)).run(workflow_input, execution_id)
    except ProcessGone:
        return
    raise AssertionError(f"it was to be cut off {when} {point} {nth}, and came to {result}")


async def writes_of(make: Make, workflow_input: Any) -> Counter[str]:
    """How often an undisturbed execution writes, by point."""
    faults = Faults()
    await make(faults.wrap(InMemoryCheckpointStorage())).run(workflow_input, "calm")
    return faults.counts


async def resume_elsewhere(make: Make, storage: Any, execution_id: str) -> WorkflowResult:
    """Resume it in another object, as another process would."""
    return await make(storage).resume(execution_id, takeover=True)


async def standing_of(workflow: AgentWorkflowInstance, execution_id: str) -> ExecutionState:
    known = await workflow.find(execution_id)
    assert known is not None and known.state is not None
    return known.state
