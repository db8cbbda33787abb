"""What is measured of the store in PostgreSQL, and beside it."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import stores_jobs
from postgres_report import BESIDE, HOWS, PEER_HOWS, PEERS, RATES, STORE
from stores_jobs import Job, Step
from stores_report import RESUMES
from stores_work import CASES

KIND = "postgres"


def all_jobs(sizes: Mapping[str, int]) -> list[Job]:
    jobs = [*_rates(sizes), *_turns(sizes), *_resumes(sizes), *_lookups(sizes), _pruning(sizes)]
    return [replace(job, kind=KIND, steps=tuple(map(_of_postgres, job.steps))) for job in jobs]


def _of_postgres(step: Step) -> Step:
    """Its values are kept apart from those of other stores."""
    return step if step.key is None else replace(step, key=(KIND, *step.key))


def _rates(sizes: Mapping[str, int]) -> Iterator[Job]:
    """What is compared follows each other."""
    for threads in (1, sizes["threads"]):
        for subject, measure in [*RATES, *((one, "supersteps") for one in BESIDE)]:
            each = "single" if threads == 1 else "each"
            given = {"threads": threads, "supersteps": sizes[f"peer_{each}" if subject in PEERS else each]}
            yield Job("rate", subject, (Step(measure, given, ("rate", subject, measure, str(threads))),))


def _turns(sizes: Mapping[str, int]) -> Iterator[Job]:
    """Once: sizes hardly differ, and the saver writes some hundred megabytes."""
    for case in CASES:
        saver = ["peer-postgres"] if case.peers and case.place != "executor" else []
        for subject in [STORE, *saver]:
            given = {"case": case.name, "turns": sizes["turns"]}
            yield Job("turns", subject, (Step("turns", given, ("turns", subject, case.name)),), once=True)


def _resumes(sizes: Mapping[str, int]) -> Iterator[Job]:
    for shape in RESUMES:
        yield stores_jobs.resume(STORE, shape, HOWS, sizes)
        yield replace(stores_jobs.resume("peer-postgres", shape, PEER_HOWS, sizes), once=True)


def _lookups(sizes: Mapping[str, int]) -> Iterator[Job]:
    """Filled without waiting for the disk, as only reading is measured."""
    for job in stores_jobs.lookups("postgres-relaxed", sizes):
        yield replace(job, once=True)


def _pruning(sizes: Mapping[str, int]) -> Job:
    given = {"checkpoints": sizes["history"]}
    return Job("prune", STORE, (Step("grow", given), Step("prune", given, ("prune",))), once=True)
