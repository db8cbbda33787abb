"""The output of an example on a page equals what the example prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
SHOWN = re.compile(r"\[`examples/(\w+)\.py`\]\([^)]*\)[^\n]*:\n\n```text\n(.*?)```", re.DOTALL)
FOUND = [(page, name, text) for page in PAGES for name, text in SHOWN.findall(page.read_text(encoding="utf-8"))]
AGENTS = {"concurrent_panel", "durable_chat", "durable_review", "group_chat", "research_team", "support_handoff"}


@pytest.mark.parametrize(("page", "name", "text"), FOUND, ids=[f"{page.stem}-{name}" for page, name, _ in FOUND])
def test_output_of_an_example_on_a_page_is_its_expected_output(page: Path, name: str, text: str) -> None:
    expected = (ROOT / "examples" / "expected" / f"{name}.txt").read_text(encoding="utf-8")
    assert text.rstrip() == expected.rstrip()


def test_pages_show_the_output_of_every_example_with_agents() -> None:
    assert {name for _, name, _ in FOUND} >= AGENTS
