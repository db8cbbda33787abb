"""Trials: threads whose processes are killed at random instants, one after the other, until one reaches the end."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.crash.flows import FLOWS
from tests.crash.lives import Order, prepared
from tests.crash.notes import Story, read_story
from tests.crash.zygote import Zygote

MOST_KILLS = 3
"""Of one thread: then it is left to reach its end."""


@dataclass
class Tally:
    """What came of the kills of one kind."""

    kind: str
    place: str
    seed: int
    kills: int = 0
    lost: int = 0
    """Trials that ended otherwise than an undisturbed run, or in which something acknowledged was gone."""
    recorded_repeated: int = 0
    unrecorded_repeated: int = 0
    in_flight: int = 0
    """At all kills together: what may be repeated."""
    problems: list[str] = field(default_factory=list)

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.kills, self.lost, self.recorded_repeated, self.unrecorded_repeated, self.in_flight

    def add(self, other: Tally) -> None:
        self.kills += other.kills
        self.lost += other.lost
        self.recorded_repeated += other.recorded_repeated
        self.unrecorded_repeated += other.unrecorded_repeated
        self.in_flight += other.in_flight
        self.problems += other.problems


@dataclass
class Trials:
    """Of one or several flows, whose threads live in the same processes and the same store."""

    zygote: Zygote
    folder: Path
    place: str
    flows: Sequence[str]
    seed: int

    def __post_init__(self) -> None:
        self.tally = Tally(" + ".join(self.flows), self.place, self.seed)
        self._chance = random.Random(self.seed)
        self._calm, self.seconds = self._undisturbed()
        self._width = sum(FLOWS[name].width for name in self.flows)

    def _undisturbed(self) -> tuple[Story, float]:
        ended = self.zygote.life("tests.crash.lives:live", self._order("calm"))
        calm = read_story(self.folder / "calm" / "notes")
        assert set(calm.begun.values()) == {1} and set(calm.endings) == set(self.flows)
        return calm, ended.seconds

    def _order(self, trial: str, *, ready_when_working: bool = True) -> Order:
        folder = prepared(self.place, self.folder / trial)
        return Order(
            place=self.place,
            folder=str(folder),
            notes="notes",
            flows=list(self.flows),
            ready_when_working=ready_when_working,
        )

    def run(self, kills: int) -> Tally:
        """Raises AssertionError with what a life raised, naming the seed."""
        trial = 0
        while self.tally.kills < kills:
            trial += 1
            try:
                self._one(f"trial-{trial}", kills)
            except AssertionError as error:
                error.add_note(f"{self.tally.kind} on {self.place}, seed {self.seed}, trial {trial}")
                raise
        return self.tally

    def _one(self, trial: str, kills: int) -> None:
        left, killed, killed_at = self.seconds, 0, []
        while True:
            may_kill = killed < MOST_KILLS and self.tally.kills < kills
            delay = self._chance.uniform(0, left) if may_kill else None
            # Most kills hit a thread at work; some the opening of its store, which can take as long as the work.
            order = self._order(trial, ready_when_working=self._chance.random() < 0.8)
            ended = self.zygote.life("tests.crash.lives:live", order, delay)
            if not ended.was_killed:
                break
            killed += 1
            self.tally.kills += 1
            killed_at.append(f"{1000 * (delay or 0):.3f} ms")
            left = max(left - (delay or 0), self.seconds / 4)
        story = read_story(self.folder / trial / "notes")
        problems = self.judge(story)
        if problems:
            problem = f"{trial}, killed after {', then '.join(killed_at)}: {'; '.join(problems)}"
            self.tally.problems.append(problem)
        else:
            shutil.rmtree(self.folder / trial)

    def judge(self, story: Story) -> list[str]:
        """Count it in the tally, and return what is wrong with it."""
        tally = self.tally
        problems = [*story.lost, *self._differences(story)]
        tally.lost += bool(problems)
        tally.recorded_repeated += len(story.recorded_repeated)
        tally.unrecorded_repeated += len(story.unrecorded_repeated)
        in_flight = story.in_flight[:-1]  # the last life was not killed
        tally.in_flight += sum(map(len, in_flight))
        if story.recorded_repeated:
            problems.append(f"recorded and done again: {story.recorded_repeated}")
        if any(len(works) > self._width for works in in_flight):
            problems.append(f"more in flight than can be at once: {in_flight}")
        if len(story.unrecorded_repeated) > sum(map(len, in_flight)):
            problems.append(f"done again, and not in flight at a kill: {story.unrecorded_repeated}")
        if story.in_flight[-1]:
            problems.append(f"done and never recorded: {story.in_flight[-1]}")
        return problems

    def _differences(self, story: Story) -> list[str]:
        problems = [] if set(story.begun) == set(self._calm.begun) else [f"other work was done: {sorted(story.begun)}"]
        for thread_id, calm in self._calm.endings.items():
            ending: Any = story.endings[thread_id]
            if ending["parts"] != calm["parts"]:
                problems.append(f"{thread_id} ended with {ending['parts']}, not {calm['parts']}")
            if ending["rests"] != calm["rests"][-len(ending["rests"]) :]:
                problems.append(f"{thread_id} gave {ending['rests']}, not {calm['rests']}")
        return problems
