"""Teams killed with SIGKILL at every instant, in the middle of calls and around every write: nothing is said, asked or
done twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chance import SOAK
from tests.crash.team_trials import TeamTrials
from tests.crash.teams import TEAMS
from tests.crash.zygote import Zygote

SAMPLED = {"sqlite": 6, "postgres": 2}
"""Instants that are tried of each team; to soak all of them are."""


def kill(zygote: Zygote, folder: Path, place: str, team: str, seed: int) -> None:
    trials = TeamTrials(zygote, folder, place, team, seed)
    tally = trials.run(trials.instants if SOAK else trials.sampled(SAMPLED[place]))
    print(tally)
    assert tally.problems == []
    assert tally.recorded_repeated == 0


@pytest.mark.parametrize("team", TEAMS)
def test_killed_team_reaches_the_same_end_and_repeats_no_recorded_call(
    team: str, zygote: Zygote, seed: int, tmp_path: Path
) -> None:
    kill(zygote, tmp_path, "sqlite", team, seed)


def test_killed_team_in_postgresql_reaches_the_same_end(zygote: Zygote, seed: int, tmp_path: Path) -> None:
    for team in ("handoff", "magentic"):
        folder = tmp_path / team
        folder.mkdir()
        kill(zygote, folder, "postgres", team, seed)
