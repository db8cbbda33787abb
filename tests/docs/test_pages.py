"""Runs every example in README.md and docs/, page by page. Every make target named there exists."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.databases.fixtures import POSTGRES_URL
from tests.databases.postgres import Databases, PostgresServer
from tests.docs.following import POSTGRES, VALKEY, Servers, blocks_of, follow, python_blocks, run_page
from tests.e2e.command import needs_pseudo_terminals

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN_ON_POSTGRESQL = ROOT / "docs" / "how-to" / "storage" / "run-on-postgresql.md"
FOLLOWED = [
    RUN_ON_POSTGRESQL,
    ROOT / "docs" / "how-to" / "operate" / "back-up-and-restore.md",
    ROOT / "docs" / "reference" / "postgresql.md",
]
"""On these pages the tests run the SQL and the commands too."""
COMMAND = re.compile(r"\bmake (?P<target>[a-z-]+)")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture
def servers(page: Path, request: pytest.FixtureRequest) -> Iterator[Servers]:
    """The servers that the page names."""
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


@pytest.fixture
def followed_servers(page: Path, request: pytest.FixtureRequest, valkey_url: str) -> Iterator[Servers]:
    """A PostgreSQL of its own for the page that shows its settings, or if the shared one has another version."""
    with ExitStack() as stack:
        if page == RUN_ON_POSTGRESQL or POSTGRES_URL in os.environ:
            postgres: Databases = stack.enter_context(PostgresServer(durable=True))
        else:
            postgres = request.getfixturevalue("postgres_server")
        servers = Servers(postgres, valkey_url)
        yield servers
        servers.close()


@needs_pseudo_terminals
@pytest.mark.parametrize("page", FOLLOWED, ids=name_of)
def test_page_about_servers_runs_from_first_to_last_line(
    page: Path, followed_servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written = page.read_text(encoding="utf-8")
    now = asyncio.run(follow(page, written, followed_servers, monkeypatch))
    if os.environ.get("PERDURE_RECORD"):
        page.write_text(now, encoding="utf-8")
    else:
        assert now == written


def test_examples_that_are_not_run_have_a_reason() -> None:
    skipped = [block for page in PAGES for block in python_blocks(page) if block.not_run]
    for block in skipped:
        print(f"{name_of(block.page)}:{block.line}: not run: {block.not_run}")
    assert all(len(block.not_run) > 10 for block in skipped), "give a reason that a reader can judge"


def test_every_make_target_named_in_the_pages_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    named = {
        match["target"]
        for page in PAGES
        for block in blocks_of(page)
        if block.language in {"console", "bash", "sh", "shell"}
        for match in COMMAND.finditer(block.code)
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


def test_blocks_have_their_language_line_code_and_reason(small_page: Path) -> None:
    blocks = [(block.language, block.line, block.code, block.not_run) for block in blocks_of(small_page)]
    assert blocks == [
        ("python", 2, "first = 1\n", ""),
        ("python", 7, "second = await later(first)\n", ""),
        ("python", 12, "1 / 0\n", "needs a server that only you have"),
        ("console", 16, "$ make nothing\n", ""),
    ]


async def test_failing_example_fails_the_page_and_names_its_line(small_page: Path) -> None:
    with pytest.raises(NameError, match="later") as raised:
        await run_page(small_page)
    assert raised.traceback[-1].lineno == 7  # counted from 0


async def test_page_may_await_at_the_top_and_call_asyncio_run(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nimport asyncio\nasync def one(): return 1\nassert asyncio.run(one()) == 1\n```\n"
        "```python\nassert await one() == 1\n```\n"
    )
    await run_page(page)


class FakePostgres:
    """Replaces a PostgreSQL: the test uses only its addresses."""

    dsn = "postgresql://postgres:real@10.0.0.1:7777/postgres"

    def __init__(self) -> None:
        self.calls: list[str] = []

    def new_database(self) -> str:
        self.calls.append("new")
        return f"postgresql://postgres:real@10.0.0.1:7777/d{len(self.calls)}"

    def drop_database(self, dsn: str) -> None:
        self.calls.append(f"drop {dsn.rpartition('/')[2]}")

    def execute(self, statement: str) -> None:
        self.calls.append(statement)


def test_server_names_of_a_page_map_to_the_servers_of_the_test() -> None:
    postgres = FakePostgres()
    servers = Servers(postgres, "redis://:real@10.0.0.2/0")
    real = "postgresql://postgres:real@10.0.0.1:7777/d1"
    assert (
        servers.use_real_servers("postgresql://localhost/a postgresql://postgres@localhost/a?x=1")
        == f"{real} {real}?x=1"
    )
    role = servers.use_real_servers("CREATE ROLE perdure_app").split()[-1]
    assert (
        servers.use_real_servers("postgresql://perdure_app:pw@localhost/a")
        == f"postgresql://{role}:pw@10.0.0.1:7777/d1"
    )
    assert servers.use_real_servers('redis_url="redis://localhost:6379/0"') == 'redis_url="redis://:real@10.0.0.2/0"'
    assert servers.use_page_names(f"{role} is at 10.0.0.1:7777/d1") == "perdure_app is at localhost/a"
    servers.close()
    assert postgres.calls == ["new", "drop d1", f"DROP ROLE IF EXISTS {role}"]
    assert Servers().use_real_servers("postgresql://localhost/a") == "postgresql://localhost/a"
