"""Every example in README.md and docs/ is run, page by page, and every command named there exists."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,})(?P<language>\w*)[^\n]*\n(?P<code>.*?)^\1\2 *$", re.DOTALL | re.MULTILINE
)
NOT_RUN = re.compile(r"<!-- not run: (?P<reason>[^>]+?) -->\s*$")
COMMAND = re.compile(r"\bmake (?P<target>[a-z-]+)")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    code: str
    not_run: str
    """Why it is not run; empty if it is."""


def blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        marked = NOT_RUN.search(text[: found.start()])
        line = text.count("\n", 0, found.start("code"))
        code = "".join(row.removeprefix(found["indent"]) for row in found["code"].splitlines(keepends=True))
        yield Block(page, line, found["language"], code, marked["reason"] if marked else "")


def python_blocks(page: Path) -> list[Block]:
    return [block for block in blocks_of(page) if block.language in {"python", "py"}]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


async def run_page(page: Path) -> None:
    """The blocks of one page in order, sharing names as a reader who types them in would have it."""
    namespace: dict[str, object] = {"__name__": f"page_{re.sub(r'[^a-z0-9]', '_', page.stem.lower())}"}
    for block in python_blocks(page):
        if block.not_run:
            continue
        source = "\n" * block.line + block.code  # tracebacks then name the page's own line
        code = compile(source, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        if code.co_flags & inspect.CO_COROUTINE:
            await eval(code, namespace)
        else:
            # In a thread: a script has no running loop, and may call asyncio.run itself.
            await asyncio.to_thread(exec, code, namespace)


@pytest.mark.parametrize("page", [page for page in PAGES if python_blocks(page)], ids=name_of)
async def test_every_example_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    await run_page(page)


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
def page(tmp_path: Path) -> Path:
    written = tmp_path / "page.md"
    written.write_text(PAGE, encoding="utf-8")
    return written


def test_blocks_are_found_with_their_language_line_and_reason(page: Path) -> None:
    found = [(block.language, block.line, block.code, block.not_run) for block in blocks_of(page)]
    assert found == [
        ("python", 2, "first = 1\n", ""),
        ("python", 7, "second = await later(first)\n", ""),
        ("python", 12, "1 / 0\n", "needs a server that only you have"),
        ("console", 16, "$ make nothing\n", ""),
    ]


async def test_a_failing_example_fails_the_page_and_names_its_line(page: Path) -> None:
    with pytest.raises(NameError, match="later") as raised:
        await run_page(page)
    assert raised.traceback[-1].lineno == 7  # counted from 0


async def test_a_page_may_await_at_the_top_and_call_asyncio_run(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nimport asyncio\nasync def one(): return 1\nassert asyncio.run(one()) == 1\n```\n"
        "```python\nassert await one() == 1\n```\n"
    )
    await run_page(page)
