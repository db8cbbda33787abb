"""From the measured rounds on PostgreSQL to its tables, and its part of RESULTS.md."""

from collections.abc import Callable, Sequence
from statistics import median

import stores_report
from stores_report import RESUMES
from stores_results import Results, as_spread, as_table, as_verdict
from stores_work import CASES, Case

BEGIN = "<!-- begin: written by `benchmarks/stores.py --only postgres --write`, do not edit -->"

Of = tuple[str, str]
"""A subject and its measure."""

STORE = "postgres"
PEERS = {"peer-postgres": "langgraph-checkpoint-postgres", "peer-dbos": "dbos"}

RATES: dict[Of, str] = {
    ("postgres", "inserts"): "raw: one prepared INSERT of one row",
    ("postgres", "commits"): "perdure: commits, given to the store",
    ("postgres", "supersteps"): "perdure: supersteps",
    ("peer-postgres", "supersteps"): "langgraph AsyncPostgresSaver: supersteps",
    ("peer-dbos", "supersteps"): "DBOS: steps",
}
BESIDE = {
    "postgres-encrypted": "perdure: supersteps, encrypted",
    "postgres-valkey": "perdure: supersteps, with Valkey",
}
RAW, COMMITS, OURS, SAVER = list(RATES)[:4]

LEAST: dict[tuple[Of, str], tuple[Of, float, str]] = {
    (COMMITS, "1"): (RAW, 0.7, "70% of the raw insert"),
    (OURS, "1"): (SAVER, 3.5, "3.5 times the saver"),
    (OURS, "16"): (SAVER, 10.0, "10 times the saver"),
}
"""By subject and number of threads: the baseline, the least ratio, and its title."""
MAX_TIMES = 3.5

HOWS = {**stores_report.HOWS, "connected": "`get_latest(thread_id=...)`, connected"}
PEER_HOWS = {"latest": "aget_tuple", "connected": "aget_tuple, connected"}


def rates_table(results: Results, threads: str) -> str:
    """The rate of each subject, with its ratio to the raw insert and the saver."""

    def rates(of: Of) -> list[float]:
        return results.get("rate", *of, threads, "rate")

    def line(of: Of, title: str) -> list[str]:
        ratios, target, verdict = ["", ""], "", ""
        if of[0] not in PEERS and of != RAW:
            ratios = [_ratio(rates(of), rates(RAW), ".0%"), _ratio(rates(of), rates(SAVER), ".1f")]
        if (of, threads) in LEAST:
            other, least, target = LEAST[of, threads]
            verdict = "met" if median(rates(of)) / median(rates(other)) >= least else "not met"
        spent = [as_spread(results.get("rate", *of, threads, name)) for name in ("p50", "p99")]
        return [title, as_spread(rates(of), ",.0f"), *ratios, target, *spent, verdict]

    rows = RATES | {(subject, "supersteps"): title for subject, title in BESIDE.items()}
    count = "1 thread" if threads == "1" else f"{threads} threads at a time"
    head = [count, "a second", "of the raw insert", "times the saver", "at least", "p50 ms", "p99 ms", ""]
    return as_table(head, [line(of, title) for of, title in rows.items() if rates(of)])


def _ratio(ours: Sequence[float], theirs: Sequence[float], form: str) -> str:
    """The ratio of the medians, and in brackets the lowest and highest ratio of one round."""
    rounds = [a / b for a, b in zip(ours, theirs, strict=True)]
    ratio = format(median(ours) / median(theirs), form)
    return ratio if len(rounds) == 1 else f"{ratio} ({min(rounds):{form}} to {max(rounds):{form}})"


def commits_line(results: Results) -> str:
    """The time that a superstep waits for its commit."""
    parts = []
    for threads in ("1", "16"):
        p50, p99 = (results.get("rate", *OURS, threads, f"commit {name}") for name in ("p50", "p99"))
        if p50:
            count = "1 thread" if threads == "1" else f"{threads} threads"
            parts.append(f"{count}: p50 {median(p50):.2f} ms, p99 {median(p99):.2f} ms")
    return f"The commit of such a superstep takes, with {'; with '.join(parts)}."


def sizes_table(results: Results) -> str:
    def get(subject: str, case: Case, name: str) -> list[float]:
        return results.get("turns", subject, case.name, name)

    def line(case: Case) -> list[str]:
        ours, saver = get(STORE, case, "times"), get("peer-postgres", case, "times")
        spent = [as_spread(get(subject, case, "last_ms")) for subject in (STORE, "peer-postgres")]
        verdict = as_verdict({"": ours}, lambda value: value <= MAX_TIMES, taken=max).split(":")[0]
        return [case.title, as_spread(ours), as_spread(saver, ".0f"), f"{MAX_TIMES:g}", *spent, verdict]

    head = ["bytes on disk / bytes of payload", "PostgreSQL", "the saver", "at most"]
    return as_table([*head, "ms a turn in the last tenth", "the saver", ""], [line(case) for case in CASES])


