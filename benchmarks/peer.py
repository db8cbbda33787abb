"""The environment of the peers: their own, beside the project's, so that neither can change the other."""

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "benchmarks" / "peers.txt"
ENVIRONMENT = ROOT / ".bench" / "peers"


def peer_python() -> Path:
    """The peers' interpreter. Makes their environment first if it is missing or of other versions."""
    python = ENVIRONMENT / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    installed = ENVIRONMENT / "installed.txt"
    wanted = REQUIREMENTS.read_text(encoding="utf-8")
    if installed.exists() and installed.read_text(encoding="utf-8") == wanted:
        return python
    print(f"installing the peers in {ENVIRONMENT.relative_to(ROOT)} ...", file=sys.stderr)
    venv.create(ENVIRONMENT, clear=True, with_pip=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-qq"]
    subprocess.run([*pip, "--requirement", str(REQUIREMENTS)], check=True)
    # Written last: an installation that was broken off is made again.
    installed.write_text(wanted, encoding="utf-8")
    return python
