"""From the measured rounds of the stores to medians, verdicts, tables, and their part of RESULTS.md."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from stores_results import Results, as_spread, as_table, as_verdict
from stores_work import CASES, Case

BEGIN = "<!-- begin: written by `benchmarks/stores.py --write`, do not edit -->"

STORES = {
    "sqlite-full": "SQLite FULL",
    "sqlite-normal": "SQLite NORMAL",
    "file": "file",
    "file-nosync": "file without fsync",
}
PEERS = {"peer-file": "agent-framework-core", "peer-sqlite": "langgraph"}
PEER_TITLES = {"peer-file": "agent-framework file", "peer-sqlite": "langgraph SQLite"}

MAX_TIMES, MOST_GROWTH, MOST_MS_PER_MB, MOST_LOOKUP, MOST_RESUME_MS = 3.0, 2.0, 4.0, 5.0, 30.0

RATES = (
    ("file-nosync", "peer-file", 3.0),
    ("file", "peer-file", None),
    ("sqlite-full", "peer-sqlite", 3.0),
    ("sqlite-normal", "peer-sqlite", 6.0),
)
"""A store, its peer, and the least ratio of their rates."""

ENCODED_MB = (1, 4)

LOOKUPS = {
    "latest-thread": "get_latest of one thread",
    "latest-workflow": "get_latest of one workflow, one thread",
    "latest-of-many": "get_latest of one workflow, each checkpoint in a thread of its own",
    "latest-behind": "get_latest of a workflow with 10, older than all others",
    "infos-thread": "100 infos of one thread",
    "infos-workflow": "100 infos of one workflow, one thread",
    "infos-of-many": "100 infos of one workflow, each checkpoint in a thread of its own",
    "infos-behind": "the infos of a workflow with 10, older than all others",
}
LOOKUP_STORES = {"memory": "memory", "sqlite-normal": "SQLite", "file-nosync": "file"}

RESUMES = {
    "grown": "1 MB that grew by 1 KB with each checkpoint",
    "large": "1 MB that is in the first checkpoint",
}
RESUME_STORES = {"sqlite-full": "SQLite", "file": "file"}
HOWS = {"run": "`run(thread_id=...)` of a thread at rest", "latest": "`get_latest(thread_id=...)`"}

# ---------------------------------------------------------------- tables


def sizes_table(results: Results) -> str:
    def line(case: Case) -> list[str]:
        ours = {title: results.get("turns", store, case.name, "times") for store, title in STORES.items()}
        peers = [results.get("turns", peer, case.name, "times") for peer in PEERS]
        cells = [*(as_spread(times) for times in ours.values()), *(as_spread(times, ".0f") for times in peers)]
        return [case.title, *cells, f"{MAX_TIMES:g}", as_verdict(ours, lambda value: value <= MAX_TIMES, taken=max)]

    head = ["bytes on disk / bytes of payload", *STORES.values(), *PEER_TITLES.values(), "at most", ""]
    return as_table(head, map(line, CASES))


def growth_table(results: Results) -> str:
    def cell(subject: str, case: Case) -> str:
        growth = results.get("turns", subject, case.name, "growth")
        last = results.get("turns", subject, case.name, "last_ms")
        return f"{as_spread(growth)}; {median(last):.2f} ms" if growth else ""

    def line(case: Case) -> list[str]:
        cells = [cell(subject, case) for subject in (*STORES, *PEERS)]
        if not case.cannot_change:
            return [case.title, *cells, "", ""]
        ours = {title: results.get("turns", store, case.name, "growth") for store, title in STORES.items()}
        return [case.title, *cells, f"{MOST_GROWTH:g}", as_verdict(ours, lambda value: value <= MOST_GROWTH)]

    head = ["last tenth / first tenth; ms a turn in the last", *STORES.values(), *PEER_TITLES.values(), "at most", ""]
    return as_table(head, map(line, CASES))


def encoding_table(results: Results) -> str:
    ways = {"set": "its own, changed and set", "read and set": "read with get_state, changed and set"}
    lines = []
    for how, title in ways.items():
        for size in ENCODED_MB:
            spent = results.get("encoding", "sqlite-normal", f"{how} {size}")
            line = [f"{size} MB, {title}", as_spread(spent)]
            if how == "set":
                is_met = median(spent) <= MOST_MS_PER_MB
                lines.append([*line, f"{MOST_MS_PER_MB:g}", "met" if is_met else "not met"])
            else:
                lines.append([*line, "", ""])
    return as_table(["a list of 1 KB dicts", "ms per MB, SQLite NORMAL", "at most", ""], lines)


def rates_table(results: Results) -> str:
    def line(store: str, peer: str, target: float | None) -> list[str]:
        ours, theirs = results.get("rate", store), results.get("rate", peer)
        raw = median(results.get("raw", store))
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        ratio = median(ours) / median(theirs)
        verdict = "" if target is None else "met" if ratio >= target else "not met"
        return [
            STORES[store],
            f"{median(ours):,.0f}",
            f"{median(theirs):,.0f} ({PEER_TITLES[peer]})",
            f"{ratio:.1f} ({min(ratios):.1f} to {max(ratios):.1f})",
            "" if target is None else f"{target:g}",
            f"{raw:,.0f}",
            verdict,
        ]

    head = ["supersteps/s", "perdure", "peer", "times faster (rounds)", "at least", "raw limit, commits/s", ""]
    return as_table(head, [line(*rate) for rate in RATES if results.get("rate", rate[0])])


def lookups_table(results: Results, stores: Mapping[str, str] = LOOKUP_STORES) -> str:
    few, same, many = (str(results.sizes[name]) for name in ("few", "same", "many"))
    columns = {
        f"{title}, {kind}": (store, kind)
        for store, title in stores.items()
        for kind in ("warm", "fresh")
        if not (store == "memory" and kind == "fresh")
    }

    def ratios(name: str, store: str, kind: str, base: str) -> list[float]:
        top = results.get("lookups", store, f"{name} {kind} {many}")
        bottom = results.get("lookups", store, f"{name} {kind} {base}")
        return [a / b for a, b in zip(top, bottom, strict=True)]

    def line(name: str, title: str, base: str) -> list[str]:
        cells = []
        by_column: dict[str, Sequence[float]] = {}
        for column, (store, kind) in columns.items():
            spent = results.get("lookups", store, f"{name} {kind} {many}")
            by_column[column] = ratios(name, store, kind, base)
            cells.append(f"{as_spread(by_column[column], '.1f')}; {median(spent):,.0f} us" if spent else "")
        has_target = base == few
        verdict = as_verdict(by_column, lambda value: value < MOST_LOOKUP) if has_target else ""
        return [title, *cells, f"{MOST_LOOKUP:g}" if has_target else "", verdict]

    lines = []
    for name, title in LOOKUPS.items():
        lines.append(line(name, title, few))
        if name.startswith("infos") and name != "infos-behind":
            lines.append(line(name, f"the same, beside {same} stored: as many infos", same))
    return as_table([f"{many} stored / {few} stored; time with {many}", *columns, "under", ""], lines)


def resume_table(results: Results) -> str:
    lines = []
    for shape, shape_title in RESUMES.items():
        for how, how_title in HOWS.items():
            cells = {store: results.get("resume", store, f"{shape} {how}") for store in RESUME_STORES}
            verdict = as_verdict({"SQLite": cells["sqlite-full"]}, lambda value: value < MOST_RESUME_MS)
            spread = [as_spread(values, ".1f") for values in cells.values()]
            lines.append([f"{shape_title}, {how_title}", *spread, f"{MOST_RESUME_MS:g}", verdict.split(":")[0]])
    head = [f"{results.sizes['checkpoints']} checkpoints", *(f"{title}, ms" for title in RESUME_STORES.values())]
    return as_table([*head, "SQLite under", ""], lines)


NOTES = {
    "sizes": """
