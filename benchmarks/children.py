"""Measurements in processes of their own, and a line that shows their progress."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from peer import ROOT

OURS = "perdure"


def run_child(python: Path, script: Path, engine: str, *arguments: str) -> dict[str, Any]:
    """The JSON that the child prints. Raises SystemExit if the child fails."""
    command = [str(python), str(script), engine, *arguments]
    done = subprocess.run(command, check=False, env=_environment(engine), stdout=subprocess.PIPE, text=True)
    if done.returncode:
        what = " ".join(arguments[:2])
        raise SystemExit(f"{engine} failed at {what!r} (exit code {done.returncode}); its error is above")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _environment(engine: str) -> dict[str, str]:
    """The same environment for all engines, with the perdure of this checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PERDURE_"))}
    kept["PYTHONHASHSEED"] = "0"
    if engine == OURS:
        kept["PYTHONPATH"] = str(ROOT / "src")
    return kept


def progress(line: str) -> None:
    end = "\r" if line else "\n"
    print(f"{line:<100}" if line else "", end=end, file=sys.stderr, flush=True)
