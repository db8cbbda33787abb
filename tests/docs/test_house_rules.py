"""The pages keep their size, their index and the words of CONTRIBUTING.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs.test_links import LINK, prose_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"
OTHERS = [page for page in sorted(DOCS.rglob("*.md")) if page != INDEX]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md")), *sorted((ROOT / "benchmarks").glob("*.md"))]
BANNED = re.compile(
    r"\b(?:whoever|somebody|nobody|heed(?:s|ed)?|anew|mend(?:s|ed)?|tells?|told|hears?|heard|said of)\b", re.IGNORECASE
)
GENERATED = re.compile(r"^<!-- begin:.*?^<!-- end -->$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`[^`]*`")
TERM = re.compile(r"^\|(?! *(?:word|term|-+)\b| *-)", re.MULTILINE)
NUMBER = re.compile(r"\b\d[\d,.]*\d\b")


def test_readme_has_at_most_140_lines() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 140


def test_glossary_has_at_most_80_terms() -> None:
    assert 0 < len(TERM.findall((ROOT / "GLOSSARY.md").read_text(encoding="utf-8"))) <= 80


def test_first_changelog_entry_has_at_most_40_lines() -> None:
    entries = re.split(r"^(?=## )", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert entries[-1].startswith("## 0.1.0\n")
    assert len(entries[-1].rstrip().splitlines()) <= 40


def test_how_to_folder_has_at_most_14_pages() -> None:
    folders = [folder for folder in (DOCS / "how-to").iterdir() if folder.is_dir()]
    assert {folder.name: len(list(folder.iterdir())) for folder in folders if len(list(folder.iterdir())) > 14} == {}
    assert list((DOCS / "how-to").glob("*.md")) == []


@pytest.mark.parametrize("page", OTHERS, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_index_links_page(page: Path) -> None:
    linked = {(DOCS / match["target"].partition("#")[0]).resolve() for match in LINK.finditer(prose_of(INDEX))}
    assert page.resolve() in linked


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page_uses_no_banned_words(page: Path) -> None:
    assert BANNED.findall(CODE.sub("", prose_of(page))) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page_wraps_at_110_characters(page: Path) -> None:
    """Tables, code and generated blocks excepted, and a link that is longer by itself."""
    written = GENERATED.sub("", prose_of(page))
    lines = [line for line in written.splitlines() if not line.startswith(("|", "![", "<!--"))]
    assert [line for line in lines if len(line) > 110 and " " in line.strip()] == []


def test_each_promise_of_the_page_has_a_test_file_of_its_number() -> None:
    page = (DOCS / "explanation" / "durability.md").read_text(encoding="utf-8")
    promises = re.findall(r"^\| (\d+) \| [A-Z]", page, re.MULTILINE)
    tests = {path.name[6:8] for path in (ROOT / "tests" / "promises").glob("test_p[0-9][0-9]_*.py")}
    assert [f"{int(number):02}" for number in promises] == sorted(tests)
    assert len(promises) == 18


def test_numbers_of_the_readme_promises_are_measured() -> None:
    measured = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    measured += (DOCS / "reliability.md").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [A-Z][^|]*\.\s*\| ([^|]*)\|", readme, re.MULTILINE)
    assert len(rows) == 3
    numbers = {number for row in rows for number in NUMBER.findall(row)}
    assert len(numbers) >= 8
    assert sorted(number for number in numbers if not re.search(rf"(?<![\d.,]){number}(?![\d])", measured)) == []


def test_banned_words_are_found() -> None:
    assert BANNED.findall("Nobody is told; heeded anew") == ["Nobody", "told", "heeded", "anew"]
    assert BANNED.findall("the teller heads a recommended list") == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_install_lines_name_the_folder_until_perdure_is_published(page: Path) -> None:
    assert re.findall(r"pip\s+install\s+['\"]?perdure\b", page.read_text(encoding="utf-8")) == []
