"""Programs of Agent Framework give the same results with perdure, beside both versions of the framework."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent / "beside"
VERSIONS = ("1.13", "1.23")


def environment_of(version: str) -> dict[str, str]:
    """The environment of a process in which `agent_framework` is that version."""
    framework = Path(sys.prefix) / f"agent-framework-{version}"
    assert framework.is_dir(), f"`make setup` installs {framework}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PERDURE"))}
    return environment | {"PYTHONPATH": str(framework)}


async def run_programs(side: str, version: str) -> dict[str, Any]:
    """The result of each program, with that version of the framework."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(HERE / "run.py"), side, version),
        env=environment_of(version),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    results: dict[str, Any] = json.loads(output.splitlines()[-1])
    return results


@pytest.mark.parametrize("version", VERSIONS)
async def test_programs_give_the_results_of_the_framework(version: str) -> None:
    expected, results = await asyncio.gather(run_programs("as_framework", version), run_programs("as_perdure", version))
    differences = {name: (results[name], expected[name]) for name in expected if results[name] != expected[name]}
    for name, (result, wanted) in differences.items():
        print(f"{name}\n  perdure:   {result}\n  framework: {wanted}")
    assert list(differences) == []
    assert [name for name, result in expected.items() if "Traceback" in str(result)] == []