**Size.** {turns} turns, each a run that adds an item of 1 KB to a list (two checkpoints: the input, the superstep);
or one run of {turns} supersteps. All files of the closed store, everything included, divided by the payload. Text is
random, so that nothing in it repeats. The peers are measured once; langgraph has no executors that save a dict.
""",
    "growth": """
**Time of a turn.** Mean of the last tenth of the same turns divided by that of the first, after a warm-up in another
store. Items that may change in place are encoded each time: for them the limit is that of the next table.
""",
    "encoding": """
**Encoding.** From the beginning of one handler to that of the next, in a run whose executor changes one dict of a
list and sets all of it in every superstep; less the same with an empty list; divided by the size of the list. So
copying, comparing, cutting, hashing and committing are in it.
""",
    "rates": """
**Supersteps.** One executor that sends itself the next lower number and keeps it in the state: one commit a
superstep. agent-framework's file storage never syncs. langgraph's SQLite saver keeps SQLite's default,
`synchronous=FULL`, and runs with `durability="sync"`. Raw limit: the last row or line that perdure wrote, written
again and again without an engine: on a bare `sqlite3` connection in WAL, one transaction each, with the same tables
and indexes; or with one `os.write` (and `fdatasync`).
""",
    "lookups": """
**Finding and listing.** Warm: with a storage in use. Fresh: the storage is made, and what it needs opened, for each
call.
""",
    "resume": """
**Resuming.** In a process that did nothing else before: the storage and the workflow are made, and the thread stands
at its head.
""",
}

TABLES: dict[str, tuple[str, Callable[[Results], str]]] = {
    "sizes": ("turns", sizes_table),
    "growth": ("turns", growth_table),
    "encoding": ("encoding", encoding_table),
    "rates": ("rate", rates_table),
    "lookups": ("lookups", lookups_table),
    "resume": ("resume", resume_table),
}
"""By part: its measure and the function that prints its table."""


def generated(results: Results) -> str:
    """The part of RESULTS.md that this benchmark writes."""
    measured = {key[0] for key in results.values}
    sides = [results.labels.get(engine, engine) for engine in PEERS.values()]
    about = "Medians of the rounds, in brackets the lowest and highest; each value comes from a process of its own."
    parts = [results.describe(sides), about]
    for name, (wanted, table) in TABLES.items():
        if wanted in measured:
            parts += [NOTES[name].strip().format(**results.sizes), table(results)]
    return "\n\n".join(parts)
