"""What things may cost: today's numbers. A change that makes one dearer or cheaper changes its number here."""

from __future__ import annotations

from typing import NamedTuple


class Asked(NamedTuple):
    """Of PostgreSQL."""

    round_trips: int
    statements: int


ASKED: dict[str, Asked] = {
    "a commit": Asked(1, 1),
    "a commit without a checkpoint": Asked(1, 1),
    "a commit that does all it can": Asked(1, 1),
    "a commit that settles the journal": Asked(1, 1),
    "a journal entry": Asked(1, 1),
    "a post": Asked(1, 1),
    "an opening": Asked(1, 1),
    "a renewal": Asked(2, 2),
    "a release": Asked(1, 1),
    "a head": Asked(1, 1),
    "chunks": Asked(1, 1),
    "a list of 10": Asked(1, 1),
    "the newest 3 of a list": Asked(1, 1),
    "threads": Asked(1, 1),
    "events": Asked(2, 2),
    "what is asked": Asked(1, 1),
    "a turn": Asked(4, 4),
    "a turn of a new workflow object": Asked(4, 4),
    "a turn of 10 supersteps": Asked(13, 13),
    "a turn of 20 supersteps": Asked(23, 23),
    "a turn with three siblings": Asked(8, 8),
    "a resume": Asked(3, 3),
    "a resume over a new connection": Asked(12, 6),
    "a turn over a new connection": Asked(14, 7),
    "tables made": Asked(20, 11),
}
"""Exactly so often. A statement that is new to a connection takes a second round trip, and some take a third."""


class Made(NamedTuple):
    """In the event loop: tasks, and hops from a store's own thread back to it."""

    tasks_of_a_superstep: int
    tasks_beside: int
    """Of a turn, beside its supersteps."""
    hops_of_a_superstep: int
    hops_beside: int


MADE: dict[tuple[str, str], Made] = {
    ("memory", "sync"): Made(0, 2, 0, 0),
    ("memory", "async"): Made(2, 3, 0, 0),
    ("memory", "exit"): Made(0, 2, 0, 0),
    ("file", "sync"): Made(0, 2, 1, 3),
    ("file", "async"): Made(2, 3, 1, 3),
    ("file", "exit"): Made(0, 2, 0, 5),
    ("sqlite", "sync"): Made(0, 2, 1, 3),
    ("sqlite", "async"): Made(2, 3, 1, 3),
    ("sqlite", "exit"): Made(0, 2, 0, 5),
    ("sqlite, NORMAL", "sync"): Made(0, 2, 0, 2),
    ("sqlite, NORMAL", "async"): Made(2, 3, 0, 2),
    ("sqlite, NORMAL", "exit"): Made(0, 2, 0, 2),
    ("postgres", "sync"): Made(0, 2, 0, 0),
    ("postgres", "async"): Made(2, 3, 0, 0),
    ("postgres", "exit"): Made(0, 2, 0, 0),
}
"""Exactly so many, by store and durability."""

KB_OF_A_TURN: dict[str, float] = {
    "file": 2.79,
    "sqlite, NORMAL": 2.75,
    "postgres": 3.0,
    "postgres, in its log": 3.69,
}
"""Which brings 1 KB: at most so much, and at least nineteen twentieths of it."""


def check_asked(asked: dict[str, Asked]) -> None:
    _check(
        [
            f"{name}: {counts}, budgeted: {ASKED.get(name)}"
            for name, counts in asked.items()
            if counts != ASKED.get(name)
        ]
    )


def check_made(kind: str, durability: str, made: Made) -> None:
    budgeted = MADE[kind, durability]
    _check([] if made == budgeted else [f"{kind}, {durability}: {made}, budgeted: {budgeted}"])


def check_bytes(kind: str, kb: float) -> None:
    most = KB_OF_A_TURN[kind]
    _check([] if 0.95 * most <= kb <= most else [f"{kind}: {kb:.3f} KB of a turn of 1 KB, budgeted: {most}"])


def _check(problems: list[str]) -> None:
    if problems:
        raise AssertionError("\n".join(["budgets are in tests/budgets/budgets.py", *problems]))
