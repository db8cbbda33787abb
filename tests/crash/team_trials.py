"""Trials of teams: threads whose processes are killed at an instant of the undisturbed run, and resumed by others."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.crash.lives import prepared
from tests.crash.teams import TEAMS, Instant, Order, Story, notes_of
from tests.crash.zygote import Ended, Zygote

LIFE = "tests.crash.teams:live"


@dataclass
class Tally:
    """What came of the kills of one team on one store."""

    team: str
    place: str
    runs: int = 0
    kills: int = 0
    repeated: int = 0
    """Calls that were in flight at a kill, and were made once more."""
    recorded_repeated: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.team} on {self.place}: {self.runs} runs, {self.kills} kills, {self.repeated} calls in flight made "
            f"again, {self.recorded_repeated} recorded calls made again"
        )


@dataclass
class TeamTrials:
    zygote: Zygote
    folder: Path
    place: str
    team: str
    seed: int

    def __post_init__(self) -> None:
        prepared(self.place, self.folder)
        self.tally = Tally(self.team, self.place)
        self._chance = random.Random(self.seed)
        self._live("calm", None)
        self.calm = Story(notes_of(self.folder, "calm"))
        assert TEAMS[self.team].ends_with in json.dumps(self.calm.ended), self.calm.ended
        assert self.calm.in_flight == [Counter()], "all that an undisturbed run does is recorded"

    @property
    def instants(self) -> list[Instant]:
        """In the middle of every call, and before and after every write."""
        begins = range(1, self.calm.all_begun.total() + 1)
        instants = [Instant(point="begin", nth=nth, when="in") for nth in begins]
        return instants + [
            Instant(point=point, nth=nth, when=when)
            for point in ("commit", "journal")
            for nth in range(1, self.calm.writes.get(point, 0) + 1)
            for when in ("before", "after")
        ]

    def sampled(self, number: int) -> list[Instant]:
        """Of each kind about as many as there are."""
        instants = self.instants
        start = self._chance.random()
        return [instants[int((place + start) * len(instants) / number)] for place in range(number)]

    def run(self, instants: Sequence[Instant]) -> Tally:
        for number, instant in enumerate(instants, 1):
            self._one(f"trial-{number}", instant)
        return self.tally

    def _one(self, thread_id: str, instant: Instant) -> None:
        killed = 0
        kill_at: Instant | None = instant
        while self._live(thread_id, kill_at).was_killed:
            killed += 1
            # Some are killed once more, early in their second life.
            is_again = killed == 1 and self._chance.random() < 0.3
            kill_at = Instant(point="begin", nth=self._chance.randint(1, 2), when="in") if is_again else None
        self.tally.runs += 1
        self.tally.kills += killed
        problems = [] if killed else ["it was not killed"]
        problems += self._judged(thread_id, Story(notes_of(self.folder, thread_id)))
        at = f"{instant['when']} {instant['point']} {instant['nth']}"
        self.tally.problems += [f"{thread_id}, killed {at} (seed {self.seed}): {problem}" for problem in problems]

    def _live(self, thread_id: str, kill_at: Instant | None) -> Ended:
        order = Order(place=self.place, folder=str(self.folder), team=self.team, thread_id=thread_id, kill_at=kill_at)
        return self.zygote.life(LIFE, order)

    def _judged(self, thread_id: str, story: Story) -> list[str]:
        """Count it in the tally, and return what is wrong with it."""
        again = story.all_begun - self.calm.all_begun
        in_flight = sum(story.in_flight[:-1], Counter[str]())
        recorded_again = again - in_flight
        self.tally.repeated += (again & in_flight).total()
        self.tally.recorded_repeated += recorded_again.total()
        problems = [f"recorded, and made again: {dict(recorded_again)}"] if recorded_again else []
        if never := self.calm.all_begun - story.all_begun:
            problems.append(f"never made: {dict(never)}")
        if any(calls.total() > TEAMS[self.team].width for calls in story.in_flight):
            problems.append(f"more in flight than can be at once: {story.in_flight}")
        return [*problems, *self._differences(thread_id, story)]

    def _differences(self, thread_id: str, story: Story) -> list[str]:
        calm, ended = _plain(self.calm.ended, "calm"), _plain(story.ended, thread_id)
        problems = []
        if ended["parts"] != calm["parts"]:
            problems.append(f"it ended with {ended['parts']}, not {calm['parts']}")
        if ended["rests"] != calm["rests"][-len(ended["rests"]) :]:
            problems.append(f"it gave {ended['rests']}, not {calm['rests']}")
        return problems


def _plain(ending: dict[str, Any], thread_id: str) -> dict[str, Any]:
    """Sessions and keys are named after their thread, and checkpoints each by itself."""
    text = json.dumps(ending).replace(f'"{thread_id}/', '"thread/')
    text = re.sub(r'"(inside-)?[0-9a-f]{32}"', '"key"', text)
    plain: dict[str, Any] = json.loads(re.sub(r'"checkpoint_id": "[^"]+"', '"checkpoint_id": ""', text))
    return plain
