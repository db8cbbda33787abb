"""Observations of this process for metrics: runs, supersteps, commits, requests."""

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
    """The run owns its thread now."""

    workflow: str
    waited: float
    """Seconds between the call and the claim."""


class RunEnded(msgspec.Struct, frozen=True, gc=False):
    workflow: str
    outcome: str
    """`idle`, `waiting` (for an answer), `failed`, `cancelled`, `interrupted` (by another run, or to be resumed),
    `conflict` (another owner claimed its thread) or `refused` (the run did not begin)."""
    seconds: float
    owned: bool
    """Whether a RunBegan preceded it, not only a RunWaits."""


class SuperstepEnded(msgspec.Struct, frozen=True, gc=False):
    workflow: str
    seconds: float
    is_discarded: bool


class CommitBegan(msgspec.Struct, frozen=True, gc=False):
    """The engine handed a commit to the storage."""


class CommitEnded(msgspec.Struct, frozen=True, gc=False):
    """The commit is stored, or has failed."""

    seconds: float
    """Since the engine handed it over. With durability "async" this includes the time in the queue."""
    is_stored: bool


class CommitWritten(msgspec.Struct, frozen=True, gc=False):
    """A store has written a commit."""

    size: int
    """Bytes of its checkpoint, its new chunks and its events, as encoded."""


class RequestAsked(msgspec.Struct, frozen=True, gc=False):
    """A request for outside input was committed."""

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
"""All observers. Test the list before creating an observation: `if observers: notify_observers(...)`."""


def notify_observers(observation: Observation) -> None:
    """Call every observer. The error of an observer is logged, so that it cannot fail a run."""
    for observer in tuple(observers):
        try:
            observer(observation)
        except Exception as error:  # noqa: BLE001  # an observer may raise anything
            logger.warning("an observer failed at %s: %s", type(observation).__name__, type(error).__name__)
