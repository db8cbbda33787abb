"""The measured servers: each is a process of its own, with a folder and a database of its own."""

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from peer import ROOT
from postgres_place import DATABASE, VALKEY
from postgres_servers import Servers
from tests.databases.daemon import free_port

HERE = ROOT / "benchmarks"
PEER_ENVIRONMENT = ROOT / ".bench" / "agentflow"
PEER_PACKAGES = (
    "10xscale-agentflow[pg-checkpoint]==0.10.1",
    "10xscale-agentflow-cli==0.6.1",
    "uvloop==0.23.0",
    "httptools==0.9.0",
)
"""The uvicorn of perdure has uvloop and httptools too."""
PEER_LEAST = (3, 12)
START_SECONDS = 60.0


class Started:
    """A server that answers."""

    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self.pid = pid


def install_peer(python: str | None) -> str:
    """Install AgentFlow, and keep its environment. Returns the reason if that fails, else an empty text."""
    if (PEER_ENVIRONMENT / "bin" / "agentflow").exists():
        return ""
    if python is None and sys.version_info[:2] < PEER_LEAST:
        return "AgentFlow needs Python 3.12; name one with --peer-python"
    interpreter = python or sys.executable
    try:
        output = subprocess.run(
            [interpreter, "-c", "import sys; print(*sys.version_info[:2])"], check=True, capture_output=True
        )
        if tuple(map(int, output.stdout.split())) < PEER_LEAST:
            number = output.stdout.decode().strip().replace(" ", ".")
            return f"AgentFlow needs Python 3.12, and --peer-python is {number}"
        print(f"installing the peer in {PEER_ENVIRONMENT.relative_to(ROOT)} ...", file=sys.stderr)
        subprocess.run([interpreter, "-m", "venv", "--clear", str(PEER_ENVIRONMENT)], check=True)
        pip = [str(PEER_ENVIRONMENT / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "-qq"]
        subprocess.run([*pip, *PEER_PACKAGES], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        shutil.rmtree(PEER_ENVIRONMENT, ignore_errors=True)
        return f"AgentFlow could not be installed ({type(error).__name__})"
    return ""


@contextmanager
def served(subject: str, folder: Path, servers: Servers) -> Iterator[Started]:
    """Start the server `sqlite`, `postgres`, `agentflow` or `bare`."""
    if subject in ("postgres", "agentflow"):
        with servers.database(folder):
            dsn, redis = ((folder / name).read_text(encoding="utf-8") for name in (DATABASE, VALKEY))
            yield from _of_database(subject, folder, dsn, redis)
    elif subject == "sqlite":
        with _perdure(folder, "sqlite:///threads.db") as started:
            yield started
    else:
        port = free_port()
        with _process([sys.executable, str(HERE / "server_bare.py"), str(port)], folder, port, {}) as started:
            yield started


def _of_database(subject: str, folder: Path, dsn: str, redis: str) -> Iterator[Started]:
    with _perdure(folder, dsn) if subject == "postgres" else _agentflow(folder, dsn, redis) as started:
        yield started


@contextmanager
def _perdure(folder: Path, url: str) -> Iterator[Started]:
    shutil.copy(HERE / "server_flow.py", folder / "flow.py")
    config = {"agent": "flow:app", "checkpointer": url, "mode": "production"}
    (folder / "perdure.json").write_text(json.dumps(config), encoding="utf-8")
    port = free_port()
    command = [sys.executable, "-m", "perdure", "serve", "--quiet", "--port", str(port)]
    with _process(command, folder, port, {"PYTHONPATH": str(ROOT / "src")}) as started:
        yield started


@contextmanager
def _agentflow(folder: Path, dsn: str, redis: str) -> Iterator[Started]:
    shutil.copy(HERE / "server_agentflow.py", folder / "graph.py")
    (folder / "agentflow.json").write_text('{"agent": "graph:app"}', encoding="utf-8")
    port = free_port()
    command = [str(PEER_ENVIRONMENT / "bin" / "agentflow"), "api", "--no-reload", "--port", str(port)]
    settings = {"BENCH_DSN": dsn, "BENCH_REDIS": redis, "MODE": "production", "LOG_LEVEL": "ERROR"}
    settings["ORIGINS"] = f"http://127.0.0.1:{port}"
    python = PEER_ENVIRONMENT / "bin" / "python"
    subprocess.run([python, "graph.py"], cwd=folder, env={**os.environ, **settings}, check=True)
    with _process(command, folder, port, settings) as started:
        yield started


@contextmanager
def _process(command: list[str], folder: Path, port: int, settings: Mapping[str, str]) -> Iterator[Started]:
    unwanted = ("PYTHON", "PERDURE_", "OTEL_", "DATABASE_URL", "REDIS_URL")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env={**kept, **settings}, stdout=log, stderr=log)
    try:
        _wait(process, port, folder / "log")
        yield Started(port, process.pid)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    patience = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/ping"):
                return
        except (urllib.error.URLError, ConnectionError):
            if process.poll() is not None or time.monotonic() > patience:
                raise SystemExit(
                    f"{process.args!r} did not start:\n{log.read_text(errors='replace')[-2000:]}"
                ) from None
            time.sleep(0.05)


def peer_version() -> str:
    python = str(PEER_ENVIRONMENT / "bin" / "python")
    asked = (
        "import platform; from importlib.metadata import version as v; "
        'print(f\'AgentFlow {v("10xscale-agentflow")} with its server {v("10xscale-agentflow-cli")} on Python '
        "{platform.python_version()}')"
    )
    return subprocess.run([python, "-c", asked], check=True, capture_output=True, text=True).stdout.strip()
