"""The measured values of the stores, and their form in tables: medians, spreads, verdicts."""

import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

Values = dict[tuple[str, ...], list[float]]
"""One value per round, by measure, store and parameters."""


@dataclass
class Results:
    """All measured values and their setting."""

    sizes: dict[str, int]
    values: Values = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    python: str = ""
    command: str = ""
    rounds: int = 0
    load: float = 0.0
    """The load of the machine before the first measurement."""

    def add(self, key: tuple[str, ...], value: float) -> None:
        self.values.setdefault(key, []).append(value)

    def as_json(self) -> dict[str, object]:
        """Every value of every round, for comparing two runs."""
        values = {" | ".join(key): rounds for key, rounds in self.values.items()}
        return {"setting": self.describe([*self.labels.values()]), "sizes": self.sizes, "values": values}

    def get(self, *key: str) -> list[float]:
        return self.values.get(key, [])

    def part(self, name: str) -> "Results":
        """The results of one part: the values whose keys begin with its name, under the rest of the key."""
        return replace(self, values={key[1:]: rounds for key, rounds in self.values.items() if key[0] == name})

    def describe(self, sides: Sequence[str]) -> str:
        """The setting of the results, and the peers of perdure in them."""
        machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
        ours = self.labels.get("perdure", "perdure")
        setting = f"Python {self.python}, {machine}, load before {self.load:.1f}, {self.rounds} rounds"
        return f"`{self.command}`: {ours} beside {', '.join(sides)}, {setting}."


# ---------------------------------------------------------------- pieces


def as_table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [list(head), ["---", *["---:"] * (len(head) - 2), "---"], *map(list, lines)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)


def as_spread(values: Sequence[float], form: str = ".2f") -> str:
    """The median, and in brackets the lowest and highest value."""
    if not values:
        return ""
    if len(values) == 1 or format(min(values), form) == format(max(values), form):
        return format(median(values), form)
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def as_verdict(
    values: Mapping[str, Sequence[float]],
    is_met: Callable[[float], bool],
    taken: Callable[[Sequence[float]], float] = median,
) -> str:
    measured = {title: rounds for title, rounds in values.items() if rounds}
    missed = [title for title, rounds in measured.items() if not is_met(taken(rounds))]
    if not measured:
        return ""
    return f"not met: {', '.join(missed)}" if missed else "met"
