"""Measure the stores and their peers in the same run: size, speed and reads.

The peers are agent-framework-core's file storage, langgraph's savers for SQLite and PostgreSQL, and the steps of DBOS.
The machine may be noisy, so all take turns, round after round, each measurement in a process of its own. The table
marks a target that is not met; the exit code stays 0. Stores are in .bench/, on the disk of the checkout, because a
sync in a folder of memory is free. The PostgreSQL of the run is there too.
"""

import argparse
import json
import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import postgres_jobs
import postgres_report
import report
import stores_jobs
import stores_report
from children import OURS, progress, run_child
from peer import ROOT, peer_python
from places import PLACE, own_folder
from postgres_servers import Servers, server_version
from stores_jobs import FULL, KINDS, QUICK, Job, Step
from stores_results import Results

CHILD = ROOT / "benchmarks" / "stores_child.py"
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
PEERS = {**stores_report.PEERS, **postgres_report.PEERS}
ALL_KINDS = (*KINDS, postgres_jobs.KIND)


class Bench:
    def __init__(self, results: Results) -> None:
        self._results = results
        self._peer_python = peer_python()

    def run(self, jobs: list[Job], rounds: int) -> None:
        started = time.monotonic()
        todo = [(number, job) for number in range(1, rounds + 1) for job in jobs if number == 1 or not job.once]
        servers = Servers(PLACE)
        try:
            for done, (number, job) in enumerate(todo):
                spent = int(time.monotonic() - started)
                progress(f"{done} of {len(todo)}, {spent // 60}:{spent % 60:02}, round {number}: {job.title}")
                with (
                    own_folder("stores") as folder,
                    servers.database(folder) if job.kind == postgres_jobs.KIND else nullcontext(),
                ):
                    for step in job.steps:
                        self._take(job.subject, step, folder)
        finally:
            servers.close()
        progress("")

    def _take(self, subject: str, step: Step, folder: Path) -> None:
        engine = PEERS.get(subject, OURS)
        python = self._peer_python if subject in PEERS else Path(sys.executable)
        answer = run_child(python, CHILD, engine, step.measure, subject, str(folder), json.dumps(step.parameters))
        results = self._results
        results.labels[engine] = f"{engine} {answer['version']}"
        if engine == OURS:
            results.python = answer["python"]
        if step.key is not None:
            for name, value in answer["values"].items():
                results.add(step.key if step.is_single else (*step.key, name), value)


def main() -> None:
    options = _options()
    sizes = QUICK if options.quick else FULL
    rounds = options.rounds or (1 if options.quick else 5)
    command = " ".join(["python benchmarks/stores.py", *sys.argv[1:]])
    results = Results(sizes=sizes, command=command, rounds=rounds, load=os.getloadavg()[0])
    jobs = [*stores_jobs.all_jobs(sizes), *postgres_jobs.all_jobs(sizes)]
    Bench(results).run([job for job in jobs if job.kind in options.only], rounds)
    texts = {}
    if set(KINDS) & set(options.only):
        texts[stores_report.BEGIN] = stores_report.generated(results)
    if postgres_jobs.KIND in options.only:
        results.labels["postgres"] = server_version()
        texts[postgres_report.BEGIN] = postgres_report.generated(results)
    print("\n\n".join(texts.values()))
    if options.json:
        options.json.write_text(json.dumps(results.as_json(), indent=1) + "\n", encoding="utf-8")
    if options.write:
        for begin, text in texts.items():
            report.write(RESULTS, text, begin=begin)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, help="turns of each measurement (5, or 1 with --quick)")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it works, not how fast")
    parser.add_argument(
        "--only", nargs="+", choices=ALL_KINDS, default=ALL_KINDS, metavar="KIND", help=", ".join(ALL_KINDS)
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="every value of every round")
    parser.add_argument(
        "--write", action="store_true", help="rewrite the tables of the stores in benchmarks/RESULTS.md"
    )
    options = parser.parse_args()
    wholes = (set(ALL_KINDS), set(KINDS), {postgres_jobs.KIND})
    if options.write and (options.quick or set(options.only) not in wholes):
        parser.error(f"--write keeps a whole part: leave out --quick, and --only or all but {postgres_jobs.KIND} in it")
    return options


if __name__ == "__main__":
    main()
