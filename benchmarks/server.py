"""Measure the server: the rate of turns, reads and streamed events, and the memory of an open stream.

The same run measures a bare route of Litestar on the same uvicorn, the commits of the stores without a server, and the
server of AgentFlow with its PostgreSQL checkpointer. AgentFlow needs Python 3.12; name an interpreter with
--peer-python if this one is older. The servers take turns, round after round. Each server is a process of its own, with
a store of its own in .bench/, on the disk of the checkout. Its clients are another process on the same machine. The
table marks a target that is not met; the exit code stays 0.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import report
import server_report
from children import OURS, progress, run_child
from peer import ROOT
from places import PLACE, own_folder
from postgres_servers import Servers, server_version
from server_places import Started, install_peer, peer_version, served
from stores_results import Results

LOAD = ROOT / "benchmarks" / "server_load.py"
COMMITS = ROOT / "benchmarks" / "stores_child.py"
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
FULL = {"clients": 16, "turns": 10, "times": 50, "readers": 1000, "sends": 5, "commits": 1000}
QUICK = FULL | {"times": 10, "readers": 100, "sends": 2, "commits": 200}
READS = {
    "thread": "/v1/threads/{thread}",
    "messages": "/v1/threads/{thread}/messages",
    "state": "/v1/threads/{thread}/state",
}


class Bench:
    def __init__(self, results: Results, seconds: float, servers: Servers) -> None:
        self._results = results
        self._seconds = seconds
        self._servers = servers

    def run(self, subjects: list[str], rounds: int) -> None:
        for number in range(1, rounds + 1):
            for subject in subjects:
                progress(f"round {number} of {rounds}: {subject}")
                self._commits(subject)
                with own_folder("server") as folder, served(subject, folder, self._servers) as server:
                    self._measure(subject, server, mark=folder.name)
        progress("")

    def _commits(self, subject: str) -> None:
        """Measure the commits of the store alone, of one thread and of as many threads as clients."""
        store = {"sqlite": "sqlite-full", "postgres": "postgres"}.get(subject)
        if store is None:
            return
        for threads in (1, self._results.sizes["clients"]):
            with own_folder("server") as folder, self._database(store, folder):
                parameters = json.dumps({"threads": threads, "supersteps": self._results.sizes["commits"] // threads})
                answer = run_child(Path(sys.executable), COMMITS, OURS, "commits", store, str(folder), parameters)
            self._results.labels[OURS] = f"{OURS} {answer['version']}"
            self._results.add(("commits", subject, str(threads)), answer["values"]["rate"])

    @contextmanager
    def _database(self, store: str, folder: Path) -> Iterator[None]:
        if store == "postgres":
            with self._servers.database(folder):
                yield
        else:
            yield

    def _measure(self, subject: str, server: Started, mark: str) -> None:
        """Measure one server. `mark` is in the names of all threads, because AgentFlow keeps its cache in Valkey."""
        sizes, results = self._results.sizes, self._results
        # First, because memory that was used and freed before would hide the memory of the streams.
        if subject in ("sqlite", "postgres"):
            self._add("idle", subject, server, {"count": sizes["readers"], "name": f"idle-{mark}", "pid": server.pid})
        hammered = {"clients": sizes["clients"], "seconds": self._seconds}
        for measure in ("invoke_new",) if subject == "bare" else ("invoke_new", "invoke_own"):
            self._add(measure, subject, server, {**hammered, "name": f"{measure}-{mark}"})
        if subject == "bare":
            return
        for name, path in READS.items():
            parameters = {**hammered, "name": f"read-{name}-{mark}", "path": path, "turns": sizes["turns"]}
            self._add("read", subject, server, parameters, name)
        self._add("first_event", subject, server, {"times": sizes["times"], "name": f"streamed-{mark}"})
        if subject == "agentflow":  # AgentFlow has no route that follows a thread
            return
        parameters = {"count": sizes["readers"], "times": sizes["sends"], "name": f"followed-{mark}"}
        self._add("readers", subject, server, parameters)
        results.python = platform.python_version()

    def _add(self, measure: str, subject: str, server: Started, parameters: Mapping[str, Any], name: str = "") -> None:
        command = [sys.executable, str(LOAD), measure, str(server.port), json.dumps(parameters)]
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise SystemExit(f"{subject} failed at {name or measure!r}; the error is above")
        for key, value in json.loads(done.stdout).items():
            self._results.add((name or measure, subject, key), value)


def main() -> None:
    options = _options()
    sizes = QUICK if options.quick else FULL
    rounds = options.rounds or (1 if options.quick else 5)
    why_no_peer = install_peer(options.peer_python)
    command = " ".join(["python benchmarks/server.py", *_without_paths(sys.argv[1:])])
    results = Results(sizes=sizes, command=command, rounds=rounds, load=os.getloadavg()[0])
    results.labels["postgres"] = server_version()
    results.labels["agentflow"] = why_no_peer or peer_version()
    subjects = [subject for subject in server_report.SUBJECTS if not (subject == "agentflow" and why_no_peer)]
    servers = Servers(PLACE)
    try:
        Bench(results, 1.0 if options.quick else 2.0, servers).run(subjects, rounds)
    finally:
        servers.close()
    text = server_report.generated(results, why_no_peer)
    print(text)
    if options.json:
        options.json.write_text(json.dumps(results.as_json(), indent=1) + "\n", encoding="utf-8")
    if options.write:
        report.write(RESULTS, text, begin=server_report.BEGIN)


def _without_paths(arguments: list[str]) -> list[str]:
    """The arguments for the report, without paths of this machine."""
    shown = {"--peer-python": "python3.12", "--json": "FILE"}
    return [shown.get(arguments[at - 1], argument) if at else argument for at, argument in enumerate(arguments)]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, help="turns of each server (5, or 1 with --quick)")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it works, not how fast")
    parser.add_argument("--peer-python", metavar="PATH", help="a Python 3.12 or newer, for AgentFlow")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every value of every round")
    parser.add_argument(
        "--write", action="store_true", help="rewrite the tables of the server in benchmarks/RESULTS.md"
    )
    options = parser.parse_args()
    if options.write and options.quick:
        parser.error("--write keeps a whole run: leave out --quick")
    return options


if __name__ == "__main__":
    main()
