"""The environment of the peers, separate from that of the project."""

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "benchmarks" / "peers.txt"
ENVIRONMENT = ROOT / ".bench" / "peers"


def peer_python() -> Path:
    """The interpreter of the peers. Creates their environment if it is missing or has other versions."""
    python = ENVIRONMENT / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    installed = ENVIRONMENT / "installed.txt"
    wanted = REQUIREMENTS.read_text(encoding="utf-8")
    if installed.exists() and installed.read_text(encoding="utf-8") == wanted:
        return python
    print(f"installing the peers in {ENVIRONMENT.relative_to(ROOT)} ...", file=sys.stderr)
    venv.create(ENVIRONMENT, clear=True, with_pip=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-qq"]
    subprocess.run([*pip, "--requirement", str(REQUIREMENTS)], check=True)
    # Written last, so that an interrupted installation runs again.
    installed.write_text(wanted, encoding="utf-8")
    return python
