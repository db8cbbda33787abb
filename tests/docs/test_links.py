"""Files and sections that pages link to exist, and the tree of ARCHITECTURE.md names every module of the package."""

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
    """The anchors of the headings of a page, in the form of GitHub."""
    titles = (match["title"].lower() for match in HEADING.finditer(prose_of(page)))
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


def broken_links(page: Path) -> list[str]:
    broken = []
    for match in LINK.finditer(prose_of(page)):
        path, _, section = match["target"].partition("#")
        if "://" in path:
            continue
        target = page.parent / path if path else page
        if not target.exists() or (section and section not in sections_of(target)):
            broken.append(match["target"])
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_of_a_page_has_a_target(page: Path) -> None:
    assert broken_links(page) == []


def test_link_to_a_missing_file_or_section_is_broken(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Why `it` is so\n[a](#why-it-is-so) [b](#how) [c](no.md) [d](https://example.org/x)\n")
    assert broken_links(page) == ["#how", "no.md"]


def test_architecture_tree_names_modules_two_levels_deep() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    named = set(re.findall(r"\w+", text.split("```")[1]))
    source = ROOT / "src" / "perdure"
    summarised = {source / "client", source / "errors"}  # the tree has one line for each of these folders
    entries = {
        path.stem
        for folder in [source, *(child for child in source.iterdir() if child.is_dir() and child not in summarised)]
        for path in folder.iterdir()
        if (path.suffix == ".py" or (path / "__init__.py").exists()) and not path.stem.startswith("__")
    }
    assert sorted(entries - named) == []
