"""A handoff continues after a crash at any write. No message, request or call is repeated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.chance import SOAK
from tests.unit.orchestrations.handoff_team import (
    CONVERSATION,
    FIRST,
    answer,
    done_twice,
    handing_off,
    support,
    talked,
    team,
    to_public,
)

from perdure import InMemoryCheckpointStorage, PostgresCheckpointStorage, SqliteCheckpointStorage
from perdure.testing import Faults, ProcessGone, assert_survives_crash
from perdure.testing.crash import MOMENTS, POINTS, THREAD, take_to_the_end
from perdure.testing.faults import Point, When
from perdure.testing.scripted import ScriptedAgent
from perdure.workflows.workflow import Workflow


def alone(storage: Any) -> Workflow:
    """One agent continues alone, then hands off to an agent whose conversation the user ends."""
    script: list[Any] = ["One.", "Two.", handing_off("Your turn.", "a", "b")]
    a, b = ScriptedAgent("a", script), ScriptedAgent("b", ["Three."])
    return team(storage, a, b).with_autonomous_mode(agents=[a]).build()


STORAGES: dict[str, Callable[[pytest.FixtureRequest, Path], Any]] = {
    "sqlite": lambda _, folder: SqliteCheckpointStorage(folder / "threads.db"),
    "postgres": lambda request, _: PostgresCheckpointStorage(request.getfixturevalue("postgres_dsn")),
}


async def test_crash_at_any_write_changes_no_message_and_no_request() -> None:
    storages: list[InMemoryCheckpointStorage] = []

    def make() -> InMemoryCheckpointStorage:
        storages.append(InMemoryCheckpointStorage())
        return storages[-1]

    survived = await assert_survives_crash(support, FIRST, storage=make, answers=answer)
    assert len(survived.points) == len(storages) - 1 > 60
    for storage in storages:
        assert to_public(await talked(storage, THREAD)) == CONVERSATION


async def test_crash_in_autonomous_mode_neither_repeats_nor_loses_a_turn() -> None:
    storages: list[InMemoryCheckpointStorage] = []

    def make() -> InMemoryCheckpointStorage:
        storages.append(InMemoryCheckpointStorage())
        return storages[-1]

    await assert_survives_crash(alone, "Count", storage=make, answers=lambda event: event.data.terminate())
    for storage in storages:
        messages = await talked(storage, THREAD)
        assert [message.text for message in messages] == ["Count", "One.", "Two.", "Your turn.", "Three."]


@pytest.mark.parametrize("when", MOMENTS)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("kind", STORAGES)
async def test_no_model_is_asked_and_no_tool_called_again_after_a_crash(
    kind: str, point: Point, when: When, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """At every write in `make soak`, at one in seven otherwise, each in a thread of its own."""
    async with STORAGES[kind](request, tmp_path) as storage:
        faults, log = Faults(), tmp_path / "calm.log"
        calm = await take_to_the_end(support(storage, log), faults.wrap(storage), FIRST, answer, thread_id="calm")
        assert len(log.read_text(encoding="utf-8").splitlines()) == 11
        assert done_twice(log) == {}
        again: set[str] = set()
        is_unrecorded = (when, point) == ("before", "journal")
        every = range(1, faults.counts[point] + 1)
        for nth in every if SOAK else every[list(STORAGES).index(kind) :: 7]:
            thread_id = f"{when} {point} {nth}"
            log = tmp_path / f"{thread_id}.log"
            faults = Faults()
            faults.crash(point, nth=nth, when=when)
            dying = faults.wrap(storage)
            with pytest.raises(ProcessGone):
                await take_to_the_end(support(dying, log), dying, FIRST, answer, thread_id=thread_id)
            restarted = support(storage, log)
            ending = await take_to_the_end(restarted, storage, FIRST, answer, thread_id=thread_id, takeover=True)
            assert ending.rests[-1] == calm.rests[-1], thread_id
            assert to_public(await talked(storage, thread_id)) == CONVERSATION, thread_id
            twice = done_twice(log)
            # Only what was in flight, and not recorded yet, is done again.
            assert len(twice) <= is_unrecorded, (thread_id, twice)
            again |= twice.keys()
        assert not SOAK or len(again) == (11 if is_unrecorded else 0)


async def test_repeated_resumes_return_the_same_outputs_and_requests(tmp_path: Path) -> None:
    storage, log = InMemoryCheckpointStorage(), tmp_path / "log"
    first = await support(storage, log).run(FIRST, thread_id="t")
    for _ in range(3):
        again = await support(storage, log).run(thread_id="t")
        assert again.get_outputs() == first.get_outputs()
        assert [event.request_id for event in again.get_request_info_events()] == [
            event.request_id for event in first.get_request_info_events()
        ]
    await take_to_the_end(support(storage, log), storage, FIRST, answer, thread_id="t")
    assert to_public(await talked(storage, "t")) == CONVERSATION
    assert done_twice(log) == {}


async def test_thread_restored_to_a_question_continues_without_repetition() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = support(storage)
    first = await workflow.run(FIRST, thread_id="t")
    await take_to_the_end(workflow, storage, FIRST, answer, thread_id="t")
    responses = {str(event.request_id): answer(event) for event in first.get_request_info_events()}
    assert first.checkpoint_id is not None
    await support(storage).run(checkpoint_id=first.checkpoint_id, responses=responses, thread_id="t")
    assert to_public(await talked(storage, "t")) == CONVERSATION[:4]
    await take_to_the_end(support(storage), storage, FIRST, answer, thread_id="t")
    assert to_public(await talked(storage, "t")) == CONVERSATION
