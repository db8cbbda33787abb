"""docs/reference/run.md names every option of `run`."""

from __future__ import annotations

import re
from pathlib import Path

from perdure import RunOptions

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "run.md"


def test_run_reference_has_every_option_in_signature_and_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    signature = text.split("```")[1]
    assert set(re.findall(r"(\w+)=", signature)) - {"message", "stream"} == set(RunOptions.__annotations__)
    rows = "".join(re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE))
    assert set(RunOptions.__annotations__) - {"responses"} <= set(re.findall(r"`(\w+)`", rows))
