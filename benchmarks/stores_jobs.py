"""The jobs that measure the stores in files, each for a child process, and their sizes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stores_report import ENCODED_MB, HOWS, LOOKUP_STORES, PEERS, RATES, RESUME_STORES, RESUMES, STORES
from stores_work import CASES

FULL = {
    "turns": 500,
    "supersteps": 1000,
    "few": 10,
    "same": 100,
    "many": 10_000,
    "checkpoints": 1000,
    "repeat": 100,
    # For PostgreSQL: concurrent threads, supersteps of a single thread and of each of many, and fewer for slower peers.
    "threads": 16,
    "single": 2000,
    "each": 250,
    "peer_single": 300,
    "peer_each": 40,
    "history": 100_000,
}
QUICK = FULL | {"turns": 60, "supersteps": 200, "many": 600, "checkpoints": 100, "repeat": 20}
QUICK |= {"single": 200, "each": 40, "peer_single": 60, "peer_each": 10, "history": 5000}
LAYOUTS = ("one-thread", "many-threads", "behind")
KINDS = ("turns", "encoding", "rate", "lookups", "resume")


@dataclass(frozen=True)
class Step:
    """One call of the child, and the key of its values. A single value has no name after the key."""

    measure: str
    parameters: Mapping[str, Any]
    key: tuple[str, ...] | None = None
    """None for a step that only prepares the next step."""
    is_single: bool = False


@dataclass(frozen=True)
class Job:
    """Steps that share a folder, and a database where they need one."""

    kind: str
    subject: str
    steps: tuple[Step, ...]
    once: bool = False

    @property
    def title(self) -> str:
        step = self.steps[-1]
        return f"{self.kind}, {self.subject}, {step.measure} {' '.join(map(str, step.parameters.values()))}"


def all_jobs(sizes: Mapping[str, int]) -> list[Job]:
    """All jobs except those of PostgreSQL."""
    return [*_turns(sizes), *_encoding(sizes), *_rates(sizes), *_lookups(sizes), *_resumes(sizes)]


def _turns(sizes: Mapping[str, int]) -> Iterator[Job]:
    for case in CASES:
        peers = [peer for peer in PEERS if case.peers and not (peer == "peer-sqlite" and case.place == "executor")]
        for subject in [*STORES, *peers]:
            parameters = {"case": case.name, "turns": sizes["turns"]}
            step = Step("turns", parameters, ("turns", subject, case.name))
            yield Job("turns", subject, (step,), once=subject in PEERS)


def _encoding(sizes: Mapping[str, int]) -> Iterator[Job]:
    parameters = {"megabytes": list(ENCODED_MB), "supersteps": max(5, sizes["repeat"] // 5)}
    yield Job("encoding", "sqlite-normal", (Step("encoding", parameters, ("encoding", "sqlite-normal")),))


def _rates(sizes: Mapping[str, int]) -> Iterator[Job]:
    parameters = {"supersteps": sizes["supersteps"], "seconds": sizes["supersteps"] / 2000}
    for subject in dict.fromkeys([peer for _, peer, _ in RATES] + [store for store, _, _ in RATES]):
        yield Job("rate", subject, (Step("rate", parameters, ("rate", subject), is_single=True),))
    for store, _, _ in RATES:
        yield Job("rate", store, (Step("raw", parameters, ("raw", store), is_single=True),))


def _lookups(sizes: Mapping[str, int]) -> Iterator[Job]:
    for subject in LOOKUP_STORES:
        yield from lookups(subject, sizes)


def lookups(subject: str, sizes: Mapping[str, int]) -> Iterator[Job]:
    counts = [sizes["few"], sizes["same"], sizes["many"]]
    for layout in LAYOUTS:
        parameters = {"layout": layout, "counts": counts, "repeat": sizes["repeat"]}
        yield Job("lookups", subject, (Step("lookups", parameters, ("lookups", subject)),))


def _resumes(sizes: Mapping[str, int]) -> Iterator[Job]:
    for subject in RESUME_STORES:
        for shape in RESUMES:
            yield resume(subject, shape, HOWS, sizes)


def resume(subject: str, shape: str, hows: Mapping[str, str], sizes: Mapping[str, int]) -> Job:
    """Create a thread, and then resume it in a process of its own for each of `hows`."""
    made = Step("make", {"shape": shape, "checkpoints": sizes["checkpoints"]})
    least = sizes["checkpoints"] - 1
    resumed = [
        Step("resume", {"shape": shape, "how": how, "least": least}, ("resume", subject, f"{shape} {how}"), True)
        for how in hows
    ]
    return Job("resume", subject, (made, *resumed))
