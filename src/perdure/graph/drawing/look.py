"""Colours and marks. An outcome has a colour, a style of outline and a mark: colour alone is not relied on."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.graph.drawing.outcomes import COMPLETED, DUE, FAILED, RUNNING, SKIPPED, WAITING

FONT = "ui-sans-serif, system-ui, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"


@dataclass(frozen=True)
class Palette:
    page: str
    inside: str
    """Of a sub-workflow."""
    box: str
    line: str
    text: str
    faint: str
    inverse: str
    """On top of `line` and the strong colours."""
    outcomes: dict[str, tuple[str, str]]
    """Fill and outline."""


LIGHT = Palette(
    page="#ffffff",
    inside="#f7f9fc",
    box="#eef1f7",
    line="#5a6473",
    text="#1c2330",
    faint="#4a5462",
    inverse="#ffffff",
    outcomes={
        COMPLETED: ("#dcf3e4", "#1b7a45"),
        RUNNING: ("#dcebfd", "#1c62c4"),
        WAITING: ("#fdf1cf", "#8f6400"),
        DUE: ("#ece6fb", "#6b46c1"),
        SKIPPED: ("#ebedf0", "#6a7380"),
        FAILED: ("#fde3e1", "#c02a2f"),
    },
)
DARK = Palette(
    page="#10141b",
    inside="#151a23",
    box="#1b222d",
    line="#8d98a8",
    text="#e7ebf1",
    faint="#b3bcc9",
    inverse="#10141b",
    outcomes={
        COMPLETED: ("#143324", "#4cc17f"),
        RUNNING: ("#14294a", "#6aa9f7"),
        WAITING: ("#3a2f10", "#dfae3b"),
        DUE: ("#2a2145", "#ad8cf2"),
        SKIPPED: ("#262c35", "#929cab"),
        FAILED: ("#44191c", "#f2736f"),
    },
)

_OUTLINES = {
    COMPLETED: "",
    RUNNING: "stroke-dasharray:10 3;",
    WAITING: "stroke-dasharray:6 4;",
    DUE: "stroke-dasharray:3 3;",
    SKIPPED: "stroke-dasharray:1 4;stroke-linecap:round;",
    FAILED: "stroke-width:2.4;",
}

MARKS = {
    COMPLETED: "M-3.4 .2 L-1 2.8 L3.6 -2.6",
    RUNNING: "M-1.8 -3.2 L3.2 0 L-1.8 3.2 Z",
    WAITING: "M-2 -3.4 V3.4 M2 -3.4 V3.4",
    DUE: "M0 -3.6 V.4 L2.6 2",
    SKIPPED: "M-3.2 0 H3.2",
    FAILED: "M-2.7 -2.7 L2.7 2.7 M2.7 -2.7 L-2.7 2.7",
}
"""Drawn into a small disc: tick, triangle, pause, clock hands, dash, cross."""


def style_sheet() -> str:
    """Classes carry a prefix, since a page that shows the drawing inline shares its names."""
    return f"{_fixed()}{_coloured(LIGHT)}@media(prefers-color-scheme:dark){{{_coloured(DARK)}}}"


def _fixed() -> str:
    outlines = "".join(f".hf-{name}>.hf-box{{{rule}}}" for name, rule in _OUTLINES.items() if rule)
    return (
        f".hf-text{{font-family:{FONT};text-anchor:middle;stroke:none}}"
        ".hf-name{font-size:13px}.hf-label{font-size:11px}.hf-title{text-anchor:start;font-weight:600}"
        ".hf-legend{text-anchor:start}"
        ".hf-box{stroke-width:1.3}.hf-start>.hf-box{stroke-width:2.2}.hf-entry .hf-box{stroke-dasharray:4 3}"
        ".hf-link{fill:none;stroke-width:1.4}.hf-conditional .hf-link{stroke-dasharray:6 4}"
        ".hf-fallback .hf-link{stroke-dasharray:1 4;stroke-width:1.8;stroke-linecap:round}"
        ".hf-mark{fill:none;stroke-width:1.7;stroke-linecap:round;stroke-linejoin:round}"
        f"{outlines}"
    )


def _coloured(palette: Palette) -> str:
    outcomes = "".join(
        f".hf-{name}>.hf-box{{fill:{fill};stroke:{line}}}.hf-{name}>.hf-disc{{fill:{line}}}"
        for name, (fill, line) in palette.outcomes.items()
    )
    return (
        f".hf-page{{fill:{palette.page}}}.hf-box{{fill:{palette.box};stroke:{palette.line}}}"
        f".hf-start>.hf-box{{stroke:{palette.text}}}"
        f".hf-text{{fill:{palette.text}}}.hf-label{{fill:{palette.faint}}}"
        f".hf-link{{stroke:{palette.line}}}.hf-head,.hf-hub,.hf-start>.hf-sign{{fill:{palette.line}}}"
        f".hf-start>.hf-sign{{fill:{palette.text}}}"
        f".hf-tag{{fill:{palette.page}}}.hf-inside{{fill:{palette.inside}}}.hf-mark{{stroke:{palette.inverse}}}"
        f"{outcomes}.hf-node>.hf-cluster{{fill:{palette.inside}}}"
    )
