"""Every example in README.md and docs/ is run, page by page, and every command named there exists."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.following import POSTGRES, VALKEY, Servers, blocks_of, follow, python_blocks, run_page
from tests.e2e.command import needs_pseudo_terminals
from tests.servers.postgres import PostgresServer

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOLLOWED = [
    ROOT / "docs" / "how-to" / "run-on-postgresql.md",
    ROOT / "docs" / "how-to" / "back-up-and-restore.md",
    ROOT / "docs" / "reference" / "postgresql.md",
]
"""Of these the SQL and the commands are run too."""
COMMAND = re.compile(r"\bmake (?P<target>[a-z-]+)")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture
def servers(page: Path, request: pytest.FixtureRequest) -> Iterator[Servers]:
    """Those that the page names."""
    text = page.read_text(encoding="utf-8")
    postgres = request.getfixturevalue("postgres_server") if POSTGRES.search(text) else None
    valkey_url = request.getfixturevalue("valkey_url") if VALKEY.search(text) else ""
    servers = Servers(postgres, valkey_url)
    yield servers
    servers.close()


@pytest.mark.parametrize("page", [page for page in PAGES if python_blocks(page) and page not in FOLLOWED], ids=name_of)
async def test_every_example_of_a_page_runs(
    page: Path, servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    await run_page(page, servers)


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """With the settings that one should have."""
    with PostgresServer(durable=True) as server:
        yield server


@needs_pseudo_terminals
@pytest.mark.parametrize("page", FOLLOWED, ids=name_of)
def test_a_page_about_servers_can_be_followed_from_its_first_line_to_its_last(
    page: Path, own_server: PostgresServer, valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    servers, written = Servers(own_server, valkey_url), page.read_text(encoding="utf-8")
    try:
        now = asyncio.run(follow(page, written, servers, monkeypatch))
    finally:
        servers.close()
    if os.environ.get("HOLDFAST_RECORD"):
        page.write_text(now, encoding="utf-8")
    else:
        assert now == written


def test_examples_that_are_not_run_are_few_and_say_why() -> None:
    skipped = [block for page in PAGES for block in python_blocks(page) if block.not_run]
    for block in skipped:
        print(f"{name_of(block.page)}:{block.line}: not run: {block.not_run}")
    assert all(len(block.not_run) > 10 for block in skipped), "give a reason that a reader can judge"


def test_every_make_target_named_in_the_pages_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    named = {
        found["target"]
        for page in PAGES
        for block in blocks_of(page)
        if block.language in {"console", "bash", "sh", "shell"}
        for found in COMMAND.finditer(block.code)
    }
    assert named <= targets, f"not in the Makefile: {sorted(named - targets)}"


# ---------------------------------------------------------------- the extraction itself

PAGE = """
```python
first = 1
```

1. in a list
   ```python
   second = await later(first)
   ```

<!-- not run: needs a server that only you have -->
```python
1 / 0
```

```console
$ make nothing
```
"""


@pytest.fixture
def small_page(tmp_path: Path) -> Path:
    written = tmp_path / "page.md"
    written.write_text(PAGE, encoding="utf-8")
    return written


def test_blocks_are_found_with_their_language_line_and_reason(small_page: Path) -> None:
    found = [(block.language, block.line, block.code, block.not_run) for block in blocks_of(small_page)]
    assert found == [
        ("python", 2, "first = 1\n", ""),
        ("python", 7, "second = await later(first)\n", ""),
        ("python", 12, "1 / 0\n", "needs a server that only you have"),
        ("console", 16, "$ make nothing\n", ""),
    ]


async def test_a_failing_example_fails_the_page_and_names_its_line(small_page: Path) -> None:
    with pytest.raises(NameError, match="later") as raised:
        await run_page(small_page)
    assert raised.traceback[-1].lineno == 7  # counted from 0


async def test_a_page_may_await_at_the_top_and_call_asyncio_run(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nimport asyncio\nasync def one(): return 1\nassert asyncio.run(one()) == 1\n```\n"
        "```python\nassert await one() == 1\n```\n"
    )
    await run_page(page)
