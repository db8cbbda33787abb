"""Measure the engine beside agent-framework-core, both in this run: `make bench`.

The machine may be noisy, so the engines take turns, round after round, and a ratio is that of the
medians. The table marks a target that is not met; the exit code stays 0.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

import report
from child import Size
from children import OURS, progress, run_child
from peer import ROOT, peer_python

THEIRS, BARE = "agent-framework-core", "bare"
FULL = Size(supersteps=2000, fan_rounds=30, turns=500, threads=300, seconds=0.5)
QUICK = Size(supersteps=300, fan_rounds=5, turns=50, threads=50, seconds=0.05)
CHILD = ROOT / "benchmarks" / "child.py"
RESULTS = ROOT / "benchmarks" / "RESULTS.md"


def main() -> None:
    options = _options()
    rounds = options.rounds or (2 if options.quick else 7)
    size = QUICK if options.quick else FULL
    bench = Bench(size, options.engines)
    rows = [bench.measure(measure, rounds) for measure in report.MEASURES if measure.name in options.only]
    setting = bench.setting(rounds)
    text = report.generated(rows, setting)
    print(text)
    if options.json:
        options.json.write_text(json.dumps(report.as_json(rows, setting), indent=1) + "\n", encoding="utf-8")
    if options.write:
        report.write(RESULTS, text)


class Bench:
    """Runs children, and records the versions of their engines."""

    def __init__(self, size: Size, engines: list[str]) -> None:
        self._size = size
        self._ours, self._theirs = engines
        self._peer_python = peer_python() if THEIRS in engines else Path(sys.executable)
        self._labels: dict[str, str] = {}
        self._python = ""

    def measure(self, measure: report.Measure, rounds: int) -> report.Row:
        row = report.Row(measure, ours=[], theirs=[], bare=[])
        for number in range(1, rounds + 1):
            progress(f"{measure.title}: round {number} of {rounds}")
            row.ours.append(self._child(self._ours, measure.name))
            row.theirs.append(self._child(self._theirs, measure.name))
            if measure.bare:
                row.bare.append(self._child(BARE, measure.name))
        progress("")
        return row

    def setting(self, rounds: int) -> report.Setting:
        """The setting of the measurements. Call it after the first of them."""
        ours, theirs = self._labels[self._ours], self._labels[self._theirs]
        command = " ".join(["python benchmarks/engine.py", *sys.argv[1:]])
        return report.Setting(command, ours, theirs, self._python, rounds)

    def _child(self, engine: str, measure: str) -> float:
        python = self._peer_python if engine == THEIRS else Path(sys.executable)
        answer = run_child(python, CHILD, engine, measure, json.dumps(asdict(self._size)))
        self._labels[engine] = f"{engine} {answer['version']}"
        self._python = answer["python"]
        return float(answer["value"])


def _options() -> argparse.Namespace:
    names = [measure.name for measure in report.MEASURES]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, help="turns of each engine (7, or 2 with --quick)")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it works, not how fast")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="MEASURE", help=", ".join(names))
    parser.add_argument("--engines", nargs=2, choices=[OURS, THEIRS], default=[OURS, THEIRS], metavar="ENGINE",
                        help="the two sides; twice the same shows the noise")  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="every value of every round")
    parser.add_argument("--write", action="store_true", help="rewrite the table in benchmarks/RESULTS.md")
    options = parser.parse_args()
    if options.write and (options.quick or options.only != names or options.engines != [OURS, THEIRS]):
        parser.error("--write keeps a whole run of both engines: leave out --quick, --only and --engines")
    return options


if __name__ == "__main__":
    main()
