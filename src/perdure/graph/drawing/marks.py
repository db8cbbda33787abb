"""What shows an outcome beside its colour: a disc with a mark, on a box and in the legend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.graph.drawing.look import MARKS
from perdure.graph.drawing.markup import number, text_at
from perdure.graph.drawing.sizes import NAME_SIZE
from perdure.graph.drawing.text import width_of

_LINE, _DISC = 24.0, 36.0
_NARROWEST = 180.0


@dataclass(frozen=True)
class Legend:
    """The outcomes that occur, each with the left end of its entry and its line."""

    entries: tuple[tuple[str, float, float], ...]
    width: float
    height: float

    def source(self, left: float, top: float) -> list[str]:
        return [_entry(outcome, left + x, top + y + _LINE / 2) for outcome, x, y in self.entries]


def legend_of(outcomes: Sequence[str], width: float) -> Legend:
    """As wide as the drawing, in several lines where that is narrow."""
    entries, x, y, widest = list[tuple[str, float, float]](), 0.0, 0.0, 0.0
    for outcome in outcomes:
        needed = width_of(outcome, NAME_SIZE) + _DISC
        if x and x + needed > max(width, _NARROWEST):
            x, y = 0.0, y + _LINE
        entries.append((outcome, x, y))
        x += needed
        widest = max(widest, x)
    return Legend(tuple(entries), widest, y + _LINE if entries else 0)


def _entry(outcome: str, x: float, y: float) -> str:
    text = text_at(x + 22, y + NAME_SIZE * 0.35, "hf-name hf-legend", outcome)
    return f'<g class="hf-{outcome}">{badge(outcome, x + 9, y)}{text}</g>'


def badge(outcome: str, x: float, y: float) -> str:
    disc = f'<circle class="hf-disc" cx="{number(x)}" cy="{number(y)}" r="8"/>'
    return f'{disc}<path class="hf-mark" transform="translate({number(x)} {number(y)})" d="{MARKS[outcome]}"/>'
