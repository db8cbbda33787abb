"""`import perdure` is cheap, and loads nothing that a program did not ask for."""

from __future__ import annotations

import os
import subprocess
import sys

import perdure

OPTIONAL = """
    agent_framework asyncpg click cryptography httpx jwt litestar opentelemetry prometheus_client pydantic pydantic_ai
    redis rich sqlite3 uvicorn
    """.split()  # noqa: SIM905 (shorter than thirteen lines)


def run(code: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PERDURE_LOG"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def loaded_by(statement: str) -> set[str]:
    return set(run(f"import sys\n{statement}\nprint(*sys.modules)").split())


def test_importing_perdure_loads_one_module() -> None:
    """What a name needs is loaded when the name is asked for."""
    assert {name for name in loaded_by("import perdure") if name.startswith("perdure")} == {"perdure"}


def test_importing_perdure_loads_nothing_optional() -> None:
    assert not loaded_by("import perdure").intersection([*OPTIONAL, "logging", "asyncio"])


def test_using_the_engine_loads_nothing_optional() -> None:
    """Everything public that lives in a room of the base install, except the storages that need a driver."""
    rooms = ("perdure.errors", "perdure.events", "perdure.graph", "perdure.engine", "perdure.checkpoints")
    names = [name for name, home in perdure._HOME.items() if home.startswith(rooms)]
    assert not loaded_by(f"from perdure import {', '.join(names)}").intersection(OPTIONAL)
