"""Where the time of a superstep goes: the share of each part of perdure, by a profiler.

    .venv/bin/python benchmarks/shares.py

A profiler makes every Python call dearer than it is, and the C it calls not, so these are shares to look at, not times.
"""

import asyncio
import cProfile
import pstats
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import PurePath

import workloads

import perdure

SUPERSTEPS, ROUNDS, LISTED = 5_000, 60, 8


def part_of(path: str, name: str) -> str:
    """`engine/lane`, `asyncio`, `handler` for the workload's own code, or what is called in C."""
    pure = PurePath(path)
    if "perdure" in pure.parts:
        return "/".join(pure.with_suffix("").parts[pure.parts.index("perdure") + 1 :])
    if "asyncio" in pure.parts:
        return "asyncio"
    if pure.name == "workloads.py":
        return "the handler itself"
    return "msgspec (JSON)" if "msgspec" in name else "other C and library calls"


async def shares(run: Callable[[], Awaitable[None]]) -> Counter[str]:
    await run()  # caches are warm in a program that runs for longer than this
    profile = cProfile.Profile()
    profile.enable()
    await run()
    profile.disable()
    found: Counter[str] = Counter()
    for (path, _, name), (_, _, own, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]  # not in the stubs
        found[part_of(path, name)] += own
    return found


async def main() -> None:
    stored, _ = workloads.stored_loop_run(perdure, SUPERSTEPS)
    measured = {
        "one-executor loop, no storage": workloads.loop_run(perdure, SUPERSTEPS),
        "the same, memory storage": stored,
        "fan 1 to 100 to 1": workloads.fan_run(perdure, ROUNDS),
    }
    for title, run in measured.items():
        found = await shares(run)
        total = sum(found.values())
        listed = ", ".join(f"{part} {100 * own / total:.0f} %" for part, own in found.most_common(LISTED))
        print(f"* {title}: {listed}.")


if __name__ == "__main__":
    asyncio.run(main())
