"""Kill processes for a while and print what came of it, as a table: `python -m tests.crash.tally --kills 2000`."""

from __future__ import annotations

import argparse
import asyncio
import platform
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.crash.crowd import run_crowds
from tests.crash.flows import FLOWS
from tests.crash.lives import PLACES
from tests.crash.loss_windows import Window, measure
from tests.crash.posting import PostTrials
from tests.crash.trials import Tally, Trials
from tests.crash.zygote import Zygote, zygote
from tests.databases.postgres import PostgresServer
from tests.schemas import SCHEMAS

from perdure.engine.run.request import RunOptions

TOGETHER = ["chain", "fan-3", "function", "nested", "asking", "sleeping"]
MODES: list[tuple[RunOptions, int]] = [
    ({"durability": "sync"}, 0),
    ({"durability": "async", "max_lag": 1}, 1),
    ({"durability": "async", "max_lag": 3}, 3),
    ({"durability": "async", "max_lag": 8}, 8),
]
SYNCED = ["file", "sqlite", "postgres"]


def killed(started: Zygote, folder: Path, kills: int, seed: int) -> Iterator[Tally]:
    """Of every kind on every store, so that all of them together make the number."""
    kinds = [(place, [flow]) for flow in FLOWS for place in PLACES] + [(place, TOGETHER) for place in SYNCED]
    each = -(-kills // (len(kinds) + 2 * len(SYNCED)))
    for number, (place, flows) in enumerate(kinds):
        yield Trials(started, _new(folder, f"kind-{number}"), place, flows, seed + number).run(each)
    for number, place in enumerate(SYNCED, len(kinds)):
        yield PostTrials(started, _new(folder, f"posts-{number}"), place, seed + number).run(each)
        yield run_crowds(started, _new(folder, f"crowds-{number}"), place, each, seed + number)


def windows(started: Zygote, folder: Path, kills: int, seed: int) -> Iterator[tuple[Window, int]]:
    places = [(place, *mode) for mode in MODES for place in SYNCED]
    each = -(-kills // len(places))
    for number, (place, options, most) in enumerate(places):
        yield asyncio.run(measure(started, _new(folder, f"window-{number}"), place, options, each, seed + number)), most


def _new(folder: Path, name: str) -> Path:
    made = folder / name
    made.mkdir()
    return made


HEAD = ["kills", "lost", "recorded, repeated", "unrecorded, repeated", "in flight at the kills"]


def summed(what: str, tallies: list[Tally], name_of: Callable[[Tally], str]) -> str:
    """A table with a row for each name, and one for all."""
    groups: dict[str, list[Tally]] = {}
    for tally in tallies:
        groups.setdefault(name_of(tally), []).append(tally)
    groups["all"] = tallies
    rows = [
        [name, *map(str, map(sum, zip(*(tally.numbers for tally in group), strict=True)))]
        for name, group in groups.items()
    ]
    return table([what, *HEAD], rows)


def table(head: list[str], rows: list[list[str]]) -> str:
    rules = ["---", *(["--:"] * (len(head) - 1))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rules, *rows))


def shown(tally: Tally) -> str:
    return "six at once" if "+" in tally.kind else tally.kind


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.tally", description=__doc__)
    parser.add_argument("--kills", type=int, default=300, help="at random instants, over all kinds and stores")
    parser.add_argument("--window-kills", type=int, default=40, help="to measure what each durability loses")
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = random.randrange(2**32) if options.seed is None else options.seed
    versions = f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {platform.system()}"
    print(f"seed {seed}; {versions}\n")
    began = time.monotonic()
    with (
        PostgresServer(durable=True) as server,
        zygote() as started,
        tempfile.TemporaryDirectory(prefix="perdure-tally-") as folder,
    ):
        SCHEMAS.begin(lambda: server, Path(folder))
        tallies = list(killed(started, Path(folder), options.kills, seed))
        measured = list(windows(started, Path(folder), options.window_kills, seed))
        SCHEMAS.end()
    print(summed("threads", tallies, shown), "\n")
    print(summed("store", tallies, lambda tally: tally.place), "\n")
    head = ["durability, store", "kills", "supersteps lost at most", "allowed"]
    named = [(f"{window.tally.kind}, {window.tally.place}", window, most) for window, most in measured]
    print(table(head, [[name, str(window.tally.kills), str(window.most), str(most)] for name, window, most in named]))
    print(f"\n{time.monotonic() - began:.0f} seconds")
    for tally in (*tallies, *(window.tally for window, _ in measured)):
        for problem in tally.problems:
            print(f"PROBLEM {tally.kind} on {tally.place}, seed {tally.seed}: {problem}")


if __name__ == "__main__":
    main()
