"""What came of the clauses, one line each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from perdure.testing.conformance.clause import Clause


@dataclass(frozen=True)
class ClauseResult:
    """What came of one clause."""

    clause: Clause
    outcome: Literal["passed", "FAILED", "not applicable"]
    reason: str = ""
    """Why it failed or is not applicable, in a sentence."""
    error: BaseException | None = None
    """What was raised, where it failed."""

    @property
    def name(self) -> str:
        return self.clause.name

    def __str__(self) -> str:
        line = f"  {self.outcome:<14}  {self.clause.sentence}"
        if self.outcome == "FAILED":
            return f"{line}: {self.reason}"
        return f"{line}, because {self.reason}" if self.reason else line


@dataclass(frozen=True)
class ConformanceReport:
    """What `validate` found, clause by clause. `print(report)` shows all of it."""

    store: str
    """What the store is called."""
    results: tuple[ClauseResult, ...]
    seed: int
    """What random clauses were tried with: pass it to `validate` to try the same again."""
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether no clause failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[ClauseResult, ...]:
        return tuple(one for one in self.results if one.outcome == "FAILED")

    @property
    def not_applicable(self) -> tuple[ClauseResult, ...]:
        return tuple(one for one in self.results if one.outcome == "not applicable")

    @property
    def summary(self) -> str:
        counts = Counter(one.outcome for one in self.results)
        told = ", ".join(f"{counts[one]} {one}" for one in ("passed", "FAILED", "not applicable") if counts[one])
        return f"{self.store}: {told or 'no clause was tried'}, in {self.seconds:.1f} s, seed {self.seed}"

    def __str__(self) -> str:
        lines: list[str] = []
        family = ""
        for one in self.results:
            if one.clause.family != family:
                family = one.clause.family
                lines.append(family)
            lines.append(str(one))
        return "\n".join([*lines, self.summary])
