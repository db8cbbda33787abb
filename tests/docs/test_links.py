"""What the pages point to is there: files, sections, and every module of the package in the tree of ARCHITECTURE.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]

FENCED = re.compile(r"^ *(`{3,}).*?^ *\1 *$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#+ (?P<title>.+)$", re.MULTILINE)


def prose_of(page: Path) -> str:
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def sections_of(page: Path) -> set[str]:
    """The anchors that a reader's browser knows, made from headings as GitHub makes them."""
    titles = (found["title"].lower() for found in HEADING.finditer(prose_of(page)))
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


def broken_links(page: Path) -> list[str]:
    broken = []
    for found in LINK.finditer(prose_of(page)):
        path, _, section = found["target"].partition("#")
        if "://" in path:
            continue
        there = page.parent / path if path else page
        if not there.exists() or (section and section not in sections_of(there)):
            broken.append(found["target"])
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_a_missing_file_or_section_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Why `it` is so\n[a](#why-it-is-so) [b](#how) [c](no.md) [d](https://example.org/x)\n")
    assert broken_links(page) == ["#how", "no.md"]


def test_the_tree_of_the_architecture_names_what_is_two_levels_deep() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    named = set(re.findall(r"\w+", text.split("```")[1]))
    source = ROOT / "src" / "perdure"
    spoken_for = {source / "client", source / "errors"}  # one idea each: their modules need no line
    entries = {
        path.stem
        for folder in [source, *(room for room in source.iterdir() if room.is_dir() and room not in spoken_for)]
        for path in folder.iterdir()
        if (path.suffix == ".py" or (path / "__init__.py").exists()) and not path.stem.startswith("__")
    }
    assert sorted(entries - named) == []
