"""Processes killed with SIGKILL at random instants: nothing acknowledged is lost, nothing recorded is done again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chance import SOAK
from tests.crash.crowd import run_crowds
from tests.crash.flows import FLOWS
from tests.crash.posting import PostTrials
from tests.crash.trials import Trials
from tests.crash.zygote import Zygote

AS_BY_DEFAULT = ["file", "sqlite", "postgres"]
UNSYNCED = ["file, fsync=False", "sqlite, NORMAL"] if SOAK else []
"""Without a power cut they cannot differ: what a process wrote is the system's."""
KILLS = dict.fromkeys([*AS_BY_DEFAULT, *UNSYNCED], 67 if SOAK else 5)
"""Of each kind on each store: together over 120, and over 2,000 to soak."""
if not SOAK:
    KILLS["postgres"] = 3  # each of them takes longer there


@pytest.mark.parametrize("place", [*AS_BY_DEFAULT, *UNSYNCED])
@pytest.mark.parametrize("flow", FLOWS)
def test_killed_thread_resumes_by_its_id_to_the_undisturbed_end(
    flow: str, place: str, zygote: Zygote, seed: int, tmp_path: Path
) -> None:
    tally = Trials(zygote, tmp_path, place, [flow], seed).run(KILLS[place])
    assert tally.problems == []
    assert (tally.lost, tally.recorded_repeated) == (0, 0)
    assert tally.kills == KILLS[place]


@pytest.mark.parametrize("place", AS_BY_DEFAULT)
def test_all_threads_of_a_killed_process_survive(place: str, zygote: Zygote, seed: int, tmp_path: Path) -> None:
    flows = ["chain", "fan-3", "function", "nested", "asking", "sleeping"]
    tally = Trials(zygote, tmp_path, place, flows, seed).run(KILLS[place])
    assert tally.problems == []
    assert (tally.lost, tally.recorded_repeated) == (0, 0)


@pytest.mark.parametrize("place", AS_BY_DEFAULT)
def test_killed_processes_do_not_harm_others_that_share_the_store(
    place: str, zygote: Zygote, seed: int, tmp_path: Path
) -> None:
    tally = run_crowds(zygote, tmp_path, place, KILLS[place], seed)
    assert tally.problems == []
    assert (tally.lost, tally.recorded_repeated) == (0, 0)


@pytest.mark.parametrize("place", AS_BY_DEFAULT)
def test_acknowledged_message_to_a_thread_is_delivered_once(
    place: str, zygote: Zygote, seed: int, tmp_path: Path
) -> None:
    tally = PostTrials(zygote, tmp_path, place, seed).run(KILLS[place])
    assert tally.problems == []
    assert (tally.lost, tally.recorded_repeated) == (0, 0)
