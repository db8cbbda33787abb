"""Workflows of agents, killed with SIGKILL at random instants and cut off around every write.

The same id resumes to the undisturbed result, and no model is asked again for a recorded reply.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.chance import SOAK
from tests.crash.agent_workflow_crashes import CrashTrials
from tests.crash.agent_workflow_trials import WorkflowTrials
from tests.crash.zygote import Zygote

from perdure.storages import InMemoryCheckpointStorage, SqliteCheckpointStorage

TRIED = {"sqlite": (4, 2), "file": (2, 2), "postgres": (1, 2)}
"""Generated workflows, and executions of each that are killed."""
SAMPLED = {"memory": 6, "sqlite": 3}
"""Instants of the rich workflow that are tried; to soak all of them are."""


@pytest.mark.parametrize("place", TRIED)
@pytest.mark.timeout(3600 if SOAK else 60)
def test_killed_execution_resumes_by_its_id_to_the_undisturbed_result(
    place: str, zygote: Zygote, seed: int, tmp_path: Path
) -> None:
    workflows, kills = TRIED[place]
    trials = WorkflowTrials(zygote, tmp_path, place, seed)
    tally = trials.run(workflows * (20 if SOAK else 1), kills * (3 if SOAK else 1))
    print(tally)
    assert tally.problems == []
    assert tally.recorded_repeated == 0


@pytest.mark.parametrize("place", SAMPLED)
@pytest.mark.timeout(600 if SOAK else 20)
async def test_a_crash_around_any_write_of_a_rich_workflow_changes_nothing(
    place: str, seed: int, tmp_path: Path
) -> None:
    numbers = count()
    make: dict[str, Callable[[], Any]] = {
        "memory": InMemoryCheckpointStorage,
        "sqlite": lambda: SqliteCheckpointStorage(tmp_path / f"{next(numbers)}.db", synchronous="NORMAL"),
    }
    trials = CrashTrials(make[place])
    await trials.run_undisturbed()
    assert trials.calm["result"]["final_answer"] == "sealed"
    assert (trials.calm["nodes"]["other"], trials.calm["nodes"]["art"]) == ("skipped", "failed")

    tried = trials.instants if SOAK else random.Random(seed).sample(trials.instants, SAMPLED[place])
    assert [problem for instant in tried for problem in await trials.problems(*instant)] == []
