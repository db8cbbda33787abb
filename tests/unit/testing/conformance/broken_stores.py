"""All broken stores: for each clause of the contract one or more that do not keep it."""

from __future__ import annotations

from tests.unit.testing.conformance import (
    broken_by_many,
    broken_choosing,
    broken_commits,
    broken_corners,
    broken_disks,
    broken_keeping,
    broken_listening,
    broken_owning,
    broken_reading,
    broken_rewriting,
)
from tests.unit.testing.conformance.passing import BROKEN

MODULES = (
    broken_by_many,
    broken_choosing,
    broken_commits,
    broken_corners,
    broken_disks,
    broken_keeping,
    broken_listening,
    broken_owning,
    broken_reading,
    broken_rewriting,
)
"""Where they are defined; importing them has filled the table."""

__all__ = ["BROKEN", "MODULES"]
