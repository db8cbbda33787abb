"""The share of each part of perdure in the time of a superstep, by a profiler.

    .venv/bin/python benchmarks/shares.py

A profiler adds time to every Python call and not to C code, so these are shares to compare, not times.
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
    """The part of a function: a module such as `engine/run/loop`, `asyncio`, the handler, or C and library calls."""
    pure = PurePath(path)
    if "perdure" in pure.parts:
        return "/".join(pure.with_suffix("").parts[pure.parts.index("perdure") + 1 :])
    if "asyncio" in pure.parts:
        return "asyncio"
    if pure.name == "workloads.py":
        return "the handler itself"
    return "msgspec (JSON)" if "msgspec" in name else "other C and library calls"


async def shares(run: Callable[[], Awaitable[None]]) -> Counter[str]:
    await run()  # a warm-up: the caches of a long program are warm
    profile = cProfile.Profile()
    profile.enable()
    await run()
    profile.disable()
    seconds: Counter[str] = Counter()
    for (path, _, name), (_, _, own, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]  # not in the stubs
        seconds[part_of(path, name)] += own
    return seconds


async def main() -> None:
    stored, _ = workloads.stored_loop_run(perdure, SUPERSTEPS)
    measured = {
        "one-executor loop, no storage": workloads.loop_run(perdure, SUPERSTEPS),
        "the same, memory storage": stored,
        "fan 1 to 100 to 1": workloads.fan_run(perdure, ROUNDS),
    }
    for title, run in measured.items():
        seconds = await shares(run)
        total = sum(seconds.values())
        listed = ", ".join(f"{part} {100 * own / total:.0f} %" for part, own in seconds.most_common(LISTED))
        print(f"* {title}: {listed}.")


if __name__ == "__main__":
    asyncio.run(main())
