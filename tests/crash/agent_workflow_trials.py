"""Trials of generated workflows of agents: executions whose processes are killed, and resumed by their id in others."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.agent_workflow_lives import Order, plan_of
from tests.crash.lives import prepared
from tests.crash.teams import Instant, Story, notes_of
from tests.crash.zygote import Ended, Zygote

LIFE = "tests.crash.agent_workflow_lives:live"


@dataclass
class Tally:
    place: str
    workflows: int = 0
    kills: int = 0
    missed: int = 0
    """Processes that had come to their end when they were to be killed."""
    repeated: int = 0
    """Model calls that were in flight at a kill, and were made once more."""
    recorded_repeated: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.workflows} workflows on {self.place}: {self.kills} kills ({self.missed} came too late), "
            f"{self.repeated} model calls in flight made again, {self.recorded_repeated} recorded ones made again"
        )


@dataclass
class WorkflowTrials:
    """Of workflows that follow from the seed."""

    zygote: Zygote
    folder: Path
    place: str
    seed: int

    def __post_init__(self) -> None:
        self.tally = Tally(self.place)
        self._chance = random.Random(self.seed)

    def run(self, workflows: int, kills: int) -> Tally:
        """`kills`: how many executions of each workflow are disturbed."""
        for _ in range(workflows):
            plan = self._chance.randrange(2**32)
            OfOneWorkflow(self, prepared(self.place, self.folder / f"plan-{plan}"), plan).run(kills, self._chance)
            self.tally.workflows += 1
        return self.tally


class OfOneWorkflow:
    """All of it in one storage."""

    def __init__(self, trials: WorkflowTrials, folder: Path, plan: int) -> None:
        self._trials = trials
        self._folder = folder
        self._plan = plan
        self._tally = trials.tally
        self._seconds = self._live("calm").seconds
        self._calm = Story(notes_of(folder, "calm"))
        assert self._calm.in_flight == [Counter()], f"not recorded: {self._calm.in_flight} (plan {plan})"

    def run(self, kills: int, chance: random.Random) -> None:
        for number in range(kills):
            self._disturb(f"trial-{number}", number % 2 == 0, chance)

    def _disturb(self, execution_id: str, by_time: bool, chance: random.Random) -> None:
        """Killed once or more, then left alone."""
        kills: list[str] = []
        while True:
            kill_after = chance.uniform(0, self._seconds) if by_time else None
            kill_at = None if by_time else self._an_instant(chance)
            kills.append(f"after {kill_after:.4f} s" if kill_after is not None else str(kill_at))
            was_killed = self._live(execution_id, kill_at, kill_after).was_killed
            self._tally.kills += was_killed
            self._tally.missed += not was_killed
            if not was_killed or chance.random() < 0.6:
                break
        if was_killed:
            self._live(execution_id)
        problems = self._judged(Story(notes_of(self._folder, execution_id)))
        where = f"plan {self._plan} on {self._tally.place}, {execution_id} killed {', '.join(kills)}"
        self._tally.problems += [f"{where} (seed {self._trials.seed}): {problem}" for problem in problems]

    def _an_instant(self, chance: random.Random) -> Instant:
        """In the middle of a call, or before or after a write, of the undisturbed execution."""
        counts = {"begin": self._calm.all_begun.total()}
        counts |= {point: self._calm.writes.get(point, 0) for point in ("commit", "journal")}
        [point] = chance.choices(list(counts), list(counts.values()))
        when = "in" if point == "begin" else chance.choice(["before", "after"])
        return Instant(point=point, nth=chance.randint(1, counts[point]), when=when)

    def _live(self, execution_id: str, kill_at: Instant | None = None, kill_after: float | None = None) -> Ended:
        order = Order(
            place=self._tally.place,
            folder=str(self._folder),
            plan=self._plan,
            execution_id=execution_id,
            kill_at=kill_at,
        )
        return self._trials.zygote.life(LIFE, order, kill_after)

    def _judged(self, story: Story) -> list[str]:
        """Count it in the tally, and return what is wrong with it."""
        again = story.all_begun - self._calm.all_begun
        in_flight = sum(story.in_flight[:-1], Counter[str]())
        recorded_again = again - in_flight
        self._tally.repeated += (again & in_flight).total()
        self._tally.recorded_repeated += recorded_again.total()
        problems = [f"recorded, and asked again: {dict(recorded_again)}"] if recorded_again else []
        never = self._calm.all_begun - story.all_begun
        for node in map(plan_of(self._plan).node, never):
            if (node.kind, node.map_errors) != ("map", "fail"):  # which begins no more items after one has failed
                problems.append(f"never asked: {node.id}, {never[node.id]} times")
        if story.ended != self._calm.ended:
            problems.append(f"it ended with {story.ended}, not {self._calm.ended}")
        return problems
