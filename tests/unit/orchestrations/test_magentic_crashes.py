"""A Magentic team continues after a crash at any write. No message and no paid request is repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.chance import SOAK
from tests.unit.orchestrations.magentic_team import STALLING, TASK, Manager, crew, first_lines, judged, remembered, team

from perdure import InMemoryCheckpointStorage, PostgresCheckpointStorage, SqliteCheckpointStorage, WorkflowEvent
from perdure.agents.tools import tool
from perdure.orchestrations.magentic import MagenticPlanReviewResponse
from perdure.testing import Faults, ProcessGone, assert_survives_crash
from perdure.testing.crash import Ending, take_to_the_end
from perdure.testing.scripted import Call, Reply, ScriptedAgent
from perdure.workflows.workflow import Workflow

CONVERSATION = [
    ("magentic_manager", "Look it up."),
    ("researcher", "7 metres."),
    ("magentic_manager", "Write it down."),
    ("writer", "It is 7 metres."),
    ("manager", "Answer from: It is 7 metres."),
]
DIALOGUE = [(None, TASK), (None, "Ask the pilot first."), ("manager", "Answer from: It is 7 metres.")]
CALLS = 21
"""Requests to models and calls of tools, in all."""


@tool
def gauge(place: str) -> str:
    return f"the gauge of {place}"


def reviewed(storage: Any, log: Path | None = None) -> Workflow:
    """A plan that is revised once, approved, replaced after a stall, and approved again. One agent calls a tool."""
    replies: list[Reply] = [Call("gauge", {"place": "Brest"}), "7 metres.", "7.5 metres."]
    researcher = ScriptedAgent("researcher", replies, tools=[gauge], log=log)
    # Rounds by plan: the second is the first that is gone by.
    manager = Manager([], *STALLING)
    return team(
        storage,
        manager=manager,
        participants=[researcher, crew(log)[1]],
        log=log,
        enable_plan_review=True,
        max_stall_count=1,
    )


def answer(event: WorkflowEvent) -> MagenticPlanReviewResponse:
    plan = event.data.plan.text
    return event.data.revise("Ask the pilot first.") if "Plan 1" in plan else event.data.approve()  # type: ignore[no-any-return]


def calls_in(log: Path) -> int:
    return len(log.read_text(encoding="utf-8").splitlines()) if log.exists() else 0


class Trials:
    """Each crash in a thread of its own, all in one storage."""

    def __init__(self, storage: Any, folder: Path) -> None:
        self._storage = storage
        self._folder = folder

    async def survive(self, *, one_in: int) -> int:
        """How many crashes were tried: one in so many, and all of them in `make soak`."""
        faults = Faults()
        calm = await self._ended(faults.wrap(self._storage), "calm")
        assert calls_in(self._log("calm")) == CALLS
        every = [
            (point, nth, when)
            for point in ("commit", "journal")
            for nth in range(1, faults.counts[point] + 1)
            for when in ("before", "after")
        ]
        tried = every[:: 1 if SOAK else one_in]
        for point, nth, when in tried:
            await self._crash(point, nth, when, calm)
        return len(tried)

    async def _crash(self, point: Any, nth: int, when: Any, calm: Ending) -> None:
        thread_id = f"{when} {point} {nth}"
        faults = Faults()
        faults.crash(point, nth=nth, when=when)
        with pytest.raises(ProcessGone):
            await self._ended(faults.wrap(self._storage), thread_id)
        ending = await self._ended(self._storage, thread_id, takeover=True)
        assert ending.rests[-1]["outputs"] == calm.rests[-1]["outputs"], thread_id
        assert ending.rests[-1]["questions"] == {}, thread_id
        state = await remembered(self._storage, thread_id)
        assert state == await remembered(self._storage, "calm"), thread_id
        assert first_lines(state.context.chat_history)[-5:] == CONVERSATION, thread_id
        assert first_lines(state.dialogue) == DIALOGUE, thread_id
        # Only what was in flight, and not recorded yet, is done again.
        assert CALLS <= calls_in(self._log(thread_id)) <= CALLS + thread_id.startswith("before journal"), thread_id

    async def _ended(self, storage: Any, thread_id: str, **options: Any) -> Ending:
        workflow = reviewed(storage, self._log(thread_id))
        return await take_to_the_end(workflow, storage, TASK, answer, thread_id=thread_id, **options)

    def _log(self, thread_id: str) -> Path:
        return self._folder / f"{thread_id}.log"


async def test_a_crash_at_any_write_changes_nothing_of_a_short_task() -> None:
    survived = await assert_survives_crash(
        lambda storage: team(storage, [judged("writer"), judged(is_done=True)], enable_plan_review=True),
        TASK,
        answers=lambda event: event.data.approve(),
    )
    assert len(survived.points) > 30


async def test_crash_at_a_write_changes_neither_messages_counts_nor_calls(
    tmp_path: Path,
) -> None:
    assert await Trials(InMemoryCheckpointStorage(), tmp_path).survive(one_in=6) > 15


async def test_a_crash_at_a_write_to_sqlite_is_survived(tmp_path: Path) -> None:
    async with SqliteCheckpointStorage(tmp_path / "threads.db") as storage:
        assert await Trials(storage, tmp_path).survive(one_in=17) > 5


async def test_a_crash_at_a_write_to_postgresql_is_survived(postgres_dsn: str, tmp_path: Path) -> None:
    async with PostgresCheckpointStorage(postgres_dsn) as storage:
        assert await Trials(storage, tmp_path).survive(one_in=17) > 5


async def test_usage_is_counted_once_after_a_crash() -> None:
    calm = await team(InMemoryCheckpointStorage()).run(TASK, thread_id="t")
    faults = Faults()
    await team(faults.wrap(InMemoryCheckpointStorage())).run(TASK, thread_id="t")
    for nth in range(1, faults.counts["journal"] + 1):
        storage, dying = InMemoryCheckpointStorage(), Faults()
        dying.crash("journal", nth=nth, when="after")
        with pytest.raises(ProcessGone):
            await team(dying.wrap(storage)).run(TASK, thread_id="t")
        result = await team(storage).run(thread_id="t", takeover=True)
        assert result.usage == calm.usage, f"after journal entry {nth}"


async def test_review_can_be_restored_and_answered_differently(tmp_path: Path) -> None:
    storage, log = InMemoryCheckpointStorage(), tmp_path / "log"
    paused = await reviewed(storage, log).run(TASK, thread_id="t")
    [event] = paused.get_request_info_events()
    await take_to_the_end(reviewed(storage, log), storage, TASK, answer, thread_id="t")
    assert paused.checkpoint_id is not None
    back = await reviewed(storage, log).run(
        checkpoint_id=paused.checkpoint_id, thread_id="t", responses={event.request_id: event.data.revise("Shorter.")}
    )
    [again] = back.get_request_info_events()
    assert "Plan 2" in again.data.plan.text
    assert first_lines((await remembered(storage, "t")).dialogue) == [(None, TASK), (None, "Shorter.")]
