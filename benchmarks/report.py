"""From the measured rounds to medians, ratios, a table, and the generated part of RESULTS.md."""

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

BEGIN = "<!-- begin: written by `benchmarks/engine.py --write`, do not edit -->"
END = "<!-- end -->"


@dataclass(frozen=True)
class Measure:
    name: str
    title: str
    unit: str
    target: float | None = None
    """The least ratio of perdure to the peer."""
    smaller_is_better: bool = False
    bare: bool = False
    """Whether a bare asyncio loop of the same shape exists."""


MEASURES = (
    Measure("loop", "one-executor loop, no storage", "supersteps/s", target=14, bare=True),
    Measure("stored_loop", "the same, memory storage", "supersteps/s", target=8),
    Measure("streamed_loop", "the same as the first, a consumer reads every event", "supersteps/s"),
    Measure("fan", "fan 1 to 100 to 1", "deliveries/s", target=10, bare=True),
    Measure("used_fan", "the same in a process that ran others before", "deliveries/s", target=10),
    Measure("conversation", "500 turns, list of dicts in the state, memory storage", "turns/s", target=5),
    Measure("idle_thread", "idle thread, no storage", "bytes/thread", smaller_is_better=True),
    Measure("stored_idle_thread", "the same, memory storage, 4 checkpoints", "bytes/thread", smaller_is_better=True),
)


@dataclass(frozen=True)
class Row:
    """One measure over all rounds; `ours`, `theirs` and `bare` hold one value per round."""

    measure: Measure
    ours: list[float]
    theirs: list[float]
    bare: list[float]

    @property
    def ratio(self) -> float:
        """The ratio of the medians; above 1 perdure is better."""
        return self._times_better(median(self.ours), median(self.theirs))

    @property
    def ratios(self) -> list[float]:
        return [self._times_better(a, b) for a, b in zip(self.ours, self.theirs, strict=True)]

    @property
    def verdict(self) -> str:
        if self.measure.target is None:
            return ""
        return "met" if self.ratio >= self.measure.target else "not met"

    def _times_better(self, ours: float, theirs: float) -> float:
        return theirs / ours if self.measure.smaller_is_better else ours / theirs


@dataclass(frozen=True)
class Setting:
    """The facts about a run that a reader of its numbers needs."""

    command: str
    ours: str
    theirs: str
    python: str
    rounds: int

    def describe(self) -> str:
        machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
        sides = f"{self.ours} beside {self.theirs}"
        return f"`{self.command}`: {sides}, Python {self.python}, {machine}, {self.rounds} rounds."


def table(rows: Sequence[Row], setting: Setting) -> str:
    """The results in Markdown."""
    head = ["measure", "unit", setting.ours, setting.theirs, "times better (rounds)", "target", "", "bare asyncio"]
    lines = [head, ["---", "---", *["---:"] * 4, "---", "---:"]]
    lines += [_cells(row) for row in rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _cells(row: Row) -> list[str]:
    spread = f"{row.ratio:.1f} ({min(row.ratios):.1f} to {max(row.ratios):.1f})"
    target = f"{row.measure.target:g}" if row.measure.target else ""
    bare = f"{median(row.bare):,.0f}" if row.bare else ""
    ours, theirs = f"{median(row.ours):,.0f}", f"{median(row.theirs):,.0f}"
    return [row.measure.title, row.measure.unit, ours, theirs, spread, target, row.verdict, bare]


def cost_of_events(rows: Sequence[Row], setting: Setting) -> str:
    """The time that a streaming consumer adds to a superstep, from runs with and without it in the same round."""
    by_name = {row.measure.name: row for row in rows}
    plain, streamed = by_name.get("loop"), by_name.get("streamed_loop")
    if plain is None or streamed is None:
        return ""
    ours = _added_microseconds(plain.ours, streamed.ours)
    theirs = _added_microseconds(plain.theirs, streamed.theirs)
    return (
        f"A consumer that reads every event adds {ours:.1f} us to a superstep of {1e6 / median(plain.ours):.1f} us "
        f"({setting.theirs}: {theirs:.1f} us to {1e6 / median(plain.theirs):.1f} us)."
    )


def _added_microseconds(plain: Sequence[float], streamed: Sequence[float]) -> float:
    return median(1e6 / b - 1e6 / a for a, b in zip(plain, streamed, strict=True))


def generated(rows: Sequence[Row], setting: Setting) -> str:
    """The part of RESULTS.md that this benchmark writes."""
    note = (
        "Medians of the rounds; each round measures the engines one after the other, each in a process of its own. "
        "Times better: ratio of the medians, in brackets the lowest and highest ratio of one round."
    )
    return "\n\n".join(filter(None, [setting.describe(), table(rows, setting), note, cost_of_events(rows, setting)]))


def write(path: Path, text: str, begin: str = BEGIN) -> None:
    """Replace the text between the markers, and keep the rest of the file."""
    page = path.read_text(encoding="utf-8")
    before, begin_marker, rest = page.partition(begin)
    _, end_marker, after = rest.partition(END)
    if not (begin_marker and end_marker):
        raise SystemExit(f"{path.name} was not written: it lacks the lines {begin!r} and {END!r}; put them back")
    path.write_text(f"{before}{begin}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def as_json(rows: Sequence[Row], setting: Setting) -> dict[str, object]:
    """Every value of every round, for comparing two runs."""
    measures = [
        {**asdict(row), "ratio": row.ratio, "ratios": row.ratios, "verdict": row.verdict or None} for row in rows
    ]
    return {"setting": asdict(setting), "measures": measures}
