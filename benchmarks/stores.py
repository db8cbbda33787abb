"""Measure the stores: their size, their speed and how they are read, beside those of two peers, all in this run.

The peers are agent-framework-core's file storage and langgraph's SQLite saver. The machine is taken to be noisy: all
take turns, round after round, each measurement in a process of its own. A target that is not met is said in the table;
the exit code stays 0. Stores are made in .bench/, on the disk of the checkout: in a folder of memory a sync is free.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import report
import stores_report
from children import OURS, progress, run_child
from peer import ROOT, peer_python
from stores_report import ENCODED_MB, HOWS, LOOKUP_STORES, PEERS, RATES, RESUME_STORES, RESUMES, STORES, Results
from stores_work import CASES

CHILD = ROOT / "benchmarks" / "stores_child.py"
PLACE = ROOT / ".bench" / "stores"
RESULTS = ROOT / "benchmarks" / "RESULTS.md"

FULL = {"turns": 500, "supersteps": 1000, "few": 10, "same": 100, "many": 10_000, "checkpoints": 1000, "repeat": 100}
QUICK = {"turns": 60, "supersteps": 200, "few": 10, "same": 100, "many": 600, "checkpoints": 100, "repeat": 20}
LAYOUTS = ("one-thread", "many-threads", "behind")


@dataclass(frozen=True)
class Step:
    """One call of the child, and the key under which its values are kept, with their names unless it has only one."""

    measure: str
    given: Mapping[str, Any]
    key: tuple[str, ...] | None = None
    """None: it only prepares the next step."""
    is_single: bool = False


@dataclass(frozen=True)
class Job:
    """Steps that share a folder."""

    kind: str
    subject: str
    steps: tuple[Step, ...]
    once: bool = False

    @property
    def title(self) -> str:
        return f"{self.kind}, {self.subject}, {' '.join(map(str, self.steps[-1].given.values()))}"


def all_jobs(sizes: Mapping[str, int]) -> list[Job]:
    return [*_turns(sizes), *_encoding(sizes), *_rates(sizes), *_lookups(sizes), *_resumes(sizes)]


def _turns(sizes: Mapping[str, int]) -> Iterator[Job]:
    for case in CASES:
        peers = [peer for peer in PEERS if case.peers and not (peer == "peer-sqlite" and case.place == "executor")]
        for subject in [*STORES, *peers]:
            given = {"case": case.name, "turns": sizes["turns"]}
            step = Step("turns", given, ("turns", subject, case.name))
            yield Job("turns", subject, (step,), once=subject in PEERS)


def _encoding(sizes: Mapping[str, int]) -> Iterator[Job]:
    given = {"megabytes": list(ENCODED_MB), "supersteps": max(5, sizes["repeat"] // 5)}
    yield Job("encoding", "sqlite-normal", (Step("encoding", given, ("encoding", "sqlite-normal")),))


def _rates(sizes: Mapping[str, int]) -> Iterator[Job]:
    given = {"supersteps": sizes["supersteps"], "seconds": sizes["supersteps"] / 2000}
    for subject in dict.fromkeys([peer for _, peer, _ in RATES] + [store for store, _, _ in RATES]):
        yield Job("rate", subject, (Step("rate", given, ("rate", subject), is_single=True),))
    for store, _, _ in RATES:
        yield Job("rate", store, (Step("raw", given, ("raw", store), is_single=True),))


def _lookups(sizes: Mapping[str, int]) -> Iterator[Job]:
    counts = [sizes["few"], sizes["same"], sizes["many"]]
    for subject in LOOKUP_STORES:
        for layout in LAYOUTS:
            given = {"layout": layout, "counts": counts, "repeat": sizes["repeat"]}
            yield Job("lookups", subject, (Step("lookups", given, ("lookups", subject)),))


def _resumes(sizes: Mapping[str, int]) -> Iterator[Job]:
    for subject in RESUME_STORES:
        for shape in RESUMES:
            made = Step("make", {"shape": shape, "checkpoints": sizes["checkpoints"]})
            least = sizes["checkpoints"] - 1
            resumed = [
                Step(
                    "resume", {"shape": shape, "how": how, "least": least}, ("resume", subject, f"{shape} {how}"), True
                )
                for how in HOWS
            ]
            yield Job("resume", subject, (made, *resumed))


KINDS = ("turns", "encoding", "rate", "lookups", "resume")


class Bench:
    def __init__(self, results: Results) -> None:
        self._results = results
        self._peer_python = peer_python()

    def run(self, jobs: list[Job], rounds: int) -> None:
        started = time.monotonic()
        todo = [(number, job) for number in range(1, rounds + 1) for job in jobs if number == 1 or not job.once]
        for done, (number, job) in enumerate(todo):
            spent = int(time.monotonic() - started)
            progress(f"{done} of {len(todo)}, {spent // 60}:{spent % 60:02}, round {number}: {job.title}")
            with _folder() as folder:
                for step in job.steps:
                    self._take(job.subject, step, folder)
        progress("")

    def _take(self, subject: str, step: Step, folder: Path) -> None:
        engine = PEERS.get(subject, OURS)
        python = self._peer_python if subject in PEERS else Path(sys.executable)
        answer = run_child(python, CHILD, engine, step.measure, subject, str(folder), json.dumps(step.given))
        results = self._results
        results.labels[engine] = f"{engine} {answer['version']}"
        if engine == OURS:
            results.python = answer["python"]
        if step.key is not None:
            for name, value in answer["values"].items():
                results.add(step.key if step.is_single else (*step.key, name), value)


@contextmanager
def _folder() -> Iterator[Path]:
    PLACE.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=PLACE))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def main() -> None:
    options = _options()
    sizes = QUICK if options.quick else FULL
    rounds = options.rounds or (1 if options.quick else 5)
    command = " ".join(["python benchmarks/stores.py", *sys.argv[1:]])
    results = Results(sizes=sizes, command=command, rounds=rounds, load=os.getloadavg()[0])
    Bench(results).run([job for job in all_jobs(sizes) if job.kind in options.only], rounds)
    text = stores_report.generated(results)
    print(text)
    if options.json:
        options.json.write_text(json.dumps(results.as_json(), indent=1) + "\n", encoding="utf-8")
    if options.write:
        report.write(RESULTS, text, begin=stores_report.BEGIN)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, help="turns of each measurement (5, or 1 with --quick)")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it works, not how fast")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS, metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="every value of every round")
    parser.add_argument(
        "--write", action="store_true", help="rewrite the tables of the stores in benchmarks/RESULTS.md"
    )
    options = parser.parse_args()
    if options.write and (options.quick or options.only is not KINDS):
        parser.error("--write keeps a whole run: leave out --quick and --only")
    return options


if __name__ == "__main__":
    main()
