"""The jobs that measure the store in PostgreSQL and its peers."""

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
    """The step with a key that separates its values from those of other stores."""
    return step if step.key is None else replace(step, key=(KIND, *step.key))


def _rates(sizes: Mapping[str, int]) -> Iterator[Job]:
    """Jobs in the order of their comparison."""
    for threads in (1, sizes["threads"]):
        for subject, measure in [*RATES, *((subject, "supersteps") for subject in BESIDE)]:
            each = "single" if threads == 1 else "each"
            parameters = {"threads": threads, "supersteps": sizes[f"peer_{each}" if subject in PEERS else each]}
            yield Job("rate", subject, (Step(measure, parameters, ("rate", subject, measure, str(threads))),))


def _turns(sizes: Mapping[str, int]) -> Iterator[Job]:
    """Jobs that run once: sizes hardly differ, and the saver writes some hundred megabytes."""
    for case in CASES:
        saver = ["peer-postgres"] if case.peers and case.place != "executor" else []
        for subject in [STORE, *saver]:
            parameters = {"case": case.name, "turns": sizes["turns"]}
            yield Job("turns", subject, (Step("turns", parameters, ("turns", subject, case.name)),), once=True)


def _resumes(sizes: Mapping[str, int]) -> Iterator[Job]:
    for shape in RESUMES:
        yield stores_jobs.resume(STORE, shape, HOWS, sizes)
        yield replace(stores_jobs.resume("peer-postgres", shape, PEER_HOWS, sizes), once=True)


def _lookups(sizes: Mapping[str, int]) -> Iterator[Job]:
    """Jobs on a store that was filled without waiting for the disk, because they measure only reads."""
    for job in stores_jobs.lookups("postgres-relaxed", sizes):
        yield replace(job, once=True)


def _pruning(sizes: Mapping[str, int]) -> Job:
    parameters = {"checkpoints": sizes["history"]}
    return Job("prune", STORE, (Step("grow", parameters), Step("prune", parameters, ("prune",))), once=True)
