"""Runs the programs in one process and prints their results as JSON: `run.py SIDE VERSION [PROGRAM ...]`.

The programs import the names of workflows from `flows`: those of SIDE, `as_framework` or `as_perdure`. Whatever
else they import from `agent_framework` is that of VERSION.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MAX_SECONDS = 20.0


def run_program(name: str, version: str) -> Any:
    program = importlib.import_module(name)
    if version not in getattr(program, "VERSIONS", (version,)):
        return "not for this version"
    with tempfile.TemporaryDirectory() as folder:
        program.FOLDER = Path(folder)  # type: ignore[attr-defined]  # for programs with files
        return asyncio.run(asyncio.wait_for(program.main(), MAX_SECONDS))


def main(side: str, version: str, names: list[str]) -> None:
    sys.path[:0] = [str(HERE / "programs"), str(HERE / side)]
    warnings.simplefilter("ignore")
    results: dict[str, Any] = {}
    for name in names or sorted(path.stem for path in (HERE / "programs").glob("[a-z]*.py")):
        try:
            results[name] = run_program(name, version)
        except Exception:  # noqa: BLE001  # the comparison shows it
            results[name] = traceback.format_exc()
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
