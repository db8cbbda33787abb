"""A script is rewritten while its thread waits: the new one has none of the old names, and continues the thread."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BEFORE = """
import asyncio, sys
from dataclasses import dataclass
from perdure import RunContext, open_store, step, workflow

@dataclass
class Ticket:
    text: str

@step
async def classify(work: Ticket) -> Ticket:
    print("classify", work.text)
    return Ticket(work.text.upper())

@workflow(name="triage")
async def triage(work: Ticket, ctx: RunContext) -> str:
    found = await classify(work)
    answer = await ctx.request_info(found, Ticket, request_id="really?")
    return f"{found.text}, {answer.text}"

async def main() -> None:
    async with open_store(sys.argv[1]) as storage:
        await triage.build(storage).run(Ticket("fire"), thread_id="t")

asyncio.run(main())
"""

AFTER = """
import asyncio, sys
from dataclasses import dataclass
from perdure import RunContext, open_store, step, workflow

@dataclass
class Case:
    text: str

@step
async def assess(work: Case) -> Case:
    print("assess", work.text)
    return Case(work.text.lower())

def new_names(stored) -> None:
    stored.rename_type("desk:triage", "desk:sort_out")
    stored.rename_type("desk:Ticket", Case)
    stored.rename_step("classify", "assess")

@workflow(name="triage", migrations=[new_names])
async def sort_out(work: Case, ctx: RunContext) -> str:
    found = await assess(work)
    answer = await ctx.request_info(found, Case, request_id="really?")
    return f"{found.text}, {answer.text}"

async def main() -> None:
    async with open_store(sys.argv[1]) as storage:
        changed = sort_out.build(storage)
        print(await changed.check_threads())
        result = await changed.run(responses={"really?": Case("indeed")}, thread_id="t")
        print(result.get_outputs())

asyncio.run(main())
"""


def run_as(script: str, folder: Path, url: str) -> str:
    """What the script prints, as a program of this name."""
    program = folder / "desk.py"
    program.write_text(script)
    done = subprocess.run([sys.executable, str(program), url], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(params=["sqlite:{}/threads.db", "file:{}/threads", "postgresql:"], ids=lambda url: url.split(":")[0])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store that is empty."""
    if request.param == "postgresql:":
        return str(request.getfixturevalue("postgres_dsn"))
    return str(request.param.format(tmp_path))


def test_rewritten_script_continues_its_thread(tmp_path: Path, place: str) -> None:
    assert run_as(BEFORE, tmp_path, place) == "classify fire\n"
    assert run_as(AFTER, tmp_path, place).splitlines() == [
        "migrates   t  applies new_names",
        "1 thread: 1 migrates",
        "['FIRE, indeed']",
    ]
