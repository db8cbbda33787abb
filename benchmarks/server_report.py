"""From the measured rounds of the server to medians, verdicts, tables, and their part of RESULTS.md."""

from collections.abc import Sequence
from statistics import median

from stores_results import Results, as_spread, as_table

BEGIN = "<!-- begin: written by `benchmarks/server.py --write`, do not edit -->"
SUBJECTS = {
    "sqlite": "perdure, SQLite FULL",
    "postgres": "perdure, PostgreSQL",
    "agentflow": "AgentFlow, PostgreSQL",
    "bare": "bare Litestar route",
}
LEAST_OF_COMMITS = 0.4
REQUESTS = {
    "invoke_new": "invoke, a new thread each time",
    "invoke_own": "invoke, one thread for each client",
    "thread": "GET a thread",
    "messages": "GET its messages",
    "state": "GET its state",
}


def ratios(tops: Sequence[float], bottoms: Sequence[float]) -> str:
    """The ratio of the medians, and in brackets the lowest and highest ratio of one round."""
    if not tops or not bottoms:
        return ""
    each = [a / b for a, b in zip(tops, bottoms, strict=True)]
    return f"{median(tops) / median(bottoms):.2f} ({min(each):.2f} to {max(each):.2f})"


def requests_table(results: Results) -> str:
    lines = []
    for measure, title in REQUESTS.items():
        for subject, name in SUBJECTS.items():
            rate = results.get(measure, subject, "rate")
            if not rate:
                continue
            beside = results.get(measure, "agentflow", "rate")
            times = ratios(rate, beside) if beside and subject == "postgres" else ""
            p50, p99 = (results.get(measure, subject, name) for name in ("p50", "p99"))
            lines.append([title, name, as_spread(rate, ",.0f"), as_spread(p50, ".1f"), as_spread(p99, ".1f"), times])
    return as_table(["request", "server", "requests/s", "p50, ms", "p99, ms", "times AgentFlow (rounds)"], lines)


def commits_table(results: Results) -> str:
    clients = str(results.sizes["clients"])
    lines = []
    for subject in ("sqlite", "postgres"):
        single, many = (results.get("commits", subject, threads) for threads in ("1", clients))
        for measure in ("invoke_new", "invoke_own"):
            rate = results.get(measure, subject, "rate")
            target, verdict = "", ""
            if subject == "sqlite":
                is_met = median(rate) / median(single) >= LEAST_OF_COMMITS
                target, verdict = f"{LEAST_OF_COMMITS:g}", "met" if is_met else "not met"
            cells = [as_spread(single, ",.0f"), as_spread(many, ",.0f"), as_spread(rate, ",.0f")]
            lines.append([f"{SUBJECTS[subject]}, {REQUESTS[measure]}", *cells, ratios(rate, single), target, verdict])
    head = ["", "commits/s, one after the other", f"of {clients} threads", "requests/s", "requests / commits (rounds)"]
    return as_table([*head, "at least", ""], lines)


def streams_table(results: Results) -> str:
    lines = []
    for subject, name in SUBJECTS.items():
        first = [results.get("first_event", subject, cut) for cut in ("p50", "p99")]
        readers_ms = [results.get("readers", subject, cut) for cut in ("p50", "p99", "all")]
        memory = [value / 1024 for value in results.get("idle", subject, "bytes")]
        if first[0]:
            spreads = [as_spread(values, ".1f") for values in (*first, *readers_ms)]
            lines.append([name, *spreads, as_spread(memory, ".1f"), ""])
    readers = f"{results.sizes['readers']:,} readers"
    head = [
        "",
        "first streamed event, p50, ms",
        "p99",
        f"{readers}, p50, ms",
        "p99",
        "the last",
        "KB for an idle one",
        "",
    ]
    return as_table(head, lines)


NOTES = {
    "requests": """
**Requests.** {clients} clients, each with a connection of its own, send one request after the other, from one process.
The workflow has one step. The bare route reads the same body and does nothing. A thread that is read has {turns} turns.
""",
    "commits": """
**Invoke beside the store.** A turn is two commits, for the input and for the superstep, and two writes more that are
not synced, for claiming the thread and giving it up. Commits like those of a small superstep, made beforehand, are
given to the store one after the other, without an engine or a server; and by as many threads at once as there are
clients.
""",
    "streams": """
**Streams.** First event: from sending the request of `/v1/graph/stream` on a new thread; one at a time. Readers: from
sending a message to a thread until each of those who follow it has the first event of its first commit, which is in the
time. Idle: what the server's resident memory grows by for each of {readers:,} streams in which nothing happens.
AgentFlow has no route that follows a thread.
""",
}


def generated(results: Results, why_no_peer: str) -> str:
    """The part of RESULTS.md that this benchmark writes."""
    sides = ["a bare Litestar route", results.labels["agentflow"]] if not why_no_peer else ["a bare Litestar route"]
    sides[-1] += f", on {results.labels['postgres']}"
    about = "Medians of the rounds, in brackets the lowest and highest."
    if why_no_peer:
        about += f" {why_no_peer}: it is missing here."
    tables = {"requests": requests_table, "commits": commits_table, "streams": streams_table}
    parts = [results.describe(sides), about]
    for name, table in tables.items():
        parts += [NOTES[name].strip().format(**results.sizes), table(results)]
    return "\n\n".join(parts)
