"""One server for all hostile requests. When the tests end, the server still works as before."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.server.hostile.in_process import HERE, WORKFLOWS
from tests.server.serving import Server

ROOT = str(Path(__file__).parents[3])
MOST_MEGABYTES = 300
"""The most memory of the server at the end. Ten bodies of 10 MB at once fit, but a leak of each does not."""
SECRET = "sesame-4711"  # what is sent as a credential, and must not be found in a log
LIMITS = {"body_seconds": 1.0, "shutdown_seconds": 0.1}


def project(folder: Path, **more: object) -> Path:
    """Writes a project that serves the workflows of served.py from SQLite. It has no auth unless `more` adds it."""
    config = {
        "agent": f"{HERE}:agent",
        "workflows": WORKFLOWS,
        "checkpointer": "sqlite:///threads.db",
        "limits": LIMITS,
    }
    (folder / "perdure.json").write_text(json.dumps({**config, **more}), encoding="utf-8")
    return folder


def serving(folder: Path, **env: str) -> Server:
    path = os.pathsep.join(filter(None, (ROOT, os.environ.get("PYTHONPATH"))))
    return Server(folder, env={"PYTHONPATH": path, **env})


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Starts a server without auth that waits one second for a body."""
    _raise_the_limit_of_files()
    with serving(project(tmp_path_factory.mktemp("hostile"))) as started:
        yield started
        assert started.is_running
        assert started.get("/ping").json()["data"] == "pong"
        assert megabytes(started.pid) < MOST_MEGABYTES
        assert "Traceback" not in started.log, started.log[-3000:]
        assert SECRET not in started.log


def _raise_the_limit_of_files() -> None:
    """Clients and server have one file for each connection; the server inherits the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096 if hard == resource.RLIM_INFINITY else min(4096, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def megabytes(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 1e6
