"""What happens in this process, told to whoever counts it: runs, supersteps, commits, requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from perdure.log import get_logger

logger = get_logger("observing")


class RunWaits(msgspec.Struct, frozen=True, gc=False):
    """A run was called, and does not own its thread yet."""

    workflow: str


class RunBegan(msgspec.Struct, frozen=True, gc=False):
    """It owns its thread now."""

    workflow: str
    waited: float
    """Seconds in the queue."""


class RunEnded(msgspec.Struct, frozen=True, gc=False):
    workflow: str
    outcome: str
    """`idle`, `waiting` (for an answer), `failed`, `cancelled`, `interrupted` (by another run, or to be resumed),
    `conflict` (its thread was taken from it) or `refused` (nothing was begun)."""
    seconds: float
    owned: bool
    """Whether there was a RunBegan before it, not only a RunWaits."""


class SuperstepEnded(msgspec.Struct, frozen=True, gc=False):
    workflow: str
    seconds: float
    is_discarded: bool


class CommitBegan(msgspec.Struct, frozen=True, gc=False):
    """A commit is on its way to the storage."""


class CommitEnded(msgspec.Struct, frozen=True, gc=False):
    """It is stored, or never will be."""

    seconds: float
    """Since the engine gave it away: with durability "async" the time in the queue is part of it."""
    is_stored: bool


class CommitWritten(msgspec.Struct, frozen=True, gc=False):
    """A store has taken a commit."""

    size: int
    """Bytes of its checkpoint, its new chunks and its events, as encoded."""


class RequestAsked(msgspec.Struct, frozen=True, gc=False):
    """Somebody outside was asked, and that is in a commit."""

    workflow: str


class RequestSettled(msgspec.Struct, frozen=True, gc=False):
    workflow: str
    how: str
    """`answered`, `expired` or `withdrawn`."""


Observation: TypeAlias = (
    RunWaits
    | RunBegan
    | RunEnded
    | SuperstepEnded
    | CommitBegan
    | CommitEnded
    | CommitWritten
    | RequestAsked
    | RequestSettled
)

Observer: TypeAlias = Callable[[Observation], None]

observers: list[Observer] = []
"""Whoever is told. Look whether there is one before an observation is made: `if observers: tell(...)`."""


def notify_observers(observation: Observation) -> None:
    """To every observer. One that fails is logged: what is counted must not harm what counts."""
    for observer in tuple(observers):
        try:
            observer(observation)
        except Exception as error:  # noqa: BLE001  # an observer may raise anything
            logger.warning("an observer failed at %s: %s", type(observation).__name__, type(error).__name__)
