"""`import perdure` is cheap, and loads nothing that a program did not ask for."""

from __future__ import annotations

import os
import subprocess
import sys

import perdure

OPTIONAL = """
    asyncpg click cryptography httpx jwt litestar opentelemetry prometheus_client pydantic pydantic_ai redis rich
    sqlite3 uvicorn
    """.split()  # noqa: SIM905 (shorter than thirteen lines)
ROUNDS = 7


def run(code: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PERDURE_LOG"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=20
    )
    return done.stdout


def cpu_seconds_of(statement: str) -> float:
    """What the statement costs a fresh interpreter, without its own start; CPU time, so a busy machine matters less."""
    return float(run(f"import time; t = time.process_time()\n{statement}\nprint(time.process_time() - t)"))


def loaded_by(statement: str) -> set[str]:
    return set(run(f"import sys\n{statement}\nprint(*sys.modules)").split())


def test_importing_perdure_costs_at_most_one_and_a_half_times_its_foundations() -> None:
    """The best of several readings of each, taken in turns, so that both see the same machine."""
    readings = [(cpu_seconds_of("import perdure"), cpu_seconds_of("import asyncio, msgspec")) for _ in range(ROUNDS)]
    ours, foundations = (min(column) for column in zip(*readings, strict=True))
    print(f"import perdure {ours * 1000:.1f} ms, import asyncio, msgspec {foundations * 1000:.1f} ms")
    assert ours <= 1.5 * foundations


def test_importing_perdure_loads_nothing_optional() -> None:
    assert not loaded_by("import perdure").intersection([*OPTIONAL, "logging", "asyncio"])


def test_using_the_engine_loads_nothing_optional() -> None:
    """Everything public that lives in a room of the base install, except the storages that need a driver."""
    rooms = ("perdure.errors", "perdure.events", "perdure.graph", "perdure.engine", "perdure.checkpoints")
    names = [name for name, home in perdure._HOME.items() if home.startswith(rooms)]
    assert not loaded_by(f"from perdure import {', '.join(names)}").intersection(OPTIONAL)