def resume_table(results: Results) -> str:
    lines = []
    for shape, shape_title in RESUMES.items():
        for how, title in HOWS.items():
            ours = results.get("resume", STORE, f"{shape} {how}")
            saver = results.get("resume", "peer-postgres", f"{shape} {how}")
            lines.append([f"{shape_title}, {title}", as_spread(ours, ".1f"), as_spread(saver, ".1f")])
    return as_table(
        [f"{results.sizes['checkpoints']} checkpoints", "PostgreSQL, ms", "`aget_tuple` of the saver, ms"], lines
    )


def lookups_table(results: Results) -> str:
    return stores_report.lookups_table(results, {"postgres-relaxed": "PostgreSQL"})


def pruning_table(results: Results) -> str:
    def get(name: str) -> float:
        return median(results.get("prune", name))

    lines = []
    for who, title in (("other", "of another thread"), ("same", "of the thread itself")):
        for name, when in (("alone", "before"), ("meanwhile", "meanwhile")):
            cells = [f"{get(f'{who} {name} {what}'):.2f}" for what in ("p50", "p99", "max")]
            lines.append([f"commits {title}, {when}", *cells])
    sentence = (
        f"All but the last 10 of {results.sizes['history']:,} checkpoints went in {get('seconds'):.1f} s. The memory "
        f"of the process that pruned grew by {get('peak MB'):.0f} MB; its event loop was held up for at most "
        f"{get('lag ms'):.0f} ms."
    )
    return f"{sentence}\n\n{as_table(['while they went', 'p50 ms', 'p99 ms', 'longest, ms'], lines)}"


NOTES = {
    "rates": """
**Commits and supersteps.** The work is the same for all: a countdown, one number in the state. perdure: one executor
that sends itself the next lower number, one commit a superstep; and the same commits, made beforehand and given to the
store without an engine. langgraph: a compiled graph of one node with `durability="sync"`, on a pool of 16 connections.
DBOS: a step of a workflow that calls it in a loop. Raw: a table of a number and a `bytea`, one prepared INSERT with
asyncpg, a row of the size of a commit of the countdown ({row:.0f} bytes), one connection a thread. Threads, graphs and
workflows run side by side in one process. p50 and p99: from the beginning of one superstep, step, commit or insert to
that of the next. All on one server, with fsync and the settings of a new installation, on the disk of the checkout.
""",
    "turns": """
**Size.** As for the other stores: {turns} turns that add an item of 1 KB, or one run of {turns} supersteps. All tables
of the schema, with their indexes, what is toasted and rows that are dead (`pg_total_relation_size`, nothing vacuumed),
divided by the payload. Measured once.
""",
    "resume": """
**Resuming.** In a process that did nothing else before, connecting included; or connected, with a storage or saver in
use.
""",
    "lookups": """
**Finding and listing.** Warm: with a storage in use. Fresh: the storage is made and connects for each call.
""",
    "prune": """
**Pruning.** A thread of runs of 100 checkpoints each, whose state is a list of the last 16 texts of 256 bytes: each
checkpoint adds one and drops one. `prune(thread_id=..., keep_last=10)` in one process; in another, the same thread and
a second one go on with a commit every few milliseconds.
""",
}


def generated(results: Results) -> str:
    """The part of RESULTS.md that this benchmark writes."""
    sides = [results.labels.get(engine, engine) for engine in PEERS.values()]
    parts = [results.describe([*sides, results.labels.get("postgres", "PostgreSQL")])]
    own = results.part("postgres")
    measured = {key[0] for key in own.values}
    row = median(own.get("rate", *RAW, "1", "bytes") or [0])
    shown: dict[str, tuple[Callable[[Results], str], ...]] = {
        "rate": (lambda part: rates_table(part, "1"), lambda part: rates_table(part, "16"), commits_line),
        "turns": (sizes_table,),
        "resume": (resume_table,),
        "lookups": (lookups_table,),
        "prune": (pruning_table,),
    }
    for name, tables in shown.items():
        if name in measured:
            note = NOTES["rates" if name == "rate" else name]
            parts += [note.strip().format(**results.sizes, row=row), *(table(own) for table in tables)]
    return "\n\n".join(parts)
