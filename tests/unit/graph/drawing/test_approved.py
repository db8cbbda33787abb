"""The drawings that people looked at and found good. A change that alters one of them is a change to look at.

To approve what is drawn now: `python tests/unit/graph/drawing/test_approved.py`, look at the files that changed, and
commit them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from examples.drawing import build as newsroom  # noqa: E402  # found only now when run as a script
from tests.unit.graph.drawing.gallery import GALLERY  # noqa: E402  # found only now when run as a script

from perdure.graph.drawing.svg import to_svg  # noqa: E402  # after the path is set: it also runs as a script

APPROVED = Path(__file__).parent / "approved"
DOCS = ROOT / "docs" / "drawings"
INTERRUPTED = {
    "plan": "completed",
    "search_news": "due",
    "search_papers": "failed",
}
DRAW_ONE = "from tests.unit.graph.drawing.gallery import dense as graph; from perdure.graph.drawing.svg import to_svg; "


@pytest.mark.parametrize("name", GALLERY)
def test_graph_is_drawn_as_approved(name: str) -> None:
    assert to_svg(GALLERY[name]()).encode() == (APPROVED / f"{name}.svg").read_bytes()


def test_every_approved_drawing_is_drawn() -> None:
    assert {path.stem for path in APPROVED.glob("*.svg")} == set(GALLERY)


def docs_drawings() -> dict[Path, str]:
    """Those that the documentation shows."""
    return {
        DOCS / "newsroom.svg": newsroom().to_svg(),
        DOCS / "newsroom-interrupted.svg": newsroom().to_svg(outcomes=INTERRUPTED),
    }


def test_documentation_shows_the_current_drawings() -> None:
    assert {path: path.read_text("utf-8") for path in DOCS.glob("*.svg")} == docs_drawings()


def test_another_process_draws_the_same_bytes() -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)}
    code = DRAW_ONE + "import sys; sys.stdout.buffer.write(to_svg(graph()).encode())"
    drawn = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout
    assert drawn == (APPROVED / "dense.svg").read_bytes()


if __name__ == "__main__":
    for name, build in GALLERY.items():
        (APPROVED / f"{name}.svg").write_bytes(to_svg(build()).encode())
    for path, source in docs_drawings().items():
        path.write_bytes(source.encode())
